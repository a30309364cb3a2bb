"""A group of two consumers and an operator with a ZooKeeper client of its own: where pauses are looked at."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from inbound.coordinators.pauses import OPERATOR, Pause, pause, resume
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call
from inbound.testing.world import GROUP, Recording, World
from inbound.testing.zookeeper import FakeZooKeeper
from inbound.topic_partition import TopicPartition

T = TypeVar("T")
PARTITIONS = 4
SINCE = "2026-01-01T00:00:00.000001+00:00"


class Watched(Recording):
    """Notes pauses too."""

    def on_pause(self, partition: TopicPartition) -> None:
        self.calls.append(("pause", partition.partition))

    def on_resume(self, partition: TopicPartition) -> None:
        self.calls.append(("resume", partition.partition))

    def told(self, *names: str) -> list[tuple[Any, ...]]:
        """Return the calls of these names, sorted by partition and else in their order."""
        return sorted((call for call in self.calls if call[0] in names), key=lambda call: call[1])


class Group:
    """Consumers a and b with two partitions each, and an operator with a ZooKeeper client of its own."""

    def __init__(self) -> None:
        self.world = World()
        self.world.kafka.create_topic("orders", PARTITIONS)
        self.processors: list[Watched] = []
        self.a, self.b = self.join("a"), self.join("b")
        self.world.run(5)

    def join(self, name: str, **settings: Any) -> Watched:
        """Start a consumer process that reads a record at a time."""
        processor = Watched()
        self.processors.append(processor)
        self.world.join(name, processor, reader={"max_batch_records": 1}, **settings)
        return processor

    def operator(self, command: Coroutine[Call[Any], None, T]) -> T:
        """Carry a command out, from another machine, and let it get around."""
        tasks = Tasks(self.world.clock, lambda: None)
        call = tasks.spawn(command, "command")

        def done() -> bool:
            tasks.step()
            return call.done

        self.world.run_until(done, within=5)
        self.world.run(0.3)
        return call.result()

    @property
    def zk(self) -> FakeZooKeeper:
        """A client of the operator's."""
        return self.world.ensemble.client("operator", 10.0)

    def pause(self, holder: str = OPERATOR, consumer: str | None = None, by: str = "ann") -> Pause | None:
        return self.operator(pause(self.zk, GROUP, Pause(holder, consumer, SINCE, by, "a good reason")))

    def resume(self, holder: str = OPERATOR, consumer: str | None = None) -> list[Pause]:
        return self.operator(resume(self.zk, GROUP, holder, consumer))

    def publish(self, count: int = 5) -> None:
        """Publish to every partition."""
        for partition in range(PARTITIONS):
            self.world.kafka.publish("orders", partition, [b"x"] * count)

    def seen(self) -> list[tuple[int, int]]:
        """Return (partition, offset) of everything that anybody was handed."""
        return sorted((tp.partition, offset) for processor in self.processors for tp, offset in processor.seen)

    def committed(self) -> list[tuple[int, int]]:
        """Return (partition, offset) of everything below the commits."""
        return [(p, offset) for p, commit in self.world.commits().items() for offset in range(commit or 0)]

    def of(self, name: str) -> set[int]:
        """Return the partitions that a consumer owns, as the nodes say."""
        return self.world.owned()[name]
