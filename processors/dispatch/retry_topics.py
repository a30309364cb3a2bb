"""The topics in which events of a subscription wait to be sent again: what a record there says, and until when it waits. Pure.

Each delay has a topic of its own. All records of one wait equally long, so the first of a partition is always due first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from inbound.processors.batch import Record
from inbound.processors.cloudevents_bridge import RecordParts, record_with_headers
from inbound.processors.dispatch.options import DispatchOptions
from inbound.topic_partition import MOST_OFFSET, TopicPartition

#: Headers of a record that waits. They are no part of its event: the subscriber does not see them.
PREFIX = "inbound-retry-"
GROUP, DELAY, DUE = (
    f"{PREFIX}group",
    f"{PREFIX}delay",
    f"{PREFIX}due",
)  # whose; 1 for the first; Unix time, milliseconds
TOPIC, PARTITION, OFFSET = f"{PREFIX}topic", f"{PREFIX}partition", f"{PREFIX}offset"  # where the event was first
TIME = f"{PREFIX}time"  # the timestamp of its record there, Unix time in milliseconds


class Origin(NamedTuple):
    """Where an event stood before it waited for the first time."""

    topic: str
    partition: int
    offset: int


class Delay(NamedTuple):
    """One of the delays."""

    number: int  # from 1
    seconds: float
    topic: str


class RetryTopics:
    """Those of one subscription; without `delayed_retry` in its options there are none."""

    def __init__(self, options: DispatchOptions, group: str) -> None:
        """`group`: the subscription's; others may use the same topics."""
        delayed = options.delayed_retry
        pairs = [] if delayed is None else zip(delayed.delays, delayed.topics, strict=True)
        self._delays = [Delay(number, *pair) for number, pair in enumerate(pairs, 1)]
        self._by_topic = {delay.topic: delay for delay in reversed(self._delays)}
        self._group = group
        self._repeats_last = options.delivery.deadLetterSink is None

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    def next(self, topic: str, record: Record) -> Delay | None:
        """Return how a record of `topic` waits that its subscriber did not take; None: it has had all delays.

        Without a dead letter sink the last one is repeated for ever: nothing is given up.
        """
        if not self._delays:
            return None
        had = self._had(topic, record)
        if had < len(self._delays):
            return self._delays[had]
        return self._delays[-1] if self._repeats_last else None

    def message(self, tp: TopicPartition, record: Record, delay: Delay, wall: float) -> RecordParts:
        """Return the record that waits from `wall` (Unix time) on, in place of `record` of `tp`: the same event and key."""
        origin, written_at = self.origin(tp, record), self.written_at(tp.topic, record)
        said = {
            GROUP: self._group,
            DELAY: str(delay.number),
            DUE: str(round((wall + delay.seconds) * 1000)),
            TOPIC: origin.topic,
            PARTITION: str(origin.partition),
            OFFSET: str(origin.offset),
        }
        return record_with_headers(record, PREFIX, said if written_at < 0 else {**said, TIME: str(written_at)})

    def origin(self, tp: TopicPartition, record: Record) -> Origin:
        """Return where the event of a record of `tp` was first."""
        if tp.topic in self._by_topic:
            said = headers_of(record)
            partition, offset = _number(said, PARTITION), _number(said, OFFSET)
            if said.get(TOPIC) and partition is not None and offset is not None:
                return Origin(said[TOPIC], partition, offset)
        return Origin(*tp, record.offset)

    def written_at(self, topic: str, record: Record) -> int:
        """Return when the event of a record of `topic` was written first: Unix time in milliseconds, -1 if that is not known."""
        if topic not in self._by_topic:
            return record.timestamp
        time = _number(headers_of(record), TIME)
        return -1 if time is None else time

    def is_others(self, topic: str, record: Record) -> bool:
        """Whether a record of `topic` waits there for another subscription."""
        return topic in self._by_topic and headers_of(record).get(GROUP, self._group) != self._group

    def wait(self, topic: str, record: Record, wall: float) -> float:
        """Return the seconds that a record of `topic` still waits at the Unix time `wall`.

        Never longer than the topic's delay: clocks of different machines, and of one machine that is set, do not agree.
        """
        delay, due = self._by_topic.get(topic), _number(headers_of(record), DUE)
        return 0.0 if delay is None or due is None else min(max(0.0, due / 1000 - wall), delay.seconds)

    def _had(self, topic: str, record: Record) -> int:
        """How many delays a record of `topic` has had."""
        delay = self._by_topic.get(topic)
        return 0 if delay is None else _number(headers_of(record), DELAY) or delay.number


def headers_of(record: Record) -> Mapping[str, str]:
    """Return what the headers of a record say of its waiting."""
    return {
        name: raw.decode(errors="replace")
        for name, raw in record.headers
        if raw is not None and name.startswith(PREFIX)
    }


def _number(said: Mapping[str, Any], name: str) -> int | None:
    text = said.get(name, "")
    if text.isascii() and text.isdigit() and len(text) <= len(str(MOST_OFFSET)):
        return int(text)
    return None
