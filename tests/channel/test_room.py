"""How much a processor takes: `room`, and what becomes of a partition without any."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest

from inbound import Batch, BatchResponse, Context, TopicPartition
from inbound.coordinators.zookeeper import Delete
from inbound.testing.world import Recording, World
from tests.channel.one_partition import offsets, publish, start, world
from tests.channel.test_commit_window import Stage

__all__ = ["world"]  # the fixture


class Roomy(Recording):
    """Takes four records beyond the commit; something happens while it says that there is no room."""

    taken = 0
    meanwhile: Callable[[], object] | None = None

    def open(self, context: Context) -> None:
        self.context = context

    def room(self, partition: TopicPartition, committed: int) -> int | None:
        left = max(0, committed + 4 - self.taken)
        if not left and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return left

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        super().on_next_batch(batch)
        self.batch, self.taken = batch, batch.next_offset
        return BatchResponse.next()


def test_a_commit_that_lands_while_the_processor_says_that_it_has_no_room_makes_room() -> None:
    """All that it took is finished then: nothing else would have the partition looked at again."""
    stage = Stage(processor := Roomy())
    taken = stage.work()
    processor.context.advance(processor.batch, 4)
    committer = stage.consumer.channel.parts.committer
    committer.run_once()
    stage.world.ensemble.deliver_all()
    processor.meanwhile = committer.run_once
    stage.world.kafka.publish("orders", 0, [b"x"])
    assert (taken, stage.work(), processor.meanwhile is None) == ([0, 1, 2, 3], list(range(8)), True)


def test_a_processor_without_room_is_handed_a_record_when_the_log_was_cut_below_what_it_took() -> None:
    """What it finishes of that is void, so no commit would ever make room: it has to learn where reading goes on."""
    stage = Stage(Roomy())
    taken = stage.work()
    stage.world.kafka.truncate("orders", 0, 2)
    stage.world.kafka.publish("orders", 0, [b"new"] * 6)
    stage.world.run(2)
    assert (taken, stage.work()) == ([0, 1, 2, 3], [0, 1, 2, 3, 0, 1, 2, 3])


class FailsOnce(Roomy):
    """Takes a batch on, and fails then."""

    failed = False

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        response = super().on_next_batch(batch)
        if batch.next_offset == 4 and not self.failed:
            self.failed = True
            raise RuntimeError("once")
        return response


def test_a_processor_without_room_that_has_failed_is_handed_a_record_again() -> None:
    """What it took on before it failed fills its room, and is not committed, as it is to be read again."""
    stage = Stage(processor := FailsOnce())
    stage.world.run(5)
    assert (processor.failed, stage.work()) == (True, [0, 1, 2, 3, 2, 3])


def test_a_processor_learns_of_a_partition_that_was_given_up_while_another_callback_hung() -> None:
    """It keeps its records else, and has no room for those of the next claim."""

    class Pauses(Roomy):
        hangs: Callable[[], object] | None = None
        told: list[str]

        def on_pause(self, partition: TopicPartition) -> None:
            if self.hangs is not None:
                self.hangs()

        def on_exception(self, partition: TopicPartition, error: Exception) -> None:
            self.told = [type(error).__name__]
            self.taken = 0

    stage = Stage(processor := Pauses())
    taken = stage.work()
    channel = stage.consumer.channel
    processor.hangs = partial(channel.parts.schedule.abandon, stage.partition)
    channel.parts.schedule.set_paused(True)
    stage.work()
    channel.parts.schedule.set_paused(False)
    processor.hangs = None
    stage.world.ensemble.tree.transaction([Delete(stage.world.paths.owner("orders", 0))], 0)
    channel.parts.evaluate()
    stage.world.run(60)
    again = [offset for _, offset in processor.seen]
    assert (taken, processor.told, again) == ([0, 1, 2, 3], ["PartitionLostError"], [0, 1, 2, 3, 0, 1, 2, 3])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (-1, "BadResponseError: orders/0: room returned -1; return how many records the next batch may have, or None"),
        (
            "5",
            "BadResponseError: orders/0: room returned '5'; return how many records the next batch may have, or None",
        ),
        (RuntimeError("no pool"), "RuntimeError: no pool (at "),
    ],
    ids=["negative", "text", "raises"],
)
def test_a_room_that_cannot_be_used_is_the_processors_error(
    world: World, answer: object, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Less than 0 was asked again at once, forever; the others failed the turn as a defect of inbound."""
    asked: list[float] = []

    class Rooms(Recording):
        def room(self, partition: TopicPartition, committed: int) -> int | None:
            asked.append(world.clock.now())
            if len(asked) > 3:
                return None
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[return-value]

    publish(world, 3)
    start(world, None, Rooms)
    partition = world.consumers["a"].channel.status().partitions[0]
    world.run(10)
    assert str(partition.last_error).startswith(message)
    assert [round(later - earlier) for earlier, later in pairwise(asked)] == [1, 2, 4]
    assert any("room failed, attempt 1: " in record.getMessage() for record in caplog.records)
    assert world.commits() == {0: 3}


def test_a_room_that_is_a_coroutine_is_explained(world: World) -> None:
    """Nobody waits for it."""

    class Rooms(Recording):
        async def room(self, partition: TopicPartition, committed: int) -> int | None:  # type: ignore[override]
            return None

    publish(world, 3)
    start(world, None, Rooms)
    partition = world.consumers["a"].channel.status().partitions[0]
    assert partition.last_error == (
        "BadResponseError: orders/0: room is a coroutine, which is never awaited; write `def room`"
    )


def test_where_room_fails_no_record_has(world: World) -> None:
    """Four failures of it, in an outage, counted as those of the record that was delivered first then."""

    class Rooms(Recording):
        asked = failed = 0

        def room(self, partition: TopicPartition, committed: int) -> int | None:
            self.asked += 1
            if self.asked < 5:
                raise ConnectionError("away")
            return 1

        def on_next_batch(self, batch: Batch) -> BatchResponse:
            if not self.failed:
                self.failed += 1
                raise ConnectionError("once more")
            return super().on_next_batch(batch)

    publish(world, 3)
    processor = start(world, None, Rooms, on_error={"max_attempts": 5, "then": "skip"})
    world.run(20)
    assert (offsets(processor), world.commits()) == ([0, 1, 2], {0: 3})
