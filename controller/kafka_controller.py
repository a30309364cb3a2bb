"""KafkaController: one ZooKeeper connection for all channels; session, recovery, rebalance."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from inbound.clock import Clock
from inbound.controller.consumer import KafkaConsumer
from inbound.controller.session import Event, State, step
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call, ZooKeeper
from inbound.errors import ConsumerIdTakenError, InboundError, TransientError
from inbound.topic_partition import TopicPartition

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


@dataclass(eq=False)
class Counters:
    """For metrics."""

    evaluations: int = 0
    sessions: int = 0
    suspensions: int = 0


class KafkaController:
    """Drives the channels' coordination on one thread: see `inbound.driver.Part`.

    It evaluates a channel after every reconnect, refusal, ambiguous answer and local drop, on watches, and by timer.
    """

    def __init__(self, zk: ZooKeeper, tasks: Tasks, clock: Clock, timing: Timing, rng: random.Random) -> None:
        self.zk = zk
        self.tasks = tasks
        self.timing = timing
        self.state = State.DOWN
        self.counters = Counters()
        #: The error that must end the process, once there is one.
        self.fatal: InboundError | None = None
        self._clock = clock
        self._rng = rng
        self._channels: list[_Channel] = []  # replaced as a whole: other threads look at it
        self._channels_lock = threading.Lock()
        self._generation = 0
        self._session: int | None = None
        self._session_began = float("-inf")
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

    @property
    def session(self) -> int | None:
        """The session that we are, or were last, connected in."""
        return self._session

    @property
    def session_began(self) -> float:
        """The clock time at which we heard of that session."""
        return self._session_began

    def evaluate(self, consumer: KafkaConsumer, *, delay: float = COALESCE) -> None:
        """Ask for an evaluation of a channel soon. Any thread; the caller wakes the controller."""
        for channel in self._channels:
            if channel.consumer is consumer:
                channel.due = min(channel.due, self._clock.now() + delay)

    def postpone_release(self, consumer: KafkaConsumer) -> None:
        """Somebody joined: wait a little for others before giving anything up. Controller's thread."""
        for channel in self._channels:
            if channel.consumer is consumer:
                jitter = 1 + self._rng.random() * 0.5
                channel.release_from = self._clock.now() + self.timing.rebalance_delay * jitter

    # -- the part ----------------------------------------------------------------------------------------------------

    def run_once(self) -> float | None:
        self._follow_connection()
        self._watch_the_session()
        now = self._clock.now()
        if self.state in (State.JOINING, State.MEMBER):
            for channel in self._channels:
                self._drive(channel, now)
        deadline = self.tasks.step()
        if any(c.running is not None and c.running.done for c in self._channels):
            return now
        times = [t for t in (deadline, self._next_session_check()) if t is not None]
        if self.state in (State.JOINING, State.MEMBER):
            times += [c.due for c in self._channels if c.running is None]
        return min(times, default=None)

    def close(self) -> None:
        """Take no further part: nothing is evaluated any more. Releases that are under way go on."""
        if self.state is not State.CLOSED:
            self.state = step(self.state, Event.CLOSE)

    # -- the session -------------------------------------------------------------------------------------------------

    def _follow_connection(self) -> None:
        connection = self.zk.connection
        if self.state is State.CLOSED:
            # Nothing is recovered any more, but what waits for its last commit must not wait for a session that is over.
            if connection is not None and connection.generation != self._generation:
                self._generation, self._session = connection.generation, connection.session.id
                for channel in self._channels:
                    channel.consumer.leaving_in(self._session)
            return
        if connection is None:
            self._tell_away()
            if self.state in (State.JOINING, State.MEMBER):
                self.state = step(self.state, Event.DISCONNECTED)
                self.counters.suspensions += 1
                log.warning(
                    "ZooKeeper: connection lost; batches in flight end, nothing new is handed out until it is back"
                )
                for channel in self._channels:
                    channel.consumer.suspended()
            return
        self._away_since = None
        if connection.generation == self._generation:
            return
        self._generation = connection.generation
        if connection.session.id != self._session:
            self._session_began = self._clock.now()
            self.counters.sessions += 1
            log.info(
                "ZooKeeper: session %#x, timeout %.1f s%s", connection.session.id, connection.session.timeout,
                "" if self._session is None else f" (session {self._session:#x} has expired)",
            )  # fmt: skip
        else:
            log.info("ZooKeeper: connected again in session %#x", self._session)
        self._session = connection.session.id
        self.state = step(self.state, Event.CONNECTED)
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
                "%s has not answered for %.0f s; trying again every second. Nothing is handed out meanwhile",
                self.zk.where, now - self._away_since,
            )  # fmt: skip

    def _watch_the_session(self) -> None:
        """Keep the session's sign of life fresh, and tell the channels when it is not."""
        connection, now = self.zk.connection, self._clock.now()
        if connection is not None and now >= self._contact_due and (self._contact is None or self._contact.done):
            self._contact_due = now + connection.session.timeout / CONTACTS_PER_SESSION
            # As a task, because only what is awaited has a deadline.
            self._contact = self.tasks.spawn(self._look_around(), "sign of life")
        if self._session is None:
            return
        if now >= self.zk.doubtful_from(self._session):
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
        times = [] if self._doubted or self._session is None else [self.zk.doubtful_from(self._session)]
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
        self.counters.evaluations += 1
        if not channel.joined:
            await consumer.zk_reconnected()
            if generation != self._generation:
                return  # connected anew meanwhile: the next evaluation starts over
            channel.joined = True
            if all(c.joined for c in self._channels) and self.state is State.JOINING:
                self.state = step(self.state, Event.JOINED)
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
