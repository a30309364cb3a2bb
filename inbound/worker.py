"""The working part of a channel whose processor is plain code: takes a partition that is due, serves it for one turn.

Several threads run it at once, each with a partition of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from inbound.partition import Partition
from inbound.parts import Parts
from inbound.reading import Reading
from inbound.turn import Turns

T = TypeVar("T")


class Worker:
    """Serves partitions, one at a time: see `inbound.driver.Part`."""

    def __init__(self, parts: Parts, turns: Turns) -> None:
        self._parts = parts
        self._turns = turns
        #: Reads where the reader's thread need not; None: it never does.
        self.reading: Reading | None = None
        #: The partition that is being served; None between turns.
        self._serving: Partition | None = None

    def run_once(self) -> float | None:
        """Serve one due partition for one turn: its callbacks, and at most one batch."""
        schedule = self._parts.schedule
        partition, due = schedule.take_due(self)
        if partition is None:
            if self.reading is not None and self.reading.lend(self):
                return self._parts.clock.now()
            return due
        self._serving = partition
        cpu = elapsed = 0.0
        try:
            cpu, elapsed = finish(self._turns.serve(partition))
        except BaseException:
            self._turns.rescue(partition)
            raise
        finally:
            self._serving = None
            schedule.end_turn(self, cpu, elapsed)
        return self._parts.clock.now()

    @property
    def in_callback(self) -> bool:
        """Whether its thread is in a turn, which may take as long as the processor likes. Any thread."""
        return self._serving is not None

    def stacks(self, of_thread: Callable[[], str]) -> dict[Partition, str]:
        """Return the partition that is being served, and where that is; `of_thread` tells it. Any thread."""
        serving = self._serving
        return {} if serving is None else {serving: of_thread()}


def finish(turn: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that has nothing to wait for, and return its result."""
    try:
        turn.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    turn.close()
    raise RuntimeError("a turn of a plain processor waits for something")
