"""Processors whose callbacks are coroutines: the promises of plain ones, with every partition under way at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from inbound import Batch, BatchEventProcessor, BatchResponse, Context, TopicPartition
from inbound.runtime.driver import Driver
from inbound.testing.world import World
from tests.channel.one_partition import publish, world
from tests.waiting import until, wait_for

__all__ = ["world"]  # the fixture


async def advance(batch: Batch) -> object:
    return BatchResponse.advance()


class Watching(BatchEventProcessor):
    """Notes what it is handed and told, and how much of it at the same time."""

    def __init__(self, answer: Callable[[Batch], Awaitable[object]] = advance) -> None:
        self.answer = answer
        self.begun: list[tuple[int, int]] = []  # partition, first offset
        self.ended: list[tuple[int, int]] = []  # partition, next offset; of batches that were not cancelled
        self.calls: list[tuple[object, ...]] = []
        self.inside: list[int] = []  # partitions, now
        self.most = 0

    async def open(self, context: Context) -> None:
        self.context = context
        await asyncio.sleep(0)
        self.calls.append(("open",))

    async def on_next_batch(self, batch: Batch) -> BatchResponse:
        assert batch.partition not in self.inside, "callbacks of one partition overlap"
        self.begun.append((batch.partition, batch.first_offset))
        self.inside.append(batch.partition)
        self.most = max(self.most, len(self.inside))
        try:
            response = await self.answer(batch)
        finally:
            self.inside.remove(batch.partition)
        self.ended.append((batch.partition, batch.next_offset))
        return response  # type: ignore[return-value]

    async def on_batch_processed(self, batch: Batch) -> None:
        await asyncio.sleep(0.02)
        self.calls.append(("processed", batch.partition, batch.next_offset))

    async def on_exception(self, partition: TopicPartition, error: Exception) -> BatchResponse | None:
        await asyncio.sleep(0.02)
        self.calls.append(("exception", partition.partition, type(error).__name__))
        return None

    async def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> BatchResponse | None:
        await asyncio.sleep(0.02)
        self.calls.append(("termination", partition.partition, next_offset))
        return None

    async def on_idle(self, partition: TopicPartition) -> BatchResponse | None:
        self.calls.append(("idle", partition.partition))
        return None

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.calls.append(("close",))

    def told(self, *kinds: str) -> list[tuple[object, ...]]:
        """Return the calls of these kinds."""
        return [call for call in self.calls if call[0] in kinds]


def after(seconds: float) -> Callable[[Batch], Awaitable[object]]:
    """Advance after so long."""

    async def answer(batch: Batch) -> object:
        await asyncio.sleep(seconds)
        return BatchResponse.advance()

    return answer


def wide(partitions: int) -> World:
    """Return a world whose topic has so many partitions of two records."""
    world = World()
    world.kafka.create_topic("orders", partitions)
    for partition in range(partitions):
        world.kafka.publish("orders", partition, [b"x", b"y"])
    return world


def join(world: World, processor: Watching, name: str = "a", **settings: Any) -> Watching:
    """Start a consumer and let it come to its partitions."""
    world.join(name, processor, **settings)
    world.run(4)
    return processor


# -- answers -----------------------------------------------------------------------------------------------------------


def test_batches_of_a_partition_come_in_order_one_at_a_time_and_each_commit_is_reported(world: World) -> None:
    """Also where each takes its time."""
    publish(world, 10)
    processor = join(world, Watching(after(0.1)), reader={"max_batch_records": 4})
    assert processor.begun == [(0, 0), (0, 4), (0, 8)]
    assert processor.told("processed") == [("processed", 0, 4), ("processed", 0, 8), ("processed", 0, 10)]
    assert world.commits() == {0: 10}


def test_several_hundred_partitions_are_under_way_at_once_with_one_worker() -> None:
    """As many as there are partitions: what each waits for is waited for once."""
    world = wide(400)
    processor = join(world, Watching(after(1.0)), workers=1)
    world.run(1)
    assert (processor.most, world.commits()) == (400, dict.fromkeys(range(400), 2))
    assert sorted(processor.ended) == [(partition, 2) for partition in range(400)]


def test_a_slow_partition_holds_back_only_itself() -> None:
    """It awaits; the others go on."""
    world = wide(3)

    async def answer(batch: Batch) -> object:
        if batch.partition == 1:
            await asyncio.sleep(1000)
        return BatchResponse.advance()

    join(world, Watching(answer))
    assert world.commits() == {0: 2, 1: 0, 2: 2}


# -- ownership ---------------------------------------------------------------------------------------------------------


def test_a_batch_that_loses_its_partition_learns_it_and_commits_nothing(world: World) -> None:
    """`batch.lost` is set while the coroutine runs; its answer is discarded."""
    publish(world, 3)
    lost: list[bool] = []

    async def answer(batch: Batch) -> object:
        await asyncio.sleep(14)
        lost.append(batch.lost.is_set())
        return BatchResponse.advance()

    processor = join(world, Watching(answer))
    world.ensemble.expire_session("a")
    world.ensemble.cut_off("a")
    successor = Watching()
    world.join("b", successor)
    world.run(14)
    assert lost == [True]
    assert (successor.begun, world.commits()) == ([(0, 0)], {0: 3})
    world.ensemble.heal("a")
    world.run(10)
    assert processor.told("exception")[-1] == ("exception", 0, "PartitionLostError")


def test_nothing_is_delivered_after_the_session_may_have_expired(world: World) -> None:
    """A process that was stopped and goes on: looked at right before the call."""
    processor = join(world, Watching())
    world.pause("a")
    world.run(12)
    publish(world, 3)
    world.resume("a")
    a = world.consumers["a"]
    for _ in range(10):
        a.channel.reader.run_once()
        a.channel.workers[0].run_once()
    assert processor.begun == []


def test_a_release_waits_for_the_batch_under_way(world: World) -> None:
    """Its commit is written, on_stream_termination called, and the partition released without a repeat."""
    publish(world, 3)
    processor = join(world, Watching(after(8)))
    assert processor.inside == [0]
    world.leave("a")
    assert (world.commits(), world.owned()) == ({0: 3}, {})
    assert processor.told("processed", "termination") == [("processed", 0, 3), ("termination", 0, 3)]


def test_sleep_ends_early_when_the_channel_stops(world: World) -> None:
    """As `wait` does for a plain processor."""
    publish(world, 3)
    stopping: list[bool] = []

    async def answer(batch: Batch) -> object:
        stopping.append(await processor.context.sleep(3600))
        return BatchResponse.advance(1)

    processor = Watching(answer)
    join(world, processor)
    began = world.clock.now()
    world.leave("a")
    assert (stopping, world.commits(), world.clock.now() - began < 2) == ([True], {0: 1}, True)


def test_who_cancels_all_tasks_keeps_no_partition_forever(caplog: pytest.LogCaptureFixture) -> None:
    """Turns that have not begun run nothing when they are cancelled."""

    async def answer(batch: Batch) -> object:
        if len(processor.begun) == 1:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
        return BatchResponse.advance()

    processor, world = Watching(answer), World()
    world.kafka.create_topic("orders", 4)
    for partition in range(4):
        world.kafka.publish("orders", partition, [b"x"])
    world.join("a", processor)
    world.run(6)
    said = [record.message for record in caplog.records if "cancelled before it began" in record.message]
    assert (world.commits(), len(said) > 0) == (dict.fromkeys(range(4), 1), True)
    world.leave("a")


def test_a_batch_that_does_not_end_in_time_is_cancelled_and_said_where_it_was(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Not committed. The processor is closed all the same, on its loop, and the loop with it."""
    publish(world, 3)

    async def hang(batch: Batch) -> object:
        await asyncio.Event().wait()
        return BatchResponse.advance()

    processor = join(world, Watching(hang))
    a = world.consumers["a"]
    a.channel.start()  # threads: an abandoned turn is cancelled from outside
    a.channel.abandon()
    a.channel.close()
    told = [r.getMessage() for r in caplog.records if "abandoned after shutdown_timeout" in r.getMessage()]
    assert len(told) == 1
    assert "its callback did not end in time; it is at:" in told[0]
    assert "in hang" in told[0]
    assert (processor.inside, processor.ended, processor.calls[-1], world.commits()) == ([], [], ("close",), {0: 0})


def test_what_the_processor_started_on_the_loop_is_its_own_to_end(world: World) -> None:
    """It runs between the batches, and is there until `close`; what `close` leaves behind is cancelled."""
    ends: list[str] = []

    class Busy(Watching):
        async def open(self, context: Context) -> None:
            await super().open(context)
            self.tasks = [asyncio.create_task(self.work(name)) for name in ("ended", "left")]

        async def work(self, name: str) -> None:
            try:
                while not self.context.stopping.is_set() or name == "left":
                    await asyncio.sleep(1)
                ends.append(f"{name} alone")
            except asyncio.CancelledError:
                ends.append(f"{name} cancelled")

        async def close(self) -> None:
            ends.append("close")

    join(world, Busy())
    world.leave("a", within=5)
    world.run(2)
    world.consumers["a"].channel.workers[0].run_once()
    world.consumers["a"].channel.close()
    assert ends == ["ended alone", "close", "left cancelled"]


# -- what an operator sees -----------------------------------------------------------------------------------------------


def test_a_callback_that_awaits_is_not_stuck_and_one_that_blocks_the_loop_is(world: World) -> None:
    """All partitions share the loop's thread: while it is blocked, nothing of the channel goes on."""
    publish(world, 3)
    blocked, let_go = threading.Event(), threading.Event()

    async def answer(batch: Batch) -> object:
        await asyncio.sleep(10)
        blocked.set()
        wait_for(let_go, 10, "the test lets go")
        return BatchResponse.advance()

    join(world, Watching(answer))
    channel = world.consumers["a"].channel
    channel.start()
    (loop,) = [driver for driver in channel.drivers if driver.name == "orders-event-loop"]
    world.clock.advance(6)  # it sleeps for 10
    await_step(loop, world)
    awaiting = [t for t in channel.threads() if t.name == loop.name]
    world.clock.advance(5)
    wait_for(blocked, 10, "the callback blocks the loop")
    world.clock.advance(61)
    blocking = [t for t in channel.threads() if t.name == loop.name]
    stack = loop.stack()
    let_go.set()
    channel.close()
    assert [(t.last_step_age, t.in_callback) for t in awaiting] == [(0, False)]
    assert [(t.last_step_age >= 61, t.in_callback) for t in blocking] == [(True, False)]
    assert "wait_for(let_go" in stack


def await_step(driver: Driver, world: World) -> None:
    """Wait until the part has come back since the clock went on."""
    until(lambda: driver.last_step >= world.clock.now(), 10, f"{driver.name} takes a step", look=0.001)
