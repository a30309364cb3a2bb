"""Consumers on the fake ensemble that do one thing at a time, for the tests of ownership."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from inbound import TopicPartition
from inbound.coordinators.ownership import Claim, Fence, Ownership
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call, Check, Create, Delete, Op, RefusedError, SetData
from inbound.testing.clock import ManualClock
from inbound.testing.zookeeper import Arrival, FakeEnsemble

T = TypeVar("T")
TP = TopicPartition("orders", 0)
PATHS = GroupPaths("group")
SESSION = 10.0


class Consumer:
    """One process of the group, with its id node."""

    def __init__(self, ensemble: FakeEnsemble, name: str, consumer_id: str | None = None) -> None:
        self.ensemble = ensemble
        self.name = name
        self.id = consumer_id or name
        self.clock = ensemble.clock
        self.zk = ensemble.client(name, SESSION)
        self.tasks = Tasks(self.clock, lambda: None)
        self.ownership = Ownership(self.zk, "group", self.id)
        self.do(self.ownership.ensure("orders", 4))
        self.register()

    def register(self) -> None:
        """Put the id node there, in place of any other one."""
        path = PATHS.member(self.id)
        if path in self.ensemble.tree.nodes:
            self.ensemble.tree.transaction([Delete(path)], 0)
        self.ensemble.tree.transaction([Create(path, ephemeral=True)], self.session)

    @property
    def session(self) -> int:
        assert self.zk.session is not None
        return self.zk.session.id

    def begin(self, coroutine: Coroutine[Call[Any], None, T]) -> Call[T]:
        """Start something and let it send its first requests; nothing is delivered."""
        call = self.tasks.spawn(coroutine, "test")
        self.tasks.step()
        return call

    def steps(self, *kinds: str) -> None:
        """Let these things happen to us, each followed by what we do about it."""
        for kind in kinds:
            self.ensemble.step(Arrival(self.name, kind))
            self.tasks.step()

    def finish(self, call: Call[T]) -> T:
        """Deliver everything of ours until `call` is done; return or raise its result."""
        while not call.done:
            mine = [delivery for delivery in self.ensemble.pending if delivery.client == self.name]
            assert mine, f"{self.name} waits for an answer that does not come"
            self.ensemble.step(mine[0])
            self.tasks.step()
        return call.result()

    def do(self, coroutine: Coroutine[Call[Any], None, T]) -> T:
        """Do something from its beginning to its end."""
        return self.finish(self.begin(coroutine))

    def claim(self) -> Claim:
        """Claim the partition, which must succeed."""
        claim = self.do(self.ownership.claim(TP))
        assert claim is not None
        return claim

    def commit(self, fence: Fence, offset: int) -> bool:
        """Commit as the committer does. Returns whether it landed."""
        ops: list[Op] = [Check(PATHS.epoch(*TP), fence.epoch), SetData(PATHS.offset(*TP), b"%d" % offset)]
        call = self.zk.transaction(ops)
        while not call.done:
            self.steps("execute", "answer")
        try:
            call.result()
        except RefusedError:
            return False
        return True

    def reconnect(self, *, new_session: bool = False) -> None:
        """Come back after a lost connection."""
        if new_session:
            self.ensemble.expire_session(self.name)
        if self.zk.connection is not None:
            self.ensemble.disconnect(self.name)
        self.tasks.step()
        self.zk.reconnect()
        if new_session:
            self.register()


class Group:
    """An ensemble with the group's nodes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ensemble = FakeEnsemble(self.clock)

    def join(self, name: str, consumer_id: str | None = None) -> Consumer:
        return Consumer(self.ensemble, name, consumer_id)

    def node(self, path: str) -> bytes:
        return self.ensemble.tree.nodes[path].data

    @property
    def epoch(self) -> int:
        return self.ensemble.tree.nodes[PATHS.epoch(*TP)].version

    @property
    def offset(self) -> bytes:
        return self.node(PATHS.offset(*TP))

    @property
    def owner(self) -> int | None:
        """The session of the owner node."""
        stored = self.ensemble.tree.nodes.get(PATHS.owner(*TP))
        return stored.owner if stored else None

    def close_gate(self) -> None:
        self.ensemble.tree.transaction([SetData(PATHS.gate("orders"), b"/inbound/commands/reset-offset/x")], 0)

    def open_gate(self) -> None:
        self.ensemble.tree.transaction([SetData(PATHS.gate("orders"), b"open")], 0)
