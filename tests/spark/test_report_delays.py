"""Landings from ledger lines, and records held against them: a plain loop must find the same."""

from __future__ import annotations

from collections import Counter as Plain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.ledger.base import Range, Settled
from inbound.ledger.files import FilesLedger
from inbound.proof.model import PartitionKey
from inbound.report.figures import window_of
from inbound.spark.ledger_source import LedgerCut
from inbound.spark.report.landings import Landings, excerpt, landings_of, time_of
from inbound.spark.report.record_counter import SCHEMA, RecordCounter, counting, tallies
from inbound.testing.clock import ManualClock
from inbound.topic_partition import TopicPartition
from tests.proof.made_proof import NOON
from tests.report.bins import bin_of

KEY = PartitionKey("g", "orders", 0)
TP = TopicPartition("orders", 0)


def landings(commits: list[int], at: list[int], first: int = 0) -> Landings:
    return Landings(KEY, first, np.array(commits, np.int64), np.array(at, np.int64))


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 9_000)), max_size=8),
    st.lists(st.integers(-3_000, 12_000), max_size=60),
    st.integers(0, 10),
)
@settings(max_examples=40)
def test_counts_are_those_of_a_plain_loop(steps: list[tuple[int, int]], came: list[int], first: int) -> None:
    """Each record from `first` on: when it came, when it landed, how long that took; before the window apart."""
    begin = int(NOON * 1000)
    commits = np.cumsum([step for step, _ in steps]).tolist()
    at = [begin + ms for _, ms in steps]
    window = window_of(NOON, NOON + 9.5, 1)
    counter = RecordCounter({TP: [(0, landings(commits, at, first))]}, window)
    offsets, timestamps = np.arange(len(came)), np.array(came, np.int64) + begin

    counter.add(TP, offsets[:20], timestamps[:20])
    counter.add(TP, offsets[20:], timestamps[20:])

    (tally,) = tallies(pa.Table.from_batches([counter.rows()]), 1)
    published, landed, delays, before = Plain[int](), Plain[int](), Plain[tuple[int, int]](), 0
    for offset, moment in enumerate(timestamps.tolist()):
        when = next((t for commit, t in zip(commits, at, strict=True) if commit > offset), None)
        end = begin + 10_000
        if offset < first or (moment >= end and when is None):
            continue
        moment = min(moment, end - 1)
        if moment < begin:
            before += 1
        else:
            published[(moment - begin) // 1000] += 1
        if when is not None:
            landed[(when - begin) // 1000] += 1
            delays[(when - begin) // 1000, bin_of(max(0, when - moment))] += 1
    assert (tally.published, tally.landed, tally.before) == (published, landed, before)
    assert {(bucket, bin_): n for bucket, bins in tally.delays.items() for bin_, n in bins.items()} == dict(delays)


def test_a_batch_of_several_partitions_is_taken_apart() -> None:
    """Each record is held against the landings of its own partition; a topic that two groups read counts for both."""
    begin = int(NOON * 1000)

    lookup = {
        TP: [(0, landings([3], [begin + 500])), (1, landings([1], [begin + 700]))],
        TopicPartition("other", 1): [(2, landings([9], [begin + 100]))],
    }
    rows = [("orders", 0, 0), ("other", 1, 5), ("orders", 0, 1), ("orders", 7, 0), ("orders", 0, 2)]
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": [topic for topic, _, _ in rows],
            "partition": pa.array([partition for _, partition, _ in rows], pa.int32()),
            "offset": [offset for _, _, offset in rows],
            "at": [begin] * len(rows),
        }
    )
    shared: Any = SimpleNamespace(value=lookup)  # as a broadcast on an executor

    (counts,) = counting(shared, window_of(NOON, NOON + 1))([batch, batch.slice(0, 0)])

    assert counts.schema == SCHEMA
    assert [sum(tally.landed.values()) for tally in tallies(pa.Table.from_batches([counts]), 3)] == [3, 1, 1]


def test_landings_come_from_the_lines_of_several_runs(tmp_path: Path) -> None:
    """By mzxid, not by clock; what lands again after a reset has landed before; refused commits are none."""
    clock = ManualClock()
    runs: dict[str, list[Range | Settled]] = {
        "a": [Range("orders", 0, 1, 100, 110, 10), Settled("orders", 0, 1, 110, "landed", 50)],
        "b": [
            Range("orders", 0, 2, 105, 120, 15),
            Settled("orders", 0, 2, 120, "landed", 60),
            Settled("orders", 0, 2, 115, "landed", 70),
            Settled("orders", 0, 2, 130, "fenced"),
            Range("empty", 3, 2, 0, 10, 10),
        ],
    }
    for consumer, lines in runs.items():
        ledger = FilesLedger(tmp_path, "g", consumer, clock)
        for line in lines:
            if isinstance(line, Range):
                ledger.begun(line)
            else:
                ledger.settled([line])
        ledger.close()

    found = landings_of(excerpt(chunk.block()) for chunk in LedgerCut.now(tmp_path, "g").chunks())

    orders = found[KEY]
    assert (orders.first, orders.commits.tolist(), sum(orders.handed_out.values())) == (100, [110, 120], 25)
    empty = found[PartitionKey("g", "empty", 3)]
    assert (empty.first, empty.commits.tolist()) == (0, [])
    assert time_of([]) is None
    begins = time_of(found.values())
    assert begins is not None
    assert begins[0] <= begins[1]


def test_a_window_settles_what_landed_before_and_opens_what_lands_later() -> None:
    """Records that had landed when the window begins are none of its business."""
    one = landings([10, 20, 30, 40], [1_000, 2_000, 3_000, 9_000])

    cut = one.within(2, 5)

    assert (cut.first, cut.commits.tolist(), cut.at.tolist()) == (10, [20, 30], [2_000, 3_000])
