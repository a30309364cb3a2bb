"""The frame of every page, and its tables."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inbound.report.style import SCRIPT, STYLE


def page(title: str, *content: object, style: str = "", script: str = "") -> str:
    """Return an HTML document that loads nothing, with its own script only.

    `style` and `script` come after those of all pages.
    """
    style, script = STYLE + style, SCRIPT + script
    own = f"script-src '{_digest(script)}'; style-src '{_digest(style)}'"
    policy = f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", Markup(style)),
    )
    body = element("body", element("main", content), element("script", Markup(script)))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table."""

    content: object
    value: float | None = None  # sort key; numbers are right-aligned
    class_: str = ""


def number(value: float | None, *, class_: str = "") -> Cell:
    """Return a cell with a number; None is a dash, sorted first."""
    if value is None:
        return Cell("-", -1, class_)
    return Cell(f"{value:,}" if isinstance(value, int) else f"{value:,.1f}", value, class_)


def table(headers: Sequence[str], rows: Iterable[Sequence[Cell | str]], *, caption: str, tall: bool = False) -> Markup:
    """Return a sortable table, whose first column names the row."""
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    right = [bool(cells) and all(row[i].value is not None for row in cells) for i in range(len(headers))]
    head = element(
        "tr",
        (
            element("th", element("button", header, type="button"), scope="col", class_="number" if at_right else None)
            for header, at_right in zip(headers, right, strict=True)
        ),
    )
    body = (
        element("tr", (_cell(i, cell, at_right) for i, (cell, at_right) in enumerate(zip(row, right, strict=True))))
        for row in cells
    )
    written = element("table", element("caption", caption), element("thead", head), element("tbody", body))
    # The keyboard must reach areas that scroll.
    return element(
        "div", written, class_="scroll tall" if tall else "scroll", tabindex=0, role="region", aria_label=caption
    )


def _cell(place: int, cell: Cell, at_right: bool) -> Markup:
    class_ = " ".join(part for part in ("number" if at_right else "", cell.class_) if part) or None
    name, scope = ("td", None) if place else ("th", "row")
    return element(name, cell.content, scope=scope, class_=class_, data_value=cell.value)


def reasons(title: str, items: Iterable[Markup]) -> Markup | None:
    """Return sentences under a heading; None if there are none."""
    entries = list(items)
    return joined((element("h2", title), element("ul", entries, class_="reasons"))) if entries else None


def tiles(items: Iterable[tuple[str, str, bool]]) -> Markup:
    """Return large numbers; an item is label, number and badness."""
    return element(
        "ul",
        (
            element("li", element("strong", value), element("span", name), class_="bad" if bad else None)
            for name, value, bad in items
        ),
        class_="tiles",
    )


def legend(items: Iterable[tuple[Markup, str]]) -> Markup:
    """Return a legend of marks (14 x 14) and their names."""
    entries = (
        element("li", element("svg", mark, viewBox="0 0 14 14", aria_hidden="true"), name) for mark, name in items
    )
    return element("ul", entries, class_="legend")


def paragraphs(*texts: object) -> Markup:
    return joined(element("p", text, class_="soft small") for text in texts)


_VOID = frozenset({"br", "col", "hr", "input", "link", "meta"})


class Markup(str):
    """HTML that is safe to put into a page."""

    __slots__ = ()


def element(name: str, /, *content: object, **attributes: object) -> Markup:
    """Return an element.

    Args:
        content: Markup, texts, numbers, None, or iterables of these.
        attributes: `_` stands for `-`, a trailing `_` is dropped (`class_`); None and False are left out, True has no value.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(content)}</{name}>")


def joined(content: Iterable[object]) -> Markup:
    return Markup("".join(map(_written, content)))


def clean(text: str) -> str:
    """Return `text` without controls and halves of characters.

    They cannot be in a page, or would turn the direction of the text around them.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _written(content: object) -> str:
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return html.escape(clean(content))
    if content is None:
        return ""
    if isinstance(content, Iterable):
        return joined(content)
    return html.escape(str(content))


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.removesuffix("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(clean(str(value)))}"'
