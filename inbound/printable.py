"""Text from outside (records, requests, nodes, servers), so that it is one line and steers nothing that shows it."""

from __future__ import annotations


def printable(text: str, instead: str = "?") -> str:
    """Return `text` with `instead` for each character that is not printable, line breaks among them."""
    return text if text.isprintable() else "".join(c if c.isprintable() else instead for c in text)
