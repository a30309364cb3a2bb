"""The public API is listed in one place, described, and stable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.public_api import MODULES, lines, recorded

DOCS = Path(__file__).resolve().parents[2] / "docs" / "api"


@pytest.mark.slow
def test_what_others_import_is_as_it_was_recorded() -> None:
    """A name that is gone, a parameter that is renamed: say so in CHANGELOG.md, and run `python -m scripts.public_api`."""
    assert list(lines()) == recorded()


def test_every_public_module_is_described() -> None:
    """In docs/api, by the module or by its names."""
    text = "".join(path.read_text() for path in DOCS.glob("*.rst"))

    assert [module for module in MODULES if not re.search(rf":: {re.escape(module)}(\.|\n|$)", text)] == []
