"""Reads a dead letter topic up to its end at the start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping

from inbound.clock import Clock
from inbound.dead_letters.letter import Letter, letter_of
from inbound.dead_letters.selection import Place
from inbound.errors import BrokerUnavailableError, ConfigError
from inbound.kafka.base import LogClient, LogRange
from inbound.kafka.clients.topic_logs import milliseconds
from inbound.offsets.gather import ask_with
from inbound.processors.batch import Record
from inbound.topic_partition import TopicPartition

#: Seconds without a record from a partition, after which reading fails.
PATIENCE = 30.0
_POLL = 0.2


class LetterLog:
    """One topic's records. One thread; the client's owner closes it."""

    def __init__(self, client: LogClient, topic: str, clock: Clock) -> None:
        """Look up the ranges of the topic's logs, which bound all reads.

        Raises:
            ConfigError: there is no such topic.
            BrokerUnavailableError: the brokers do not say.
        """
        self.topic = topic
        self._client = client
        self._clock = clock
        asked = ask_with(client, [topic], clock)
        if asked.problem is not None:
            raise BrokerUnavailableError(asked.problem)
        if topic not in asked.topics:
            raise ConfigError(f"topic {topic}: does not exist on these brokers; check its name and the section kafka")
        self.topic_id = asked.topics[topic].topic_id
        self.ranges: dict[int, LogRange] = {tp.partition: limits for tp, limits in sorted(asked.ranges.items())}
        self._tell: Callable[[int], None] = lambda count: None

    @property
    def size(self) -> int:
        """How many offsets there are to read."""
        return sum(max(0, limits.end - limits.start) for limits in self.ranges.values())

    def begin_at(self, seconds: float) -> None:
        """Skip records older than a Unix time, by the brokers' index.

        Raises:
            BrokerUnavailableError: a leader does not answer.
        """
        partitions = [TopicPartition(self.topic, number) for number in self.ranges]
        for tp, offset in self._client.offsets_at(partitions, milliseconds(seconds)).items():
            start, end = self.ranges[tp.partition]
            # No record of that time: at the end. A later one may have come since, and is not read either.
            self.ranges[tp.partition] = LogRange(min(end, max(start, end if offset is None else offset)), end)

    def narrow_to(self, places: Collection[Place]) -> None:
        """Read each partition only from its first to its last place.

        Raises:
            ConfigError: one of them is not in the log.
        """
        for partition, offset in sorted(places):
            limits = self.ranges.get(partition)
            if limits is None or not limits.start <= offset < limits.end:
                held = "it has no such partition" if limits is None else f"it holds {limits.start} to {limits.end - 1}"
                if limits is not None and limits.start >= limits.end:
                    held = "the partition is empty"
                raise ConfigError(f"topic {self.topic}: no letter at {partition}/{offset}: {held}")
        found: dict[int, LogRange] = {}
        for partition, offset in places:
            before = found.get(partition, LogRange(offset, offset + 1))
            found[partition] = LogRange(min(before.start, offset), max(before.end, offset + 1))
        self.ranges = dict(sorted(found.items()))

    def partitions_of(self, topics: Collection[str]) -> dict[str, int]:
        """Return the number of partitions of each topic that exists."""
        return {name: meta.partitions for name, meta in self._client.topics(topics, None).items()}

    def show_progress(self, tell: Callable[[int], None]) -> None:
        """Let reads call `tell` with their count, every 100 records."""
        self._tell = tell

    def records(self) -> Iterator[tuple[int, Record]]:
        """Yield partition and record, ordered by partition and offset.

        Raises:
            BrokerUnavailableError: nothing has come for too long.
            UnreadableBatchError: a batch cannot be parsed.
        """
        count = 0
        for partition, limits in self.ranges.items():
            for record in self._of(TopicPartition(self.topic, partition), limits):
                count += 1
                if not count % 100:
                    self._tell(count)
                yield partition, record

    def letters(self) -> Iterator[Letter]:
        """Yield the letter in each record. Raises as `records`."""
        return (letter_of(partition, record) for partition, record in self.records())

    def records_at(self, chosen: Mapping[int, Collection[int]]) -> Iterator[tuple[int, Record]]:
        """Yield the chosen records that retention has not deleted."""
        for partition, offsets in sorted(chosen.items()):
            wanted = frozenset(offsets)
            if wanted:
                limits = LogRange(min(wanted), max(wanted) + 1)
                for record in self._of(TopicPartition(self.topic, partition), limits):
                    if record.offset in wanted:
                        yield partition, record

    def _of(self, tp: TopicPartition, limits: LogRange) -> Iterator[Record]:
        if limits.start >= limits.end:
            return
        client, clock = self._client, self._clock
        client.limit_fetches(1024 * 1024)
        client.read({tp: limits.start})
        position = limits.start
        try:
            until = clock.now() + PATIENCE
            while position < limits.end:
                poll = client.poll(_POLL)
                if tp in poll.unreadable:
                    raise poll.unreadable[tp]
                if tp in poll.fetched:
                    yield from (one for one in poll.fetched[tp].records if position <= one.offset < limits.end)
                    position = poll.fetched[tp].next_offset
                    until = clock.now() + PATIENCE  # it may have taken long to do something with them
                    continue
                if tp in poll.out_of_range:  # retention has deleted what was to be read next
                    position = self._start_of(tp)
                    client.read({tp: position})
                    continue
                position = max(position, client.peek([tp], lambda: None).get(tp, (position, 0))[0])
                if clock.now() >= until:
                    why = f": {poll.failed[tp]}" if tp in poll.failed else ""
                    raise BrokerUnavailableError(
                        f"{tp}: no record has come for {PATIENCE:g} s, at offset {position} of {limits.end}{why}; see that "
                        "the partition's leader runs"
                    )
        finally:
            client.forget([tp])

    def _start_of(self, tp: TopicPartition) -> int:
        until = self._clock.now() + PATIENCE
        while True:
            limits = self._client.log_ranges([tp]).get(tp)
            if limits is not None:
                return limits.start
            if self._clock.now() >= until:
                raise BrokerUnavailableError(f"{tp}: its leader does not say where its log begins; see that it runs")
            self._clock.wait(threading.Event(), 0.05)
