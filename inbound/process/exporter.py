"""Reads groups' offsets at an interval, for scrapes without a replica.

One look at a time, one each interval, however often the port is scraped: scrapes show the last one. When a
server does not answer, its findings are left out, and never shown as they were before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from inbound.clock import Clock
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call, ZooKeeper, unavailable
from inbound.errors import BrokerUnavailableError, InboundError
from inbound.kafka.base import LogClient
from inbound.observe.status.status import GroupOffsets, OffsetsStatus, PartitionOffsets, ProcessStatus, ThreadStatus
from inbound.offsets.gather import Connect, Reads, Way, ask_with, read_groups, rows_for, together, topics_of
from inbound.offsets.model import GroupSnapshot, Logs, PartitionSelection, Row, Total
from inbound.runtime.driver import Wakeup
from inbound.runtime.signals import Latch

log = logging.getLogger("inbound")

#: Seconds that ZooKeeper and Kafka may each take for one look.
ZOOKEEPER_SECONDS, KAFKA_SECONDS = 10.0, 10.0
_THREAD = "offsets"


@dataclass(frozen=True, kw_only=True)
class Subjects:
    """The groups and topics whose offsets are read."""

    groups: Sequence[str] | None  # None: all that ZooKeeper has
    reads: Mapping[str, Reads]
    selection: PartitionSelection


class OffsetsExporter:
    """Reads offsets, and keeps the findings.

    `run` on one thread until `stop`; `status` and `stop` from any.
    """

    def __init__(
        self, zk: ZooKeeper, clock: Clock, subjects: Subjects, connect: Connect, *, interval: float, wakeup: Wakeup
    ) -> None:
        """Take `interval`, in seconds, from start to start of looks.

        `zk` wakes `wakeup` when its connection changes.
        """
        self._zk = zk
        self._clock = clock
        self._subjects = subjects
        self._connect = connect
        self._interval = interval
        self._wakeup = wakeup
        self._tasks = Tasks(clock, wakeup.set)
        self._clients: dict[Way, LogClient] = {}
        self._stopping = Latch()
        self._last_step = clock.now()
        self._failures = 0
        self._told: tuple[str | None, str | None] = (None, None)
        self._found = OffsetsStatus()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")

    def run(self) -> None:
        """Look each interval until `stop`; then close the clients."""
        try:
            while not self._stopping.is_set():
                begun = self._clock.now()
                try:
                    self.look()
                except Exception:
                    self._failures += 1
                    log.exception("offsets: a look failed; the next one is in %g s", self._interval)
                    self._found = replace(self._found, groups=[], partitions=[], zookeeper_problem="a look failed")
                self._last_step = self._clock.now()
                self._clock.wait(self._stopping, max(0.0, begun + self._interval - self._clock.now()))
        finally:
            self._tasks.close()
            for client in self._clients.values():
                client.close()

    def stop(self) -> None:
        """End `run` after the current look. A signal handler may call it."""
        self._stopping.set()

    def look(self) -> None:
        """Look once, and keep the findings."""
        begun = self._clock.now()
        subjects = self._subjects
        problem, groups = None, list[GroupSnapshot]()
        try:
            groups = self._ask_zookeeper(
                lambda: read_groups(self._zk, subjects.groups, subjects.reads, subjects.selection)
            )
        except InboundError as error:
            problem = str(error)
        logs = self._ask_kafka(groups)
        rows = [rows_for(nodes, subjects.reads, logs, subjects.selection) for nodes in groups]
        self._found = OffsetsStatus(
            looks_total=self._found.looks_total + 1,
            looked_at=self._clock.wall() if problem is None else self._found.looked_at,
            look_seconds=self._clock.now() - begun,
            zookeeper_problem=problem,
            kafka_problem=together(list(logs.values())).problem,
            groups=[_group(nodes, some) for nodes, some in zip(groups, rows, strict=True)],
            partitions=[_partition(row, subjects.reads) for some in rows for row in some],
        )
        self._tell()

    def status(self) -> ProcessStatus:
        """Return a snapshot of this process. Any thread."""
        now = self._clock.now()
        thread = ThreadStatus(
            name=_THREAD,
            alive=True,
            last_step_age=max(0.0, now - self._last_step - self._interval),
            failures=self._failures,
        )
        return replace(
            ProcessStatus.here(self._started, stopping=self._stopping.is_set()),
            threads=[thread],
            offsets=self._found,
        )

    # -- inside ------------------------------------------------------------------------------------------------------

    def _ask_zookeeper(
        self, question: Callable[[], Coroutine[Call[Any], None, list[GroupSnapshot]]]
    ) -> list[GroupSnapshot]:
        """Return the answer. Raises InboundError: none came in time."""
        deadline = self._clock.now() + ZOOKEEPER_SECONDS
        while self._zk.connection is None:
            if self._stopping.is_set() or self._clock.now() >= deadline:
                told = f" ({self._zk.problem})" if self._zk.problem is not None else ""
                raise InboundError(f"{self._zk.where} does not answer; see that it runs{told}")
            self._wakeup.wait(min(1.0, deadline - self._clock.now()))
        call = self._tasks.spawn(question(), "look")
        while True:
            due = self._tasks.step()
            if call.done:
                return call.result()
            if self._clock.now() >= deadline:
                # Requests in flight end by their own time-out, on the next step.
                raise unavailable("the rest of a look")
            self._wakeup.wait(min(deadline, due if due is not None else deadline) - self._clock.now())

    def _ask_kafka(self, groups: Sequence[GroupSnapshot]) -> dict[Way, Logs]:
        wanted: dict[Way, set[str]] = {}
        for nodes in groups:
            reads = self._subjects.reads.get(nodes.group, Reads())
            wanted.setdefault(reads.way, set()).update(topics_of(nodes, reads, self._subjects.selection))
        found: dict[Way, Logs] = {}
        for way, topics in wanted.items():
            found[way] = self._ask(way, topics)
            if found[way].problem is not None and way in self._clients:
                self._clients.pop(way).close()  # the next look begins with a new one
        return found

    def _ask(self, way: Way, topics: set[str]) -> Logs:
        try:
            if way not in self._clients:
                self._clients[way] = self._connect(way)
        except BrokerUnavailableError as error:
            return Logs(problem=str(error))
        return ask_with(self._clients[way], topics, self._clock, KAFKA_SECONDS)

    def _tell(self) -> None:
        """Log once when a server becomes unavailable, and when it is back."""
        now = (self._found.zookeeper_problem, self._found.kafka_problem)
        for what, before, after in zip(("ZooKeeper", "Kafka"), self._told, now, strict=True):
            if after is not None and before is None:
                log.warning("offsets: %s; what depends on it is left out", after)
            elif after is None and before is not None:
                log.info("offsets: %s answers again", what)
        self._told = now


def _group(nodes: GroupSnapshot, rows: Sequence[Row]) -> GroupOffsets:
    total = Total.of(rows)
    return GroupOffsets(
        group=nodes.group,
        members=len(nodes.members),
        unowned=total.unowned,
        uncommitted=total.uncommitted,
        unreadable=sum(row.broken for row in rows),
        closed_gates=sum(topic.gate is not None for topic in nodes.topics.values()),
    )


def _partition(row: Row, reads: Mapping[str, Reads]) -> PartitionOffsets:
    return PartitionOffsets(
        channel=reads.get(row.group, Reads()).channel(row.topic), group=row.group, topic=row.topic,
        partition=row.partition, committed=row.committed, lag=row.lag,
    )  # fmt: skip
