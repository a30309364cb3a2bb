"""Detects silent brokers in kafka-python, so that they delay no other."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from math import isfinite
from typing import Any

import kafka.errors
from kafka.structs import TopicPartition as KafkaPartition

from inbound.kafka.base import BrokerFigures, LogRange
from inbound.kafka.python.metadata import MetadataQuestions

#: The names of a broker's metrics groups end in this and its id; `bootstrap-0` is an address in the settings.
_NODE = "-node-metrics.node-"


def figures_of(metrics: Mapping[Any, Any] | None) -> list[BrokerFigures]:
    """Return the brokers' figures in a client's `metrics(raw=True)`, if any.

    Any thread: a value that the client's own thread adds at the same moment may be missing.
    """
    found: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for name, metric in (metrics or {}).items():
        node = name.group.partition(_NODE)[2]
        if node.isdecimal():
            found[int(node)][name.name] = metric.value()
    return [
        BrokerFigures(
            broker=broker,
            requests_per_second=of.get("request-rate", 0.0),
            sent_bytes_per_second=of.get("outgoing-byte-rate", 0.0),
            received_bytes_per_second=of.get("incoming-byte-rate", 0.0),
            request_seconds=_seconds(of, "request-latency"),
            throttle_seconds=_seconds(of, "throttle-time"),
        )
        for broker, of in sorted(found.items())
    ]


def _seconds(of: Mapping[str, float], name: str) -> dict[str, float]:
    """Return a time's mean and maximum; the maximum is -inf without measurements."""
    largest = of.get(f"{name}-max", float("-inf"))
    return {"mean": of[f"{name}-avg"] / 1000, "max": largest / 1000} if isfinite(largest) else {}


log = logging.getLogger(__name__)

#: A broker is silent if it owes an answer this long beyond the longest wait of a fetch. Seconds.
SILENT_AFTER = 1.0
#: Interval of questions for metadata while a leader is unavailable. Seconds. It bounds how long after an election its
#: partitions are read again, however long the backoff to the dead broker is.
LOOK_INTERVAL = 0.25
#: Timeouts for accepting a connection and listing API versions, growing with each failure.
CONNECTING = {"socket_connection_setup_timeout_ms": 2000, "socket_connection_setup_timeout_max_ms": 10_000}
#: The longest wait of the reader for log ranges: all partitions wait with it. Seconds. A healthy broker needs a few
#: milliseconds, or up to `fetch.max.wait.ms` behind a fetch that waits for records.
ANSWER_WAIT = 0.05
#: A broker's time limit for its log ranges, and the retry interval. Seconds.
RANGE_TIMEOUT, RANGE_AGAIN = 2.0, 1.0
#: The time limit for a watcher, whose question may wait behind a fetch. Seconds.
WATCH_TIMEOUT = 5.0
#: Unused answers are dropped after this time. Seconds.
RANGE_KEPT = 5.0

_EARLIEST, _LATEST = -2, -1


class BrokerLiveness:
    """Judges a consumer's brokers by its connections.

    kafka-python does all its I/O on its own thread, which answers questions while no caller waits. The methods are for the
    one thread that uses the consumer.
    """

    def __init__(self, consumer: Any, fetch_wait: float) -> None:
        self._manager = consumer._manager
        self._cluster = consumer._manager.cluster
        self.fetch_wait = fetch_wait  # the longest wait of a fetch for records, in seconds
        self._look_at = 0.0
        self._all_led = False
        #: Partitions whose leader was silent or unknown at the last look.
        self.unled: frozenset[KafkaPartition] = frozenset()
        # kafka-python prefers the broker with the fewest requests in flight: the dead one without a connection, or the
        # frozen one. A metadata request then waits there for up to `request.timeout.ms`, and all others behind it.
        self._manager.least_loaded_node = self.best
        self.metadata = MetadataQuestions(consumer, self.best)
        # A frozen broker accepts connections and sends nothing; a consumer has no settings for the defaults of 10 and 30 s.
        self._manager.config.update(CONNECTING)

    # -- who answers -------------------------------------------------------------------------------------------------

    def silence(self, node: int) -> float | None:
        """Return how many seconds a broker has owed an answer; None: disconnected."""
        connection = self._manager._conns.get(node)
        if connection is None or not connection.connected:
            return None
        try:
            sent: float = connection.in_flight_requests[0][2]
        except IndexError:  # it owes no answer
            return 0.0
        return max(0.0, time.monotonic() - sent)

    def answers(self, node: int) -> bool:
        """Whether a broker is connected and not silent."""
        silence = self.silence(node)
        return silence is not None and silence < self.fetch_wait + SILENT_AFTER

    def any_answers(self) -> bool:
        """Whether at least one broker is connected and not silent."""
        return any(self.answers(broker.node_id) for broker in self._cluster.brokers())

    def best(self) -> int | None:
        """Return the broker most likely to answer; None if all back off.

        Answering brokers come first, then unconnected ones by their number of failures, and silent ones last.
        """
        ranked = []
        for broker in self._cluster.brokers():
            node = broker.node_id
            connection = self._manager._conns.get(node)
            if self._manager.connection_delay(node) > 0 or (connection is not None and connection.paused):
                continue
            silence = self.silence(node)
            failures = self._manager._backoff.get(node, (0,))[0]
            if silence is None:
                ranked.append((1 if connection is None else 2, failures, node))
            else:
                ranked.append((0 if silence < self.fetch_wait + SILENT_AFTER else 3, silence, node))
        return min(ranked)[2] if ranked else None

    # -- new leaders -------------------------------------------------------------------------------------------------

    def look_for_leaders(self, partitions: Iterable[KafkaPartition]) -> bool:
        """Ask for metadata if a partition has no answering leader.

        Returns whether all had one at the last look, which was at most `LOOK_INTERVAL` ago. kafka-python asks when a
        connection breaks, and not before the next one does: only after the backoff to a dead broker, or never while a frozen
        one keeps its connections open.
        """
        now = time.monotonic()
        if now < self._look_at:
            return self._all_led
        self._look_at = now + LOOK_INTERVAL
        leaders = {partition: self._cluster.leader_for_partition(partition) for partition in partitions}
        away = {node for node in set(leaders.values()) if node is None or not self.answers(node)}
        self._all_led = not away
        self.unled = (
            frozenset(partition for partition, node in leaders.items() if node in away) if away else frozenset()
        )
        if not self._all_led:
            self.metadata.look()
        return self._all_led


class RangeQuestions:
    """Asks each leader for its log ranges, waiting `ANSWER_WAIT` at most.

    `watching`: no call waits at all, and a missing answer is not logged.
    """

    def __init__(self, consumer: Any, metadata: MetadataQuestions, *, watching: bool = False) -> None:
        self._metadata = metadata
        self._watching = watching
        self._timeout = WATCH_TIMEOUT if watching else RANGE_TIMEOUT
        self._manager = consumer._manager
        self._cluster = consumer._manager.cluster
        self._fetcher = consumer._fetcher
        self._asked: dict[int, Any] = {}  # leader: the future of its answer
        self._again_at: dict[int, float] = {}
        self._look_at = 0.0
        self._silent: set[int] = set()
        self._known: dict[KafkaPartition, tuple[float, LogRange]] = {}

    def ranges(
        self, partitions: Collection[KafkaPartition], wake: Callable[[], None] | None = None
    ) -> Mapping[KafkaPartition, LogRange]:
        """Return the known ranges, and ask for the others; `wake` announces answers."""
        self._collect()
        if self._ask({tp for tp in partitions if tp not in self._known}, wake) and not self._watching:
            with suppress(kafka.errors.KafkaTimeoutError):  # a later call will see the answer
                self._manager.run(self._manager.wait_for, self._manager.call_soon(self._all), ANSWER_WAIT * 1000)
            self._collect()
        return {tp: self._known.pop(tp)[1] for tp in partitions if tp in self._known}

    def _ask(self, partitions: Collection[KafkaPartition], wake: Callable[[], None] | None) -> bool:
        now = time.monotonic()
        by_leader = defaultdict(list)
        for partition in partitions:
            by_leader[self._cluster.leader_for_partition(partition)].append(partition)
        sent = False
        for leader, theirs in by_leader.items():
            if leader in (None, -1):
                if now >= self._look_at:  # a partition that was just created has no known leader yet
                    self._look_at = now + LOOK_INTERVAL
                    self._metadata.look()
            elif leader in self._asked or now < self._again_at.get(leader, 0.0):
                continue
            else:
                self._asked[leader] = self._manager.call_soon(self._limits, leader, theirs)
                if wake is not None:
                    self._asked[leader].add_both(lambda _: wake())
                sent = True
        return sent

    async def _limits(self, leader: int, partitions: Collection[KafkaPartition]) -> dict[KafkaPartition, LogRange]:
        ask = self._fetcher._send_list_offsets_request
        questions = [
            self._manager.call_soon(ask, leader, dict.fromkeys(partitions, (which, -1)))
            for which in ((_LATEST,) if self._watching else (_EARLIEST, _LATEST))
        ]
        answers = [(await self._manager.wait_for(one, self._timeout * 1000))[0] for one in questions]
        starts, ends = answers[0], answers[-1]  # a watcher asks for the ends alone
        return {tp: LogRange(starts[tp].offset, ends[tp].offset) for tp in partitions if tp in starts and tp in ends}

    async def _all(self) -> None:
        for future in list(self._asked.values()):
            with suppress(kafka.errors.KafkaError):  # `_collect` reports it
                await future

    def _collect(self) -> None:
        now = time.monotonic()
        for leader, future in list(self._asked.items()):
            if not future.is_done:
                continue
            del self._asked[leader]
            if future.exception is None and future.value:
                self._silent.discard(leader)
                self._known.update({tp: (now, limits) for tp, limits in future.value.items()})
                continue
            # The partitions may have a new leader. No call waits for the metadata.
            self._again_at[leader] = now + RANGE_AGAIN
            if self._watching:
                continue
            self._metadata.look()
            if leader not in self._silent:
                self._silent.add(leader)
                said = future.exception or "it does not lead them any more"
                log.warning(
                    "kafka: broker %s did not say where its logs begin and end (%s: %s); asking again every %.0f s",
                    leader, type(said).__name__, said, RANGE_AGAIN,
                )  # fmt: skip
        for tp in [tp for tp, (at, _) in self._known.items() if now - at > RANGE_KEPT]:
            del self._known[tp]
