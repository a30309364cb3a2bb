"""From Spark's columns to records, in order or not at all; and events of a shadow, line by line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inbound.errors import SparkError, UnreadableBatchError
from inbound.processors.batch import record_size
from inbound.spark.replay.feed import from_arrow, from_kafka
from inbound.spark.replay.job import reason_of
from inbound.spark.replay.plan import Unit
from inbound.spark.replay.shadow import event_of
from inbound.testing.kafka import FakeKafka

pyarrow = pytest.importorskip("pyarrow")

UNIT = Unit(0, "orders", 2, 5, 100)


def rows(*offsets: int, topic: str = "orders", partition: int = 2) -> Any:
    """Return a record batch as Spark delivers it."""
    count = len(offsets)
    header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    return pyarrow.RecordBatch.from_arrays(
        [
            pyarrow.array([topic] * count),
            pyarrow.array([partition] * count, pyarrow.int32()),
            pyarrow.array(offsets, pyarrow.int64()),
            pyarrow.array([1_700_000_000_123_000 + n for n in range(count)], pyarrow.timestamp("us", "UTC")),
            pyarrow.array([None][:count] + [b"key"] * (count - 1), pyarrow.binary()),
            pyarrow.array([b"value"] * (count - 1) + [None][:count], pyarrow.binary()),
            pyarrow.array(
                [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}]][:count] + [None] * (count - 1),
                pyarrow.list_(header),
            ),
        ],
        names=["topic", "partition", "offset", "timestamp", "key", "value", "headers"],
    )


def test_columns_become_records() -> None:
    """Key, value, headers with repeated names and nulls, the time in milliseconds; sizes as a channel counts them."""
    (chunk,) = from_arrow(iter([rows(5, 9)]), UNIT)

    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in chunk.records] == [
        (5, 1_700_000_000_123, None, b"value", (("a", b"1"), ("a", None))),
        (9, 1_700_000_000_123, b"key", None, ()),
    ]
    assert (chunk.next_offset, chunk.size) == (10, sum(map(record_size, chunk.records)))


@pytest.mark.parametrize(
    "batches",
    [
        [rows(5, 7, 6)],
        [rows(5, 5)],
        [rows(5, 6), rows(6, 7)],
        [rows(5, 6, partition=1)],
        [rows(5, 6, topic="other")],
        [rows(99, 100)],
    ],
)
def test_what_is_out_of_order_is_refused(batches: list[Any]) -> None:
    """Within a batch of Spark's and between two; another partition's, or beyond the unit."""
    with pytest.raises(SparkError, match="orders/2: Spark did not deliver offsets 5 to 99 in order"):
        list(from_arrow(iter(batches), UNIT))


LINE = {"topic": "orders", "partition": 2, "offset": 7, "timestamp": 1, "key": None}


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (json.dumps({**LINE, "event": {"source": "s", "id": "1", "b": 1}}), ("s", "1", '{"b": 1, "id": "1", "source": "s"}')),
        (json.dumps({**LINE, "value_base64": "eA==", "headers": [], "reason": "no type"}),
         ("", "orders/2/7", '{"headers": [], "value_base64": "eA=="}')),
        (json.dumps({**LINE, "offset": 4, "event": {"source": "s", "id": "1"}}), None),
        ("", None),
        ('{"topic":"ord', (None, None, None)),
        ("[1]", (None, None, None)),
    ],
)  # fmt: skip
def test_a_line_of_the_jsonl_sink_is_one_event(line: str, event: object) -> None:
    """Other offsets do not count; a torn line is neither here nor there."""
    assert event_of(line, [("orders", 2, 5, 100)]) == event


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Aborted\n Traceback\ninbound.errors.LedgerError: ledger x: full\n\n\tat org.x", "ledger x: full"),
        ("Aborted\nValueError: no\n\tat org", "ValueError: no"),
        ("Something else\nmore", "Something else"),
    ],
)
def test_what_failed_is_found_among_stacks(text: str, reason: str) -> None:
    """The message of inbound's own error, or Python's last line."""
    assert reason_of(Exception(text)) == f"a task failed: {reason}"


def test_what_is_read_again_and_cannot_be_taken_apart_says_why() -> None:
    """At once, and with what to do: not that nothing came."""
    kafka = FakeKafka()
    kafka.create_topic("orders", 1)
    kafka.publish_batch("orders", 0, [b"x"] * 3, 1 << 30)

    with pytest.raises(UnreadableBatchError, match="raise that, or move the group past it, to 3"):
        list(from_kafka(kafka.client, Unit(0, "orders", 0, 0, 3), 0, 3))
