"""One event loop for several channels: each is looked at when it said, also while others come and go."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from inbound.channel.async_worker import AsyncWorker
from inbound.channel.shared import SharedLoop
from inbound.partition.leader import NEVER
from inbound.partition.schedule import Schedule
from inbound.testing import FakeLoop, ManualClock


class Looked(AsyncWorker):
    """A worker that notes when it is looked at, and says when to come next."""

    def __init__(self, shared: SharedLoop, clock: ManualClock, *due: float) -> None:
        wakeup = shared.wakeup_of_one()
        parts: Any = SimpleNamespace(clock=clock, schedule=Schedule(clock, wakeup.set, 1, lambda: None))
        super().__init__(parts, turns=None, wakeup=wakeup)  # type: ignore[arg-type]
        self._now, self._says = clock.now, list(due)
        self.looks: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def begin_turns(self) -> float:
        self.looks.append(self._now())
        self.meanwhile()
        return self._says.pop(0) if self._says else NEVER


def test_a_channel_that_comes_while_others_are_looked_at_costs_none_of_them_its_time() -> None:
    """Another thread adds it: what they say meanwhile is not forgotten, for nobody would come by any more."""
    clock = ManualClock()
    shared = SharedLoop(clock, lambda: FakeLoop(clock))
    began = clock.now()
    first, second = Looked(shared, clock, NEVER, began + 0.7), Looked(shared, clock)
    shared.add(first)
    for turn in range(10):
        if turn == 2:
            first.wakeup.set()
            first.meanwhile = lambda: None if second.looks else shared.add(second)
        shared.run_once()
        clock.advance(0.1)
    shared.close()
    assert ([round(at - began, 1) for at in first.looks], len(second.looks)) == ([0.0, 0.2, 0.7], 1)
