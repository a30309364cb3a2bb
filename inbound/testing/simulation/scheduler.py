"""Runs a simulation's events in an order drawn from a seed.

One event at a time: a step of one part of one process, one request reaching the servers, one answer or watch reaching a
client, one client noticing that its connection is gone. When nothing can happen, the fake clock jumps to when something can.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from inbound.channel.async_worker import AsyncWorker, LoopWakeup
from inbound.channel.reader import MAX_POLL, Reader
from inbound.channel.worker import Worker
from inbound.runtime.driver import Part, Wakeup
from inbound.testing.clock import FakeLoop, inside_a_loop
from inbound.testing.kafka import ClientError
from inbound.testing.simulation.witness import GroupMember
from inbound.testing.world import World
from inbound.testing.zookeeper import Arrival

if TYPE_CHECKING:
    from inbound.testing.simulation.channels import SteppedThreads
    from inbound.testing.simulation.operators import ResetOperator
    from inbound.testing.world import Consumer

#: Work takes time: a part that wants to continue at once does so after up to so many seconds.
STEP = 0.01
#: How long one message takes, in seconds: mostly the first, at times the second.
LATENCY, SLOW_LATENCY = 0.004, 0.4
#: The longest wait of a client before it reconnects, in seconds; kazoo's backoff ends at 1 s.
RECONNECT = 0.8
#: Numbers of steps of other threads before a stopped thread continues.
PREEMPTIONS = (1, 2, 4, 8)
#: Callbacks inside callbacks inside callbacks: deeper than this they end at once.
MAX_DEPTH = 6


#: A consumer process, what runs beside its first channel, or an operator's command.
SteppedProcess: TypeAlias = "Consumer | SteppedThreads | ResetOperator"


@dataclass(eq=False)
class Actor:
    """One part of one process, and when it wants its next turn."""

    consumer: SteppedProcess
    part: Part
    wakeup: Wakeup
    due: float = 0.0
    busy: bool = False  # in a turn: inside a callback that takes time


class Scheduler:
    """Owns the order of events of a `World`."""

    def __init__(self, world: World, seed: str, violated: Callable[[], bool], *, preempted: float = 0.0) -> None:
        """Once something is `violated`, or a part has failed, nothing more happens."""
        self.world = world
        self.clock = world.clock
        self.failure: BaseException | None = None  # raised by a part: a defect
        self._violated = violated
        #: Random order and latencies; else always the first of what can happen, after no time.
        self.shuffled = True
        #: Callbacks take no time any more.
        self.calm = False
        self._preempted = preempted
        #: (client, kind) whose messages are slower, and by how many seconds at most.
        self.delays: dict[tuple[str, str], float] = {}
        self.steps = 0
        self._rng = random.Random(seed)
        self._actors: list[Actor] = []
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._count = itertools.count()
        self._arrivals: dict[tuple[str, str], float] = {}
        self._depth = 0
        self._preempting = False

    def _halted(self) -> bool:
        return self.failure is not None or self._violated()

    def reseed(self, seed: str) -> None:
        """Draw from another stream, independent of what happened before."""
        self._rng = random.Random(seed)

    def add(self, consumer: SteppedProcess) -> None:
        """Add the parts of a process."""
        self._actors = [a for a in self._actors if not a.consumer.dead]
        for part, wakeup in zip(consumer.parts, consumer.wakeups, strict=True):
            self._actors.append(Actor(consumer, part, wakeup, due=self.clock.now()))

    def at(self, time: float, action: Callable[[], object]) -> None:
        """Schedule an action for a time."""
        heapq.heappush(self._timers, (time, next(self._count), action))

    def at_next(self, seconds: float, action: Callable[[], object]) -> None:
        """Schedule an action in so many seconds, never inside the current one."""
        self.at(self.clock.now() + seconds, action)

    def hurry(self, key: tuple[str, str]) -> None:
        """Let messages in flight arrive within the usual time."""
        if key in self._arrivals:
            self._arrivals[key] = min(self._arrivals[key], self.clock.now() + LATENCY)

    def run(self, until: float) -> None:
        """Let everything happen until a time."""
        while self.clock.now() < until and not self._halted():
            if not self._act():
                self._pass_time(until)

    def spend(self, consumer: GroupMember, seconds: float) -> None:
        """Let time pass inside a callback of `consumer`; all others go on."""
        if self._depth >= MAX_DEPTH or self._preempting:
            return
        end = self.clock.now() + seconds
        self._depth += 1
        try:
            while not (self._halted() or consumer.dead):
                over = self.clock.now() >= end or self.calm
                if over and not consumer.paused:
                    return
                if not self._act():
                    self._pass_time(end if self.clock.now() < end else float("inf"))
        finally:
            self._depth -= 1

    def preempt(self, process: SteppedProcess) -> None:
        """Let other threads of `process` go first at times; no time passes."""
        if self._preempting or not self.shuffled or self._rng.random() >= self._preempted or self._halted():
            return
        self._preempting = True
        try:
            for _ in range(self._rng.choice(PREEMPTIONS)):
                if process.dead or process.paused or not self._act(process):
                    return
        finally:
            self._preempting = False

    # -- one thing -----------------------------------------------------------------------------------------------------

    def _act(self, only: SteppedProcess | None = None) -> bool:
        now = self.clock.now()
        things: list[Actor | Arrival] = []
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

    def _deliveries(self, now: float) -> list[Arrival]:
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
                    arrived.append(Arrival(*key))
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
            due = self.clock.now() + 1.0  # as `inbound.runtime.driver` does
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


class _PreemptedLock:
    """Replaces a process's lock; one thread plays all, so nothing blocks."""

    def __init__(self, held: list[_PreemptedLock], released: Callable[[], None]) -> None:
        self._held = held  # the locks that the process holds
        self._released = released

    def __enter__(self) -> None:
        self._held.append(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._held.pop()
        if not self._held and kind is None:
            self._released()


def make_preemptible(consumer: Consumer, preempt: Callable[[], None]) -> None:
    """Call `preempt` wherever another thread of the process may go first."""
    channel, held = consumer.channel, list[_PreemptedLock]()
    owners: list[Any] = [
        channel.parts.schedule,
        channel.parts.committer,
        channel.reader,
        consumer.tasks,
        consumer.ledger,
    ]
    for owner in owners:
        assert hasattr(owner, "_lock")
        owner._lock = _PreemptedLock(held, preempt)
    zk: Any = consumer.zk
    send = zk._send

    def sending(*arguments: Any) -> Any:
        call = send(*arguments)
        if not held:
            preempt()
        return call

    zk._send = sending
