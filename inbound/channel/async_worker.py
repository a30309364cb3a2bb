"""Serves all due partitions of an asynchronous processor on one event loop.

Its thread runs the loop. In tests the loop is `inbound.testing.FakeLoop`, which never waits, and the test calls `run_once`.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import partial
from inspect import isawaitable
from types import CoroutineType
from typing import Any

from inbound.channel.parts import Parts
from inbound.channel.turn import Turns
from inbound.partition.leader import Lead
from inbound.partition.partition import Partition, Place
from inbound.runtime.driver import Wakeup

log = logging.getLogger(__name__)

#: Seconds after which the loop's thread looks for due partitions at the latest.
LONGEST_WAIT = 1.0
#: Seconds that cancelled turns have to end when the channel closes.
CANCEL_WAIT = 1.0
#: Seconds that `open` or `close` of a processor may take on a running loop.
LONGEST_CALLBACK = 30.0


class LoopWakeup(Wakeup):
    """Wakes the thread of an event loop, which waits inside it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, interrupt: Callable[[], None] | None = None) -> None:
        """`interrupt` is called in place of interrupting the loop."""
        super().__init__(1)
        self.loop = loop
        self._interrupt = interrupt or self._stop_loop
        self._interrupted = False

    def set(self) -> None:
        super().set()
        self._interrupt()

    def set_all(self) -> None:
        super().set_all()
        self._interrupt()

    def worker(self, parts: Parts, turns: Turns) -> AsyncWorker:
        return AsyncWorker(parts, turns, self)

    def heard(self) -> None:
        """Let calls interrupt the loop again, before it looks for due partitions."""
        self._interrupted = False

    def _stop_loop(self) -> None:
        if not self._interrupted and not self.loop.is_closed():
            self._interrupted = True  # once is enough: many partitions become due between two looks
            self.loop.call_soon_threadsafe(self.loop.stop)


class AsyncWorker:
    """Serves all due partitions at once: see `inbound.runtime.driver.Part`."""

    #: Callbacks share its thread: one that blocks it delays all of them, and counts as stuck.
    in_callback = False
    #: When to begin turns again (clock time): for a thread that serves several workers.
    looks_at = 0.0

    def __init__(self, parts: Parts, turns: Turns, wakeup: LoopWakeup) -> None:
        self._clock = parts.clock
        self._schedule = parts.schedule
        self._turns = turns
        self.wakeup = wakeup
        self._loop = wakeup.loop
        self._under_way: dict[Partition, asyncio.Task[None]] = {}
        self._defects: list[BaseException] = []
        self._closing = False

    def run_once(self) -> float | None:
        """Begin turns of due partitions, and run the loop until more are."""
        self.wakeup.heard()
        run_loop(self._loop, self.begin_turns() - self._clock.now())
        self.raise_defect()
        return self._clock.now()

    def raise_defect(self) -> None:
        """Raise a turn's exception, if there is one."""
        if self._defects:
            raise self._defects.pop(0)

    def begin_turns(self) -> float:
        """Begin a turn for each due partition. Returns the next due time.

        By the loop's thread, between two runs of the loop.
        """
        while True:
            partition = self._schedule.take(self)
            if not isinstance(partition, Partition):
                assert not isinstance(partition, Lead)  # another thread polls
                return partition
            turn = self._loop.create_task(self._serve(partition), name=f"turn of {partition.tp}")
            self._under_way[partition] = turn
            turn.add_done_callback(partial(self._clear_up, partition))

    def _clear_up(self, partition: Partition, turn: asyncio.Task[None]) -> None:
        """Pass on a partition whose task was cancelled before it began.

        Such a task runs nothing of `_serve`, nor its `finally`.
        """
        if self._under_way.get(partition) is turn:
            del self._under_way[partition]
            self._schedule.end_turn(self)
            self._turns.rescue(partition)
            if not self._closing:
                log.error(
                    "%s: its turn was cancelled before it began; a processor is to cancel its own tasks alone",
                    partition.tp,
                )

    async def _serve(self, partition: Partition) -> None:
        try:
            await self._turns.serve(partition)
        except GeneratorExit:
            raise  # the loop itself is gone
        except BaseException as defect:
            cancelled = partition.place is Place.ABANDONED and isinstance(defect, asyncio.CancelledError)
            self._turns.rescue(partition)
            if not cancelled:
                self._defects.append(defect)
                self._loop.stop()
        finally:
            del self._under_way[partition]
            self._schedule.end_turn(self)  # CPU time of one turn among many cannot be told

    def let_go_at(self) -> float:
        """Return when it last released the interpreter: loops do all the time."""
        return self._clock.now()

    # -- called by the channel -----------------------------------------------------------------------------------------

    def complete(self, result: Awaitable[object]) -> None:
        """Run a coroutine of `open` or `close` while the loop is stopped."""
        self._loop.run_until_complete(result)

    def run_there(self, callback: Callable[[], object]) -> None:
        """Run `open` or `close` to its end on the running loop."""

        async def run() -> None:
            result = callback()
            if isawaitable(result):
                await result

        if not self._ends_there(run(), LONGEST_CALLBACK):
            raise TimeoutError(f"it did not end within {LONGEST_CALLBACK:.0f} s")

    def stacks(self, of_thread: Callable[[], str]) -> dict[Partition, str]:
        """Return the running partitions' stacks. Any thread.

        `of_thread` returns the stack of the loop's thread.
        """
        return {partition: _stack(task.get_coro(), of_thread) for partition, task in list(self._under_way.items())}

    def abandon(self, partition: Partition) -> None:
        """Cancel the turn of an abandoned partition. Any thread."""
        task = self._under_way.get(partition)
        if task is not None:
            self._loop.call_soon_threadsafe(task.cancel)

    def cancel_turns(self) -> None:
        """Cancel the running turns after the loop's thread has ended."""
        self._closing = True
        self._cancel(self._under_way.values())

    def cancel_turns_there(self) -> bool:
        """Cancel the running turns on a shared loop. Returns False on timeout."""
        self._closing = True

        async def cancel() -> None:
            turns = list(self._under_way.values())
            for turn in turns:
                turn.cancel()
            if turns:
                await asyncio.wait(turns, timeout=CANCEL_WAIT)

        return self._ends_there(cancel(), 2 * CANCEL_WAIT)

    def _ends_there(self, coroutine: Coroutine[Any, Any, None], seconds: float) -> bool:
        """Run a coroutine on the running loop. Returns False on timeout."""
        done = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            done.result(seconds)
        except TimeoutError:
            done.cancel()
            return False
        return True

    def close(self) -> None:
        """Close the loop, with its tasks, after its thread has ended."""
        self._cancel(asyncio.all_tasks(self._loop))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _cancel(self, tasks: Collection[asyncio.Task[Any]]) -> None:
        if tasks:
            for task in tasks:
                task.cancel()
            asyncio.gather(*tasks, return_exceptions=True).add_done_callback(lambda _: self._loop.stop())
            run_loop(self._loop, CANCEL_WAIT)


def run_loop(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Run the loop until it is stopped, or for so many seconds."""
    timer = loop.call_later(max(0.0, min(seconds, LONGEST_WAIT)), loop.stop)
    try:
        loop.run_forever()
    finally:
        timer.cancel()


def _stack(coroutine: Any, of_thread: Callable[[], str]) -> str:
    frames = []
    while isinstance(coroutine, CoroutineType):
        if coroutine.cr_running:
            return of_thread()
        if coroutine.cr_frame is not None:
            frames.append((coroutine.cr_frame, coroutine.cr_frame.f_lineno))
        coroutine = coroutine.cr_await
    return "".join(traceback.StackSummary.extract(iter(frames)).format())
