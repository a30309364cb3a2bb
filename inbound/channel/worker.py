"""Polls, or serves one due partition of a plain processor.

Several threads run it at once, each with a partition of its own; `inbound.partition.leader` decides which one polls.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from inbound.channel.parts import Parts
from inbound.channel.reader import Reader
from inbound.channel.turn import Turns
from inbound.partition.leader import NEVER, NO_EFFORT, Lead
from inbound.partition.partition import Partition

T = TypeVar("T")
#: A time that is over, on every clock.
AT_ONCE = 0.0


class Worker:
    """Polls or serves one partition at a time: see `inbound.runtime.driver.Part`."""

    def __init__(self, parts: Parts, reader: Reader, turns: Turns) -> None:
        self._clock = parts.clock
        self._schedule = parts.schedule
        self._reader = reader
        self._turns = turns
        #: The partition that is being served; None between turns.
        self._serving: Partition | None = None
        self._polled_at = 0.0

    def run_once(self) -> float | None:
        """Poll, or serve one due partition for one turn."""
        step = self._schedule.take(self)
        if isinstance(step, Partition):
            self._serve(step)
        elif isinstance(step, Lead):
            self._lead(step)
        else:
            return step
        return AT_ONCE

    def _lead(self, step: Lead) -> None:
        schedule = self._schedule
        try:
            due = self._reader.run_once(step.seconds)
        except BaseException:
            schedule.fail_lead()
            raise
        schedule.end_lead(NEVER if due is None else due)
        self._polled_at = self._clock.now()

    def _serve(self, partition: Partition) -> None:
        self._serving = partition
        began, cpu = self._clock.now(), self._clock.cpu()
        callback, failed = NO_EFFORT, True
        try:
            callback = finish(self._turns.serve(partition))
            failed = False
        except BaseException:
            self._turns.rescue(partition)
            raise
        finally:
            self._serving = None
            turn = self._clock.cpu() - cpu, self._clock.now() - began
            self._schedule.end_turn(self, callback, turn, failed=failed)

    def let_go_at(self) -> float:
        """Return when it last released the interpreter: clients do in polls."""
        return self._polled_at

    @property
    def in_callback(self) -> bool:
        """Whether its thread is in a turn. Any thread."""
        return self._serving is not None

    def stacks(self, of_thread: Callable[[], str]) -> dict[Partition, str]:
        """Return the partition being served, and its stack. Any thread."""
        serving = self._serving
        return {} if serving is None else {serving: of_thread()}


def finish(turn: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, and return its result."""
    try:
        turn.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    turn.close()
    raise RuntimeError("a turn of a plain processor waits for something")
