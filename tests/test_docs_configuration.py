"""docs/configuration.md: its tables are those of the models, its examples work."""

from __future__ import annotations

import re

import pytest

from inbound.cli.main import main
from inbound.config import load
from scripts.document_configuration import DOCUMENT, renewed
from scripts.made_tables import BEGIN, END

FILE = """
channels:
  orders: {topics: [orders], group: g, processor: {type: simple}}
  web-shop.eu: {topics: [orders], group: g, processor: {type: simple}}
"""


def test_the_tables_are_up_to_date() -> None:
    """A key that was added, or described in other words, is not in the document until `make docs` has run."""
    text = DOCUMENT.read_text()
    assert text == renewed(text), "run `make docs`"


def test_every_key_is_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The full example has every key, and so has what `schema --markdown` prints."""
    assert main(["schema", "--markdown"]) == 0

    printed = capsys.readouterr().out
    listed = set(re.findall(r"(?m)^\| `([a-z_.]+)` \|", printed))
    named = set(re.findall(r"(?m)^### `(?:.*\.)?([a-z_]+)(?:\[\])?`", printed))
    text = (DOCUMENT.parent.parent / "config" / "examples" / "full.yaml").read_text()
    names = {"channels", "orders", "audit", "pinned", "own", "posted", "subscriptions", "billing"}
    wanted = set(re.findall(r"(?m)^ *([a-z_.]+):", text)) - names
    assert wanted - listed - named == set()


def test_the_variables_and_flags_in_the_table_mean_the_same() -> None:
    """Each row's variable sets what its flag sets."""
    rows = re.findall(r"`(INBOUND__\w+)=(.*?)` \| `--set '?(.*?)=(.*?)'?` \|", DOCUMENT.read_text())
    assert len(rows) == 5
    for variable, value, path, same in rows:
        by_variable = load(FILE, filename="f", environ={variable: value.strip("'")}).config
        by_flag = load(FILE, filename="f", overrides={path: same}).config
        assert (variable, by_variable) == (variable, by_flag)
        assert by_flag != load(FILE, filename="f").config or path == "channels.orders.workers=5"


def test_a_document_without_the_marks_is_refused() -> None:
    """Rather than left without its tables."""
    with pytest.raises(ValueError, match="needs the lines"):
        renewed(f"{BEGIN} but no end, {END.upper()}")
