"""Processors' classes whose attributes cannot be meant: each is refused by `check`, and says what to write."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from inbound.errors import ConfigError
from inbound.plan.plugins import find_processor, made

MODULE = """
from inbound import BatchEventProcessor, BatchResponse

class Orders(BatchEventProcessor):
    def on_next_batch(self, batch):
        return BatchResponse.advance()
    {line}
"""


def importable(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `odd:Orders` be a processor with this line in its class."""
    (folder / "odd.py").write_text(MODULE.format(line=line))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "odd", raising=False)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Options = {'shelf': str}", "Options is a dict, and no pydantic model; derive it from pydantic.BaseModel"),
        ("class Options: shelf = ''", "Options is a type, and no pydantic model; derive it from pydantic.BaseModel"),
        ("prefetch_bytes = '64MiB'", "prefetch_bytes is '64MiB'; give bytes, a whole number of at least 1, or None"),
        ("prefetch_bytes = 0", "prefetch_bytes is 0; give bytes, a whole number of at least 1, or None"),
        ("prefetch_bytes = True", "prefetch_bytes is True; give bytes, a whole number of at least 1, or None"),
        ("commits_first = 'no'", "commits_first is 'no'; give True or False"),
        ("ordered = None", "ordered is None; give True or False"),
        ("on_batch_processed = None", "on_batch_processed is None, and cannot be called; write a method, or leave it out"),
        ("on_next_batch = 'advance'", "on_next_batch is 'advance', and cannot be called; write a method, or leave it out"),
        ("def on_next_batch(self, batch): yield", "on_next_batch yields; a batch has one answer: return it"),
        ("async def on_next_batch(self, batch): yield", "on_next_batch yields; a batch has one answer: return it"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a traceback, or good until the first batch."""
    importable(line, tmp_path, monkeypatch)
    with pytest.raises(ConfigError) as refused:
        find_processor("odd:Orders")
    assert str(refused.value) == f"odd:Orders: {message}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("def __init__(self, shelf): ...", "TypeError: Orders.__init__() missing 1 required positional argument: 'shelf' ("),
        ("def __init__(self): raise OSError('no shelf')", "OSError: no shelf ("),
    ],
    ids=["arguments", "raises"],
)  # fmt: skip
def test_a_processor_that_cannot_be_made_is_no_defect(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` ended with a traceback of inbound's own."""
    importable(line, tmp_path, monkeypatch)
    with pytest.raises(ConfigError) as refused:
        made("shelves", find_processor("odd:Orders").cls)
    assert str(refused.value).startswith(f"channel shelves: Orders cannot be made: {message}")
    assert str(refused.value).endswith("); it is made without arguments: its options come to open, as context.options")
