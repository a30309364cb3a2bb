"""Flame graphs as pages, and the names of functions."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from inbound.observe.profiling.flame import amount, flame_page, tree
from inbound.observe.profiling.profile import Frame, Names, Profile, StackSample, ValueType

COUNT, CPU = ValueType("samples", "count"), ValueType("cpu", "nanoseconds")
RUN, BOOK = (
    Frame("threading.Thread.run", "/lib/threading.py", 980, 979),
    Frame("app.Orders.book", "/app/orders.py", 12, 9),
)
SEND, LOADS = Frame("app.Orders.send", "/app/orders.py", 20, 18), Frame("json.loads", "/lib/json.py", 300, 299)
HOSTILE = "</script><script>alert(1)</script>"


def made(*samples: StackSample) -> Profile:
    """Return a profile of those."""
    return Profile(
        title="CPU", types=(COUNT, CPU), default="cpu", samples=samples, period=(CPU, 10_000_000), duration_ns=2 * 10**9,
        comments=("97.3 a second",),
    )  # fmt: skip


def sample(thread: str, milliseconds: int, *outermost_first: Frame) -> StackSample:
    return StackSample(tuple(reversed(outermost_first)), (milliseconds // 10, milliseconds * 10**6), {"thread": thread})


ORDERS = made(
    sample("orders-worker-0", 100, RUN, BOOK, SEND, LOADS),
    sample("orders-worker-1", 300, RUN, BOOK, SEND),
    sample("orders-worker-1", 600, RUN, BOOK, LOADS),
    sample("log", 1000, RUN),
)


def drawn(page: str) -> Any:
    """Return what the script draws, names for numbers: (name, milliseconds, those below)."""
    found = re.search(r'<script type="application/json" id="profile">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])

    def read(node: list[Any]) -> Any:
        name, _, values, below = node
        return data["texts"][name], values[1] // 10**6, [read(one) for one in below]

    return read(data["root"])


def test_the_graph_has_what_was_called_below_what_called_it() -> None:
    """Threads of one kind are together; a function called from two places is two bars."""
    assert drawn(flame_page(ORDERS, "CPU")) == (
        "all", 2000, [
            ("orders-worker-*", 1000, [
                ("threading.Thread.run", 1000, [
                    ("app.Orders.book", 1000, [
                        ("app.Orders.send", 400, [("json.loads", 100, [])]),
                        ("json.loads", 600, []),
                    ]),
                ]),
            ]),
            ("log", 1000, [("threading.Thread.run", 1000, [])]),
        ],
    )  # fmt: skip


def test_the_table_has_functions_with_what_they_took_themselves() -> None:
    """The most first; what they call apart; a function that calls itself counts once."""
    again = made(sample("log", 70, BOOK, BOOK, BOOK, SEND), sample("log", 30, BOOK, BOOK))

    rows = re.findall(
        r"<tr><th.*?<code>(.*?)</code>.*?</th>.*?>([\d.]+ ms)</td>.*?>([\d.]+ ms)</td>", flame_page(again, "")
    )

    assert rows == [("app.Orders.send", "70.00 ms", "70.00 ms"), ("app.Orders.book", "30.00 ms", "100.00 ms")]


def test_what_nobody_could_see_is_left_out() -> None:
    """A page of a long profile stays small: bars below a twentieth of a percent go, their time stays with who called."""
    many = [sample("log", 1, RUN, Frame(f"app.f{i}", "/app/x.py", i, i)) for i in range(5000)]

    name, total, ((_, _, (run,)),) = drawn(flame_page(made(sample("log", 5000, RUN), *many), "CPU"))

    assert (name, total, run) == ("all", 10_000, ("threading.Thread.run", 10_000, []))


def test_hostile_names_stay_text() -> None:
    """Names of threads, functions and files come from anywhere: nothing of them is markup, in the page or its data."""
    frame = Frame(HOSTILE, f"/tmp/{HOSTILE}", 1, 1)

    page = flame_page(made(StackSample((frame,), (1, 10), {"thread": HOSTILE})), HOSTILE)

    assert "<script>alert" not in page
    assert drawn(page) == ("all", 0, [(HOSTILE, 0, [(HOSTILE, 0, [])])])
    assert page.count("<script") == page.count("</script>") == 2


def test_the_page_loads_nothing() -> None:
    """It is opened where there is no internet, and sent to others."""
    page = flame_page(ORDERS, "CPU")
    assert "default-src &#x27;none&#x27;" in page
    assert not re.search(r"https?://|(?:src|href)=", page)


def test_a_profile_of_nothing_says_so() -> None:
    """A profile that was ended at once has no graph."""
    page = flame_page(made(), "CPU")
    assert "Nothing was measured." in page
    assert 'id="profile"' not in page


def test_what_shrank_is_not_drawn() -> None:
    """A difference may be negative; a width may not."""
    shrunk = made(StackSample((BOOK,), (-3, -(10**6))), StackSample((SEND,), (3, 10**6)))
    assert tree(shrunk).values == [3, 10**6]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "nanoseconds", "0 nanoseconds"), (999, "nanoseconds", "999 nanoseconds"), (1500, "nanoseconds", "1.50 µs"),
        (2 * 10**7, "nanoseconds", "20.00 ms"), (10**12, "nanoseconds", "1,000.00 s"), (1023, "bytes", "1,023 bytes"),
        (1536, "bytes", "1.50 KiB"), (3 * 2**20, "bytes", "3.00 MiB"), (-2048, "bytes", "-2.00 KiB"), (12345, "count", "12,345"),
    ],
)  # fmt: skip
def test_amounts(value: int, unit: str, text: str) -> None:
    """As people read them."""
    assert amount(value, unit) == text


MODULE = """\
import sys


class Orders:
    kind = "orders"

    def book(self):
        def inner():
            return sys._getframe()

        return (lambda: inner())()


def plain():
    return 1
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module in a file."""
    path = tmp_path / "made_for_names.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("shop.orders", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "shop.orders", loaded)
    spec.loader.exec_module(loaded)
    return loaded


def test_functions_are_named_by_module_and_class(module: Any) -> None:
    """As Python names them, with the line where they are and the one where they begin."""
    frame: FrameType | None = module.Orders().book()
    names = Names()
    found: list[Frame] = []
    while frame is not None and len(found) < 3:
        found.append(names.of_instruction(frame.f_code, frame.f_lasti))
        frame = frame.f_back
    assert found == [
        Frame("shop.orders.Orders.book.<locals>.inner", module.__file__, 9, 8),
        Frame("shop.orders.Orders.book.<locals>.<lambda>", module.__file__, 11, 11),
        Frame("shop.orders.Orders.book", module.__file__, 11, 7),
    ]


@pytest.mark.parametrize(
    ("line", "function", "first"),
    [
        (9, "Orders.book.<locals>.inner", 8),
        (11, "Orders.book.<locals>.<lambda>", 11),
        (5, "Orders", 4),
        (15, "plain", 14),
        (1, "<module>", 0),
        (99, "<module>", 0),
    ],
)
def test_lines_are_named_by_the_function_that_they_are_in(module: Any, line: int, function: str, first: int) -> None:
    """Allocations are known by file and line only; the innermost function counts."""
    assert Names().of_line(module.__file__, line) == Frame(f"shop.orders.{function}", module.__file__, line, first)


def test_what_is_no_loaded_module_has_its_files_name() -> None:
    """Code of `exec`, of frozen modules, of files that are gone."""
    names = Names()
    assert names.of_line("/gone/away.py", 3).function == "away.<module>"
    assert names.of_line("<frozen importlib._bootstrap>", 3).function == "importlib._bootstrap.<module>"
    assert names.of_instruction(compile("1", "<string>", "exec"), 0).function == "string.<module>"
