"""Who reads while callbacks compute: a worker, for clients that fetch and decode outside of Python."""

from __future__ import annotations

import pytest

from inbound.driver import Wakeup
from inbound.reading import LOAN, Reading
from inbound.testing.world import Consumer, Recording, World
from inbound.worker import Worker


def consumer_that_lends(*, outside: bool = True, computing: bool = True) -> tuple[World, Consumer, Reading, Worker]:
    """Return a world with consumer a, which has nothing due, its reader as it is lent, and its worker."""
    world = World()
    world.kafka.create_topic("orders", 1)
    a = world.join("a", Recording())
    world.run(6)
    reading = Reading(a.channel.reader, a.channel.parts.schedule, Wakeup(), world.clock)
    a.log_clients[0].outside = outside
    schedule = a.channel.parts.schedule
    schedule.end_turn("observer", 1.0 if computing else 0.0, 1.0)
    worker = a.channel.workers[0]
    assert isinstance(worker, Worker)
    worker.reading = reading
    return world, a, reading, worker


def seen(consumer: Consumer) -> list[int]:
    """Return the offsets that a consumer's processor was handed."""
    assert isinstance(consumer.processor, Recording)
    return [offset for _, offset in consumer.processor.seen]


def test_a_worker_with_nothing_to_serve_reads_and_serves_what_has_come() -> None:
    """Nobody else takes part: two turns of the worker are enough."""
    world, a, _, worker = consumer_that_lends()
    world.kafka.publish("orders", 0, [b"x"] * 3)
    worker.run_once()
    worker.run_once()
    assert seen(a) == [0, 1, 2]


def test_the_readers_thread_stands_back_after_that_and_takes_over_when_no_worker_reads() -> None:
    """A callback that takes long keeps nobody else's records."""
    world, a, reading, worker = consumer_that_lends()
    world.kafka.publish("orders", 0, [b"x"])
    worker.run_once()
    world.kafka.publish("orders", 0, [b"x"])
    stood_back = reading.run_once()
    buffered = [p.buffer.size for p in a.channel.parts.schedule.held()]
    world.clock.advance(LOAN)
    reading.run_once()
    after = [p.buffer.size for p in a.channel.parts.schedule.held()]
    assert (stood_back, after) == (world.clock.now(), [2 * size for size in buffered])


def test_a_worker_that_finds_nothing_leaves_the_wait_to_the_readers_thread() -> None:
    """It does not spin, and what comes next is read at once."""
    world, a, reading, worker = consumer_that_lends()
    due = worker.run_once()
    assert due is not None
    assert due > world.clock.now() + 1
    world.kafka.publish("orders", 0, [b"x"])
    reading.run_once()
    assert [p.buffer.size for p in a.channel.parts.schedule.held()] != [0]


@pytest.mark.parametrize("why_not", ["computing", "outside"])
def test_nothing_is_lent_while_callbacks_wait_or_where_the_client_decodes_in_python(why_not: str) -> None:
    """Then reader and workers are not in each other's way, or the client's own threads have work to do."""
    world, a, _, worker = consumer_that_lends(**{why_not: False})
    world.kafka.publish("orders", 0, [b"x"])
    worker.run_once()
    assert [p.buffer.size for p in a.channel.parts.schedule.held()] == [0]
