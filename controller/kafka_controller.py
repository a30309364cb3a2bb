"""Decides on one thread when channels rejoin, evaluate, claim and release."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from inbound.clock import Clock
from inbound.coordinators.base import Plan
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call, ZooKeeper
from inbound.errors import ConsumerIdTakenError, InboundError, TransientError
from inbound.runtime.transitions import Transitions
from inbound.topic_partition import TopicPartition


class SessionState(Enum):
    """The state of the ZooKeeper session."""

    DOWN = "down"  # never connected yet
    JOINING = "joining"  # connected: id nodes are being written, our partitions recovered
    MEMBER = "member"  # registered: rebalancing as needed
    SUSPENDED = "suspended"  # no connection; the session may still live
    CLOSED = "closed"


class SessionEvent(Enum):
    """What changes the session's state."""

    CONNECTED = "connected"
    JOINED = "joined"
    DISCONNECTED = "disconnected"
    CLOSE = "close"


S, E = SessionState, SessionEvent
SESSION = Transitions(
    "ZooKeeper session",
    {
        (S.DOWN, E.CONNECTED): S.JOINING,
        (S.DOWN, E.CLOSE): S.CLOSED,
        (S.JOINING, E.JOINED): S.MEMBER,
        (S.JOINING, E.CONNECTED): S.JOINING,  # reconnected since: from the start
        (S.JOINING, E.DISCONNECTED): S.SUSPENDED,
        (S.JOINING, E.CLOSE): S.CLOSED,
        (S.MEMBER, E.CONNECTED): S.JOINING,  # reconnected between two looks: all watches are gone
        (S.MEMBER, E.DISCONNECTED): S.SUSPENDED,
        (S.MEMBER, E.CLOSE): S.CLOSED,
        (S.SUSPENDED, E.CONNECTED): S.JOINING,
        (S.SUSPENDED, E.CLOSE): S.CLOSED,
    },
)


class KafkaConsumer(Protocol):
    """A channel as the controller drives it.

    The controller's thread calls all methods, one at a time.
    """

    name: str

    async def zk_reconnected(self) -> None:
        """Register, and recover our partitions before any other is claimed.

        Called after each connect.

        Raises:
            TransientError: try again.
            ConsumerIdTakenError: another live process has our id; the process must stop.
        """

    async def coordinate(self) -> None:
        """Compare our view with the nodes, which are the truth."""

    async def calc_rebalance(self) -> Plan | None:
        """Return what to take and release; None while that is not known."""

    async def take_partitions(self, partitions: Sequence[TopicPartition]) -> bool:
        """Claim these; return False if any failed: look again soon."""

    async def release_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin to release these gracefully; does not wait for the end."""

    def suspended(self) -> None:
        """The connection is lost: batches in flight end, no new one begins."""

    def in_doubt(self) -> None:
        """The session may have expired: another member may own our partitions."""

    def verified(self) -> None:
        """The session is known to live: partitions in doubt may go on."""

    def leaving_in(self, session: int) -> None:
        """We are leaving, and reconnected in `session`: our others have expired."""

    @property
    def next_look(self) -> float | None:
        """The clock time of the next evaluation without another trigger."""


log = logging.getLogger(__name__)

#: Triggers that come together are answered together.
COALESCE = 0.02
#: How soon to look again after something was refused or not answered.
LOOK_AGAIN = 0.25
#: And after an error that a moment does not mend.
AFTER_ERROR = 5.0
#: Signs of life asked for per session time-out, so that doubt comes only from real silence.
CONTACTS_PER_SESSION = 8
#: When, and how often, the log mentions that ZooKeeper is unavailable, in seconds.
TELL_AFTER, TELL_EVERY = 3.0, 10.0


@dataclass(frozen=True)
class Timing:
    """Delays of rebalances, in seconds."""

    rebalance_interval: float = 60.0
    rebalance_delay: float = 0.3
    join_delay: float = 3.0


@dataclass(eq=False)
class _Channel:
    """The controller's state of one channel."""

    consumer: KafkaConsumer
    due: float = float("inf")  # of the next evaluation
    release_from: float = 0.0  # a surplus is not released before: members that come together are answered together
    joined: bool = False
    running: Call[None] | None = None
    again: bool = False


class KafkaController:
    """Drives the channels' coordination on one thread; see `inbound.runtime.driver.Part`.

    It evaluates a channel after every reconnect, refusal, ambiguous answer and local drop, on watches, and by timer.
    """

    def __init__(self, zk: ZooKeeper, tasks: Tasks, clock: Clock, timing: Timing, rng: random.Random) -> None:
        self.zk = zk
        self.tasks = tasks
        self.timing = timing
        self.state = SessionState.DOWN
        #: For metrics: counts of evaluations, sessions, and lost connections.
        self.evaluations = self.sessions = self.suspensions = 0
        #: The error that must end the process, once there is one.
        self.fatal: InboundError | None = None
        self._clock = clock
        self._rng = rng
        self._channels: list[_Channel] = []  # replaced as a whole: other threads read it
        self._channels_lock = threading.Lock()
        self._generation = 0
        #: The present or last session, and the clock time of its first connection.
        self.session: int | None = None
        self.session_began = float("-inf")
        self._doubted = False
        self._verified = False
        self._contact: Call[None] | None = None
        self._contact_due = 0.0
        self._away_since: float | None = None
        self._tell_at = 0.0

    def add(self, consumer: KafkaConsumer) -> None:
        """Take on a channel. Any thread; the caller wakes the controller."""
        with self._channels_lock:
            self._channels = [*self._channels, _Channel(consumer, due=self._clock.now())]

    async def remove(self, consumer: KafkaConsumer) -> None:
        """Remove a channel that left its group, after its present evaluation."""
        for channel in self._channels:
            while channel.consumer is consumer and channel.running is not None and not channel.running.done:
                await self.tasks.sleep(COALESCE)
        with self._channels_lock:
            self._channels = [c for c in self._channels if c.consumer is not consumer]

    def evaluate(self, consumer: KafkaConsumer, *, delay: float = COALESCE) -> None:
        """Evaluate a channel soon. Any thread; the caller wakes the controller."""
        for channel in self._channels:
            if channel.consumer is consumer:
                channel.due = min(channel.due, self._clock.now() + delay)

    def postpone_release(self, consumer: KafkaConsumer) -> None:
        """Delay releases a little: more members may join. Controller's thread."""
        for channel in self._channels:
            if channel.consumer is consumer:
                jitter = 1 + self._rng.random() * 0.5
                channel.release_from = self._clock.now() + self.timing.rebalance_delay * jitter

    # -- the part ----------------------------------------------------------------------------------------------------

    def run_once(self) -> float | None:
        self._follow_connection()
        self._watch_the_session()
        now = self._clock.now()
        if self.state in (SessionState.JOINING, SessionState.MEMBER):
            for channel in self._channels:
                self._drive(channel, now)
        deadline = self.tasks.step()
        if any(c.running is not None and c.running.done for c in self._channels):
            return now
        times = [t for t in (deadline, self._next_session_check()) if t is not None]
        if self.state in (SessionState.JOINING, SessionState.MEMBER):
            times += [c.due for c in self._channels if c.running is None]
        return min(times, default=None)

    def close(self) -> None:
        """Evaluate nothing more; releases in progress go on."""
        if self.state is not SessionState.CLOSED:
            self.state = SESSION.step(self.state, SessionEvent.CLOSE)

    # -- the session -------------------------------------------------------------------------------------------------

    def _follow_connection(self) -> None:
        connection = self.zk.connection
        if self.state is SessionState.CLOSED:
            # Nothing is recovered any more, but a last commit must not wait for a session that is over.
            if connection is not None and connection.generation != self._generation:
                self._generation, self.session = connection.generation, connection.session.id
                for channel in self._channels:
                    channel.consumer.leaving_in(self.session)
            return
        if connection is None:
            self._tell_away()
            if self.state in (SessionState.JOINING, SessionState.MEMBER):
                self.state = SESSION.step(self.state, SessionEvent.DISCONNECTED)
                self.suspensions += 1
                log.warning(
                    "ZooKeeper: connection lost; batches in flight end, no new batch is delivered until it is back"
                )
                for channel in self._channels:
                    channel.consumer.suspended()
            return
        self._away_since = None
        if connection.generation == self._generation:
            return
        self._generation = connection.generation
        if connection.session.id != self.session:
            self.session_began = self._clock.now()
            self.sessions += 1
            log.info(
                "ZooKeeper: session %#x, timeout %.1f s%s", connection.session.id, connection.session.timeout,
                "" if self.session is None else f" (session {self.session:#x} has expired)",
            )  # fmt: skip
        else:
            log.info("ZooKeeper: connected again in session %#x", self.session)
        self.session = connection.session.id
        self.state = SESSION.step(self.state, SessionEvent.CONNECTED)
        self._contact_due = self._clock.now()
        for channel in self._channels:
            channel.joined = False
            channel.due = self._clock.now()
            channel.again = channel.running is not None

    def _tell_away(self) -> None:
        """Log now and then that ZooKeeper is not available."""
        now = self._clock.now()
        if self._away_since is None:
            self._away_since, self._tell_at = now, now + TELL_AFTER
        elif now >= self._tell_at:
            self._tell_at = now + TELL_EVERY
            log.warning(
                "%s has not answered for %.0f s; trying again every second. No batch is delivered until then",
                self.zk.where, now - self._away_since,
            )  # fmt: skip

    def _watch_the_session(self) -> None:
        """Ask for signs of life, and tell channels if they fail."""
        connection, now = self.zk.connection, self._clock.now()
        if connection is not None and now >= self._contact_due and (self._contact is None or self._contact.done):
            self._contact_due = now + connection.session.timeout / CONTACTS_PER_SESSION
            # As a task, because only what is awaited has a deadline.
            self._contact = self.tasks.spawn(self._look_around(), "sign of life")
        if self.session is None:
            return
        if now >= self.zk.doubtful_from(self.session):
            if not self._doubted:
                self._doubted = True
                for channel in self._channels:
                    channel.consumer.in_doubt()
        elif connection is not None and (self._doubted or not self._verified):
            self._doubted = False
            for channel in self._channels:
                channel.consumer.verified()
        self._verified = connection is not None and not self._doubted

    async def _look_around(self) -> None:
        with suppress(InboundError):
            await self.zk.get("/")  # any answer will do

    def _next_session_check(self) -> float | None:
        times = [] if self._doubted or self.session is None else [self.zk.doubtful_from(self.session)]
        if self.zk.connection is not None:
            times.append(self._contact_due)
        elif self._away_since is not None:
            times.append(self._tell_at)
        return min(times, default=None)

    # -- channels ----------------------------------------------------------------------------------------------------

    def _drive(self, channel: _Channel, now: float) -> None:
        if channel.running is not None:
            if not channel.running.done:
                if channel.due <= now:
                    channel.again, channel.due = True, float("inf")
                return
            self._ended(channel, now)
        if channel.due <= now:
            channel.due = now + self.timing.rebalance_interval
            channel.running = self.tasks.spawn(
                self._evaluate(channel, self._generation), f"channel {channel.consumer.name}"
            )

    def _ended(self, channel: _Channel, now: float) -> None:
        running, channel.running = channel.running, None
        assert running is not None
        if channel.again:
            channel.again, channel.due = False, min(channel.due, now + COALESCE)
        try:
            running.result()
        except TransientError as error:
            log.debug("channel %s: %s", channel.consumer.name, error)
            channel.due = min(channel.due, now + LOOK_AGAIN)
        except ConsumerIdTakenError as error:
            self.fatal = error
            channel.due = float("inf")
        except InboundError as error:
            log.error("channel %s: %s; trying again in 5 s", channel.consumer.name, error)
            channel.due = min(channel.due, now + AFTER_ERROR)
        except Exception:
            channel.due = min(channel.due, now + AFTER_ERROR)
            raise  # a defect: the driver logs it

    async def _evaluate(self, channel: _Channel, generation: int) -> None:
        """Rejoin if needed, compare our view with the nodes, take and release."""
        consumer = channel.consumer
        self.evaluations += 1
        if not channel.joined:
            await consumer.zk_reconnected()
            if generation != self._generation:
                return  # reconnected since: the next evaluation starts over
            channel.joined = True
            if all(c.joined for c in self._channels) and self.state is SessionState.JOINING:
                self.state = SESSION.step(self.state, SessionEvent.JOINED)
        await consumer.coordinate()
        plan = await consumer.calc_rebalance()
        if plan is None:
            channel.due = min(channel.due, self._clock.now() + LOOK_AGAIN)
            return
        if plan.release:
            await self._release(channel, plan.release)
        if plan.take and not await consumer.take_partitions(plan.take):
            channel.due = min(channel.due, self._clock.now() + COALESCE + self._rng.random() * LOOK_AGAIN)
        if consumer.next_look is not None:
            channel.due = min(channel.due, consumer.next_look)

    async def _release(self, channel: _Channel, partitions: Sequence[TopicPartition]) -> None:
        if self._clock.now() < channel.release_from:
            channel.due = min(channel.due, channel.release_from)
            return
        await channel.consumer.release_partitions(partitions)
