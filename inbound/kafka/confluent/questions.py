"""Asks brokers for topics and log ranges through confluent-kafka's admin client.

The admin client returns futures, so no call waits for a broker.
"""

from __future__ import annotations

import logging
import re
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its hints forget it

from inbound.coordinators.nodes import canonical
from inbound.errors import BrokerRefusedError, BrokerUnavailableError
from inbound.kafka.base import LogRange, TopicMeta
from inbound.kafka.confluent.settings import Credentials
from inbound.runtime.patterns import chooser
from inbound.topic_partition import TopicPartition

#: Reading cannot go on from the position.
OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})
#: librdkafka reports a cut log with the same code as other unusable positions; only the text differs.
CUT, CUT_AT = KafkaError(KafkaError._LOG_TRUNCATION).str(), re.compile(r"broker end offset is (\d+)")
#: A seek came too early.
NOT_BEGUN = frozenset({KafkaError._STATE, KafkaError._PREV_IN_PROGRESS})
#: librdkafka retries after these.
PASSING = frozenset(
    {
        KafkaError._PARTITION_EOF,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
_UNKNOWN = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)


def is_unknown(error: KafkaError) -> bool:
    """Whether an error means that a topic or partition does not exist."""
    return error.code() in _UNKNOWN


log = logging.getLogger(__name__)

#: A broker's time limit for an answer. Seconds. The next question may go to another broker.
ANSWER_TIMEOUT = 2.0
#: Attempts at a question for offsets at a time. While a client connects, librdkafka sometimes (5 of 300) loses the first
#: question, and reports a timeout for it.
TRIES = 2
#: Failed questions for topics in a row after which the brokers count as unavailable.
FAILURES = 2
#: The longest wait of the reader for log ranges: all partitions wait with it. Seconds.
ANSWER_WAIT = 0.05
#: The retry interval of a leader that did not answer, and of the search for unknown leaders. Seconds.
RANGE_AGAIN, LOOK_INTERVAL = 1.0, 0.25
#: A broker's offset for: no record is that late. Without an answer, librdkafka returns -1001.
_NO_RECORD = -1
_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
#: Unused answers are dropped after this time. Seconds.
RANGE_KEPT = 5.0


class TopicQuestions:
    """Asks for topics, one question at a time. For one thread."""

    def __init__(self, admin: AdminClient, entry: Credentials) -> None:
        self._admin = admin
        self._entry = entry
        # For the one call of the admin client that blocks: the list of all topics.
        self._lister = ThreadPoolExecutor(1, thread_name_prefix="inbound-topics")
        self._wanted: tuple[frozenset[str], str | None] | None = None
        self._asked: Future[Mapping[str, TopicMeta]] | None = None
        self._known: Mapping[str, TopicMeta] | None = None
        self._failures = 0
        self._problem: object = None
        self.asked = 0  # questions so far
        self.answered = 0  # the number of the last answered one
        self.leaders: dict[TopicPartition, int] = {}
        self._ids: dict[str, str | None] = {}

    def enter(self, admin: AdminClient, entry: Credentials) -> None:
        """Switch to another client; its first question shows whether its credentials work."""
        self._admin, self._entry = admin, entry
        self._failures = 0

    @property
    def reachable(self) -> bool:
        return self._failures == 0

    def heard(self) -> None:
        """Note that a broker has sent data."""
        self._failures = 0

    def ask(self) -> int:
        """Ask, unless a question is in flight, and return its number."""
        self.collect()
        if self._asked is None:
            self.asked += 1
            self._asked = self._lister.submit(self._look, self._wanted)
        return self.asked

    def collect(self) -> None:
        """Read the answer, if it has arrived."""
        self._admin.poll(0)  # calls `error_cb` with errors of its connections
        if self._asked is None or not self._asked.done():
            return
        asked, self._asked = self._asked, None
        try:
            self._known = asked.result()
        except (KafkaException, TimeoutError) as error:
            self._failures += 1
            self._problem = error
        else:
            self._failures = 0
            self._entry.answered()
            self.answered = self.asked

    def get(self, names: Collection[str], pattern: str | None) -> Mapping[str, TopicMeta]:
        """Return the last answer, and ask again; wait only without any answer.

        Raises:
            BrokerUnavailableError: no broker answers.
        """
        self.collect()
        wanted = (frozenset(names), pattern)
        if wanted != self._wanted and self._wanted is not None:
            self._known = None  # another selection
        self._wanted = wanted
        if self._failures < FAILURES:
            self.ask()
        if self._known is None and self._asked is not None:
            wait([self._asked], 2 * ANSWER_TIMEOUT)
            self.collect()
        if self._failures >= FAILURES or self._known is None:
            self.ask()
            where = self._entry.resolved.get("bootstrap.servers", "")
            if (refused := self._entry.refused) is not None:
                raise BrokerRefusedError(f"Kafka at {where}: {refused}")
            said = self._problem or "the question for the list of topics was not answered"
            raise BrokerUnavailableError(f"Kafka at {where} does not answer: {said}; check that a broker runs there")
        chosen = chooser(names, pattern)
        return {name: meta for name, meta in self._known.items() if chosen(name)}

    def _look(self, wanted: tuple[frozenset[str], str | None] | None) -> Mapping[str, TopicMeta]:
        """Ask and wait, on the lister's thread."""
        names, pattern = wanted if wanted is not None else (frozenset(), ".*")
        partitions = self._count(names if pattern is None else None)
        chosen = chooser(partitions, pattern)
        found = {name: n for name, n in partitions.items() if chosen(name)}
        ids = self._ask_ids(found)
        return {name: TopicMeta(n, ids[name]) for name, n in found.items() if name in ids}

    def _count(self, names: Collection[str] | None) -> dict[str, int]:
        """Ask a broker for topics, or all, and return their partition counts."""
        only = next(iter(names)) if names is not None and len(names) == 1 else None
        listed = self._admin.list_topics(only, timeout=ANSWER_TIMEOUT).topics
        found = {}
        for name in listed if names is None else names & listed.keys():
            partitions = listed[name].partitions
            self.leaders.update({TopicPartition(name, n): p.leader for n, p in partitions.items() if p.leader >= 0})
            if partitions:
                # A topic being created can be listed with some partitions missing: what counts is the highest number.
                found[name] = max(partitions) + 1
        return found

    def _ask_ids(self, names: Collection[str]) -> dict[str, str | None]:
        """Return the topics' ids, which only the controller knows.

        While it is unavailable no topic is recreated, so the last known ids hold.
        """
        if not names:
            return {}
        futures = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=ANSWER_TIMEOUT)
        ids: dict[str, str | None] = {}
        for name, future in futures.items():
            try:
                ids[name] = canonical(str(future.result(2 * ANSWER_TIMEOUT).topic_id))
            except (KafkaException, TimeoutError) as error:
                if isinstance(error, KafkaException) and is_unknown(error.args[0]):
                    continue  # deleted since it was listed
                if name not in self._ids:
                    raise
                ids[name] = self._ids[name]
        self._ids.update(ids)
        return ids

    def look_for_leaders(self, names: Collection[str]) -> Future[Any]:
        """Ask for any topics; `leaders` gets the answer."""
        return self._lister.submit(self._count, frozenset(names))

    def close(self) -> None:
        """Wait for the question in flight, which the admin client must outlive.

        That takes two of `ANSWER_TIMEOUT` at most.
        """
        self._lister.shutdown(cancel_futures=True)


class Ranges:
    """Asks each leader for its log ranges, waiting `ANSWER_WAIT` at most."""

    def __init__(self, admin: AdminClient, topics: TopicQuestions, isolation: str) -> None:
        self._admin = admin
        self._topics = topics
        committed = isolation == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        self._asked: dict[int, list[tuple[TopicPartition, Future[Any], Future[Any]]]] = {}
        self._again_at: dict[int, float] = {}
        self._look_at = 0.0
        self._looking: Future[Any] | None = None
        self._silent: set[int] = set()
        self._known: dict[TopicPartition, tuple[float, LogRange]] = {}

    def enter(self, admin: AdminClient) -> None:
        """Switch to another client, and ask open questions again."""
        self._admin = admin
        self._asked.clear()

    def ranges(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        """Return the known ranges, and ask for the others."""
        deadline = time.monotonic() + ANSWER_WAIT
        self._collect()
        sent = self._ask([tp for tp in partitions if tp not in self._known])
        if not sent and self._looking is not None:
            wait([self._looking], deadline - time.monotonic())
            sent = self._ask([tp for tp in partitions if tp not in self._known])
        if sent:
            wait(sent, max(0.0, deadline - time.monotonic()))
            self._collect()
        return {tp: self._known.pop(tp)[1] for tp in partitions if tp in self._known}

    def offsets_at(self, partitions: Collection[TopicPartition], time_ms: int) -> Mapping[TopicPartition, int | None]:
        """See `LogClient.offsets_at`."""
        if not partitions:
            return {}
        spec = OffsetSpec.for_timestamp(time_ms)
        found: dict[TopicPartition, int | None] = {}
        missing: dict[TopicPartition, object] = dict.fromkeys(partitions)
        for _ in range(TRIES):
            asked, missing = list(missing), {}
            for tp, future in zip(asked, self._send(asked, spec), strict=True):
                try:
                    offset = future.result(2 * ANSWER_TIMEOUT).offset
                except (KafkaException, TimeoutError) as error:
                    missing[tp] = error
                    continue
                if offset < 0 and offset != _NO_RECORD:
                    missing[tp] = f"no answer within {ANSWER_TIMEOUT:.0f} s"
                else:
                    found[tp] = offset if offset >= 0 else None
            if not missing:
                return found
        tp, why = next(iter(missing.items()))
        raise BrokerUnavailableError(
            f"{tp.topic}/{tp.partition}: Kafka did not answer a question for where a time begins: {why}"
        )

    def _ask(self, partitions: Collection[TopicPartition]) -> list[Future[Any]]:
        now = time.monotonic()
        by_leader = defaultdict(list)
        homeless = set()
        for tp in partitions:
            leader = self._topics.leaders.get(tp)
            if leader is None:
                homeless.add(tp.topic)
            elif leader not in self._asked and now >= self._again_at.get(leader, 0.0):
                by_leader[leader].append(tp)
        if homeless and now >= self._look_at and (self._looking is None or self._looking.done()):
            self._look_at = now + LOOK_INTERVAL
            self._looking = self._topics.look_for_leaders(homeless)
        sent: list[Future[Any]] = []
        for leader, theirs in by_leader.items():
            starts, ends = self._send(theirs, _EARLIEST), self._send(theirs, _LATEST)
            self._asked[leader] = list(zip(theirs, starts, ends, strict=True))
            sent += starts + ends
        return sent

    def _send(self, partitions: Collection[TopicPartition], spec: OffsetSpec) -> list[Future[Any]]:
        keys = [confluent_kafka.TopicPartition(*tp) for tp in partitions]
        asked = self._admin.list_offsets(
            dict.fromkeys(keys, spec), isolation_level=self._isolation, request_timeout=ANSWER_TIMEOUT
        )
        return [asked[key] for key in keys]

    def _collect(self) -> None:
        now = time.monotonic()
        for leader, questions in list(self._asked.items()):
            if not all(start.done() and end.done() for _, start, end in questions):
                continue
            del self._asked[leader]
            problem: object = None
            for tp, start, end in questions:
                try:
                    limits = LogRange(start.result().offset, end.result().offset)
                except KafkaException as error:
                    self._topics.leaders.pop(tp, None)  # it may have changed
                    if not is_unknown(error.args[0]):
                        problem = error
                    continue
                if min(limits) < 0:  # librdkafka's sign of a timeout
                    problem = f"no answer within {ANSWER_TIMEOUT:.0f} s"
                else:
                    self._known[tp] = (now, limits)
            if problem is None:
                self._silent.discard(leader)
                continue
            self._again_at[leader] = now + RANGE_AGAIN
            if leader not in self._silent:
                self._silent.add(leader)
                log.warning(
                    "kafka: broker %s did not say where its logs begin and end (%s); asking again every %.0f s",
                    leader, problem, RANGE_AGAIN,
                )  # fmt: skip
        for tp in [tp for tp, (at, _) in self._known.items() if now - at > RANGE_KEPT]:
            del self._known[tp]
