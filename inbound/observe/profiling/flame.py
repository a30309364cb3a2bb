"""Shows a profile as a page: a flame graph and a table.

The page loads nothing else.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from inbound.observe.profiling.profile import Frame, Profile
from inbound.report.page import Cell, Markup, element, joined, page, paragraphs, table, tiles
from inbound.report.style import COLOURS

STYLE = """
.tools { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; margin: 12px 0; }
.tools select, .tools input, .tools button {
  font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 3px 10px;
}
#graph { position: relative; overflow: hidden; border-radius: 6px; }
#graph button {
  all: unset; box-sizing: border-box; position: absolute; height: 19px; padding: 0 4px; cursor: pointer; overflow: hidden;
  border: 1px solid var(--back); border-radius: 4px; color: var(--ink); font: 12px/17px ui-monospace, "Liberation Mono", monospace;
  white-space: nowrap; text-overflow: ellipsis;
}
#graph button:hover, #graph button:focus-visible { outline: 2px solid var(--text); outline-offset: -2px; }
#graph .above { opacity: .6; }
#graph .faint { opacity: .25; }
.told { min-height: 3em; overflow-wrap: anywhere; white-space: pre-line; }
""" + "".join(f"#graph .k{i} {{ background: var(--c{i}); }}\n" for i in range(COLOURS))

#: Draws the visible bars, from the pressed node on; colours are by package.
SCRIPT = """
(() => {
  const holder = document.getElementById("profile");
  if (!holder) return;
  const { types, texts, root } = JSON.parse(holder.textContent);
  const byId = id => document.getElementById(id);
  const graph = byId("graph"), told = byId("told"), found = byId("found"), find = byId("find"), type = byId("type");
  const row = 20, narrowest = 2;
  const units = {
    nanoseconds: [[1e9, " s"], [1e6, " ms"], [1e3, " \\u00b5s"]], bytes: [[2 ** 20, " MiB"], [2 ** 10, " KiB"]],
  };
  const amount = (value, unit) => {
    for (const [divisor, name] of units[unit] || []) if (value >= divisor) return (value / divisor).toFixed(2) + name;
    return unit === "count" ? String(value) : value + " " + unit;
  };
  const packages = new Map();  // by when they come first: those that are seen most differ
  const colour = name => {
    const [first] = name.split(".", 1);
    if (!packages.has(first)) packages.set(first, packages.size % COLOURS);
    return "k" + packages.get(first);
  };
  let path = [root];  // from the whole to what is looked at
  const value = node => node[2][Number(type.value)];
  const matches = node => find.value && texts[node[0]].toLowerCase().includes(find.value.toLowerCase());
  const tell = node => {
    const unit = types[Number(type.value)].unit, whole = value(root) || 1;
    const part = `${amount(value(node), unit)}, ${(value(node) / whole * 100).toFixed(1)} %`;
    told.textContent = `${texts[node[0]]}: ${part}\n${texts[node[1]]}`;
  };
  const bar = (trail, x, width, depth, above) => {
    const node = trail[trail.length - 1], one = document.createElement("button");
    one.type = "button";
    one.tabIndex = width * graph.clientWidth > 40 ? 0 : -1;
    one.className = colour(texts[node[0]]) + (above ? " above" : "") + (find.value && !matches(node) ? " faint" : "");
    one.style.left = x * 100 + "%";
    one.style.width = width * 100 + "%";
    one.style.top = depth * row + "px";
    one.textContent = width * graph.clientWidth > 24 ? texts[node[0]] : "";
    one.ariaLabel = texts[node[0]];
    one.addEventListener("click", () => { path = trail; draw(); tell(node); });
    for (const event of ["mouseenter", "focus"]) one.addEventListener(event, () => tell(node));
    return one;
  };
  const draw = () => {
    const bars = [];
    let deepest = 0;
    path.slice(0, -1).forEach((node, depth) => bars.push(bar(path.slice(0, depth + 1), 0, 1, depth, true)));
    const place = (trail, x, width, depth) => {
      const node = trail[trail.length - 1], whole = value(node);
      if (width * graph.clientWidth < narrowest || !whole) return;
      deepest = Math.max(deepest, depth);
      bars.push(bar(trail, x, width, depth, false));
      for (const child of [...node[3]].sort((a, b) => value(b) - value(a))) {
        const part = width * value(child) / whole;
        place([...trail, child], x, part, depth + 1);
        x += part;
      }
    };
    place(path, 0, 1, path.length - 1);
    graph.replaceChildren(...bars);
    graph.style.height = (deepest + 1) * row + "px";
    const sum = node => matches(node) ? value(node) : node[3].reduce((total, child) => total + sum(child), 0);
    found.textContent = find.value ? `${(sum(root) / (value(root) || 1) * 100).toFixed(1)} % of all` : "";
  };
  type.addEventListener("change", draw);
  find.addEventListener("input", draw);
  byId("whole").addEventListener("click", () => { path = [root]; draw(); tell(root); });
  addEventListener("keydown", event => { if (event.key === "Escape") byId("whole").click(); });
  addEventListener("resize", draw);
  draw();
  tell(root);
})();
""".replace("COLOURS", str(COLOURS))


#: Narrower bars, as a part of the whole in every type, are left out: they could not be seen.
NARROWEST = 0.0005
#: Functions in the table.
FUNCTIONS = 100
#: The number in the names of similar threads, and the calls that each thread begins with.
_NUMBER = re.compile(r"-[0-9]+$")
_ALWAYS = frozenset({"threading.Thread._bootstrap", "threading.Thread._bootstrap_inner"})
_DIVISORS = {"nanoseconds": ((1e9, "s"), (1e6, "ms"), (1e3, "µs")), "bytes": ((2**20, "MiB"), (2**10, "KiB"))}


@dataclass(slots=True, eq=False)
class FlameNode:
    """A function below its callers, with the values of its callees."""

    name: str
    place: str
    values: list[int]
    below: dict[str, FlameNode] = field(default_factory=dict)

    def add(self, values: Iterable[int]) -> None:
        for place, value in enumerate(values):
            self.values[place] += value


def tree(profile: Profile) -> FlameNode:
    """Return a profile's calls below their threads; similar threads are one.

    The outermost call comes first.
    """
    root = FlameNode("all", "", [0] * len(profile.types))
    for sample in profile.samples:
        # A shrunk place cannot be drawn.
        values = [max(0, value) for value in sample.values]
        root.add(values)
        node = root
        thread = sample.labels.get("thread")
        steps = [] if thread is None else [(_NUMBER.sub("-*", thread), "threads of that name")]
        steps += [(frame.function, _place(frame)) for frame in reversed(sample.stack) if frame.function not in _ALWAYS]
        for name, place in steps:
            node = node.below.setdefault(name, FlameNode(name, place, [0] * len(root.values)))
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
    """Return a readable number with its unit."""
    for divisor, name in _DIVISORS.get(unit, ()):
        if abs(value) >= divisor:
            return f"{value / divisor:,.2f} {name}"
    return f"{value:,}" if unit == "count" else f"{value:,} {unit}"


def _tiles(profile: Profile, root: FlameNode) -> list[tuple[str, str, bool]]:
    found = [
        (kind.name.replace("_", " "), amount(value, kind.unit), False)
        for kind, value in zip(profile.types, root.values, strict=True)
    ]
    return [*([("duration", f"{profile.duration_ns / 1e9:,.1f} s", False)] if profile.duration_ns else []), *found]


def _data(profile: Profile, root: FlameNode) -> str:
    """Return the tree as JSON for the page.

    Names are numbered; a node is [name, place, values, below].
    """
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    def written(node: FlameNode) -> list[object]:
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
    """Return the table of the functions with the highest own values."""
    kind = profile.types[shown]
    own, total = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for sample in profile.samples:
        calls = [(frame.function, _place(frame)) for frame in sample.stack]
        own.update(dict.fromkeys(calls[:1], sample.values[shown]))
        total.update(dict.fromkeys(calls, sample.values[shown]))  # a recursive function counts once
    ranked = sorted(total, key=lambda call: (own[call], total[call]), reverse=True)[:FUNCTIONS]
    rows = [
        [
            Cell(joined((element("code", name), element("br"), element("span", place, class_="soft small")))),
            Cell(amount(own[call], kind.unit), own[call]),
            Cell(amount(total[call], kind.unit), total[call]),
        ]
        for call in ranked
        for name, place in [call]
    ]
    headers = ("function", f"{kind.name}, itself", "with its callees")
    caption = f"The {len(rows)} functions with most {kind.name} themselves"
    return table(headers, rows, caption=caption, tall=True)


def _place(frame: Frame) -> str:
    return f"{frame.file}:{frame.first_line}" if frame.file and frame.first_line else frame.file
