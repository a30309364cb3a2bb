"""The example that embeds resets in a process with consumers of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

from inbound.controller.reset_offset.consumer_manager import ConsumerManager, Life
from inbound.controller.reset_offset.model import State
from inbound.coordinators.zookeeper import Call
from inbound.testing.world import GROUP
from tests.controller.reset_offset.reset_stage import Leader, Stage, moved
from tests.repository.test_examples import load_module

dispatchers = load_module("reset_embedded", "dispatchers")


@dataclass
class Slow:
    """A dispatcher that is done when the test says so."""

    log: list[str] = field(default_factory=list)
    waiting: list[Call[None]] = field(default_factory=list)

    def stop(self) -> Call[None]:
        return self._asked("stop")

    def start(self) -> Call[None]:
        return self._asked("start")

    def _asked(self, what: str) -> Call[None]:
        self.log.append(what)
        self.waiting.append(Call(what))
        return self.waiting[-1]

    def go_on(self) -> None:
        self.waiting.pop().succeed(None)


def embedded(stage: Stage, replicas: dict[str, ConsumerManager]) -> Leader:
    """Start a process that takes on resets of these replicas."""
    leader = Leader(stage, "dispatchers", None, None)
    leader.controller = dispatchers.embed(leader.zk, leader.tasks, stage.logs, replicas, [GROUP])
    stage.leaders.append(leader)
    return leader


def test_all_replicas_are_stopped_moved_and_started() -> None:
    """The slow one is waited for, and named; an operator's request waits for the end."""
    stage = Stage()
    slow, quick = Slow(), dispatchers.Dispatcher()
    managers = {"one": ConsumerManager(stage.world.clock.now), "two": ConsumerManager(stage.world.clock.now)}
    managers["one"].add(GROUP, slow)
    managers["two"].add(GROUP, quick)
    embedded(stage, managers)
    name = stage.submit()
    stage.run(5)
    resumed: list[str] = []
    waits = managers["two"].request(GROUP, "resume", lambda: resumed.append("resumed"))
    stopping = stage.read(name).conditions[2].message
    assert (stage.state(name), stopping, waits, quick.running) == (
        "stopping",
        "waits for one: is not done yet",
        False,
        False,
    )
    slow.go_on()
    stage.run(5)
    assert (stage.state(name), stage.world.commits(), slow.log) == (
        "starting",
        dict.fromkeys(range(4), 0),
        ["stop", "start"],
    )
    slow.go_on()
    command = stage.ended(name)
    assert (command.state, command.moved, resumed) == (State.SUCCEEDED, moved(4, 10, 0), ["resumed"])
    assert [m.status(GROUP).life for m in managers.values()] == [Life.RUNNING, Life.RUNNING]


def test_a_replica_that_another_reset_has_locked_is_waited_for() -> None:
    """Until that lock is gone, or has expired."""
    stage = Stage()
    manager = ConsumerManager(stage.world.clock.now, lock_seconds=10.0)
    manager.add(GROUP, dispatchers.Dispatcher())
    manager.lock(GROUP, "another", owner="a test")
    embedded(stage, {"one": manager})
    name = stage.submit()
    stage.run(5)
    assert "locked by a test (another)" in stage.read(name).conditions[2].message
    assert stage.ended(name, within=10).state is State.SUCCEEDED
