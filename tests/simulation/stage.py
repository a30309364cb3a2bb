"""Single deliveries, for histories that break a protocol with one rule less."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import pytest

from inbound.coordinators.zookeeper import Call, Op, SetData
from inbound.testing.world import Recording, World
from inbound.testing.zookeeper import FakeZooKeeper
from inbound.topic_partition import TopicPartition
from tests.coordinators.ownership_stage import Consumer

T = TypeVar("T")
Which = Callable[[Sequence[Op]], bool]


def with_and_without(*mutants: str) -> pytest.MarkDecorator:
    """Run a test with the rule (`kept` is true), and once more without it for each of these mutants."""
    ids = ["with the rule", *(f"without it: {name}" for name in mutants)]
    return pytest.mark.parametrize("kept", [None, *mutants], indirect=True, ids=ids)


def begin_until(consumer: Consumer, which: Which, coroutine: Coroutine[Call[Any], None, T]) -> Call[T]:
    """Start something, and deliver until its transaction of that kind is on its way; it is not executed yet."""
    sent: list[bool] = []
    send = consumer.zk.transaction

    def transaction(ops: Sequence[Op]) -> Call[Any]:
        sent.append(which(ops))
        return send(ops)

    consumer.zk.transaction = transaction  # type: ignore[method-assign]
    call = consumer.begin(coroutine)
    while not any(sent):
        _next(consumer)
    consumer.zk.transaction = send  # type: ignore[method-assign]
    return call


def but_late(consumer: Consumer, call: Call[T]) -> T:
    """Deliver until `call` is done, but nothing of lost connections; return its result."""
    while not call.done:
        _next(consumer)
    return call.result()


def _next(consumer: Consumer) -> None:
    ours = [thing for thing in consumer.ensemble.pending if thing.client == consumer.name and thing.kind != "late"]
    assert ours, f"{consumer.name} waits for something that is never sent"
    consumer.steps(ours[0].kind)


def lose_answer(world: World, name: str, which: Which) -> None:
    """Let the next transaction of that kind be executed, its answer be lost, and the connection with it."""
    zk: FakeZooKeeper = world.consumers[name].zk
    send = zk.transaction

    def transaction(ops: Sequence[Op]) -> Call[Any]:
        if which(ops):
            zk.transaction = send  # type: ignore[method-assign]
            world.ensemble.lose_answers(name, after=len(zk.wire.requests) if zk.wire else 0)
        return send(ops)

    zk.transaction = transaction  # type: ignore[method-assign]


def world_of(*names: str, partitions: int = 1, session: float = 4.0, **settings: Any) -> World:
    """Return a world in which these consumers have shared the partitions of `orders` among them."""
    world = World(session_timeout=session)
    world.kafka.create_topic("orders", partitions)
    for name in names:
        world.join(name, **settings)
    world.run(4)
    return world


def seen(world: World, name: str) -> list[int]:
    """Return the offsets that a consumer was handed, in order."""
    processor = world.consumers[name].processor
    assert isinstance(processor, Recording)
    return [offset for _, offset in processor.seen]


def in_next_batch(world: World, name: str, action: Callable[[], None]) -> None:
    """Let something happen while the next batch is inside the callback."""
    processor = world.consumers[name].processor
    assert isinstance(processor, Recording)

    def once(batch: object) -> None:
        processor.on_batch = lambda batch: None
        action()

    processor.on_batch = once


def process(world: World, name: str, counts: Mapping[TopicPartition, int]) -> None:
    """Publish so many records to each; let one worker take a turn for each partition. Nothing is committed yet."""
    for tp, count in counts.items():
        world.kafka.publish(*tp, [b"x"] * count)
    channel = world.consumers[name].channel
    channel.reader.run_once()
    for _ in counts:
        channel.workers[0].run_once()


def commits_of(world: World, tp: TopicPartition) -> list[int]:
    """Return what the offset node held, one after another, from now on; the list grows."""
    path, history = world.paths.offset(*tp), list[int]()

    def committed(commit: Any) -> None:
        if ("data", path) in commit.changed:
            history.append(int(commit.after.get(path).data))

    world.ensemble.observers.append(committed)
    return history


def reset(world: World, tp: TopicPartition, offset: int, *, bump: bool = True) -> None:
    """Do what a reset does in one transaction: move the offset, and the epoch with it."""
    ops: list[Op] = [SetData(world.paths.offset(*tp), b"%d" % offset)]
    if bump:
        ops.append(SetData(world.paths.epoch(*tp), b""))
    world.ensemble.tree.transaction(ops, session=0)


def gate(world: World, topic: str, data: bytes) -> None:
    """Write a topic's gate."""
    world.ensemble.tree.transaction([SetData(world.paths.gate(topic), data)], session=0)
