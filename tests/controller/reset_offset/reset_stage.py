"""A group of consumers, and leaders of resets with ZooKeeper clients of their own: where resets are looked at."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from inbound.controller.reset_offset.command import PATHS, ResetCommand, new_name
from inbound.controller.reset_offset.command_store import cancel, listing, read, submit
from inbound.controller.reset_offset.controller import ResetController
from inbound.controller.reset_offset.data_plane import DataPlane
from inbound.controller.reset_offset.model import Moved, Ref, RefInfo, RefMapper, ResetSpec, To
from inbound.coordinators.ownership import Ownership
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call, Delete, Op, SetData
from inbound.testing.topic_logs import FakeTopicLogs
from inbound.testing.world import GROUP, World
from inbound.testing.zookeeper import FakeZooKeeper
from inbound.testing.zookeeper_tree import Commit
from tests.controller.reset_offset.reset_by_hand import Told

T = TypeVar("T")
GROUP_REF = Ref(kind="ConsumerGroup", name=GROUP)
INFO = RefInfo(topic="orders", group=GROUP)


class Leader:
    """A process that carries resets out. It does nothing unless the stage runs."""

    def __init__(
        self, stage: Stage, name: str, mapper: RefMapper | None, plane: DataPlane | None, group: str = GROUP
    ) -> None:
        self.name = name
        self.zk: FakeZooKeeper = stage.world.ensemble.client(name, stage.session)
        self.tasks = Tasks(stage.world.clock, lambda: None)
        self.controller = ResetController(
            self.zk, self.tasks, stage.logs, mapper=mapper, plane=plane, name=name, groups=lambda: [group]
        )
        self.zk.on_change = self.controller.look
        self.stopped = False

    def after(self, count: int, action: Callable[[], None]) -> None:
        """Do something when so many of its requests have been sent, from now on."""
        send, sent = self.zk._send, itertools.count(1)

        def counted(what: str, execute: Callable[[Any], Any], size: int = 0) -> Call[Any]:
            call = send(what, execute, size)
            if next(sent) == count:
                action()
            return call

        self.zk._send = counted  # type: ignore[method-assign]

    def begin(self, coroutine: Coroutine[Call[Any], None, T]) -> Call[T]:
        return self.tasks.spawn(coroutine, self.name)


class Stage:
    """A world with consumers, and leaders beside them."""

    def __init__(self, *consumers: str, partitions: int = 4, records: int = 10, session: float = 10.0) -> None:
        """Let these consumers read so many records of each partition; without any, their group is at that point."""
        self.world = World(session_timeout=session)
        self.session = session
        self.world.kafka.create_topic("orders", partitions)
        self.partitions = partitions
        self.logs = FakeTopicLogs(self.world.kafka)
        self.leaders: list[Leader] = []
        for partition in range(partitions):
            self.world.kafka.publish("orders", partition, [b"x"] * records)
        for name in consumers:
            self.world.join(name, Told())
        if consumers:
            self.run_until(lambda: set(self.world.commits().values()) == {records}, within=20)
        self.operator = Leader(self, "operator", None, None)
        if not consumers:
            self.do(Ownership(self.operator.zk, GROUP, "setup").ensure("orders", partitions))
            paths = self.world.paths
            self.write(*(SetData(paths.offset("orders", p), b"%d" % records) for p in range(partitions)))

    def write(self, *ops: Op) -> None:
        """Change nodes by hand."""
        self.world.ensemble.tree.transaction(ops, session=0)

    # -- time --------------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        self.run_until(lambda: False, within=seconds, complain=False)

    def run_until(self, condition: Callable[[], bool], *, within: float, complain: bool = True) -> None:
        def stepped() -> bool:
            for leader in [*self.leaders, *([self.operator] if hasattr(self, "operator") else [])]:
                if not leader.stopped:
                    leader.tasks.step()
            return condition()

        self.world.run_until(stepped, within=within, complain=complain)

    # -- resets ------------------------------------------------------------------------------------------------------

    def lead(
        self, name: str, mapper: RefMapper | None = None, plane: DataPlane | None = None, group: str = GROUP
    ) -> Leader:
        """Start a process, of consumers in `group`, that carries out resets."""
        leader = Leader(self, name, mapper, plane, group)
        leader.begin(leader.controller.run())
        leader.tasks.step()
        self.leaders.append(leader)
        return leader

    def delete(self, name: str) -> None:
        """Delete a reset's nodes by hand."""
        path = PATHS.reset(name)
        children = self.world.ensemble.tree.children(path) or []
        self.write(*(Delete(f"{path}/{child}") for child in children), Delete(path))

    def kill(self, leader: Leader) -> None:
        """SIGKILL: its session lives on until it expires."""
        leader.stopped = True
        self.world.ensemble.freeze(leader.name)

    def do(self, coroutine: Coroutine[Call[Any], None, T]) -> T:
        """Carry a command out, from another machine."""
        call = self.operator.begin(coroutine)
        self.run_until(lambda: call.done, within=20)
        return call.result()

    def command(
        self, to: To = To.EARLIEST, *, info: RefInfo | None = INFO, ref: Ref = GROUP_REF, name: str | None = None,
        force_after: float | None = None, once: bool = False, **fields: Any,
    ) -> ResetCommand:  # fmt: skip
        wall = self.world.clock.wall()
        return ResetCommand(
            name=name or new_name(wall), ref=ref, info=info, spec=ResetSpec(to=to, **fields), created=wall, by="ann",
            force_after=force_after, once=once,
        )  # fmt: skip

    def submit(self, to: To = To.EARLIEST, **fields: Any) -> str:
        """Submit a reset; return its name."""
        command = self.command(to, **fields)
        assert self.do(submit(self.operator.zk, command))
        return command.name

    def read(self, name: str) -> ResetCommand:
        command = self.do(read(self.operator.zk, name))
        assert command is not None
        return command

    def listing(self) -> list[ResetCommand]:
        return self.do(listing(self.operator.zk))

    def cancel(self, name: str) -> ResetCommand:
        return self.do(cancel(self.operator.zk, name, "bob"))

    def state(self, name: str) -> str:
        """Return a reset's state as its node has it now."""
        node = self.world.ensemble.tree.get(f"/inbound/commands/reset-offset/{name}")
        if node is None:
            return "gone"
        text = node.data.decode()
        return text.split('"state":"', 1)[1].split('"', 1)[0]

    def ended(self, name: str, within: float = 30.0) -> ResetCommand:
        """Let time pass until a reset has ended; return it."""
        self.run_until(lambda: self.state(name) in ("succeeded", "cancelled", "refused"), within=within)
        return self.read(name)

    def history(self, partition: int = 0) -> list[int]:
        """Return what the group's offset becomes, one after another, from now on; the list grows."""
        path, history = self.world.paths.offset("orders", partition), list[int]()

        def committed(commit: Commit) -> None:
            node = commit.after.get(path)
            if ("data", path) in commit.changed and node is not None:
                history.append(int(node.data))

        self.world.ensemble.observers.append(committed)
        return history

    # -- what stands -------------------------------------------------------------------------------------------------

    @property
    def gate(self) -> str:
        node = self.world.ensemble.tree.get(self.world.paths.gate("orders"))
        return "" if node is None else node.data.decode()

    def told(self) -> list[tuple[Any, ...]]:
        """Return every on_reset: partition, old, new; sorted."""
        calls = [call for c in self.world.consumers.values() for call in c.processor.calls]  # type: ignore[attr-defined]
        return sorted(call[1:] for call in calls if call[0] == "reset")


def moved(count: int, old: int | None, new: int) -> tuple[Moved, ...]:
    """Return a move of all partitions below `count`."""
    return tuple(Moved(partition, old, new) for partition in range(count))
