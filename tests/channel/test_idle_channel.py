"""A channel with nothing to read: it leaves a client alone that says when something comes."""

from __future__ import annotations

from collections.abc import Callable

from inbound.channel.reader import IDLE_AFTER, IDLE_LOOK
from inbound.kafka.base import Poll
from inbound.testing.kafka import FakeKafka, FakeLogClient
from inbound.testing.world import Recording, World


class WakingClient(FakeLogClient):
    """Keeps what it was told to call."""

    wakes = True

    def __init__(self, kafka: FakeKafka, max_poll_records: int) -> None:
        super().__init__(kafka, max_poll_records)
        self.wake: Callable[[], None] | None = None

    def poll(self, seconds: float, wake: Callable[[], None] | None = None) -> Poll:
        polled = super().poll(seconds)
        self.wake = wake if not polled.fetched else None
        polled.will_wake = self.wake is not None
        return polled


class WakingKafka(FakeKafka):
    """Its clients wake their readers."""

    def client(self, *, max_poll_records: int = 1000) -> FakeLogClient:
        return WakingClient(self, max_poll_records)

    def publish_and_wake(self, client: FakeLogClient, topic: str, partition: int) -> None:
        """Publish a record, and tell the one that waits for it."""
        self.publish(topic, partition, [b"x"])
        if isinstance(client, WakingClient) and client.wake is not None:
            client.wake()


def idle_world(*others: str) -> tuple[World, WakingKafka, WakingClient]:
    """Return a world in which consumer a, and others, had nothing to read for a while, its Kafka, and a's client."""
    world = World()
    world.kafka = kafka = WakingKafka()
    kafka.create_topic("orders", 2)
    a = world.join("a")
    for name in others:
        world.run(4)
        world.join(name)
    world.run(4 + IDLE_AFTER + IDLE_LOOK)
    client = a.log_clients[0]
    assert isinstance(client, WakingClient)
    return world, kafka, client


def seen_by_a(world: World) -> list[tuple[int, int]]:
    """Return the partitions and offsets that were delivered to a."""
    processor = world.consumers["a"].processor
    assert isinstance(processor, Recording)
    return [(tp.partition, offset) for tp, offset in processor.seen]


def test_an_idle_reader_asks_for_its_next_turn_only_after_a_while() -> None:
    """Every few seconds, instead of ten times a second; or earlier, when the topics are to be looked at."""
    world, _, _ = idle_world()
    reader = world.consumers["a"].channel.reader
    waits = []
    for _ in range(20):
        world.run(0.1)
        due = reader.run_once()
        assert due is not None
        waits.append(due - world.clock.now())
    assert max(waits) == IDLE_LOOK
    assert min(waits) > 0


def test_what_comes_to_an_idle_channel_is_delivered_at_once() -> None:
    """The client says so."""
    world, kafka, client = idle_world()
    world.run(IDLE_LOOK * 0.4)
    kafka.publish_and_wake(client, "orders", 1)
    world.run(0.2)
    assert seen_by_a(world) == [(1, 0)]


def test_a_partition_that_is_claimed_by_an_idle_channel_is_read_at_once() -> None:
    """Nobody waits for the next look."""
    world, kafka, _ = idle_world("b")
    kafka.publish("orders", 0, [b"x"])
    kafka.publish("orders", 1, [b"x"])
    world.run(IDLE_LOOK * 1.5)
    theirs = world.owned()["b"]
    world.leave("b")
    kafka.publish("orders", min(theirs), [b"y"])
    world.run(1.0)
    assert (min(theirs), 1) in seen_by_a(world)


def test_idle_spells_leave_nothing_behind_in_the_schedule() -> None:
    """Each has the partition wait for `idle_time`, which the next record cuts short; another one is idle for longer."""
    world = World()
    world.kafka.create_topic("orders", 2)
    a = world.join("a", idle_time="1h")
    world.run(4)
    for _ in range(200):
        world.kafka.publish("orders", 1, [b"x"])
        world.run(0.3)
    assert (world.commits(), len(a.channel.parts.schedule._heap) < 100) == ({0: 0, 1: 200}, True)
