"""KafkaController: one ZooKeeper connection for all channels; session, recovery, rebalance."""

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
    """Where the session is."""

    DOWN = "down"  # never connected yet
    JOINING = "joining"  # connected; id nodes are being written, what we held is being recovered
    MEMBER = "member"  # registered: rebalancing as needed
    SUSPENDED = "suspended"  # no connection; the session may still live
    CLOSED = "closed"


class SessionEvent(Enum):
    """What happens to it."""

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
        (
            S.MEMBER,
            E.CONNECTED,
        ): S.JOINING,  # reconnected between two looks: all watches are gone all the same
        (S.MEMBER, E.DISCONNECTED): S.SUSPENDED,
        (S.MEMBER, E.CLOSE): S.CLOSED,
        (S.SUSPENDED, E.CONNECTED): S.JOINING,
        (S.SUSPENDED, E.CLOSE): S.CLOSED,
    },
)


class KafkaConsumer(Protocol):
    """A channel as the controller drives it.

    All methods are called on the controller's thread, one at a time.
    """

    name: str

    async def zk_reconnected(self) -> None:
        """A connection is there (again): register, and get back what is ours before anything else is claimed.

        Raises:
            TransientError: try again.
            ConsumerIdTakenError: another live process has our id; the process must stop.
        """

    async def coordinate(self) -> None:
        """Hold what we believe against the nodes: they are the truth."""

    async def calc_rebalance(self) -> Plan | None:
        """Return what to take and release; None while that cannot be known."""

    async def take_partitions(self, partitions: Sequence[TopicPartition]) -> bool:
        """Claim these. Returns False if any of them could not be had: look again soon."""

    async def release_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin to release these gracefully; does not wait for the end."""

    def suspended(self) -> None:
        """The connection is gone. Batches in flight end; no new batch is delivered."""

    def in_doubt(self) -> None:
        """The session may have expired by now: another member may own our partitions."""

    def verified(self) -> None:
        """The session is known to live again: what was in doubt may go on."""

    def leaving_in(self, session: int) -> None:
        """We are leaving, and reconnected in `session`: our other sessions have expired."""

    @property
    def next_look(self) -> float | None:
        """The clock time at which this channel wants to be evaluated again, without another trigger."""


log = logging.getLogger(__name__)

#: Triggers that come together are answered together.
COALESCE = 0.02
#: How soon to look again after something was refused or not answered.
LOOK_AGAIN = 0.25
#: And after an error that is no matter of waiting a moment.
AFTER_ERROR = 5.0
#: The session is asked for a sign of life this many times per session, so that doubt comes only from real silence.
CONTACTS_PER_SESSION = 8


#: When, and how often, an absent ZooKeeper is mentioned in the log, in seconds.
TELL_AFTER, TELL_EVERY = 3.0, 10.0


@dataclass(frozen=True)
class Timing:
    """When partitions move, in seconds."""

    rebalance_interval: float = 60.0
    rebalance_delay: float = 0.3
    join_delay: float = 3.0


@dataclass(eq=False)
class _Channel:
    """What the controller keeps for one channel."""

    consumer: KafkaConsumer
    due: float = float("inf")  # of the next evaluation
    release_from: float = 0.0  # a surplus is not released before: members that come together are answered together
    joined: bool = False
    running: Call[None] | None = None
    again: bool = False


class KafkaController:
    """Drives the channels' coordination on one thread: see `inbound.runtime.driver.Part`.

    It evaluates a channel after every reconnect, refusal, ambiguous answer and local drop, on watches, and by timer.
    """

    def __init__(self, zk: ZooKeeper, tasks: Tasks, clock: Clock, timing: Timing, rng: random.Random) -> None:
        self.zk = zk
        self.tasks = tasks
        self.timing = timing
        self.state = SessionState.DOWN
        #: For metrics: how many evaluations, sessions, and losses of the connection there were.
        self.evaluations = self.sessions = self.suspensions = 0
        #: The error that must end the process, once there is one.
        self.fatal: InboundError | None = None
        self._clock = clock
        self._rng = rng
        self._channels: list[_Channel] = []  # replaced as a whole: other threads look at it
        self._channels_lock = threading.Lock()
        self._generation = 0
        #: The session that we are, or were last, connected in, and the clock time at which we connected in it first.
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
        """Let go of a channel that has left its group; the evaluation under way, if there is one, ends before."""
        for channel in self._channels:
            while channel.consumer is consumer and channel.running is not None and not channel.running.done:
                await self.tasks.sleep(COALESCE)
        with self._channels_lock:
            self._channels = [c for c in self._channels if c.consumer is not consumer]

    def evaluate(self, consumer: KafkaConsumer, *, delay: float = COALESCE) -> None:
        """Ask for an evaluation of a channel soon. Any thread; the caller wakes the controller."""
        for channel in self._channels:
            if channel.consumer is consumer:
                channel.due = min(channel.due, self._clock.now() + delay)

    def postpone_release(self, consumer: KafkaConsumer) -> None:
        """A member joined: wait a little for others before any release. Controller's thread."""
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
        """Take no further part: nothing is evaluated any more. Releases that are under way go on."""
        if self.state is not SessionState.CLOSED:
            self.state = SESSION.step(self.state, SessionEvent.CLOSE)

    # -- the session -------------------------------------------------------------------------------------------------

    def _follow_connection(self) -> None:
        connection = self.zk.connection
        if self.state is SessionState.CLOSED:
            # Nothing is recovered any more, but what waits for its last commit must not wait for a session that is over.
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
        """Say in the log, now and then, that ZooKeeper is being waited for."""
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
        """Keep the session's sign of life fresh, and tell the channels when it is not."""
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
        """Ask ZooKeeper anything; that it answers is what counts."""
        with suppress(InboundError):
            await self.zk.get("/")

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
            raise  # a defect: the driver says so

    async def _evaluate(self, channel: _Channel, generation: int) -> None:
        """Rejoin if need be, then hold our beliefs against the nodes, then take and release."""
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
