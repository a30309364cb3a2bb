"""A converted file says what its lines said, damage included; so do the columns that Spark gets."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from inbound.clock import SystemClock
from inbound.errors import LedgerError
from inbound.ledger import (
    Corrupt,
    Done,
    Entry,
    FilesLedger,
    Item,
    Range,
    Settled,
    TornTail,
    list_files,
    read_batches,
    read_directory,
    read_file,
)
from inbound.ledger.columns import write_parquet
from inbound.ledger.format import seal

RUN = "a-20250131T235959123Z"
HEADER = (
    b'{"v":1,"kind":"header","group":"g","consumer":"a","run":"a-20250131T235959123Z","file":1,"previous":null,"why":"start",'
    b'"writer":"inbound 0.1.0","host":"h","pid":4711,"started":"20250131T235959123Z","wall":1.5,"seq":0'
)
BEGUN = (
    b'{"kind":"begun","group":"g","consumer":"a","topic":"t","partition":3,"epoch":7,'
    b'"first":%d,"next":%d,"records":9,"wall":2.5,"seq":%d'
)


def begun(seq: int) -> bytes:
    return seal(BEGUN % (seq * 10, seq * 10 + 10, seq))


def converted(path: Path) -> Path:
    """Make Parquet of a file, beside it."""
    target = path.with_suffix(".parquet")
    with path.open("rb") as lines:
        write_parquet(lines, path, target)
    return target


def anywhere(items: list[Item]) -> list[Item]:
    """Items as if all were of one file."""
    return [replace(item, path=Path()) for item in items]


def written(folder: Path, *lines: bytes) -> Path:
    path = folder / "g" / f"{RUN}-0001.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(lines))
    return path


def test_a_converted_file_reads_like_the_lines_it_was_made_of(tmp_path: Path) -> None:
    """All kinds of lines, names that need escaping, numbers at their limits, facts of any depth."""
    ledger = FilesLedger(tmp_path, "g", 'ö"\\x', SystemClock())
    ledger.begun(Range("töpic", 0, 0, 0, 2**63 - 1, 0))
    ledger.done([Done("töpic", 0, 0, 0, 5, None), Done("töpic", 0, 0, 0, 5, 5)])
    ledger.settled([Settled("töpic", 0, 0, 5, "landed", 2**62), Settled("töpic", 0, 0, 5, "unknown")])
    ledger.note(
        "skip", topic="töpic", partition=0, epoch=0, from_=1, to=2, reason="dead-lettered", more={"a": [1, None]}
    )
    ledger.lacks("töpic", 0, 0)
    ledger.begun(Range("töpic", 0, 0, 5, 6, 1, 5))
    path = ledger.path
    assert path is not None
    ledger.close()

    assert anywhere(list(read_file(converted(path)))) == anywhere(list(read_file(path)))


def test_nothing_damaged_is_hidden_by_converting(tmp_path: Path) -> None:
    """A changed line, one that is no ledger's, one of unknown members, one of wrong types, and a torn one."""
    changed = begun(2).replace(b'"records":9', b'"records":8')
    foreign = seal(b'{"hello":"world"')
    newer = seal(BEGUN % (30, 40, 3) + b',"colour":"red"')
    wrong = seal(BEGUN.replace(b'"epoch":7', b'"epoch":"seven"') % (40, 50, 4))
    path = written(tmp_path, seal(HEADER), begun(1), changed, foreign, newer, wrong, b'{"kind":"beg')

    before, after = list(read_file(path)), list(read_file(converted(path)))

    assert [type(item) for item in after] == [Entry, Entry, Corrupt, Corrupt, Entry, Corrupt, TornTail]
    assert anywhere(after[:5] + after[6:]) == anywhere(before[:5] + before[6:])
    assert isinstance(after[4], Entry)
    assert after[4].facts == {"colour": "red"}
    rows = [row for batch in read_batches(converted(path)) for row in batch.to_pylist()]
    assert [row["raw"] for row in rows if row["kind"] == "damaged"] == [changed, foreign, wrong, b'{"kind":"beg']


def test_batches_of_lines_and_of_parquet_are_the_same(tmp_path: Path) -> None:
    """Also where a file has more lines than one batch takes, and unusual ones among the usual."""
    odd = seal(
        b'{"kind":"lost","group":"g","consumer":"a","topic":"t","partition":3,"epoch":7,"facts":{},"wall":3.5,"seq":4000'
    )
    path = written(
        tmp_path, seal(HEADER), *(begun(seq) for seq in range(1, 4000)), odd, *(begun(n) for n in range(4001, 9000))
    )

    lines = [row for batch in read_batches(path) for row in batch.to_pylist()]
    parquet = [row for batch in read_batches(converted(path)) for row in batch.to_pylist()]

    assert lines == parquet
    assert [row["line"] for row in lines] == list(range(1, 9001))
    assert [row["kind"] for row in lines[3999:4002]] == ["begun", "lost", "begun"]


def test_a_file_that_is_there_twice_is_listed_once(tmp_path: Path) -> None:
    """Its writer was killed between converting and deleting. Foreign files are named as such, hidden ones are not."""
    path = written(tmp_path, seal(HEADER), begun(1))
    converted(path)
    (path.parent / "notes.txt").write_text("buy milk")
    (path.parent / ".half.tmp").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "b-20250131T235959123Z-0002.jsonl").write_bytes(b"")

    found = [(file.group, file.path.name, file.format, file.run, file.number) for file in list_files(tmp_path)]

    assert found == [
        ("g", f"{RUN}-0001.parquet", "parquet", RUN, 1),
        ("g", "notes.txt", "foreign", None, None),
        ("other", "b-20250131T235959123Z-0002.jsonl", "jsonl", "b-20250131T235959123Z", 2),
    ]
    assert [file.group for file in list_files(tmp_path, "other")] == ["other"]
    assert [item.kind for item in read_directory(tmp_path) if isinstance(item, Entry)] == ["header", "begun"]


def test_a_file_that_was_converted_since_it_was_listed_is_still_read(tmp_path: Path) -> None:
    """Housekeeping goes on while others read."""
    path = written(tmp_path, seal(HEADER), begun(1))
    converted(path)
    path.unlink()

    assert [item.path.name for item in read_file(path)] == [f"{RUN}-0001.parquet"] * 2


def test_the_files_of_a_uri_are_listed_and_read_like_those_of_a_folder(tmp_path: Path) -> None:
    """Lines and Parquet alike."""
    path = written(tmp_path, seal(HEADER), begun(1))
    second = path.with_name(f"{RUN}-0002.jsonl")
    second.write_bytes(seal(HEADER.replace(b'"file":1', b'"file":2')) + begun(2))
    converted(second)
    second.unlink()
    uri = f"file://{tmp_path}"

    assert anywhere(list(read_directory(uri))) == anywhere(list(read_directory(tmp_path)))
    assert [(f.path.name, f.size, f.run) for f in list_files(uri)] == [
        (f.path.name, f.size, f.run) for f in list_files(tmp_path)
    ]
    assert str(list_files(uri)[0].path) == f"file://{path}"


def test_a_folder_of_a_uri_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With the key of the configuration that says so."""
    with pytest.raises(LedgerError, match=r"ledger directory .*/none: .*check ledger\.path"):
        list_files(f"file://{tmp_path}/none")


def test_parquet_that_is_no_ledgers_or_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    """Each error names the file and what to do."""
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / f"{RUN}-0001.parquet"
    parquet.write_table(pyarrow.table({"x": [1]}), path)
    with pytest.raises(LedgerError, match=r"0001\.parquet: it is Parquet, but no ledger's; move it out"):
        list(read_file(path))
    parquet.write_table(pyarrow.table({"x": [1]}).replace_schema_metadata({"inbound.ledger.version": "2"}), path)
    with pytest.raises(LedgerError, match=r"0001\.parquet: it has format version 2, this inbound reads up to 1"):
        list(read_file(path))
    path.write_bytes(os.urandom(50))
    with pytest.raises(LedgerError, match=r"0001\.parquet: it cannot be read .*restore it"):
        list(read_file(path))


def test_the_metadata_carries_version_and_header(tmp_path: Path) -> None:
    """For other tools that read a file."""
    import json

    from pyarrow import parquet

    found = parquet.read_metadata(converted(written(tmp_path, seal(HEADER), begun(1)))).metadata

    assert found[b"inbound.ledger.version"] == b"1"
    assert json.loads(found[b"inbound.ledger.header"])["host"] == "h"
