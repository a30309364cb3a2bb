"""A process of `run --processes` does nothing without the token that its parent has told it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from inbound.cli.run import run
from inbound.config import AdminConfig
from inbound.config.secrets import KNOWN

TOKEN = "Zq1-of-this-parent_and-no-other-4711"


@pytest.fixture
def parent() -> Iterator[int]:
    """The end of standard input that a parent writes to."""
    kept, (reading, writing) = os.dup(0), os.pipe()
    os.dup2(reading, 0)
    run._token_from_stdin.cache_clear()
    yield writing
    os.dup2(kept, 0)
    for descriptor in (kept, reading, writing):
        os.close(descriptor)
    run._token_from_stdin.cache_clear()


@pytest.mark.parametrize("config", [AdminConfig(), AdminConfig.model_validate({"token_file": "another"})])
def test_it_is_read_from_standard_input_with_any_configuration(parent: int, config: AdminConfig) -> None:
    """Once, and not a byte more: that the input goes on is how a child knows that its parent lives. No log shows it."""
    os.write(parent, f"{TOKEN}\nx".encode())
    token = run._token_of_parent(config)

    assert (token(), token(), os.read(0, 10)) == (TOKEN, TOKEN, b"x")
    assert TOKEN not in KNOWN.hide(f"it is {TOKEN}")
