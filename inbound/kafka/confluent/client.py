"""The reader's client over confluent-kafka, which fetches and decodes in C."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import takewhile, zip_longest
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient

from inbound.errors import ConfigError, UnreadableBatchError
from inbound.kafka.base import NO_EPOCHS, BrokerFigures, Fetched, LogClient, LogRange, Poll, TopicMeta
from inbound.kafka.confluent.figures import Statistics
from inbound.kafka.confluent.questions import (
    CUT,
    CUT_AT,
    NOT_BEGUN,
    OUT_OF_RANGE,
    PASSING,
    Ranges,
    TopicQuestions,
    is_unknown,
)
from inbound.kafka.confluent.records import (
    Aside,
    Messages,
    epoch_of,
    fitting,
    has_errors,
    known_epoch,
    runs,
    total_size,
)
from inbound.kafka.confluent.settings import (
    DEFAULTS,
    FIXED,
    Credentials,
    admin_settings,
    held_bytes,
    log_settings,
    memory,
    unusable,
)
from inbound.runtime.backoff import Backoff
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

MIB = 2**20
#: Time limit for a leader's first answer after the first partitions: without it the consumer is replaced.
FIRST_ANSWER = Backoff(1.0, 16.0)

#: The retry interval of a seek that came too early. Seconds.
SEEK_AGAIN = 0.01

#: librdkafka's number for an unknown leader epoch.
NO_EPOCH = -1


class ConfluentClient(LogClient):
    """One `confluent_kafka.Consumer` with manually assigned partitions.

    librdkafka requires a group. This one has the client's id, is never joined, and gets no commits.
    """

    record_bytes = 1000

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        client_id: str,
        isolation: str = "read_committed",
        fetch_wait: float = 0.1,
        fetch_bytes: int = MIB,
        prefetch_bytes: int = 64 * MIB,
        max_poll_records: int = 1000,
    ) -> None:
        """Start to connect.

        Raises:
            ConfigError: librdkafka does not take one of `properties`.
            BrokerRefusedError: there is no token.
        """
        self._properties = properties
        self._own = {
            "client.id": client_id,
            "max.partition.fetch.bytes": fetch_bytes,
            "fetch.wait.max.ms": round(fetch_wait * 1000),
            **memory(prefetch_bytes),
            **DEFAULTS,
        }
        self._fixed = {
            **FIXED,
            "group.id": client_id,
            "isolation.level": isolation,
            **log_settings(),  # no log, unless asked for: the reader reports errors
        }
        self._entry = Credentials(properties)
        self._entry.ready()
        self._settings: dict[str, Any] = {**self._own, **self._entry.settings, **self._fixed}
        self.held_bytes = held_bytes(prefetch_bytes)
        self._most_aside = prefetch_bytes
        self._max_poll_records = max_poll_records
        self._limit = fetch_bytes
        self._fetch_bytes = self._largest_fetch = int(self._settings["max.partition.fetch.bytes"])
        self._positions: dict[TopicPartition, int] = {}  # the offset after the last record that the caller got
        self._topics_read: set[str] = set()  # all ever: messages of a forgotten one may be left
        self._epochs: dict[TopicPartition, int] = {}  # leader epochs before the positions, where known
        #: Seeks for a comparison of the log that the consumer has not accepted yet; no messages of these are used before.
        self._unsought: dict[TopicPartition, confluent_kafka.TopicPartition] = {}
        self._paused: set[TopicPartition] = set()
        #: Messages that were fetched and not returned: beyond the limit of one poll, or of a paused partition.
        self._aside = Aside(self.record_bytes)
        self._stopped: set[TopicPartition] = set()  # not fetched: paused, with enough aside; or one of these
        self._out_of_range: set[TopicPartition] = set()
        self._misled: set[TopicPartition] = set()  # to be fetched again: see `_is_stale`
        self._diverged: dict[TopicPartition, int | None] = {}
        self._unreadable: dict[TopicPartition, UnreadableBatchError] = {}
        self._silences = 1  # consumers in a row without a leader's answer, including the current one
        self._answer_by: float | None = None  # the deadline for a leader's first answer to this consumer
        self._answered = False  # a leader has answered this consumer
        self._more = False  # the last call brought as many messages as it may
        self._consumer = self._make_consumer()
        self._admin = AdminClient(admin_settings(self._settings))
        self._topics = TopicQuestions(self._admin, self._entry)
        self._ranges = Ranges(self._admin, self._topics, isolation)

    # -- questions ---------------------------------------------------------------------------------------------------

    def topics(self, names: Collection[str], pattern: str | None) -> Mapping[str, TopicMeta]:
        self._renew_credentials()
        self.tend()
        return self._topics.get(names, pattern)

    def ask_topics(self) -> Callable[[], bool]:
        # The question in flight may have been answered before this call: the one after it counts.
        number = self._topics.asked + 1

        def answered() -> bool:
            self._topics.collect()
            if self._topics.answered < number:
                self._topics.ask()
            return self._topics.answered >= number

        answered()
        return answered

    @property
    def aside_bytes(self) -> int:
        return self._aside.bytes

    def reachable(self) -> bool:
        self._topics.collect()
        return self._topics.reachable

    def log_ranges(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        return self._ranges.ranges(partitions)

    def offsets_at(self, partitions: Collection[TopicPartition], time_ms: int) -> Mapping[TopicPartition, int | None]:
        return self._ranges.offsets_at(partitions, time_ms)

    # -- which partitions --------------------------------------------------------------------------------------------

    def read(
        self, positions: Mapping[TopicPartition, int], leader_epochs: Mapping[TopicPartition, int] = NO_EPOCHS
    ) -> None:
        self._drop([tp for tp in positions if tp in self._positions])
        self._positions.update(positions)
        self._topics_read.update(tp.topic for tp in positions)
        self._epochs.update(leader_epochs)
        self._stopped.update(positions)  # until librdkafka has accepted them: else the caller tries again
        self._fetch(positions)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        self._need(partitions)
        self._drop(partitions)
        for tp in partitions:
            del self._positions[tp]

    # librdkafka's own pause drops fetched messages, and its resume takes up to a second if no other partition is fetched.
    # So fetching goes on, and messages are put aside until a partition has enough of them.

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._need(partitions)
        self._paused.update(partitions)
        self._bound_aside()

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._need(partitions)
        self._paused.difference_update(partitions)
        unusable = self._out_of_range | self._diverged.keys() | self._unreadable.keys()
        self._fetch(self._stopped.intersection(partitions) - unusable)

    def limit_fetches(self, partition_bytes: int) -> None:
        self._limit = partition_bytes
        # librdkafka cannot change this setting: the consumer is replaced, which happens when a channel gets many partitions.
        wanted = min(self._largest_fetch, 1 << (partition_bytes.bit_length() - 1))
        if wanted < self._fetch_bytes or wanted >= 4 * self._fetch_bytes:
            self._fetch_bytes = wanted
            self._replace_consumer()

    def _need(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            if tp not in self._positions:
                raise KeyError(tp)

    def _fetch(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch partitions from behind the messages aside, and compare their logs."""
        keys: list[confluent_kafka.TopicPartition] = []
        compared: dict[TopicPartition, confluent_kafka.TopicPartition] = {}
        for tp in partitions:
            aside, position = self._aside.get(tp), self._fetched_to(tp)
            epoch = epoch_of(aside[-1]) if aside else self._epochs.get(tp)
            keys.append(
                confluent_kafka.TopicPartition(*tp, position, leader_epoch=NO_EPOCH if epoch is None else epoch)
            )
            if epoch is not None:  # without a seek librdkafka compares only when the leader changes
                compared[tp] = keys[-1]
        if keys:
            self._consumer.incremental_assign(keys)
            self._stopped.difference_update(partitions)
            self._unsought.update(compared)
            self._seek()
            if not self._answered and self._answer_by is None:
                self._answer_by = time.monotonic() + FIRST_ANSWER.delay(self._silences)

    def _fetched_to(self, tp: TopicPartition) -> int:
        aside = self._aside.get(tp)
        return (aside[-1].offset() or 0) + 1 if aside else self._positions[tp]

    def _seek(self) -> None:
        """Seek, so that librdkafka compares the logs; too early ones wait."""
        for tp, key in list(self._unsought.items()):
            try:
                self._consumer.seek(key)
            except KafkaException as error:
                if error.args[0].code() not in NOT_BEGUN:
                    raise
            else:
                del self._unsought[tp]

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching partitions, and drop their messages."""
        fetched = _keys(tp for tp in partitions if tp not in self._stopped)
        if fetched:
            self._consumer.incremental_unassign(fetched)
        for of_state in (self._paused, self._stopped, self._out_of_range, self._misled):
            of_state.difference_update(partitions)
        for tp in partitions:
            self._aside.drop(tp)
            self._epochs.pop(tp, None)
            self._unsought.pop(tp, None)
            self._diverged.pop(tp, None)
            self._unreadable.pop(tp, None)

    def _make_consumer(self) -> confluent_kafka.Consumer:
        self._statistics = Statistics()  # of this consumer alone
        own = self._statistics.settings
        try:
            return confluent_kafka.Consumer({**self._settings, **own, "max.partition.fetch.bytes": self._fetch_bytes})
        except KafkaException as error:
            raise ConfigError(unusable(error)) from None

    def _renew_credentials(self) -> None:
        """Replace the clients after a rotation: librdkafka cannot change credentials."""
        if not self._entry.changed():
            return
        entry = Credentials(self._properties)
        entry.ready()
        self._entry = entry
        self._settings = {**self._own, **self._entry.settings, **self._fixed}
        self._replace_consumer()
        self._admin = AdminClient(admin_settings(self._settings))  # the old one ends when its last question is answered
        self._topics.enter(self._admin, self._entry)
        self._ranges.enter(self._admin)

    def _replace_consumer(self) -> None:
        old, self._consumer = self._consumer, self._make_consumer()
        old.close()
        self._answered, self._answer_by = False, None
        self._unsought.clear()
        self._fetch(self._positions.keys() - self._stopped)

    # -- reading -----------------------------------------------------------------------------------------------------

    def poll(self, seconds: float, wake: Callable[[], None] | None = None) -> Poll:
        if self._answer_by is not None:
            self._give_up_silence()
        if self._misled:
            again, self._misled = self._misled - self._stopped, set()
            self._stop(again)
            self._fetch(again)
        if self._unsought:
            self._seek()
            seconds = min(seconds, SEEK_AGAIN) if self._unsought else seconds
        result = Poll()
        ready = self._aside.all_but(self._paused)
        if not ready:
            ready = self._sort(self._consume(seconds), result)
        if ready:
            self._topics.heard()
            self._hand_on(ready, result)
        self._bound_aside()
        if self._out_of_range or self._diverged or self._unreadable:
            untold = self._paused | self._aside.partitions
            result.out_of_range = {tp: self._positions[tp] for tp in self._out_of_range - untold}
            result.diverged = {tp: cut for tp, cut in self._diverged.items() if tp not in untold}
            result.unreadable = {tp: error for tp, error in self._unreadable.items() if tp not in untold}
        return result

    def figures(self) -> Sequence[BrokerFigures]:
        return self._statistics.brokers

    def tend(self) -> None:
        if self._statistics.overdue and self._positions.keys() <= self._paused:
            self._sort(self._consume(0.0), Poll())  # all partitions are paused: messages are put aside

    def close(self) -> None:
        self._topics.close()
        self._admin.__exit__(None, None, None)  # it has no `close`
        try:
            self._consumer.close()
        except RuntimeError:
            pass  # it is closed

    def _consume(self, seconds: float) -> list[Message]:
        """Return waiting messages, or wait for the first ones."""
        messages = self._consumer.consume(self._max_poll_records, 0)
        self._more = len(messages) == self._max_poll_records
        if messages:
            return messages
        # Not `consume`: it waits for the full number of messages, or until the time is up.
        first = self._consumer.poll(seconds)
        if first is None:
            return []
        return [first, *self._consumer.consume(self._max_poll_records - 1, 0)]

    def _sort(self, messages: list[Message], result: Poll) -> dict[TopicPartition, list[Message]]:
        """Return messages of unpaused partitions, and put the others aside."""
        if has_errors(messages):
            messages = self._without_errors(messages, result)
        ready: dict[TopicPartition, list[Message]] = {}
        grown: set[TopicPartition] = set()
        for key, run in runs(messages, len(self._topics_read) <= 1):
            tp = TopicPartition(*key)
            if tp in self._positions and tp not in self._unsought:
                if tp in self._paused:
                    self._aside.add(tp, run)
                    grown.add(tp)
                elif tp in ready:
                    ready[tp].extend(run)
                else:
                    ready[tp] = run
        self._stop([tp for tp in grown if self._aside.size(tp) > self._limit])
        return ready

    def _stop(self, partitions: Iterable[TopicPartition]) -> None:
        fetched = [tp for tp in partitions if tp not in self._stopped]
        if fetched:
            self._consumer.incremental_unassign(_keys(fetched))
            self._stopped.update(fetched)

    def _bound_aside(self) -> None:
        """Bound the messages aside of paused partitions; others are fetched again.

        Partitions with an error to report keep theirs: without them the error would be reported at an earlier position.
        """
        beyond = self._aside.bytes - self._most_aside
        if beyond <= 0:
            return
        told = self._out_of_range | self._diverged.keys() | self._unreadable.keys()
        dropped = []
        for tp in sorted((self._paused & self._aside.partitions) - told, key=self._aside.weight, reverse=True):
            dropped.append(tp)
            beyond -= self._aside.weight(tp)
            if beyond <= 0:
                break
        self._stop(dropped)  # first: else messages behind a gap would be put aside
        for tp in dropped:
            self._aside.drop(tp)

    def _give_up_silence(self) -> None:
        """Replace the consumer if a silent broker got its question for leaders.

        librdkafka asks the one broker that it is connected to at first, and no other until `socket.timeout.ms` is over;
        until then it reads nothing. A new consumer connects to a broker that answers.
        """
        if self._answer_by is None or time.monotonic() < self._answer_by:
            return
        self._answer_by = None
        self._answered = any(self._end_of(tp) is not None for tp in self._positions)
        if self._answered:
            self._silences = 1
        elif self._positions:
            self._silences += 1
            if self._topics.reachable:
                log.info("kafka: no leader has answered; connecting again")
                self._replace_consumer()
            else:
                self._answer_by = time.monotonic() + FIRST_ANSWER.delay(self._silences)

    def _end_of(self, tp: TopicPartition) -> int | None:
        """Return a log's end from its leader's last answer, if any."""
        try:
            _, end = self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*tp), cached=True)
        except KafkaException:
            return None  # an earlier consumer had this partition
        return end if end >= 0 else None

    def _hand_on(self, ready: Mapping[TopicPartition, list[Message]], result: Poll) -> None:
        """Return each partition's messages up to the limit; put the rest aside."""
        whole = []
        for tp, messages in ready.items():
            size = total_size(messages)
            if size > self._limit and (count := fitting(messages, size, self._limit)) < len(messages):
                given, rest = messages[:count], messages[count]
                given_size = total_size(given)
                self._aside.put(tp, messages[count:], max(0, size - given_size))  # both sizes are estimates
                self._give(tp, given, rest.offset() or 0, given_size, epoch_of(rest), result)
            else:
                self._aside.drop(tp)
                whole.append((tp, messages, size))
        # Offsets without a record may follow the last one: librdkafka's position is behind those that it has seen. If more
        # messages wait than one poll takes, the next poll finds it out.
        positions = self._consumer.position(_keys(tp for tp, _, _ in whole)) if not self._more else ()
        for (tp, messages, size), position in zip_longest(whole, positions):
            last = messages[-1]
            behind, epoch = (last.offset() or 0) + 1, epoch_of(last)
            if position is not None and position.offset > behind:
                behind, epoch = position.offset, known_epoch(position.leader_epoch)
            self._give(tp, messages, behind, size, epoch, result)

    def _give(
        self, tp: TopicPartition, messages: list[Message], next_offset: int, size: int, epoch: int | None, result: Poll
    ) -> None:
        self._positions[tp] = next_offset
        if epoch is not None:
            self._epochs[tp] = epoch
        else:
            self._epochs.pop(tp, None)
        result.fetched[tp] = Fetched(Messages(messages), next_offset, size, self._end_of(tp), epoch)

    def _without_errors(self, messages: list[Message], result: Poll) -> list[Message]:
        """Record the errors, and return the other messages."""
        for message in messages:
            error, topic, number = message.error(), message.topic(), message.partition()
            tp = TopicPartition(topic or "", -1 if number is None else number)
            if error is None or tp in self._unreadable:  # its later messages were requested before
                continue
            if error.code() in OUT_OF_RANGE:
                if tp in self._positions and self._is_stale(tp, message, messages):
                    self._misled.add(tp)
                elif tp in self._positions:
                    self._set_outside(tp, error)
            elif error.code() == KafkaError._BAD_COMPRESSION:
                if tp in self._positions:  # another fetch would fail, and decompress as much
                    self._leave(tp)
                    at = message.offset()
                    self._unreadable[tp] = UnreadableBatchError(
                        *tp, self._positions[tp] if at is None or at < 0 else at,
                        f"{error.str()}: broken, or too large once it is decompressed (librdkafka's bound for zstd is "
                        "receive.message.max.bytes); move the group past it (inbound offsets reset)",
                    )  # fmt: skip
            elif error.code() in PASSING or error.retriable() or is_unknown(error) or tp not in self._positions:
                log.debug("kafka: %s: %s", tp, error)
            else:
                result.failed[tp] = KafkaException(error)
        return [message for message in messages if message.error() is None]

    def _is_stale(self, tp: TopicPartition, failed: Message, messages: list[Message]) -> bool:
        """Return whether a fetch failed that began before the last `read`.

        librdkafka reports it under the new assignment where both cross. A gap looks the same; the next fetch tells.
        """
        before = takewhile(lambda message: message is not failed, messages)
        offsets = [one.offset() or 0 for one in before if (one.topic(), one.partition()) == tp and not one.error()]
        at = failed.offset()
        return at is not None and at >= 0 and at != (offsets[-1] + 1 if offsets else self._fetched_to(tp))

    def _leave(self, tp: TopicPartition) -> None:
        """Stop fetching a partition until the next `read` of it."""
        self._stop([tp])
        self._unsought.pop(tp, None)

    def _set_outside(self, tp: TopicPartition, error: KafkaError) -> None:
        self._leave(tp)
        if error.code() == KafkaError._LOG_TRUNCATION or CUT in error.str():
            at = CUT_AT.search(error.str())
            self._diverged[tp] = int(at[1]) if at is not None else None
        else:
            self._out_of_range.add(tp)


def _keys(partitions: Iterable[TopicPartition]) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(*tp) for tp in partitions]
