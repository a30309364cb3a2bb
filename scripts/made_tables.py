"""Documents of which a part is made from the code: it stands between two lines."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGIN, END = "<!-- begin: made by `make docs` -->\n", "<!-- end -->\n"


def with_tables(document: Path, text: str, made: str) -> str:
    """Return the document's `text` with what is `made` now.

    Raises:
        ValueError: the lines that it stands between are missing.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(
            f"{document.name} needs the lines {BEGIN.strip()} and {END.strip()}; put them where the tables belong"
        )
    return f"{before}{BEGIN}\n{made}\n{END}{after}"
