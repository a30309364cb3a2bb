"""Bar charts as SVG text, for the benchmarks' pages. Readable on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape

#: Pixels.
ROW, BAR, HEAD, MARGIN = 26, 16, 64, 16
LABELS, PANEL, GAP, FIGURE = 190, 210, 24, 70
#: Without a style sheet that asks which page it stands on, text would vanish on one of the two.
STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.head, .note { fill: #59636e }
.bar { fill: #9aa4af }
.ours { fill: #2f6fbb }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .head, .note { fill: #9198a1 }
  .bar { fill: #6e7681 }
  .ours { fill: #58a6ff }
}"""


@dataclass(frozen=True, slots=True)
class Panel:
    """One column of bars: what they show (with its unit), one value for each row, and how a value is written."""

    title: str
    values: Sequence[float]
    format: str = "{:,.0f}"


def bars(title: str, rows: Sequence[str], panels: Sequence[Panel], ours: Collection[str] = (), note: str = "") -> str:
    """Return an SVG: horizontal bars, a row for each name, the panels side by side, each with a scale from 0.

    The rows in `ours` stand out. Raises ValueError: a panel has another number of values than there are rows.
    """
    width = 2 * MARGIN + LABELS + len(panels) * (PANEL + FIGURE) + (len(panels) - 1) * GAP
    height = HEAD + len(rows) * ROW + (2 * MARGIN if note else MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<style>\n{STYLE}\n</style>",
        _text(MARGIN, 26, title, "title"),
    ]
    for number, name in enumerate(rows):
        parts.append(_text(MARGIN, _middle(number), name))
    for number, panel in enumerate(panels):
        parts += _panel(MARGIN + LABELS + number * (PANEL + FIGURE + GAP), panel, rows, ours)
    if note:
        parts.append(_text(MARGIN, height - 12, note, "note"))
    return "\n".join([*parts, "</svg>\n"])


def _panel(left: int, panel: Panel, rows: Sequence[str], ours: Collection[str]) -> list[str]:
    longest = max(panel.values, default=0.0) or 1.0
    parts = [_text(left, HEAD - 12, panel.title, "head")]
    for number, (name, value) in enumerate(zip(rows, panel.values, strict=True)):
        length = PANEL * value / longest
        top = HEAD + number * ROW + (ROW - BAR) // 2
        kind = "bar ours" if name in ours else "bar"
        parts.append(f'<rect class="{kind}" x="{left}" y="{top}" width="{length:.1f}" height="{BAR}" rx="2"/>')
        parts.append(_text(round(left + length) + 6, _middle(number), panel.format.format(value)))
    return parts


def _middle(number: int) -> int:
    """Return the base line of a row's text."""
    return HEAD + number * ROW + ROW // 2 + 5


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    return f'<text x="{x}" y="{y}"{f" class={kind!r}" if kind else ""}>{escape(text)}</text>'
