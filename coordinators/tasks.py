"""A small scheduler for coroutines that await ZooKeeper's answers.

It is not asyncio: the simulator must own the time and the order of every step, and production needs one thread only.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from inbound.clock import Clock
from inbound.coordinators.zookeeper import Call, ambiguous

T = TypeVar("T")

log = logging.getLogger(__name__)


class Task:
    """One running coroutine; `finished` completes with its result."""

    __slots__ = ("coroutine", "finished", "name", "waiting")

    def __init__(self, coroutine: Coroutine[Call[Any], None, Any], name: str) -> None:
        self.coroutine = coroutine
        self.name = name
        self.finished: Call[Any] = Call(name)
        self.waiting: Call[Any] | None = None


class Tasks:
    """Runs coroutines step by step on the thread that calls `step`.

    `wake` is called, from any thread, when there is something to step.
    """

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._ready: deque[tuple[Task, Call[Any] | None]] = deque()
        self._deadlines: list[tuple[float, int, Call[Any], bool]] = []  # True: a sleep, not a time-out
        self._count = itertools.count()
        self._live: set[Task] = set()
        self._closed = False

    def spawn(self, coroutine: Coroutine[Call[Any], None, T], name: str) -> Call[T]:
        """Start `coroutine` with the next `step`. Any thread.

        The Call completes with the coroutine's result or error. After `close` nothing starts, and the Call has failed.
        """
        task = Task(coroutine, name)
        with self._lock:
            closed = self._closed
            if not closed:
                self._live.add(task)
        if closed:
            self._end(task)
        else:
            self._make_ready(task, None)
        return task.finished

    async def sleep(self, seconds: float) -> None:
        """Await the passing of `seconds`."""
        call: Call[None] = Call("sleep")
        with self._lock:
            heapq.heappush(self._deadlines, (self._clock.now() + seconds, next(self._count), call, True))
        await call

    async def gather(self, coroutines: Iterable[Coroutine[Call[Any], None, T]], name: str, limit: int = 64) -> list[T]:
        """Run `coroutines`, `limit` at a time; return their results in order.

        Raises the first error, after all of them have ended: none goes on unseen.
        """
        waiting = deque(enumerate(coroutines))
        results: dict[int, Call[T]] = {}
        running: deque[Call[T]] = deque()
        try:
            while waiting or running:
                while waiting and len(running) < limit:
                    index, coroutine = waiting.popleft()
                    results[index] = self.spawn(coroutine, name)
                    running.append(results[index])
                first = running.popleft()
                if not first.done:
                    await _settled(first)
        finally:
            for _, coroutine in waiting:  # closed in the middle: Python warns about coroutines that were never awaited
                coroutine.close()
        return [results[index].result() for index in sorted(results)]

    def step(self) -> float | None:
        """Run every ready task; return the next deadline on the clock."""
        while True:
            self._expire()
            with self._lock:
                if not self._ready:
                    return self._deadlines[0][0] if self._deadlines else None
                task, answered = self._ready.popleft()
            if task.waiting is answered:  # else answered twice, by time-out and by the server
                self._run(task)

    @property
    def busy(self) -> bool:
        """Return whether any coroutine has not ended yet."""
        return bool(self._live)

    def close(self) -> None:
        """End every coroutine at its current step."""
        with self._lock:
            self._closed = True
            live, self._live = self._live, set()
        for task in live:
            self._end(task)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _end(self, task: Task) -> None:
        task.coroutine.close()
        task.finished.fail(ambiguous(task.name, "the process is stopping"))

    def _run(self, task: Task) -> None:
        if task not in self._live:
            return
        task.waiting = None
        try:
            call = task.coroutine.send(None)
        except StopIteration as stop:
            self._live.discard(task)
            task.finished.succeed(stop.value)
            return
        except Exception as failure:
            self._live.discard(task)
            task.finished.fail(failure)
            return
        task.waiting = call
        if call.deadline is not None:
            with self._lock:
                heapq.heappush(self._deadlines, (call.deadline, next(self._count), call, False))
        call.when_done(lambda: self._make_ready(task, call))

    def _make_ready(self, task: Task, call: Call[Any] | None) -> None:
        with self._lock:
            self._ready.append((task, call))
        self._wake()

    def _expire(self) -> None:
        now = self._clock.now()
        while True:
            with self._lock:
                while self._deadlines and self._deadlines[0][2].done:
                    heapq.heappop(self._deadlines)
                if not self._deadlines or self._deadlines[0][0] > now:
                    return
                _, _, call, sleeping = heapq.heappop(self._deadlines)
            # Completing the call (rather than only waking the task) makes a later answer of the server a no-op.
            if sleeping:
                call.succeed(None)
            else:
                call.fail(ambiguous(call.what, "no answer in time"))


async def _settled(call: Call[Any]) -> None:
    """Await the end of `call`, and ignore its result."""
    done: Call[None] = Call(call.what)
    call.when_done(lambda: done.succeed(None))
    await done
