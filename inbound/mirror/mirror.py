"""Sends landed commits to a Kafka group, on its own thread.

    committer, controller -> noted here (a dict, under a lock) -> this thread -> Kafka

ZooKeeper stays the truth, and no commit waits for the mirror: it leaves a note and is done, even if the mirror fails.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from inbound.clock import Clock
from inbound.config import ChannelConfig, OffsetsConfig
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.errors import BrokerUnavailableError
from inbound.mirror.plan import (
    ANSWER_WAIT,
    FAILURES,
    RELEASED_KEPT,
    Asked,
    Connect,
    Held,
    Kind,
    MirrorClient,
    MirrorPlan,
    MirrorStatus,
    RefusedOffset,
)
from inbound.partition.journal import Journal
from inbound.partition.partition import Fate, Partition, Place
from inbound.partition.schedule import Schedule
from inbound.runtime.driver import Driver, Wakeup
from inbound.runtime.instruments import Kinds
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

#: The time limit for sending the last commits when the channel closes. Seconds.
LAST = 2.0

#: Failures in a row (7 s) before a missing coordinator is logged: mostly its election is over before.
PASSING = 4


@dataclass(frozen=True, eq=False)
class _Target:
    """A Kafka group, and the offsets to send there."""

    group: str
    connect: Connect
    plan: MirrorPlan  # under the mirror's lock


class Mirror:
    """Mirrors one channel's commits: see `inbound.runtime.driver.Part`.

    It does nothing if the configuration wants no mirror.
    """

    def __init__(
        self, config: ChannelConfig, *, name: str, clock: Clock, zk: ZooKeeper, schedule: Schedule, journal: Journal,
        connect: Connect | None,
    ) -> None:  # fmt: skip
        """Connects to nothing yet; `connect` is None without a mirror.

        `name` is the channel's.
        """
        self._name = name
        self._group = config.group
        self._clock = clock
        self._zk = zk
        self._schedule = schedule
        self._journal = journal
        self._connect = connect
        self.wakeup = Wakeup()
        self._lock = threading.Lock()
        self._target: _Target | None = None
        #: The claim of each partition's last noted offset, and the time of the note.
        self._noted: dict[TopicPartition, tuple[Partition, float]] = {}
        self._client: tuple[_Target, MirrorClient] | None = None
        #: The pending request, and its deadline.
        self._asked: tuple[_Target, Asked, float] | None = None
        self._finish_by: float | None = None
        self._finished = threading.Event()
        self._offsets = 0
        self._failures = Kinds(*FAILURES)
        self._success_at: float | None = None
        #: Its thread; empty without a mirror, and in the simulator.
        self.drivers: tuple[Driver, ...] = ()
        self.configure(config.offsets)

    # -- what lands: by the committer and the controller -------------------------------------------------------------------

    def landed(self, partition: Partition, offset: int) -> None:
        """Note a landed commit. Any thread; never waits for Kafka."""
        with self._lock:
            if self._target is None:
                return
            first = self._note(self._target, partition, offset)
        if first:
            self.wakeup.set()

    def claimed(self, partition: Partition, offset: int | None) -> None:
        """Note a claim and its offset, if any. Any thread; never waits."""
        with self._lock:
            if self._target is None:
                return
            self._target.plan.claimed(self._clock.now())
            if offset is not None:
                self._note(self._target, partition, offset)
        self.wakeup.set()

    def forget(self, partition: Partition) -> None:
        """Drop a partition that its next owner mirrors. Any thread.

        A later claim of the same partition keeps its own.
        """
        with self._lock:
            if self._target is not None and self._noted.get(partition.tp, (partition,))[0] is partition:
                self._target.plan.forget(partition.tp)

    def _note(self, target: _Target, partition: Partition, offset: int) -> bool:
        now = self._clock.now()
        self._noted[partition.tp] = partition, now
        return target.plan.note(partition.tp, offset, now)

    # -- life: by the owner's thread ---------------------------------------------------------------------------------------

    def configure(self, config: OffsetsConfig) -> None:
        """Mirror to another group from now on, or to none.

        A new group gets the offsets of all held partitions at once.
        """
        group = config.kafka_group(self._group)
        with self._lock:
            before = self._target
            if group == (before.group if before is not None else None):
                return
            self._target = None
            if group is not None and self._connect is not None:
                self._target = _Target(group, self._connect, MirrorPlan(self._clock.now()))
        self.wakeup.set()

    def reconnect(self, connect: Connect) -> None:
        """Replace the client by one of `connect`."""
        with self._lock:
            self._connect = connect
            if self._target is not None:
                self._target.plan.try_again(self._clock.now())
                self._target = _Target(self._target.group, connect, self._target.plan)
        self.wakeup.set()

    def start(self) -> None:
        """Start the thread, if a mirror is wanted and none runs."""
        if self._target is not None and not self.drivers:
            driver = Driver(f"{self._name}-mirror", self, self.wakeup, self._clock)
            driver.start()
            self.drivers = (driver,)

    def finish(self) -> None:
        """Send the landed commits within `LAST` seconds, without waiting for it."""
        if self._finish_by is None:
            self._finish_by = self._clock.now() + LAST
        self.wakeup.set()

    @property
    def finished(self) -> bool:
        """Whether sending has ended after `finish`. Any thread."""
        return self._target is None or self._finished.is_set()

    def close(self) -> None:
        """Finish, and end the thread and the client.

        It waits for the rest of `LAST` seconds at most.
        """
        self.finish()
        for driver in self.drivers:
            self._finished.wait(max(0.0, (self._finish_by or 0.0) - self._clock.now()))
            driver.stop()
            driver.thread.join(0.2)
        if not any(driver.thread.is_alive() for driver in self.drivers):
            self._drop_client()  # else it waits for a broker, within its limits, and then ends
        target = self._target
        if target is not None and (waiting := target.plan.waiting):
            self._journal.note(
                "mirror-behind", f"the last commits of {waiting} partitions are not in Kafka group {target.group}; ZooKeeper has "
                "them, and the next owners of the partitions send them", group=target.group, partitions=waiting,
            )  # fmt: skip

    # -- the thread's work ---------------------------------------------------------------------------------------------

    def run_once(self) -> float | None:
        """Read an answer, and send due offsets; connecting may wait for brokers."""
        now = self._clock.now()
        if self._asked is not None and not self._take(now):
            return self._answer_by()
        target = self._target
        if self._client is not None and self._client[0] is not target:
            self._drop_client()
        if target is None and self._finish_by is not None:
            self._finished.set()
        if target is None or self._finished.is_set():
            return None
        due = self._send(target, now)
        if self._asked is not None:
            return self._answer_by()
        if self._finish_by is not None and (due > self._clock.now() or now >= self._finish_by):
            self._finished.set()
            self._drop_client()
            return None
        return due

    def _answer_by(self) -> float:
        assert self._asked is not None
        return self._asked[2] if self._finish_by is None else min(self._asked[2], self._finish_by)

    def _send(self, target: _Target, now: float) -> float:
        """Send due offsets; return the next due time without a pending request."""
        plan, finishing = target.plan, self._finish_by is not None
        with self._lock:
            due = plan.due(hurry=finishing)
        if due > now:
            return due
        held = self._held()
        with self._lock:
            offsets = plan.take(held, now)
        if not offsets:
            self._tell(target)
            with self._lock:
                return plan.due()
        try:
            if self._client is None:
                self._client = target, target.connect(target.group)
            if self._finish_by is not None and self._clock.now() >= self._finish_by:
                self._drop_client()  # connecting took longer than `LAST`
                return now
            asked = self._client[1].send(offsets, self.wakeup.set)
        except BrokerUnavailableError as error:
            self._failed(target, RefusedOffset(Kind.UNREACHABLE, str(error)))
        except Exception as error:  # the backoff is for unknown errors, too
            log.debug("channel %s: where the mirror failed", self._name, exc_info=True)
            self._failed(target, RefusedOffset(Kind.OTHER, f"{type(error).__name__}: {error}"))
        else:
            now = self._clock.now()  # connecting took time
            self._asked = target, asked, now + ANSWER_WAIT
            self._take(now)
        with self._lock:
            return plan.due(hurry=finishing) if self._asked is None else now

    def _take(self, now: float) -> bool:
        """Read the answer, or time out; return whether no request is pending."""
        assert self._asked is not None
        target, asked, _ = self._asked
        answer = asked()
        if answer is None and now < self._answer_by():
            return False
        self._asked = None
        if answer is None:
            self._failed(target, RefusedOffset(Kind.UNREACHABLE, "the group's coordinator does not answer"))
            return True
        with self._lock:
            taken = target.plan.answered(answer, now)
        self._offsets += taken
        if taken:
            self._success_at = now
        for kind in {refusal.kind for refusal in answer.values()}:
            self._count(kind)
        self._tell(target)
        return True

    def _failed(self, target: _Target, refusal: RefusedOffset) -> None:
        with self._lock:
            target.plan.failed(refusal, self._clock.now())
        self._count(refusal.kind)
        self._tell(target)

    def _count(self, kind: Kind) -> None:
        self._failures.add(kind.value)
        if kind in (Kind.UNREACHABLE, Kind.COORDINATOR, Kind.OTHER):
            self._drop_client()  # the next one has current credentials, and finds the current coordinator

    def _held(self) -> Held:
        """Return offsets of partitions that no other member can have claimed."""
        commits, doubtful = {}, set()
        certain: dict[int, bool] = {}
        for partition in self._schedule.held():
            session = partition.fence.session
            if partition.fate is Fate.DROP:
                doubtful.add(partition.tp)
                continue
            if session not in certain:
                certain[session] = self._zk.certain(session)
            if not certain[session]:
                doubtful.add(partition.tp)
            elif partition.committed is not None:
                commits[partition.tp] = partition.committed
        return Held(commits, doubtful, self._lost())

    def _lost(self) -> set[TopicPartition]:
        """Return partitions that were lost without a release."""
        oldest = self._clock.now() - RELEASED_KEPT
        with self._lock:
            self._noted = {
                tp: (partition, at)
                for tp, (partition, at) in self._noted.items()
                if at >= oldest or partition.place is not Place.GONE
            }
            return {tp for tp, (partition, _) in self._noted.items() if partition.fate is Fate.DROP}

    def _tell(self, target: _Target) -> None:
        """Log a problem once, and its end."""
        problem, note, group = target.plan.problem, self._journal.note, target.group
        kind = problem.kind if problem is not None else None
        if kind is target.plan.told or (kind is Kind.COORDINATOR and target.plan.failures < PASSING):
            return
        target.plan.told = kind
        if problem is None:
            note("mirror-over", f"offsets go to Kafka group {group} again", group=group)
        elif kind is Kind.LIVE_GROUP:
            note(
                "mirror-refused", f"offsets do not go to Kafka group {group}: it has members of its own ({problem.said}), whose "
                "offsets are left alone; name another one in offsets.group, or stop them; tried again every 10 min",
                group=group, level=logging.WARNING,
            )  # fmt: skip
        else:
            advice = "; allow this user to READ the group and its topics" if kind is Kind.DENIED else ""
            note(
                "mirror-waits", f"offsets do not go to Kafka group {group}: {problem.said}{advice}; commits go on, "
                "and it is tried again",
                group=group, level=logging.INFO if kind is Kind.NO_TOPIC else logging.WARNING,
            )  # fmt: skip

    def _drop_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client[1].close()

    # -- status ------------------------------------------------------------------------------------------------------

    def status(self) -> MirrorStatus | None:
        """Return a snapshot; None without a mirror. Any thread."""
        with self._lock:
            target = self._target
            if target is None:
                return None
            waiting, problem = target.plan.waiting, target.plan.problem
        refused = problem is not None and problem.kind is Kind.LIVE_GROUP
        success = self._success_at
        return MirrorStatus(
            group=target.group,
            state="refused" if refused else "mirroring" if problem is None else "failing",
            problem=problem.said if problem is not None else None,
            waiting=waiting,
            offsets_total=self._offsets,
            failures=self._failures.counts(),
            last_success_age=None if success is None else max(0.0, self._clock.now() - success),
        )
