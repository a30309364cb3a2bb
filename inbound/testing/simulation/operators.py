"""Operators ask for resets in a simulated run, one process each."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from inbound.controller.reset_offset import ResetCommand, ResetController, cancel, submit
from inbound.controller.reset_offset.model import TopicLogs
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call
from inbound.errors import InboundError, TransientError
from inbound.runtime.driver import Part, Wakeup
from inbound.testing.kafka import FakeLogClient
from inbound.testing.world import World

#: Seconds between an operator's attempts while ZooKeeper does not answer, and their number.
RETRY, ATTEMPTS = 0.25, 40


class ResetOperator:
    """An `offsets reset` process, which may also carry the reset out."""

    def __init__(
        self, world: World, name: str, session: float, logs: TopicLogs, largest: int, say: Callable[[str], None]
    ) -> None:
        self.name = name
        self.paused = False
        self.dead = False
        self.log_clients: list[FakeLogClient] = []
        wakeup = Wakeup()
        self.zk = world.ensemble.client(name, session)
        self._world = world
        self._say = say
        self.tasks = Tasks(world.clock, wakeup.set)
        self._controller = ResetController(self.zk, self.tasks, logs, name=name, largest=largest)
        self.parts: list[Part] = [self]
        self.wakeups = [wakeup]

        def changed() -> None:
            self._controller.look()
            wakeup.set()

        self.zk.on_change = changed

    def run_once(self) -> float | None:
        """Step its only thread."""
        return self.tasks.step()

    def close(self) -> None:
        """End the process where it stands, as the run is over."""
        self.dead = True
        self.tasks.close()

    def submit(self, command: ResetCommand, *, lead: bool) -> None:
        """Ask for a reset, and carry it out if `lead`."""

        async def asking() -> None:
            if await self._tried(lambda: submit(self.zk, command)) and lead:
                await self._controller.lead(command.name)

        self._begin(asking())

    def cancel(self, name: str) -> None:
        """Cancel a reset; it may be too late."""

        async def asking() -> None:
            await self._tried(lambda: cancel(self.zk, name, self.name))

        self._begin(asking())

    async def _tried(self, ask: Callable[[], Coroutine[Call[Any], None, Any]]) -> bool:
        for _ in range(ATTEMPTS):
            try:
                await ask()
            except TransientError:
                await self.tasks.sleep(RETRY)
            except InboundError as refused:
                self._say(f"{self.name}: {refused}")
                return False
            else:
                return True
        return False

    def _begin(self, coroutine: Coroutine[Call[Any], None, None]) -> None:
        call = self.tasks.spawn(coroutine, self.name)

        def ended() -> None:
            if not self.dead:
                self.dead = True
                call.result()  # a defect is raised here, in the part's turn
                self.zk.close()

        call.when_done(ended)
