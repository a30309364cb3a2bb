"""What the reader keeps in memory, and what it does with records that nobody wants any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from inbound import Batch, BatchResponse
from inbound.partition.partition import Partition
from inbound.testing.kafka import FakeLogClient
from inbound.testing.world import Consumer, Recording, World

KIB = 1024


def buffered(consumer: Consumer) -> int:
    """Return the bytes read ahead by a consumer."""
    return sum(p.buffer.size for p in consumer.channel.parts.schedule.held())


def largest_buffered(world: World, consumer: Consumer) -> int:
    """Return the most bytes that were read ahead in some seconds."""
    largest = 0
    for _ in range(50):
        world.run(0.1)
        largest = max(largest, buffered(consumer))
    return largest


def test_what_is_read_ahead_is_bounded_for_the_whole_channel() -> None:
    """A stalled processor in front of a large backlog."""
    world = World()
    world.kafka.create_topic("orders", 8)
    for partition in range(8):
        world.kafka.publish("orders", partition, [b"x" * KIB] * 3000)
    reader = {"prefetch_bytes": 1024 * KIB, "batch_bytes": 64 * KIB, "max_batch_bytes": 64 * KIB}
    a = world.join("a", Recording(lambda batch: BatchResponse.revert(wait=1000)), reader=reader)
    assert 512 * KIB <= largest_buffered(world, a) <= 1024 * KIB


@pytest.mark.parametrize("value", [b"", b"x" * 10], ids=["nothing", "ten bytes"])
def test_records_count_with_what_they_take(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of records that are hardly more than their objects."""
    monkeypatch.setattr(FakeLogClient, "record_bytes", KIB)
    world = World()
    world.kafka.create_topic("orders", 2)
    for partition in range(2):
        world.kafka.publish("orders", partition, [value] * 3000)
    reader = {"prefetch_bytes": 1024 * KIB, "batch_bytes": 64 * KIB, "max_batch_bytes": 64 * KIB}
    a = world.join("a", Recording(lambda batch: BatchResponse.revert(wait=1000)), reader=reader)
    world.run(5)
    assert 512 * KIB <= a.channel.reader.read_ahead <= 2048 * KIB  # a poll brings up to 1,000 records


@pytest.mark.slow
def test_a_stalled_partition_does_not_keep_the_others_from_being_read() -> None:
    """Its own buffer is full; theirs are not."""
    world = World()
    world.kafka.create_topic("orders", 3)
    for partition in range(3):
        world.kafka.publish("orders", partition, [b"x" * KIB] * 1500)

    def stall(batch: Batch) -> BatchResponse:
        return BatchResponse.revert(wait=1000) if batch.partition == 1 else BatchResponse.advance()

    world.join("a", Recording(stall), reader={"prefetch_bytes": 512 * KIB, "batch_bytes": 64 * KIB})
    world.run(8)
    assert world.commits() == {0: 1500, 1: 0, 2: 1500}


def test_a_partition_that_comes_back_is_read_from_the_commit_and_not_from_what_was_read_before() -> None:
    """Released with records in its buffer, taken by another, and taken back."""
    world = World()
    world.kafka.create_topic("orders", 2)
    world.join("a", reader={"max_batch_records": 3})
    world.run(4)
    for partition in range(2):
        world.kafka.publish("orders", partition, [b"x"] * 50)
    world.join("b", reader={"max_batch_records": 3})
    world.run(2)
    world.leave("b")
    world.run(2)
    seen: list[tuple[int, int]] = []
    for consumer in world.consumers.values():
        assert isinstance(consumer.processor, Recording)
        seen += [(tp.partition, offset) for tp, offset in consumer.processor.seen]
    assert sorted(seen) == [(partition, offset) for partition in range(2) for offset in range(50)]


def world_of_many_partitions() -> tuple[World, Consumer]:
    """Return a world and a consumer of 256 partitions, none of which gets on.

    One fetch of each is four times what one poll brings, and that is four times the bound.
    """
    world = World()
    world.kafka.create_topic("orders", 256)
    reader = {"prefetch_bytes": 256 * KIB, "batch_bytes": 64 * KIB, "max_batch_bytes": 64 * KIB}
    a = world.join("a", Recording(lambda batch: BatchResponse.revert(wait=1000)), reader=reader)
    world.run(4)
    return world, a


def publish_to_all(world: World) -> None:
    """Publish a fetch's worth to every partition."""
    for partition in range(256):
        world.kafka.publish("orders", partition, [b"x" * KIB] * 16)


def test_with_a_worker_to_spare_every_partition_is_read_beside_full_buffers() -> None:
    """A thousand partitions that rest must not keep another one from its records."""
    world, a = world_of_many_partitions()
    publish_to_all(world)
    assert largest_buffered(world, a) >= 250 * 16 * KIB


@contextmanager
def every_worker_stuck(world: World, consumer: Consumer) -> Iterator[None]:
    """Let the one worker be in a callback that does not end before the block does."""
    schedule = consumer.channel.parts.schedule
    world.kafka.publish("orders", 0, [b"x"])
    consumer.channel.reader.run_once()
    stuck = schedule.take("a callback that does not end")
    assert isinstance(stuck, Partition)
    yield
    schedule.put_back(stuck, world.clock.now())
    schedule.end_turn("a callback that does not end")


def test_while_every_worker_is_stuck_no_more_is_read_than_may_be() -> None:
    """More records would help nobody; when one comes back, reading goes on."""
    world, a = world_of_many_partitions()
    with every_worker_stuck(world, a):
        publish_to_all(world)
        while_stuck = largest_buffered(world, a)
    assert while_stuck < 1200 * KIB < 3000 * KIB < largest_buffered(world, a)


def test_what_the_client_has_put_aside_counts_as_read_ahead() -> None:
    """Of a thousand partitions, each with most of a large batch aside, it was ten times the bound."""
    world, a = world_of_many_partitions()
    with every_worker_stuck(world, a):
        (client,) = world.kafka.clients
        client.put_aside = 256 * KIB
        world.run(0.1)
        publish_to_all(world)
        assert largest_buffered(world, a) == buffered(a) == 1
