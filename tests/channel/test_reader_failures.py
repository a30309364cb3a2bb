"""A Kafka client that raises in the middle of the reader's work: what was asked of the reader is not lost."""

from __future__ import annotations

from typing import Any

import pytest

from inbound import Batch, BatchResponse, TopicPartition
from inbound.errors import BrokerUnavailableError
from inbound.testing.kafka import FakeLogClient
from inbound.testing.world import Recording, World
from tests.channel.one_partition import answers, offsets, publish, start, world

__all__ = ["world"]  # the fixture

AWAY = BrokerUnavailableError("Kafka (fake) does not answer just now")


def client(world: World) -> FakeLogClient:
    """Return the client that the consumer reads with."""
    return world.consumers["a"].log_clients[-1]


def test_a_jump_is_made_although_the_client_raises_while_it_is_applied(world: World) -> None:
    """The processor goes back to 0 after three batches; the next one is the first one again, and no other that says so."""
    batches: list[tuple[int, list[int]]] = []

    def answer(batch: Batch) -> BatchResponse:
        batches.append((batch.first_offset, [record.offset for record in batch.records]))
        if batch.next_offset == 300 and len(batches) == 3:
            client(world).fail_next("read", AWAY)
            return BatchResponse.revert(0)
        return BatchResponse.advance()

    publish(world, 400)
    start(world, answer, reader={"max_batch_records": 100})
    world.run(3)
    expected = [*range(0, 300, 100), *range(0, 400, 100)]
    assert batches == [(first, list(range(first, first + 100))) for first in expected]
    assert world.commits() == {0: 400}


def test_a_jump_is_made_although_the_client_raises_what_nobody_expects(world: World) -> None:
    """The driver has the reader go on after a second; the jump is still to be made."""
    publish(world, 4)
    processor = start(world, answers(BatchResponse.advance()))
    consumer = world.consumers["a"]
    publish(world, 1)
    processor.answer = answers(BatchResponse.revert(1))
    consumer.channel.reader.run_once()
    consumer.channel.workers[0].run_once()
    client(world).fail_next("read", ValueError("a defect"))
    with pytest.raises(ValueError, match="a defect"):
        consumer.channel.reader.run_once()
    world.run(3)
    assert (offsets(processor), world.commits()) == ([0, 1, 2, 3, 4, 1, 2, 3, 4], {0: 5})


class Owning(Recording):
    """Says where claims begin."""

    def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
        return 1


def test_a_partition_that_is_opened_again_is_read_although_the_client_raises_when_it_is_to_forget(
    world: World,
) -> None:
    """The successor of a processor says where to begin; it is not left waiting for the reader."""
    publish(world, 4)
    world.join("a", Owning())
    world.run(4)
    client(world).fail_next("forget", AWAY)
    successor = Owning()
    world.consumers["a"].channel.exchange(successor, {})
    world.run(4)
    assert offsets(successor) == [1, 2, 3]


def test_claims_begin_although_the_client_raises_while_one_is_left_alone_that_begins_outside_its_log() -> None:
    """Neither that one, nor what is opened with it, waits for the reader forever."""

    class Beyond(Recording):
        def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
            return 1 if partition.partition else 100

    world = World()
    world.kafka.create_topic("orders", 2)
    for partition in range(2):
        world.kafka.publish("orders", partition, [b"x"] * 3)
    processor = Beyond()
    a = world.join("a", processor, on_truncation="earliest")
    world.run_until(lambda: bool(a.log_clients), within=4)
    client(world).fail_next("pause", AWAY)
    world.run(10)
    assert sorted((tp.partition, offset) for tp, offset in processor.seen) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)]


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_partition_whose_buffer_was_full_is_read_on_although_the_client_raises(world: World, verb: str) -> None:
    """What the reader believes of a partition is what the client was told."""
    publish(world, 40)
    reader = {"prefetch_bytes": 64 * 1024, "batch_bytes": 16 * 1024, "max_batch_records": 10}
    world.kafka.publish("orders", 0, [b"x" * 1024] * 400)
    processor = Recording(lambda batch: BatchResponse.advance(wait=0.5))
    world.join("a", processor, reader=reader)
    world.run_until(lambda: bool(world.consumers["a"].log_clients), within=2)
    client(world).fail_next(verb, AWAY)
    world.run(40)
    assert (offsets(processor), client(world).brought) == (list(range(440)), False)


def test_what_came_with_a_poll_is_delivered_although_the_client_raises_while_another_partition_is_left_alone() -> None:
    """It is idle, so nobody looks at it: it has to be made due before the client is asked to pause the one that was cut."""
    world = World()
    world.kafka.tells_epochs = False
    world.kafka.create_topic("orders", 2)
    for partition in range(2):
        world.kafka.publish("orders", partition, [b"x"] * 3)
    processor = Recording()
    world.join("a", processor, idle_time=1.0)
    world.run(10)
    world.kafka.truncate("orders", 1, 1)
    world.kafka.publish("orders", 0, [b"x"])
    client(world).fail_next("pause", AWAY)
    world.run(5)
    assert [offset for tp, offset in processor.seen if tp.partition == 0] == [0, 1, 2, 3]


def test_a_client_that_raises_while_it_is_closed_is_replaced_all_the_same(world: World, monkeypatch: Any) -> None:
    """Else one with the old settings would be made, that reads nothing of what was read before."""
    publish(world, 1)
    processor = start(world)

    def close() -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(client(world), "close", close)
    world.consumers["a"].channel.reader.reconnect(others := Clients(world))
    with pytest.raises(ValueError, match="a defect"):
        world.run(1)
    publish(world, 1)
    world.run(1)
    assert (others.made, offsets(processor)) == (1, [0, 1])


class Clients:
    """Makes clients, and counts them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.made = 0

    def __call__(self) -> FakeLogClient:
        self.made += 1
        return self._world.kafka.client()


@pytest.mark.parametrize("verb", ["poll", "unled"])
def test_what_a_poll_had_in_hand_is_read_again_if_it_raises_what_nobody_expects(
    world: World, monkeypatch: Any, verb: str
) -> None:
    """Its position is behind that already: what comes next would be delivered in its place, and the commit pass it."""
    publish(world, 1)
    processor = start(world)
    reading, failing = client(world), [True]
    original = getattr(reading, verb)

    def fail(*arguments: Any) -> Any:
        answer = original(*arguments)
        if failing and reading.brought:
            failing.clear()
            raise ValueError("a defect")
        return answer

    monkeypatch.setattr(reading, verb, fail)
    publish(world, 1)
    with pytest.raises(ValueError, match="a defect"):
        world.run(1)
    publish(world, 1)
    world.run(2)
    assert (failing, offsets(processor), world.commits()) == ([], [0, 1, 2], {0: 3})


def test_a_new_client_is_not_told_to_forget_what_it_never_read(world: World) -> None:
    """The settings of Kafka change while a partition is given up: the others are read on."""
    world.kafka.create_topic("orders", 2)
    for partition in range(2):
        world.kafka.publish("orders", partition, [b"x"] * 3)
    processor = start(world)
    consumer = world.consumers["a"]
    consumer.channel.reader.reconnect(world.kafka.client)
    gone = consumer.channel.parts.schedule.get(TopicPartition("orders", 1))
    assert gone is not None
    consumer.channel.membership.claims.release(gone)
    while gone.place.value == "scheduled":
        consumer.tasks.step()
        consumer.channel.workers[0].run_once()
    world.kafka.publish("orders", 0, [b"x"])
    world.run(4)
    assert sorted(offset for tp, offset in processor.seen if tp.partition == 0) == [0, 1, 2, 3]
