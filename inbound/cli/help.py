"""How the commands explain themselves: each help ends with examples that can be typed as they stand."""

from __future__ import annotations

import argparse
from typing import Any

#: Begins what stands at the end of a help.
TITLE = "examples:"


class _Formatter(argparse.HelpFormatter):
    """Wraps texts as argparse does, but for the lines of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(TITLE) else super()._fill_text(text, width, indent)


def examples(*lines: str) -> dict[str, Any]:
    """Return the arguments of `add_parser` that put these command lines at the end of its help."""
    return {"formatter_class": _Formatter, "epilog": "\n  ".join((TITLE, *lines))}
