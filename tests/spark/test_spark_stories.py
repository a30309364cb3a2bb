"""A ledger as it was at one moment: chunks, and files that grow or move during the reading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from inbound.ledger import Done, FilesLedger, Range, Settled
from inbound.proof import columns
from inbound.proof.model import PartitionKey, Span
from inbound.proof.spans import RunStory
from inbound.spark.ledger_source import LedgerCut, LedgerMovedError
from inbound.spark.stories import read_ledger
from inbound.testing import ManualClock

KEY = PartitionKey("g", "orders", 0)


class Consumer:
    """Writes a ledger for one partition."""

    def __init__(self, folder: Path, name: str, epoch: int, position: int, max_file_bytes: int = 1 << 20) -> None:
        self.ledger = FilesLedger(folder, "g", name, ManualClock(), max_file_bytes)
        self.epoch, self.position = epoch, position
        self.ledger.note("claimed", topic="orders", partition=0, epoch=epoch, position=position, session=1)

    def batches(self, count: int) -> Consumer:
        """So many batches of 10."""
        for _ in range(count):
            first, self.position = self.position, self.position + 10
            self.ledger.begun(Range("orders", 0, self.epoch, first, self.position, 10))
            self.ledger.done([Done("orders", 0, self.epoch, first, self.position, self.position)])
            self.ledger.settled([Settled("orders", 0, self.epoch, self.position, "landed", self.position)])
        return self

    def file(self) -> Path:
        assert self.ledger.path is not None
        return self.ledger.path


def spans_of(told: list[RunStory]) -> list[Span]:
    return [span for story in told for span in story.spans]


def handed_out(told: list[RunStory]) -> dict[str, tuple[int, int]]:
    """First and last offset that each consumer delivered."""
    return {
        story.run.consumer: (min(span.first for span in story.spans), max(span.next for span in story.spans))
        for story in told
    }


@pytest.mark.parametrize("chunk", [100, 333, 1000, 1 << 20])
def test_a_ledger_is_the_same_in_chunks_of_any_size(tmp_path: Path, chunk: int) -> None:
    """Chunks begin in the midst of lines; files are rolled: one span comes out, all lines counted once."""
    Consumer(tmp_path, "a", 1, 0, max_file_bytes=2000).batches(20).ledger.close()

    (story,) = read_ledger(LedgerCut.now(tmp_path, "g"), chunk=chunk)

    assert [(s.first, s.next, s.batches, s.records, s.landed) for s in story.spans] == [(0, 200, 20, 200, 200)]
    assert (story.damage, story.run.ended) == ((), True)


def test_a_span_ends_at_a_break_and_does_not_grow_together_again(tmp_path: Path) -> None:
    """The log is scanned from offset 70 on: what is delivered from there is a span of its own, in chunks as well."""
    Consumer(tmp_path, "a", 1, 0, max_file_bytes=2000).batches(20).ledger.close()

    for chunk in (300, 1 << 20):
        told = read_ledger(LedgerCut.now(tmp_path, "g"), breaks={KEY: 70}, chunk=chunk)
        handed = [(span.first, span.next, span.records) for span in spans_of(told) if span.batches]
        assert handed == [(0, 70, 70), (70, 200, 130)]


def test_a_damaged_line_is_named_by_its_number_in_the_file(tmp_path: Path) -> None:
    """Also where the chunk that it is in begins far behind the file's first line."""
    consumer = Consumer(tmp_path, "a", 1, 0).batches(20)
    lines = consumer.file().read_bytes().split(b"\n")
    lines[49] = lines[49].replace(b'"kind"', b'"kond"')
    consumer.file().write_bytes(b"\n".join(lines))

    (story,) = read_ledger(LedgerCut.now(tmp_path, "g"), chunk=1000)

    assert [damage.what.split(" of ")[0] for damage in story.damage if not damage.harmless] == ["line 50"]


def test_lines_that_come_behind_the_cut_are_left_out(tmp_path: Path) -> None:
    """The group goes on while its ledger is read: what the newest claim does then is for the next proof."""
    consumer = Consumer(tmp_path, "a", 1, 0).batches(3)
    cut = LedgerCut.now(tmp_path, "g")
    consumer.batches(5)

    assert handed_out(read_ledger(cut)) == {"a": (0, 30)}


def test_what_an_older_claim_had_done_before_the_cut_is_read_even_if_its_file_was_listed_earlier(
    tmp_path: Path,
) -> None:
    """1. a's file is listed; 2. a goes on, and ends; 3. b claims where a ended; 4. b's file is listed. Nothing is missing."""
    first = Consumer(tmp_path, "a", 1, 0).batches(3)
    early = LedgerCut.now(tmp_path, "g")
    first.batches(4).ledger.close()
    Consumer(tmp_path, "b", 2, 70).batches(1)
    late = LedgerCut.now(tmp_path, "g")
    cut = LedgerCut(late.place, late.group, (early.files[0], late.files[1]))

    assert handed_out(read_ledger(cut)) == {"a": (0, 70), "b": (70, 80)}


def test_a_file_that_is_gone_means_another_cut(tmp_path: Path) -> None:
    """Housekeeping has converted or deleted it since it was listed."""
    consumer = Consumer(tmp_path, "a", 1, 0).batches(3)
    cut = LedgerCut.now(tmp_path, "g")
    consumer.file().unlink()

    with pytest.raises(LedgerMovedError, match="was there a moment ago"):
        read_ledger(cut)


def test_a_large_ledger_is_read_by_spark(tmp_path: Path) -> None:
    """From `small` on the session is asked for; below it is not."""
    Consumer(tmp_path, "a", 1, 0).batches(3)
    cut = LedgerCut.now(tmp_path, "g")

    class Asked(Exception):
        pass

    def session() -> None:
        raise Asked

    ask: Callable[[], None] = session
    assert len(read_ledger(cut, ask)) == 1  # type: ignore[arg-type]
    with pytest.raises(Asked):
        read_ledger(cut, ask, small=1)  # type: ignore[arg-type]


def test_the_columns_of_a_block_are_all_cut_alike() -> None:
    """A column that the proof's blocks get one day must be cut at a break too."""
    apart = {"source", "places", "events", "damage", "header", "ending", "torn"}
    assert set(columns._COLUMNS) == set(columns.Block.__dataclass_fields__) - apart
