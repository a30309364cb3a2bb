"""The reader's client over kafka-python, and errors in its words."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import chain
from operator import itemgetter
from typing import Any

import kafka
import kafka.errors
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from inbound.coordinators.nodes import canonical
from inbound.errors import BrokerRefusedError, BrokerUnavailableError, ConfigError, UnreadableBatchError
from inbound.kafka.auth.access import resolve
from inbound.kafka.base import NO_EPOCHS, BrokerFigures, Fetched, LogClient, LogRange, Poll, ReadTo, TopicMeta
from inbound.kafka.python.bounded_records import beyond, bounded_parts
from inbound.kafka.python.brokers import BrokerLiveness, RangeQuestions, figures_of
from inbound.kafka.python.connections import Door, described
from inbound.kafka.python.metadata import cuts
from inbound.kafka.python.private_members import check
from inbound.processors.batch import FEW_HEADERS, headers_size
from inbound.runtime.patterns import chooser
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

#: Time limit for a blocking question to the brokers; all partitions wait with it. Seconds.
ANSWER_TIMEOUT = 5.0
CLOSE_TIMEOUT_MS = 3000
#: The longest wait of a fetch at the broker on an idle channel. Seconds. Each fetch takes 3.5 ms of CPU time with 50
#: partitions and 19 ms with 1,000, however little it brings. The broker still answers at once when records arrive.
PATIENT_WAIT = 2.0

#: Properties of credentials; `Door` passes on those that kafka-python needs.
_ENTRY = ("ssl.", "sasl.oauthbearer.", "sasl.jaas.", "sasl.login.")

_sizes = itemgetter(*(kafka.consumer.fetcher.ConsumerRecord._fields.index(f) for f in (
    "serialized_key_size", "serialized_value_size", "serialized_header_size")))  # fmt: skip
_headers = itemgetter(kafka.consumer.fetcher.ConsumerRecord._fields.index("headers"))


#: Partitions that are paused within a batch keep `ASIDE` times `max_decompressed_bytes`; the rest is fetched again.
ASIDE = 4


class KafkaPythonClient(LogClient):
    """One `kafka.KafkaConsumer` with manually assigned partitions.

    Its records are used as they are: they implement `Record`, and copies would cost a tenth of reading.
    """

    wakes = True
    record_bytes = 1000  # a tuple, its numbers, a list of header pairs: measured with 4 headers

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        client_id: str,
        isolation: str = "read_committed",
        fetch_wait: float = 0.1,
        fetch_bytes: int = 1024 * 1024,
        max_poll_records: int = 10_000,
        max_decompressed_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        """Connect.

        Raises:
            BrokerUnavailableError: no broker answers.
            ConfigError: kafka-python does not take one of `properties`, or lacks a private member.
        """
        check()
        settings = self._settings = to_kafka_python(properties)
        self._where = settings.get("bootstrap_servers", "")
        self._max_poll_records = max_poll_records
        defaults: dict[str, Any] = {
            "client_id": client_id,
            "fetch_max_wait_ms": max(1, round(fetch_wait * 1000)),
            "max_partition_fetch_bytes": fetch_bytes,
            "reconnect_backoff_max_ms": 1000,  # the default of 30 s would delay reading after every broker's restart
            "metadata_max_age_ms": 30_000,
            "bootstrap_timeout_ms": round(ANSWER_TIMEOUT * 1000),
        }
        fixed: dict[str, Any] = {
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            "allow_auto_create_topics": False,
            "isolation_level": isolation,
        }
        with errors_of(settings):
            self._consumer = kafka.KafkaConsumer(**{**defaults, **settings, **fixed})
        self._cluster = self._consumer._manager.cluster
        self._assignment = self._consumer._subscription.assignment
        self._fetcher = self._consumer._fetcher
        self._cluster.need_all_topic_metadata = True  # one answer for all topics, not only assigned ones
        self._fetch_wait: float = self._consumer.config["fetch_max_wait_ms"] / 1000
        self._brokers = BrokerLiveness(self._consumer, self._fetch_wait)
        self._waits_for: list[Any] = []  # fetches whose answer wakes the reader
        self._patient_until: dict[int, float] = {}  # brokers with a long fetch, and its end
        self._questions = RangeQuestions(self._consumer, self._brokers.metadata)
        self._watching = RangeQuestions(self._consumer, self._brokers.metadata, watching=True)
        self._update: Any = None  # the future of the last question for metadata
        self._listed = False  # one question was answered
        self._reachable = True
        self._keys: dict[TopicPartition, KafkaPartition] = {}
        self._ours: dict[KafkaPartition, TopicPartition] = {}
        self._paused: set[TopicPartition] = set()
        #: Not fetched until they are read again: their positions, and where their logs were cut.
        self._out_of_range: dict[TopicPartition, int] = {}
        self._diverged: dict[TopicPartition, int | None] = {}
        self._unreadable: dict[TopicPartition, UnreadableBatchError] = {}
        bounded_parts(self._fetcher, self._consumer._subscription, max_decompressed_bytes)
        self._most_aside = ASIDE * max_decompressed_bytes

    def topics(self, names: Collection[str], pattern: str | None) -> Mapping[str, TopicMeta]:
        last = self._update
        if last is None or last.is_done:
            self._update = self._brokers.metadata.ask()
        # A failed question while other brokers answer went to the dead broker. An error here would stop the reading of
        # all partitions until the retry.
        good = last is None or (last.is_done and last.exception is None)
        self._reachable = good or self._brokers.any_answers()
        if not self._reachable:
            said = last.exception if last.is_done else "the question for the list of topics was not answered"
            if is_refused(self._settings):
                raise BrokerRefusedError(f"Kafka at {self._where}: {why(self._settings, last.exception)}")
            raise BrokerUnavailableError(f"Kafka at {self._where} does not answer: {said}")
        if not self._listed:
            self._wait_for_update()
            self._listed = True
        known = self._cluster.topics()
        wanted = chooser(names, pattern)
        found = {}
        for name in known:
            if wanted(name):
                partitions = self._cluster.partitions_for_topic(name) or set()
                topic_id = self._cluster.topic_id(name)
                # A topic being created can be listed with some partitions missing: what counts is the highest number.
                found[name] = TopicMeta(
                    max(partitions, default=-1) + 1, canonical(str(topic_id)) if topic_id is not None else None
                )
        return {name: meta for name, meta in found.items() if meta.partitions}

    def _wait_for_update(self) -> None:
        """Wait for the list of topics; ask again if connecting fails."""
        deadline = time.monotonic() + ANSWER_TIMEOUT
        manager = self._consumer._manager

        with self._question("the list of topics"):
            while True:
                try:
                    manager.run(manager.wait_for, self._update, max(0.0, deadline - time.monotonic()) * 1000)
                    return
                except (kafka.errors.KafkaConnectionError, kafka.errors.MetadataEmptyBrokerList):
                    if is_refused(self._settings) or time.monotonic() >= deadline:
                        raise
                    self._update = self._brokers.metadata.ask()

    def ask_topics(self) -> Callable[[], bool]:
        question = self._brokers.metadata.ask()

        def answered() -> bool:
            nonlocal question
            if not question.is_done:
                return False
            if question.exception is not None:
                question = self._brokers.metadata.ask()
            return bool(question.is_done and question.exception is None)

        return answered

    def reachable(self) -> bool:
        return self._reachable

    def log_ranges(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        self._cut_short(partitions)
        found = self._questions.ranges([KafkaPartition(*tp) for tp in partitions])
        return {TopicPartition(*key): limits for key, limits in found.items()}

    def offsets_at(self, partitions: Collection[TopicPartition], time_ms: int) -> Mapping[TopicPartition, int | None]:
        self._cut_short(partitions)
        times = {KafkaPartition(*tp): time_ms for tp in partitions}
        # kafka-python asks again until each leader has answered; None then means that there is no such record.
        with self._question("where a time begins"):
            found = self._consumer.offsets_for_times(times, timeout_ms=round(ANSWER_TIMEOUT * 1000))
        return {TopicPartition(*key): None if at is None else at.offset for key, at in found.items()}

    def peek(
        self, partitions: Collection[TopicPartition], wake: Callable[[], None]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        # Long fetches are not cut short: a watcher can wait for the answer behind them.
        ends = self._watching.ranges([self._keys[tp] for tp in partitions if tp in self._keys], wake)
        found = {}
        for key, limits in ends.items():
            state = self._assignment.get(key)
            if state is not None and state.position is not None and key in self._ours:
                found[self._ours[key]] = (state.position.offset, limits.end)
        return found

    def cuts(
        self, read: Mapping[TopicPartition, ReadTo], seconds: float
    ) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
        """See `inbound.kafka.python.metadata.cuts`, which waits for the brokers: not for a reader."""
        return cuts(self._consumer, self._brokers.metadata, read, seconds)

    def unled(self) -> Collection[TopicPartition]:
        return [self._ours[key] for key in self._brokers.unled if key in self._ours]

    def read(
        self, positions: Mapping[TopicPartition, int], leader_epochs: Mapping[TopicPartition, int] = NO_EPOCHS
    ) -> None:
        for tp in positions:
            if tp not in self._keys:
                self._keys[tp] = KafkaPartition(*tp)
                self._ours[self._keys[tp]] = tp
        self._assign()
        self._cut_short(positions)
        self._discard({self._keys[tp] for tp in positions})
        subscription = self._consumer._subscription  # the consumer's own seek takes no epoch
        untold = self._fetcher._cached_log_truncation
        for tp, offset in positions.items():
            subscription.seek(self._keys[tp], OffsetAndMetadata(offset, "", leader_epochs.get(tp, -1)))
            if untold is not None:
                untold.divergent_offsets.pop(self._keys[tp], None)  # it was about the earlier position
            for stopped in (self._out_of_range, self._diverged, self._unreadable):
                stopped.pop(tp, None)
        self.resume(positions)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            self._ours.pop(self._keys.pop(tp), None)
            self._paused.discard(tp)
            for stopped in (self._out_of_range, self._diverged, self._unreadable):
                stopped.pop(tp, None)
        self._assign()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._consumer.pause(*[self._keys[tp] for tp in partitions])
        self._paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        keys = {tp: self._keys[tp] for tp in partitions}
        stopped = self._out_of_range.keys() | self._diverged.keys() | self._unreadable.keys()
        self._consumer.resume(*[keys[tp] for tp in keys if tp not in stopped])
        self._paused.difference_update(partitions)

    def limit_fetches(self, partition_bytes: int) -> None:
        # The fetcher reads it for each request; there is no public way to change it.
        self._fetcher.config["max_partition_fetch_bytes"] = partition_bytes

    def poll(self, seconds: float, wake: Callable[[], None] | None = None) -> Poll:
        result = Poll()
        all_led = self._brokers.look_for_leaders(self._ours)
        if not all_led:
            self._cut_short(self._keys)  # the questions for new leaders would wait behind the fetches
        self._set_fetch_wait(PATIENT_WAIT if wake is not None and all_led else self._fetch_wait)
        self._take_up_resumed()
        try:
            fetched = self._consumer.poll(timeout_ms=round(seconds * 1000), max_records=self._max_poll_records)
        except (kafka.errors.OffsetOutOfRangeError, kafka.errors.LogTruncationError) as error:
            self._set_outside(error)
            fetched = {}
        except UnreadableBatchError as error:
            key = KafkaPartition(error.topic, error.partition)
            if key in self._ours:
                self._unreadable[self._ours[key]] = error
                self._consumer.pause(key)
            fetched = {}
        except kafka.errors.KafkaError as error:
            if isinstance(error, kafka.errors.RetriableError):
                raise BrokerUnavailableError(f"Kafka at {self._where}: {type(error).__name__}: {error}") from None
            result.failed = dict.fromkeys(self._keys, error)
            return result
        self._reachable = self._reachable or bool(fetched)
        if too_many := beyond(self._fetcher._paused_partition_records, self._most_aside):
            self._discard(too_many)
        result.out_of_range = {tp: offset for tp, offset in self._out_of_range.items() if tp not in self._paused}
        result.unreadable = {tp: error for tp, error in self._unreadable.items() if tp not in self._paused}
        result.diverged = {tp: cut for tp, cut in self._diverged.items() if tp not in self._paused}
        if wake is not None and all_led and not (fetched or result.out_of_range or result.diverged):
            result.will_wake = self._wake_when_answered(wake)
        for key, records in fetched.items():
            state = self._assignment.get(key)
            if state is None or key not in self._ours:
                continue
            position = state.position
            epoch = position.leader_epoch if position.leader_epoch >= 0 else None
            result.fetched[self._ours[key]] = Fetched(
                records, position.offset, _total_size(records), state.highwater, epoch
            )
        return result

    def _set_outside(self, error: kafka.errors.KafkaError) -> None:
        """Stop partitions with unusable positions, which kafka-python reports once."""
        if isinstance(error, kafka.errors.LogTruncationError):
            for key, at in error.divergent_offsets.items():
                state = self._assignment.get(key)
                if state is not None and key in self._ours and (at is None or at.offset < state.position.offset):
                    self._diverged[self._ours[key]] = at.offset if at is not None else None
                    self._consumer.pause(key)
            return
        for key, offset in error.args[0].items():
            if key in self._ours:
                self._out_of_range[self._ours[key]] = offset
                self._consumer.pause(key)

    def _set_fetch_wait(self, seconds: float) -> None:
        """Set how long later fetches wait for records at the broker."""
        self._fetcher.config["fetch_max_wait_ms"] = max(1, round(max(seconds, self._fetch_wait) * 1000))
        now = time.monotonic()
        patient = seconds > self._fetch_wait or any(until > now for until in self._patient_until.values())
        self._brokers.fetch_wait = max(PATIENT_WAIT, self._fetch_wait) if patient else self._fetch_wait

    def _wake_when_answered(self, wake: Callable[[], None]) -> bool:
        """Call `wake` at a pending fetch's end; return whether one is pending."""
        pending = list(self._fetcher._fetch_futures)
        until = time.monotonic() + PATIENT_WAIT
        for fetch in pending:
            if not any(fetch is known for known in self._waits_for):
                fetch.add_both(lambda _: wake())
                self._patient_until = dict.fromkeys(self._fetcher._nodes_with_pending_fetch_requests.copy(), until)
        self._waits_for = pending
        return bool(pending)

    def _cut_short(self, partitions: Iterable[TopicPartition]) -> None:
        """End long fetches at partitions' leaders, so that questions do not wait.

        A broker answers the requests of one connection one after the other. A connection that is closed gracefully is
        replaced at the next request, without backoff; the long fetch has brought nothing yet.
        """
        if not self._patient_until:
            return
        leaders = {self._cluster.leader_for_partition(KafkaPartition(*tp)) for tp in partitions}
        now = time.monotonic()
        for node in leaders & self._patient_until.keys():
            if self._patient_until.pop(node) > now and node in self._fetcher._nodes_with_pending_fetch_requests:
                self._consumer._manager.call_soon(self._consumer._manager.close, node)

    def figures(self) -> Sequence[BrokerFigures]:
        return figures_of(self._consumer.metrics(raw=True))

    def close(self) -> None:
        self._consumer.close(autocommit=False, timeout_ms=CLOSE_TIMEOUT_MS)

    def _assign(self) -> None:
        # assign() keeps the position and the prefetched records of those that stay.
        self._consumer.assign(list(self._ours))
        self._assignment = self._consumer._subscription.assignment

    def _take_up_resumed(self) -> None:
        """Resume a partition that was paused within a fetched answer.

        kafka-python puts such an answer aside and resumes it only while it has no other, not even a used-up one: with a
        second partition it never does, and a partition with an answer aside is not fetched either.
        """
        aside = self._fetcher._paused_partition_records
        resumed = next((key for key in aside if not self._consumer._subscription.is_paused(key)), None)
        if resumed is None:
            return
        current = self._fetcher._next_partition_records
        self._fetcher._next_partition_records = aside.pop(resumed)
        if current:
            aside[current.topic_partition] = current  # for a later poll

    def _discard(self, keys: Set[KafkaPartition]) -> None:
        """Drop fetched records that were not returned yet.

        kafka-python drops answers for other positions. At the same position they may be of a topic that was recreated.
        """
        fetcher = self._fetcher
        for aside in (fetcher._paused_partition_records, fetcher._paused_completed_fetches):
            for key in keys & aside.keys():
                del aside[key]
        if fetcher._next_partition_records and fetcher._next_partition_records.topic_partition in keys:
            fetcher._next_partition_records = None
        fetched = fetcher._completed_fetches
        for _ in range(len(fetched)):  # each once; the client's thread may append more
            answer = fetched.popleft()
            if answer.topic_partition not in keys:
                fetched.append(answer)

    @contextmanager
    def _question(self, what: str) -> Iterator[None]:
        try:
            yield
        except (kafka.errors.KafkaError, KeyError) as error:  # KeyError: a leader disappeared between two looks
            if is_refused(self._settings):
                raise unavailable(self._settings, error) from None
            raise BrokerUnavailableError(
                f"Kafka at {self._where} did not answer a question for {what}: {type(error).__name__}: {error}"
            ) from None


def to_kafka_python(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the configuration's Kafka properties, with mounted files' current contents.

    With authentication or TLS, `kafka_client` is a `Door`, which knows why brokers refused us: see `why`.

    Raises:
        ConfigError: kafka-python has no such setting, or files cannot be used.
    """
    resolved = resolve(properties)
    settings: dict[str, Any] = {}
    for name, value in resolved.items():
        key = name.replace(".", "_")
        if name.startswith(_ENTRY):
            continue
        if key not in kafka.KafkaConsumer.DEFAULT_CONFIG:
            raise ConfigError(f"kafka.{name}: the kafka-python reader has no such setting; remove it")
        settings[key] = value
    if settings.get("sasl_mechanism") == "GSSAPI" and find_spec("gssapi") is None:
        raise ConfigError("kafka.sasl.mechanism: GSSAPI needs the package gssapi; install it with: pip install gssapi")
    if resolved.get("security.protocol", "PLAINTEXT") != "PLAINTEXT":
        door = Door(properties)
        settings |= door.settings() | {"kafka_client": door}
    return settings


def why(settings: Mapping[str, Any], error: BaseException) -> str:
    """Return a client's error, or the brokers' refusal, in words."""
    door = settings.get("kafka_client")
    return door.why(error) if isinstance(door, Door) else described(error)


def is_refused(settings: Mapping[str, Any]) -> bool:
    """Whether the last connection with `settings` was refused."""
    door = settings.get("kafka_client")
    return isinstance(door, Door) and door.refused is not None


def unavailable(settings: Mapping[str, Any], error: BaseException) -> BrokerUnavailableError:
    """Return the error for brokers that do not answer, or refuse us."""
    where = settings.get("bootstrap_servers", "")
    if is_refused(settings):
        return BrokerRefusedError(f"Kafka at {where}: {why(settings, error)}")
    return BrokerUnavailableError(
        f"Kafka at {where} does not answer ({described(error)}); check that a broker runs there"
    )


@contextmanager
def errors_of(settings: Mapping[str, Any]) -> Iterator[None]:
    """Translate the errors of a client with `settings` into ours.

    Raises:
        ConfigError: kafka-python does not take a setting.
        BrokerUnavailableError: no broker answers, or they refuse us.
    """
    try:
        yield
    except kafka.errors.KafkaConfigurationError as error:
        raise ConfigError(f"kafka: {error}") from None
    except (kafka.errors.KafkaError, OSError) as error:
        raise unavailable(settings, error) from None


def _total_size(records: list[Any]) -> int:
    """Return the decoded bytes of records, as `record_size` does; absent is -1."""
    sizes: list[int] = list(chain.from_iterable(map(_sizes, records)))
    counts = [len(headers) for headers in map(_headers, records) if len(headers) > FEW_HEADERS]
    return sum(sizes) + sizes.count(-1) + sum(map(headers_size, counts))
