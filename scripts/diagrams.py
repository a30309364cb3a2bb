"""Sequence diagrams and flows as SVG: no dependency, readable in light and dark, alone or inside a page.

A picture is made of strings that are sorted by nothing but the order of the steps, so the same steps give the same file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

#: Between lifelines, and from the edge to the first; pixels of the picture.
SPACING, MARGIN = 300, 146
#: What a line of text takes in height, and a letter in width at most on average (13 px, sans-serif).
LINE, LETTER = 17, 6.9
_HEAD = 34

_STYLE = """
svg { --ink: #1f2328; --dim: #59636e; --paper: #ffffff; --box: #ddf4ff; --edge: #54aeff; --line: #818b98; --bad: #cf222e;
      --note: #fff8c5; --note-edge: #d4a72c; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --dim: #9198a1; --paper: #151b23; --box: #0c2d6b; --edge: #388bfd; --line: #7d8590; --bad: #ff7b72;
        --note: #3b2300; --note-edge: #bb8009; }
}
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; fill: var(--ink); }
.halo { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round; }
.head { font-weight: 600; } .dim { fill: var(--dim); } .bad { fill: var(--bad); } .step { font-weight: 600; }
.paper { fill: var(--paper); } .box { fill: var(--box); stroke: var(--edge); }
.note { fill: var(--note); stroke: var(--note-edge); }
.life { stroke: var(--line); stroke-dasharray: 3 4; } .dead { stroke: var(--bad); stroke-width: 2; }
.arrow { stroke: var(--ink); fill: none; } .answer { stroke: var(--dim); stroke-dasharray: 5 4; fill: none; }
.refused { stroke: var(--bad); fill: none; stroke-dasharray: 5 4; }
.tip { fill: var(--ink); } .tip-answer { fill: var(--dim); } .tip-refused { fill: var(--bad); }
.rule { stroke: var(--edge); }
"""


@dataclass(frozen=True)
class Message:
    """From one actor to another; `lines` stand below the text, as parts of it. `kind`: arrow, answer or refused."""

    sender: str
    receiver: str
    text: str
    lines: tuple[str, ...] = ()
    kind: str = "arrow"


@dataclass(frozen=True)
class Note:
    """An actor's own step, or knowledge. Lines of text."""

    actor: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Ends:
    """The actor is there no more from here on: its line ends in a cross."""

    actor: str
    text: str


@dataclass(frozen=True)
class Freezes:
    """The actor does nothing until it does something again."""

    actor: str
    text: str


@dataclass(frozen=True)
class Step:
    """A heading over the whole width."""

    text: str


Part = Message | Note | Ends | Freezes | Step


@dataclass(frozen=True)
class Diagram:
    """A diagram: who takes part, from left to right, and what happens, from top to bottom."""

    title: str
    actors: Sequence[str]
    parts: Sequence[Part]


def sequence(diagram: Diagram) -> str:
    """Return the SVG.

    Raises:
        ValueError: a text is longer than there is room for it.
    """
    places = {actor: MARGIN + SPACING * number for number, actor in enumerate(diagram.actors)}
    width = 2 * MARGIN + SPACING * (len(places) - 1)
    top = 20 + _HEAD
    drawn: list[str] = []
    ends: dict[str, float] = {}
    y = top + 14.0
    for part in diagram.parts:
        lines, y = _part(part, places, y, width)
        drawn += lines
        if isinstance(part, Ends):
            ends[part.actor] = y - 14
    height = y + 16
    for actor, x in places.items():
        drawn.insert(0, f'<line class="life" x1="{x}" y1="{top}" x2="{x}" y2="{ends.get(actor, height - 10):g}"/>')
        box = f'<rect class="box" x="{x - 100}" y="20" width="200" height="{_HEAD}" rx="6"/>'
        drawn += [box, _text(x, 42, actor, "head")]
    return picture(diagram.title, width, height, drawn)


def picture(title: str, width: float, height: float, drawn: Sequence[str]) -> str:
    """Return an SVG file of what is drawn."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
        f'role="img"><title>{escape(title)}</title>'
    )
    paper = f'<rect class="paper" width="{width:g}" height="{height:g}" rx="8"/>'
    return "\n".join((head, f"<style>{_STYLE}</style>", paper, *drawn, "</svg>", ""))


def arrow(x1: float, y1: float, x2: float, y2: float, kind: str = "arrow") -> list[str]:
    """Return a straight arrow, horizontal or vertical, of one kind."""
    tip = f"tip-{kind}" if kind != "arrow" else "tip"
    if y1 == y2:
        back = 9 if x2 > x1 else -9
        points = f"{x2:g},{y2:g} {x2 - back:g},{y2 - 4:g} {x2 - back:g},{y2 + 4:g}"
    else:
        back = 9 if y2 > y1 else -9
        points = f"{x2:g},{y2:g} {x2 - 4:g},{y2 - back:g} {x2 + 4:g},{y2 - back:g}"
    return [
        f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>',
        f'<polygon class="{tip}" points="{points}"/>',
    ]


def box(x: float, y: float, width: float, lines: Sequence[str], style: str = "box") -> list[str]:
    """Return a box with its first line as a heading. Its height is `box_height(lines)`."""
    _fits(lines, width)
    drawn = [f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{box_height(lines):g}" rx="6"/>']
    for number, line in enumerate(lines):
        drawn.append(_text(x + width / 2, y + 20 + LINE * number, line, "" if number or style == "note" else "head"))
    return drawn


def box_height(lines: Sequence[str]) -> float:
    """Return how high a box of so many lines is."""
    return LINE * len(lines) + 12


def label(x: float, y: float, text: str, style: str = "dim") -> str:
    """Return a text whose middle is at `x`."""
    return _text(x, y, text, style)


def _part(part: Part, places: dict[str, int], y: float, width: float) -> tuple[list[str], float]:
    if isinstance(part, Message):
        return _message(part, places, y)
    if isinstance(part, Note):
        wide = min(max(len(line) for line in part.lines) * LETTER + 20, SPACING - 16)
        lines = box(places[part.actor] - wide / 2, y + 4, wide, part.lines, "note")
        return lines, y + box_height(part.lines) + 14
    if isinstance(part, (Ends, Freezes)):
        x, at = places[part.actor], y + 14
        mark = "l14 14 m0 -14 l-14 14" if isinstance(part, Ends) else "m3 0 v14 m8 -14 v14"
        drawn = f'<path class="dead" d="M{x - 7} {at - 7:g} {mark}"/>'
        return [drawn, _text(x + 14, at + 5, part.text, "bad halo", "start")], at + 14
    rule = f'<line class="rule" x1="16" y1="{y + 8:g}" x2="{width - 16:g}" y2="{y + 8:g}"/>'
    return [rule, _text(20, y + 26, part.text, "step halo", "start")], y + 36


def _message(part: Message, places: dict[str, int], y: float) -> tuple[list[str], float]:
    x1, x2 = places[part.sender], places[part.receiver]
    lines = (part.text, *part.lines)
    _fits(lines, abs(x2 - x1))
    style = {"refused": "bad", "answer": "dim"}.get(part.kind, "")
    middle = (x1 + x2) / 2
    drawn = [
        _text(middle, y + 14 + LINE * n, line, f"{style or ('dim' if n else '')} halo".strip())
        for n, line in enumerate(lines)
    ]
    at = y + 4 + LINE * len(lines) + 4
    away = 3 if x2 > x1 else -3
    return [*drawn, *arrow(x1 + away, at, x2 - away, at, part.kind)], at + 10


def _fits(lines: Sequence[str], width: float) -> None:
    for line in lines:
        if len(line) * LETTER > width - 8:
            raise ValueError(f"{line!r} has {len(line)} letters; there is room for {int((width - 8) / LETTER)}")


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "middle") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text{named} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
