"""The page at /debug/pprof/: what there is, and what it costs."""

from __future__ import annotations

from inbound.profiling.parameters import HZ, MOST_HZ, MOST_SECONDS, SECONDS
from inbound.report.html import element
from inbound.report.page import Cell, page, paragraphs, table


def index_page(prefix: str, heading: str, tracing: bool) -> str:
    """Return it; `prefix` is where everything is, `tracing` says whether allocations are traced now."""
    rows = (
        ("flame?seconds=10", "flame graph of 10 s", "Where the process spends its time, as a page.", _SAMPLING),
        ("profile?seconds=10", "CPU profile of 10 s", "The same as a file for go tool pprof.", _SAMPLING),
        (
            "goroutine?debug=2",
            "threads, one by one",
            "Where each thread is now, as text; debug=1: those at the same place together; without debug: for go tool pprof.",
            "thread=NAME, format=html",
        ),
        ("goroutine?format=html", "threads as a flame graph", "The same as a page.", "thread=NAME"),
        (
            "heap?seconds=10&format=html",
            "growth of memory in 10 s",
            "Traces allocations meanwhile, if they are not traced anyway; without format for go tool pprof.",
            f"seconds=1 to {MOST_SECONDS}, gc=1: collect garbage before",
        ),
        (
            "heap?format=html",
            "memory in use",
            f"What was allocated since tracing began. Allocations are {_TRACED if tracing else _NOT_TRACED}.",
            "gc=1, trace=off: trace no more",
        ),
        ("cmdline", "command line", "With a NUL between arguments, and without the values of settings.", ""),
    )
    cells: list[list[Cell | str]] = [
        [
            Cell(element("a", name, href=f"{prefix}{path}")),
            Cell(text),
            Cell(element("code", f"{prefix}{path.partition('?')[0]}")),
            more,
        ]
        for path, name, text, more in rows
    ]
    return page(
        heading,
        element("h1", heading),
        paragraphs("A CPU profile costs something only while it is taken, and only one is at a time. To look at one:"),
        element("p", element("code", f"go tool pprof -http=: 'http://HOST:PORT{prefix}profile?seconds={SECONDS}'")),
        table(("what", "in words", "path", "parameters"), cells, caption="What there is"),
    )


_TRACED = "traced now"
_NOT_TRACED = "not traced: this switches tracing on, and the process is much slower then"
_SAMPLING = f"seconds=1 to {MOST_SECONDS} ({SECONDS}), hz=1 to {MOST_HZ} ({HZ}), thread=NAME with * for anything"
