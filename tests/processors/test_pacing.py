"""`max_read_rate`: how much is taken in any time, and how evenly."""

from __future__ import annotations

import heapq
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.processors.batch import Batch, BatchResponse, PlainRecord
from inbound.processors.simple.processor import SLICE, Pace
from inbound.testing.clock import ManualClock
from inbound.testing.world import World
from inbound.topic_partition import TopicPartition
from tests.channel.one_partition import publish, world
from tests.processors.simple_stage import Events, join, publish_events

__all__ = ["world"]  # the fixture


RECORDS = [PlainRecord(offset, value=b"x" * 10) for offset in range(200)]


def batch(count: int, partition: int = 0) -> Batch:
    return Batch("orders", partition, 0, count, RECORDS[:count])


def played(rate: float, backlogs: list[int], seconds: float) -> list[tuple[float, int, int]]:
    """Serve partitions that always have so many records waiting; return time, partition and count of each turn."""
    clock = ManualClock()
    pace, start = Pace(rate, clock), clock.now()
    due = [(start, partition) for partition in range(len(backlogs))]
    turns = []
    while due[0][0] - start < seconds:
        at, partition = heapq.heappop(due)
        clock.advance(max(0.0, at - clock.now()))
        turn = pace.turn(batch(backlogs[partition], partition))
        turns.append((clock.now() - start, partition, len(turn.part)))
        heapq.heappush(due, (clock.now() + turn.bounded(BatchResponse.advance()).wait, partition))
    return turns


@settings(max_examples=15, deadline=None)
@given(
    st.floats(0.2, 100),
    st.lists(st.integers(1, 200), min_size=1, max_size=6),
    st.floats(0, 8),
    st.floats(0.1, 4),
)
def test_no_stretch_of_time_sees_more_than_its_share(
    rate: float, backlogs: list[int], begin: float, length: float
) -> None:
    """For any number of partitions and size of their batches: the rate, and a turn of each partition."""
    taken = sum(count for at, _, count in played(rate, backlogs, begin + length) if begin <= at < begin + length)
    one_turn_each = max(rate * SLICE, 1.0) * 3 + len(backlogs)
    assert taken <= rate * length + one_turn_each


@settings(max_examples=15, deadline=None)
@given(st.floats(1, 100), st.integers(1, 6))
def test_the_rate_is_made_use_of_and_shared_evenly(rate: float, partitions: int) -> None:
    """With enough to read: nearly all of it is taken, and no partition goes without."""
    seconds = max(8.0, 8 * partitions / rate)
    turns = played(rate, [30] * partitions, seconds)
    taken: Counter[int] = Counter()
    for _, partition, count in turns:
        taken[partition] += count
    assert taken.total() >= 0.9 * rate * seconds
    assert max(taken.values()) <= 1.25 * min(taken.values()) + rate * SLICE


def test_the_answer_covers_only_what_was_taken() -> None:
    """The rest is read again; the next read is as short as the next turn."""
    turn = Pace(40.0, ManualClock()).turn(batch(100))
    assert turn.bounded(BatchResponse.advance()) == BatchResponse.advance(10, wait=0.25, max_bytes=100)


def test_what_the_sinks_answer_still_counts() -> None:
    """The smaller offset, the longer wait, the smaller read; a revert stays one."""
    turn = Pace(40.0, ManualClock()).turn(batch(100))
    asked = BatchResponse.advance(4, wait=9.0, max_bytes=7)
    assert turn.bounded(asked) == asked
    assert turn.bounded(BatchResponse.revert()) == BatchResponse.revert(wait=0.25, max_bytes=100)


def test_a_partition_that_is_gone_leaves_its_share_to_the_others() -> None:
    """The turns of those that stay are larger."""
    pace = Pace(40.0, ManualClock())
    sizes = [len(pace.turn(batch(100, partition)).part) for partition in (0, 1)]
    pace.forget(TopicPartition("orders", 0))
    assert [*sizes, len(pace.turn(batch(100, 1)).part)] == [10, 5, 10]


def test_records_come_evenly_and_all_of_them(world: World) -> None:
    """20 a second, no second more than 20 and a turn; nothing is lost, repeated or delivered twice."""
    journal = join(world, {"max_read_rate": 20})
    publish(world, 300)
    began = world.clock.now()
    world.run(20)
    assert journal.offsets == list(range(300))
    per_second = Counter(int(at - began) for at in journal.times)
    assert all(15 <= per_second[second] <= 26 for second in range(14))
    status = world.consumers["a"].channel.status()
    assert status.records_total <= 300 + 300 + 60  # the first batch comes again, and a record now and then


def test_partitions_share_the_rate_of_the_process(world: World) -> None:
    """It is the channel's in this process, not the partition's."""
    world.kafka.create_topic("many", 8)
    journal = join(world, {"max_read_rate": "40/s"}, topics=["many"])
    for partition in range(8):
        world.kafka.publish("many", partition, [b"x"] * 100)
    world.run(10)
    assert 370 <= len(journal.offsets) <= 430


def test_it_goes_with_every_mode(world: World) -> None:
    """At most once: what was taken is committed, then sent, then comes the rest."""
    journal = join(world, {"max_read_rate": 20, "no_duplication": True}, kinds=[Events])
    publish_events(world, *map(str, range(100)))
    world.run(2)
    assert 30 <= len(journal.ids) <= 60
    world.run(8)
    assert (journal.ids, world.commits()) == ([str(number) for number in range(100)], {0: 100})


def test_a_stop_does_not_wait_for_the_next_turn(world: World) -> None:
    """No worker is blocked by the rest."""
    join(world, {"max_read_rate": 0.1})
    publish(world, 3)
    world.run(2)
    began = world.clock.now()
    world.leave("a")
    assert (world.commits(), world.clock.now() - began < 2) == ({0: 1}, True)


@pytest.mark.parametrize("rate", [1, 10_000])
def test_a_turn_has_at_least_one_record_and_at_most_the_batch(rate: float) -> None:
    """At any rate."""
    assert [len(Pace(rate, ManualClock()).turn(batch(count)).part) for count in (1, 3)] == [1, 1 if rate == 1 else 3]
