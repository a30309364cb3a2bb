"""A reset as its leader plays it, one step at a time, by its own writes; and a processor with `on_reset`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from inbound import Batch, BatchResponse
from inbound.coordinators.nodes import OPEN, EpochInfo, decode_epoch, decode_offset
from inbound.coordinators.paths import CommandPaths
from inbound.coordinators.zookeeper import Op, SetData
from inbound.ledger.memory import Note
from inbound.testing.world import Recording, World
from inbound.topic_partition import TopicPartition

NAME = "20260101T000000Z-17"
COMMAND = CommandPaths().reset(NAME)


class Told(Recording):
    """Notes batches among its callbacks: what came before what."""

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        self.calls.append(("batch", batch.partition, batch.first_offset))
        return super().on_next_batch(batch)

    def on_reset(self, partition: TopicPartition, old_offset: int | None, new_offset: int) -> None:
        self.calls.append(("reset", partition.partition, old_offset, new_offset))


def world_of(*names: str, partitions: int = 4, records: int = 3, session: float = 10.0, **settings: object) -> World:
    """Return a world in which these have shared the partitions of `orders`, and read what is in them."""
    world = World(session_timeout=session)
    world.kafka.create_topic("orders", partitions)
    for name in names:
        world.join(name, Told(), **settings)  # type: ignore[arg-type]
    world.run(6)
    for partition in range(partitions):
        world.kafka.publish("orders", partition, [b"x"] * records)
    world.run(1)
    for name in names:
        calls(world, name)
    return world


def close(world: World, topic: str = "orders", command: str = COMMAND) -> None:
    """Close the gate."""
    write(world, [SetData(world.paths.gate(topic), command.encode())])


def open_again(world: World, topic: str = "orders") -> None:
    """Open the gate."""
    write(world, [SetData(world.paths.gate(topic), OPEN)])


def stopped(world: World, topic: str = "orders") -> bool:
    """Whether no partition of the topic has an owner any more."""
    return not world.nodes(world.paths.owners(topic))


def move(world: World, targets: Mapping[int, int], topic: str = "orders", command: str = COMMAND) -> None:
    """Set offsets, and move the epochs with them, in one transaction."""
    ops: list[Op] = []
    for number, new in targets.items():
        tp = TopicPartition(topic, number)
        offset, epoch = world.paths.offset(*tp), world.paths.epoch(*tp)
        node, before = world.ensemble.tree.get(epoch), world.ensemble.tree.get(offset)
        info = decode_epoch(epoch, node.data if node is not None else b"") or EpochInfo("", 0, "")
        old = decode_offset(offset, before.data if before is not None else b"")
        nonce = f"reset-{world.ensemble.tree.zxid}-{number}"
        moved = replace(info, consumer="reset", session=0, nonce=nonce, reset=info.moved(command, old, new))
        ops += [SetData(offset, b"%d" % new), SetData(epoch, moved.encode())]
    write(world, ops)


def reset(world: World, targets: Mapping[int, int], topic: str = "orders", *, within: float = 60.0) -> None:
    """Do all of it: close, wait until no partition has an owner, move, open."""
    close(world, topic)
    world.run_until(lambda: stopped(world, topic), within=within)
    move(world, targets, topic)
    open_again(world, topic)


def write(world: World, ops: list[Op]) -> None:
    """Do a transaction from outside."""
    world.ensemble.tree.transaction(ops, session=0)


def notes(world: World, name: str, kind: str) -> list[tuple[int, dict[str, object]]]:
    """Return what a consumer's ledger has of one kind of note: partition and facts."""
    entries = world.consumers[name].ledger.entries
    return [(e.partition, dict(e.facts)) for e in entries if isinstance(e, Note) and e.kind == kind]


def events(world: World, name: str, kind: str) -> list[str]:
    """Return what a consumer's journal says of one kind of event."""
    journal = world.consumers[name].channel.parts.journal
    tps = [None, *(TopicPartition(t, p) for t, m in world.kafka.topics().items() for p in range(m.partitions))]
    return [event.text for tp in tps for event in journal.of(tp) if event.kind == kind]


def calls(world: World, name: str) -> list[tuple[object, ...]]:
    """Return, and forget, what a consumer's processor was told."""
    processor = world.consumers[name].processor
    assert isinstance(processor, Recording)
    told, processor.calls = processor.calls, []
    return list(told)
