"""Records of confluent-kafka: views of its messages that cost nothing until they are looked at, and keep nothing alive."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message

from inbound.kafka.confluent.records import SAMPLE, Aside, Messages, fitting, runs, total_size
from inbound.partition.buffer import Chunk, RecordBuffer, record_size
from inbound.topic_partition import TopicPartition
from tests.kafka.log_client_stage import Headers, plain


def message(
    offset: int,
    partition: int = 0,
    topic: str = "t",
    value: bytes | None = b"v",
    key: bytes | None = None,
    headers: Headers | None = None,
) -> Message:
    """Return a message as `consume` makes them."""
    given: Any = list(headers) if headers is not None else None
    return Message(
        topic=topic,
        partition=partition,
        offset=offset,
        value=value,
        key=key,
        headers=given,
        timestamp=(1, 1000 + offset),
    )


def test_a_message_is_a_record() -> None:
    """Headers repeated and null, a tombstone, no key: as they came."""
    headers = [("a", b"1"), ("a", None)]
    records = Messages([message(3, key=b"k", headers=headers), message(4, value=None)])
    assert [plain(record) for record in records] == [(3, 1003, b"k", b"v", headers), (4, 1004, None, None, [])]
    assert plain(records[-1]) == plain(records[1:][0])


def test_messages_are_cut_without_looking_at_them() -> None:
    """A slice is a view again, of the very messages."""
    buffer = RecordBuffer()
    buffer.add(Chunk(Messages([message(offset) for offset in range(5)]), 5, 5), 0)
    cuts = [buffer.cut(2, 100), buffer.cut(9, 100)]
    assert [type(cut.records) for cut in cuts if cut] == [Messages, Messages]
    assert [[r.offset for r in cut.records] for cut in cuts if cut] == [[0, 1], [2, 3, 4]]


def test_stretches_are_told_apart_by_topic_and_partition() -> None:
    """Also where one of another partition stands just where a compacted log has a gap."""
    messages = [message(5), message(6, partition=1), message(7), message(8, topic="u"), message(9, topic="u")]
    of_one_topic = [(key, [m.offset() for m in run]) for key, run in runs(messages[:3], True)]
    of_two = [(key, [m.offset() for m in run]) for key, run in runs(messages, False)]
    assert of_one_topic == [(("t", 0), [5]), (("t", 1), [6]), (("t", 0), [7])]
    assert of_two == [*of_one_topic, (("u", 0), [8, 9])]


def test_the_size_of_few_messages_is_exact() -> None:
    """Every one is looked at."""
    messages = [message(n, value=b"x" * n, key=b"k" * (n % 3), headers=[("h", b"v" * n)]) for n in range(SAMPLE)]
    assert total_size(messages) == sum(record_size(record) for record in Messages(messages))


def test_the_size_of_many_messages_is_right_where_keys_and_headers_are_much_alike() -> None:
    """Values count exactly however they differ."""
    messages = [message(n, value=b"x" * (n % 700), key=b"key-%d" % n, headers=[("h", b"v")]) for n in range(2000)]
    exact = sum(record_size(record) for record in Messages(messages))
    assert abs(total_size(messages) - exact) < exact / 200


def test_what_is_aside_is_counted_with_what_its_messages_take() -> None:
    """After any adding, replacing and dropping."""
    aside, one, two = Aside(record_bytes=1000), TopicPartition("t", 0), TopicPartition("t", 1)
    counted = []
    changes: list[Callable[[], None]] = [
        lambda: aside.add(one, [message(0, value=b"xx")]),
        lambda: aside.add(one, [message(1, value=b"xxx"), message(2, value=b"")]),
        lambda: aside.add(two, [message(0, value=b"xxxx")]),
        lambda: aside.put(one, [message(2, value=b"")], 0),
        lambda: aside.drop(two),
        lambda: aside.drop(two),
        lambda: aside.drop(one),
    ]
    for change in changes:
        change()
        counted.append((aside.size(one), aside.size(two), aside.bytes))
    assert counted == [(2, 0, 1002), (5, 0, 3005), (5, 4, 4009), (0, 4, 2004), (0, 0, 1000), (0, 0, 1000), (0, 0, 0)]


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [([10] * 8, 45, 4), ([100, 5000, 100], 2000, 1), ([5000, 100], 2000, 1), ([1, 1, 1, 900, 1], 100, 3)],
)
def test_what_fits_is_never_more_than_the_limit_but_for_one_alone(sizes: list[int], limit: int, expected: int) -> None:
    """Some may be left for the next time."""
    messages = [message(n, value=b"x" * size) for n, size in enumerate(sizes)]
    assert 1 <= fitting(messages, sum(sizes), limit) <= expected


def test_nothing_keeps_a_message_that_was_handed_on() -> None:
    """No cycle, no cache: it goes when its batch goes."""
    one = message(1, headers=[("h", b"v")])
    records = Messages([one])
    seen = [(record.offset, record.value, list(record.headers)) for record in records]
    assert (seen, total_size([one])) == ([(1, b"v", [("h", b"v")])], 3)
    del records
    gc.collect()
    assert sys.getrefcount(one) == 2
