"""The shipped sinks: what a line says, and what survives a kill or a full disk."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inbound.errors import ConfigError
from inbound.processors.base import Context
from inbound.processors.batch import Batch, PlainRecord
from inbound.processors.sinks.jsonl import JsonlSink
from inbound.processors.sinks.log import LogSink

EVENT = [("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/s"), ("ce_type", b"t")]
JSON = ("content-type", b"application/json")


def batch(*records: PlainRecord, partition: int = 3) -> Batch:
    return Batch("orders", partition, records[0].offset, records[-1].offset + 1, records)


def opened(path: Path, **options: Any) -> JsonlSink:
    sink = JsonlSink()
    sink.open(Context("c", "g", "me", options=JsonlSink.Options(path=path, **options)))
    return sink


Opener = Callable[..., JsonlSink]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


@pytest.fixture
def open_sink(path: Path) -> Iterator[Opener]:
    """Open sinks on `path`; they are closed at the end."""
    sinks: list[JsonlSink] = []

    def open_one(**options: Any) -> JsonlSink:
        sinks.append(opened(path, **options))
        return sinks[-1]

    yield open_one
    for sink in sinks:
        sink.close()


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_an_event_is_one_line_of_json(path: Path, open_sink: Opener) -> None:
    """Where it was, then the event as CloudEvents JSON."""
    open_sink().send(batch(PlainRecord(42, 1000, b"N1", b'{"a":"\\u2028"}', [*EVENT, JSON])))
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "datacontenttype": "application/json"}
    place = {"topic": "orders", "partition": 3, "offset": 42, "timestamp": 1000, "key": "N1"}
    assert lines(path) == [place | {"event": event | {"data": {"a": "\u2028"}}}]


def test_a_record_that_is_no_event_is_written_whole_with_the_reason(path: Path, open_sink: Opener) -> None:
    """So the sink serves plain topics too, and nothing is lost."""
    open_sink().send(batch(PlainRecord(42, -1, b"\xff", b"\x00", [("h", b"x"), ("h", None)])))
    (line,) = lines(path)
    assert line.pop("reason").startswith("no CloudEvent: ")
    raw = {"key_base64": "/w==", "value_base64": "AA==", "headers": [["h", "eA=="], ["h", None]]}
    assert line == {"topic": "orders", "partition": 3, "offset": 42, "timestamp": -1, **raw}


def test_lines_are_in_the_order_of_the_records(path: Path, open_sink: Opener) -> None:
    """Events, other records and tombstones as they come."""
    open_sink().send(batch(PlainRecord(4, headers=EVENT), PlainRecord(5), PlainRecord(9, headers=EVENT)))
    assert [(line["offset"], "event" in line) for line in lines(path)] == [(4, True), (5, False), (9, True)]
    assert [line["key"] for line in lines(path)] == [None, None, None]


def test_an_event_that_json_cannot_carry_is_written_raw(path: Path, open_sink: Opener) -> None:
    """1e999 is JSON, but no number that can be written again."""
    open_sink().send(batch(PlainRecord(1, value=b"1e999", headers=[*EVENT, JSON]), PlainRecord(2, headers=EVENT)))
    first, second = lines(path)
    assert first["value_base64"] == "MWU5OTk="
    assert first["reason"].startswith("cannot be written as JSON: ")
    assert second["event"]["id"] == "1"


def test_after_a_torn_line_the_next_batch_starts_on_a_new_one(path: Path, open_sink: Opener) -> None:
    """A kill in the middle of a write spoils only what was not committed; also one of another process, later."""
    path.write_bytes(b'{"topic": "ord')
    sink = open_sink(fsync=True)
    sink.send(batch(PlainRecord(1)))
    with path.open("ab") as other:
        other.write(b'{"torn')
    sink.send(batch(PlainRecord(2)))
    kept = path.read_bytes().split(b"\n")
    assert [kept[0], kept[2], kept[4]] == [b'{"topic": "ord', b'{"torn', b""]
    assert [json.loads(line)["offset"] for line in (kept[1], kept[3])] == [1, 2]


def test_partitions_in_several_threads_and_processes_share_a_file(path: Path, open_sink: Opener) -> None:
    """Batches never mix; two sinks on one file stand for two processes."""
    sinks = [open_sink(), open_sink()]

    def work(partition: int) -> None:
        for first in range(0, 100, 10):
            records = [PlainRecord(offset, value=b"x" * 500) for offset in range(first, first + 10)]
            sinks[partition % 2].send(batch(*records, partition=partition))

    threads = [threading.Thread(target=work, args=(partition,)) for partition in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    seen: dict[int, list[int]] = {}
    for line in path.read_bytes().splitlines():
        if line:
            place = json.loads(line)
            seen.setdefault(place["partition"], []).append(place["offset"])
    assert seen == {partition: list(range(100)) for partition in range(4)}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_so_that_the_batch_comes_again() -> None:
    """Nothing is committed that is not in the file."""
    sink = opened(Path("/dev/full"))
    try:
        with pytest.raises(OSError, match="No space left"):
            sink.send(batch(PlainRecord(1)))
    finally:
        sink.close()


def test_a_file_that_cannot_be_written_is_named_at_the_start(tmp_path: Path) -> None:
    """With what to do about it."""
    with pytest.raises(ConfigError, match=r"jsonl sink: cannot write .*out\.jsonl \(No such file.*create its folder"):
        opened(tmp_path / "missing" / "out.jsonl")


def test_close_gives_the_file_back(path: Path) -> None:
    """No descriptor is left behind."""
    before = len(os.listdir("/proc/self/fd"))
    opened(path).close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_log_sink_writes_a_line_per_event_and_warns_of_the_rest(caplog: Any) -> None:
    """Enough to see what comes, and where."""
    sink = LogSink()
    sink.open(Context("c", "g", "me"))
    with caplog.at_level(logging.INFO):
        sink.send(batch(PlainRecord(41, headers=EVENT), PlainRecord(42, headers=EVENT[1:])))
    sink.close()
    assert [(entry.levelname, entry.getMessage()) for entry in caplog.records] == [
        ("INFO", "orders/3@41 id=1 type=t source=/s"),
        ("WARNING", "orders/3@42 is no event: required attribute specversion is missing"),
    ]
