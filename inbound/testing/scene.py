"""What a judge sees: one group of consumers among the things of a simulated run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from inbound.coordinators.paths import GroupPaths
from inbound.ledger.memory import MemoryLedger
from inbound.testing.clock import ManualClock
from inbound.testing.kafka import FakeKafka
from inbound.testing.zookeeper import FakeEnsemble, FakeZooKeeper


class Member(Protocol):
    """A process, as one of its groups knows it."""

    @property
    def name(self) -> str:
        """The name of the process."""

    @property
    def consumer_id(self) -> str:
        """Its id in this group."""

    @property
    def dead(self) -> bool:
        """Whether the process has ended."""

    @property
    def paused(self) -> bool:
        """Whether it is stopped for a while (SIGSTOP)."""

    @property
    def zk(self) -> FakeZooKeeper:
        """Its connection."""

    @property
    def on_truncation(self) -> str:
        """What it does about logs that are cut below the commit."""


class Scene(Protocol):
    """The world as one group sees it: `inbound.testing.world.World` is that of the group that has its name."""

    @property
    def clock(self) -> ManualClock: ...

    @property
    def ensemble(self) -> FakeEnsemble: ...

    @property
    def kafka(self) -> FakeKafka: ...

    @property
    def group(self) -> str: ...

    @property
    def paths(self) -> GroupPaths: ...

    @property
    def consumers(self) -> Mapping[str, Member]:
        """Every process that was in the group, by name."""

    def ledgers(self) -> Iterable[tuple[str, str, MemoryLedger]]:
        """Return a name for each run of a channel of the group, its consumer id, and what it has written."""
