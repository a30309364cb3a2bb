"""A profile as one HTML page: a flame graph, and a table of functions. It needs nothing but itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from inbound.profiling.flame_style import SCRIPT, STYLE
from inbound.profiling.profile import Frame, Profile
from inbound.report.html import Markup, element, joined
from inbound.report.page import Cell, page, paragraphs, table, tiles

#: What is narrower than this part of the whole, in every type, is left out: nobody could see it.
NARROWEST = 0.0005
#: So many functions are in the table.
FUNCTIONS = 100
#: What threads of one kind differ in, and the calls that each thread begins with.
_NUMBER = re.compile(r"-[0-9]+$")
_ALWAYS = frozenset({"threading.Thread._bootstrap", "threading.Thread._bootstrap_inner"})
_DIVISORS = {"nanoseconds": ((1e9, "s"), (1e6, "ms"), (1e3, "µs")), "bytes": ((2**20, "MiB"), (2**10, "KiB"))}


@dataclass(slots=True, eq=False)
class Node:
    """A function as others called it: what was measured in it and in what it called."""

    name: str
    place: str
    values: list[int]
    below: dict[str, Node] = field(default_factory=dict)

    def add(self, values: Iterable[int]) -> None:
        for place, value in enumerate(values):
            self.values[place] += value


def tree(profile: Profile) -> Node:
    """Return the calls of a profile, outermost first, below the threads that they are in: those of one kind together."""
    root = Node("all", "", [0] * len(profile.types))
    for sample in profile.samples:
        # What has shrunk cannot be drawn.
        values = [max(0, value) for value in sample.values]
        root.add(values)
        node = root
        thread = sample.labels.get("thread")
        steps = [] if thread is None else [(_NUMBER.sub("-*", thread), "threads of that name")]
        steps += [(frame.function, _place(frame)) for frame in reversed(sample.stack) if frame.function not in _ALWAYS]
        for name, place in steps:
            node = node.below.setdefault(name, Node(name, place, [0] * len(root.values)))
            node.add(values)
    return root


def flame_page(profile: Profile, heading: str) -> str:
    """Return the page; `heading` says whose profile it is."""
    root = tree(profile)
    shown = next(i for i, kind in enumerate(profile.types) if kind.name == profile.default)
    options = [
        element("option", f"{kind.name} ({kind.unit})", value=i, selected=i == shown)
        for i, kind in enumerate(profile.types)
    ]
    graph = (
        element(
            "div",
            element("label", "show ", element("select", options, id="type")),
            element("label", "find ", element("input", type="search", id="find", placeholder="part of a name")),
            element("button", "whole", type="button", id="whole"),
            element("span", id="found", class_="soft small"),
            class_="tools",
        ),
        element("p", id="told", class_="small told"),
        element("div", id="graph", role="group", aria_label="Flame graph; the table below has the same in numbers"),
        element("script", Markup(_data(profile, root)), type="application/json", id="profile"),
    )
    nothing = element("p", "Nothing was measured.")
    return page(
        heading,
        element("h1", heading),
        tiles(_tiles(profile, root)),
        element("h2", "Where it was"),
        paragraphs("Each bar is a function, below what called it; the wider, the more. Press one to look closer."),
        graph if any(root.values) else nothing,
        element("h2", "Functions"),
        _functions(profile, shown),
        paragraphs(*profile.comments),
        style=STYLE,
        script=SCRIPT,
    )


def amount(value: int, unit: str) -> str:
    """Return a number with its unit, as people read it."""
    for divisor, name in _DIVISORS.get(unit, ()):
        if abs(value) >= divisor:
            return f"{value / divisor:,.2f} {name}"
    return f"{value:,}" if unit == "count" else f"{value:,} {unit}"


def _tiles(profile: Profile, root: Node) -> list[tuple[str, str, bool]]:
    found = [
        (kind.name.replace("_", " "), amount(value, kind.unit), False)
        for kind, value in zip(profile.types, root.values, strict=True)
    ]
    return [*([("duration", f"{profile.duration_ns / 1e9:,.1f} s", False)] if profile.duration_ns else []), *found]


def _data(profile: Profile, root: Node) -> str:
    """Return the tree as JSON that can stand in a page: names by number, nodes as [name, place, values, below]."""
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    def written(node: Node) -> list[object]:
        wide = [
            one
            for one in node.below.values()
            if any(mine > NARROWEST * whole for mine, whole in zip(one.values, root.values, strict=True))
        ]
        return [number(node.name), number(node.place), node.values, [written(one) for one in wide]]

    whole = written(root)
    data = {
        "types": [{"name": kind.name, "unit": kind.unit} for kind in profile.types],
        "texts": list(texts), "root": whole,
    }  # fmt: skip
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _functions(profile: Profile, shown: int) -> Markup:
    """Return the functions that have most themselves."""
    kind = profile.types[shown]
    own: dict[tuple[str, str], int] = {}
    total: dict[tuple[str, str], int] = {}
    for sample in profile.samples:
        value = sample.values[shown]
        calls = [(frame.function, _place(frame)) for frame in sample.stack]
        if calls:
            own[calls[0]] = own.get(calls[0], 0) + value
        for call in dict.fromkeys(calls):  # a recursive one counts once
            total[call] = total.get(call, 0) + value
    ranked = sorted(total, key=lambda call: (own.get(call, 0), total[call]), reverse=True)[:FUNCTIONS]
    rows = [
        [
            Cell(joined((element("code", name), element("br"), element("span", place, class_="soft small")))),
            Cell(amount(own.get(call, 0), kind.unit), own.get(call, 0)),
            Cell(amount(total[call], kind.unit), total[call]),
        ]
        for call in ranked
        for name, place in [call]
    ]
    headers = ("function", f"{kind.name}, itself", "with what it calls")
    caption = f"The {len(rows)} functions with most {kind.name} themselves"
    return table(headers, rows, caption=caption, tall=True)


def _place(frame: Frame) -> str:
    return f"{frame.file}:{frame.first_line}" if frame.file and frame.first_line else frame.file
