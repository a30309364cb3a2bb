"""Reading the journals while they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from inbound.demo.journal import Entry, JournalError, Journals, OpenBatches

BEGIN = b'{"at":1.5,"what":"begin","topic":"flights","partition":3,"first":10,"next":14}\n'
COUNTED = b'{"at":1.6,"what":"counted","topic":"flights","partition":3,"flights":[[10,"UA",-2],[11,"AA",null]]}\n'
END = b'{"at":1.7,"what":"end","topic":"flights","partition":3,"next":14}\n'


def test_only_what_is_new_is_read_and_a_torn_line_waits(tmp_path: Path) -> None:
    """The rest of a line may still come; of a killed process it never does."""
    file = tmp_path / "demo-1.4711.jsonl"
    journals = Journals(tmp_path)
    assert list(journals.new_entries()) == []

    file.write_bytes(BEGIN + COUNTED[:30])
    assert list(journals.new_entries()) == [Entry("demo-1", 1.5, "begin", 3, 10, 14)]
    assert list(journals.new_entries()) == []

    file.write_bytes(BEGIN + COUNTED)
    assert list(journals.new_entries()) == [
        Entry("demo-1", 1.6, "counted", 3, flights=((10, "UA", -2), (11, "AA", None)))
    ]


def test_every_file_is_a_consumer(tmp_path: Path) -> None:
    """Named by its id; other files are left alone."""
    (tmp_path / "demo-1.1.jsonl").write_bytes(BEGIN)
    (tmp_path / "demo-2.2.jsonl").write_bytes(END)
    (tmp_path / "notes.txt").write_bytes(b"x\n")

    assert [(e.consumer, e.what) for e in Journals(tmp_path).new_entries()] == [("demo-1", "begin"), ("demo-2", "end")]


@pytest.mark.parametrize("line", [b"nonsense\n", b"{}\n", b"[]\n", b'{"at":1,"what":"x","partition":"many"}\n'])
def test_a_line_that_no_processor_wrote_is_an_error_with_the_file(tmp_path: Path, line: bytes) -> None:
    """A journal that cannot be read proves nothing."""
    (tmp_path / "demo-1.1.jsonl").write_bytes(BEGIN + line + END)

    with pytest.raises(JournalError, match=r"demo-1\.1\.jsonl: not a line of the processor"):
        list(Journals(tmp_path).new_entries())


def test_a_batch_is_open_from_its_begin_to_its_end() -> None:
    """Each partition of each consumer for itself; all of its records are in flight until it has ended."""
    batches = OpenBatches()
    steps = []
    for entry in (
        Entry("a", 1.0, "begin", 0, 10, 14),
        Entry("a", 1.1, "counted", 0, flights=((10, "UA", 1), (11, "UA", 1))),
        Entry("b", 1.2, "begin", 1, 0, 5),
        Entry("a", 1.3, "counted", 0, flights=((12, "UA", 1), (13, "UA", 1))),
        Entry("a", 1.4, "end", 0, next=14),
    ):
        batches.add(entry)
        steps.append((batches.in_flight("a"), batches.halfway("a"), batches.in_flight("b")))

    assert steps == [(4, False, 0), (4, True, 0), (4, True, 5), (4, False, 5), (0, False, 5)]
