"""Lets everything happen that can happen, in an order drawn from a seed, on a fake clock.

One thing at a time: a step of one part of one process, one request reaching the servers, one answer or watch reaching a
client, one client noticing that its connection is gone. When nothing can happen, time jumps to when something can.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from inbound.channel.async_worker import AsyncWorker, LoopWakeup
from inbound.channel.reader import MAX_POLL, Reader
from inbound.channel.worker import Worker
from inbound.driver import Part, Wakeup
from inbound.testing.event_loop import FakeLoop, inside_a_loop
from inbound.testing.kafka import ClientError, FakeLogClient
from inbound.testing.scene import Member
from inbound.testing.world import World
from inbound.testing.zookeeper import Delivery

#: Work takes time: a part that wants to go on at once does so after up to so many seconds.
STEP = 0.01
#: How long one message takes, in seconds: mostly the first, at times the second.
LATENCY, SLOW_LATENCY = 0.004, 0.4
#: At times a client waits so long before it connects again, in seconds; kazoo's back-off ends at 1 s.
RECONNECT = 0.8
#: So many steps of other threads come before a thread that was stopped goes on.
PREEMPTIONS = (1, 2, 4, 8)
#: Callbacks inside callbacks inside callbacks: deeper than this they end at once.
MAX_DEPTH = 6


class Process(Protocol):
    """A consumer, a further channel of one, or an operator's command."""

    @property
    def name(self) -> str:
        """Of its client of ZooKeeper."""

    @property
    def paused(self) -> bool:
        """Whether it is stopped for a while (SIGSTOP)."""

    @property
    def dead(self) -> bool:
        """Whether it has ended."""

    @property
    def parts(self) -> list[Part]: ...

    @property
    def wakeups(self) -> list[Wakeup]:
        """Of the parts, in their order."""

    @property
    def log_clients(self) -> list[FakeLogClient]: ...


@dataclass(eq=False)
class Actor:
    """One part of one process, and when it wants its next turn."""

    consumer: Process
    part: Part
    wakeup: Wakeup
    due: float = 0.0
    busy: bool = False  # in a turn: inside a callback that takes time


class Scheduler:
    """Owns the order of events of a `World`."""

    def __init__(self, world: World, seed: str) -> None:
        self.world = world
        self.clock = world.clock
        self.failure: BaseException | None = None  # raised by a part: a defect
        self.halted: Callable[[], bool] = lambda: False
        #: Random order and latencies; else always the first of what can happen, after no time.
        self.shuffled = True
        #: Callbacks take no time any more.
        self.calm = False
        #: How often another thread of a process goes on first, where one may be stopped: of 1.
        self.preempted = 0.0
        #: (client, kind) whose messages are slower, and by how many seconds at most.
        self.delays: dict[tuple[str, str], float] = {}
        self.steps = 0
        self._rng = random.Random(seed)
        self._actors: list[Actor] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._arrivals: dict[tuple[str, str], float] = {}
        self._depth = 0
        self._preempting = False

    def reseed(self, seed: str) -> None:
        """Draw from another stream, so that what was before doesn't change what comes."""
        self._rng = random.Random(seed)

    def add(self, consumer: Process) -> None:
        """Take a process on."""
        self._actors = [a for a in self._actors if not a.consumer.dead]
        for part, wakeup in zip(consumer.parts, consumer.wakeups, strict=True):
            self._actors.append(Actor(consumer, part, wakeup, due=self.clock.now()))

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._timers, (time, next(self._count), action))

    def at_next(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something so many seconds from now, and never inside what happens now."""
        self.at(self.clock.now() + seconds, action)

    def hurry(self, key: tuple[str, str]) -> None:
        """Let what is on its way arrive within the usual time."""
        if key in self._arrivals:
            self._arrivals[key] = min(self._arrivals[key], self.clock.now() + LATENCY)

    def run(self, until: float) -> None:
        """Let everything happen until a time."""
        while self.clock.now() < until and not self.halted():
            if not self._act():
                self._pass_time(until)

    def spend(self, consumer: Member, seconds: float) -> None:
        """Let time pass inside a callback of `consumer`; everybody else goes on."""
        if self._depth >= MAX_DEPTH or self._preempting:
            return
        end = self.clock.now() + seconds
        self._depth += 1
        try:
            while not (self.halted() or consumer.dead):
                over = self.clock.now() >= end or self.calm
                if over and not consumer.paused:
                    return
                if not self._act():
                    self._pass_time(end if self.clock.now() < end else float("inf"))
        finally:
            self._depth -= 1

    def preempt(self, process: Process) -> None:
        """A thread of `process` may be stopped here: at times some steps of its other threads come first. No time passes."""
        if self._preempting or not self.shuffled or self._rng.random() >= self.preempted or self.halted():
            return
        self._preempting = True
        try:
            for _ in range(self._rng.choice(PREEMPTIONS)):
                if process.dead or process.paused or not self._act(process):
                    return
        finally:
            self._preempting = False

    # -- one thing -----------------------------------------------------------------------------------------------------

    def _act(self, only: Process | None = None) -> bool:
        now = self.clock.now()
        things: list[Actor | Delivery] = []
        for actor in self._actors:
            consumer = actor.consumer
            if consumer.dead or consumer.paused or actor.busy or only not in (None, consumer):
                continue
            if isinstance(actor.part, AsyncWorker) and inside_a_loop():
                continue  # one thread plays all
            if actor.due > now and actor.wakeup.take():
                actor.due = now
            if actor.due <= now:
                things.append(actor)
        deliveries = self._deliveries(now)
        things += deliveries if only is None else [thing for thing in deliveries if thing.client == only.name]
        if not things:
            return False
        self.steps += 1
        thing = self._rng.choice(things) if self.shuffled else things[0]
        if isinstance(thing, Actor):
            self._turn(thing)
            return True
        del self._arrivals[thing]
        if thing.kind in ("notice", "reconnect"):
            self.world.ensemble.clients[thing.client].tick()
        else:
            self.world.ensemble.step(thing)
        return True

    def _deliveries(self, now: float) -> list[Delivery]:
        arrived = []
        present = {}
        for client in self.world.ensemble.clients.values():
            kinds = client.kinds()
            if client.next_notice <= now:
                kinds.append("notice" if client.connection is not None else "reconnect")
            for kind in kinds:
                key = (client.name, kind)
                at = self._arrivals.get(key)
                if at is None:
                    at = now + self._latency(key)
                present[key] = at
                if at <= now:
                    arrived.append(Delivery(*key))
        self._arrivals = present
        return arrived

    def _latency(self, key: tuple[str, str]) -> float:
        if not self.shuffled:
            return self.delays.get(key, 0.0)
        if key[1] == "late":
            return self._rng.choice((0.05, 0.5, 2.0)) * self._rng.random()
        if key[1] == "reconnect":
            return RECONNECT * self._rng.random() if self._rng.random() < 0.3 else 0.0
        longest = self.delays.get(key) or (SLOW_LATENCY if self._rng.random() < 0.01 and not self.calm else LATENCY)
        return self._rng.random() * longest

    def _turn(self, actor: Actor) -> None:
        actor.busy = True
        clients = actor.consumer.log_clients
        if isinstance(actor.part, Worker) and clients:
            clients[-1].brought = True  # it may not poll
        try:
            due = actor.part.run_once()
        except KeyboardInterrupt:
            raise  # the player stops it; no part has failed
        except ClientError:
            due = self.clock.now() + 1.0  # as `inbound.driver` does
        except BaseException as error:
            self.failure = self.failure or error
            due = None
        finally:
            actor.busy = False
        now = self.clock.now()
        if (
            isinstance(actor.part, Reader | Worker)
            and due is not None
            and due <= now
            and clients
            and not clients[-1].brought
        ):
            due = now + MAX_POLL * self._draw()  # a poll that waited for records in vain
        if isinstance(actor.wakeup, LoopWakeup) and isinstance(actor.wakeup.loop, FakeLoop):
            due = actor.wakeup.loop.waits_until
        actor.due = float("inf") if due is None else max(due, now + STEP * self._draw())

    def _draw(self) -> float:
        return self._rng.random() if self.shuffled else 0.5

    # -- time ----------------------------------------------------------------------------------------------------------

    def _pass_time(self, until: float) -> None:
        now = self.clock.now()
        ensemble = self.world.ensemble
        times = [until, ensemble.next_expiry, *self._arrivals.values()]
        if self._timers:
            times.append(self._timers[0][0])
        times += [client.next_notice for client in ensemble.clients.values()]
        times += [a.due for a in self._actors if not (a.busy or a.consumer.paused or a.consumer.dead)]
        # A notice that is due already waits for its arrival.
        later = min((t for t in times if t > now), default=until)
        if not self._timers or self._timers[0][0] > now:
            self.clock.advance(later - now)
            ensemble.expire_silent()
        while self._timers and self._timers[0][0] <= self.clock.now():
            heapq.heappop(self._timers)[2]()
