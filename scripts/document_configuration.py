"""Renew the tables of keys in docs/configuration.md from the models (`make docs`)."""

from __future__ import annotations

from inbound.cli.tools.schema import tables
from inbound.plan.plugins import configuration_schema
from scripts.made_tables import DOCS, with_tables

DOCUMENT = DOCS / "configuration.md"


def renewed(text: str) -> str:
    """Return the document with the tables as the models have them now. Raises ValueError: the marks around them are missing."""
    return with_tables(DOCUMENT, text, tables(configuration_schema()))


def main() -> None:
    DOCUMENT.write_text(renewed(DOCUMENT.read_text()))


if __name__ == "__main__":
    main()
