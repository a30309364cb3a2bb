"""HTML by elements: every text is escaped but what an element is made of."""

from __future__ import annotations

import html
from collections.abc import Iterable

_VOID = frozenset({"br", "col", "hr", "input", "link", "meta"})


class Markup(str):
    """HTML that is safe to put into a page."""

    __slots__ = ()


def element(name: str, /, *content: object, **attributes: object) -> Markup:
    """Return an element.

    Args:
        content: Markup, texts, numbers, None, or iterables of these.
        attributes: with `_` for `-` and without a trailing `_` (`class_`); None and False are left out, True has no value.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(content)}</{name}>")


def joined(content: Iterable[object]) -> Markup:
    """Return contents one after the other."""
    return Markup("".join(map(_written, content)))


def clean(text: str) -> str:
    """Return `text` without what cannot stand in a page, or would turn the text around it: controls, halves of characters."""
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
