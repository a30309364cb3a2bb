"""Another processor takes over while the channel runs: partition by partition, between two batches, with nothing repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from inbound import Batch, BatchResponse, Context, TopicPartition
from inbound.config import OnErrorConfig
from inbound.proof.model import Verdict
from inbound.testing.world import Consumer, Recording, World
from tests.channel.one_partition import offsets, publish, world
from tests.proof.world_proofs import proofs_of

__all__ = ["world"]  # the fixture


class Closing(Recording):
    """Notes when it is opened and closed, too."""

    def open(self, context: Context) -> None:
        if context.options == {"broken": True}:
            raise ConnectionError("no database at db:5432")
        self.calls.append(("open", context.options))

    def close(self) -> None:
        self.calls.append(("close",))

    @property
    def told(self) -> list[str]:
        """Return the names of its callbacks, in their order."""
        return [str(call[0]) for call in self.calls]


class Periodic(Closing):
    """Leaves commits to a later time."""

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        super().on_next_batch(batch)
        return BatchResponse.next(commit_within=60.0)


class Collecting(Closing):
    """Commits nothing until its partition goes, and then half of its records."""

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        super().on_next_batch(batch)
        return BatchResponse.next()

    def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> BatchResponse | None:
        super().on_stream_termination(partition, next_offset)
        return BatchResponse.advance(next_offset // 2)


class Owning(Closing):
    """Says where claims begin."""

    def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
        self.calls.append(("claim", committed))
        return 1 if committed == 4 else committed


def begin(world: World, processor: Recording, count: int = 4) -> Consumer:
    """Start a consumer that has read so many records."""
    publish(world, count)
    consumer = world.join("a", processor)
    world.run(4)
    assert offsets(processor) == list(range(count))
    return consumer


def exchange(world: World, consumer: Consumer, new: Recording) -> None:
    """Let another processor take over, and publish a record for it."""
    consumer.channel.exchange(new, {})
    publish(world, 1)
    world.run(2)


def test_the_next_batch_is_the_new_ones_and_the_old_one_is_closed_after_its_last_callback(world: World) -> None:
    """It hears what it would hear at a release; the claim stays, and nothing is read twice."""
    old, new = Closing(), Closing()
    consumer = begin(world, old)
    epoch = consumer.channel.status().partitions[0].epoch

    consumer.channel.exchange(new, {"rate": 2})
    publish(world, 3)
    world.run(1)
    consumer.channel.clear_up()

    assert (offsets(old), offsets(new), world.commits()) == ([0, 1, 2, 3], [4, 5, 6], {0: 7})
    assert old.told == ["open", "processed", "termination", "close"]
    assert new.calls == [("open", {"rate": 2}), ("processed", 0, 7)]
    assert consumer.channel.status().partitions[0].epoch == epoch


def test_one_that_has_nothing_to_read_changes_processors_too(world: World) -> None:
    """Else the old one would stay open as long as nothing comes."""
    old = Closing()
    consumer = begin(world, old)
    world.run(100)
    consumer.channel.exchange(Closing(), {})
    world.run(1)
    assert not consumer.channel.clear_up()
    assert old.told[-2:] == ["termination", "close"]


def test_what_was_skipped_stays_so_if_the_new_one_begins_behind_it(world: World) -> None:
    """The old one had gone back before its own commit; the new one goes on at that, and the ledger says so."""
    answers = [BatchResponse.advance(3, skip=True), BatchResponse.revert(0, wait=60.0)]
    old = Closing(lambda batch: answers.pop(0))
    publish(world, 4)
    consumer = world.join("a", old, reader={"max_batch_records": 2})
    world.run(4)

    exchange(world, consumer, new := Closing())

    (proof,) = proofs_of(world).values()
    assert (offsets(old), offsets(new)) == ([0, 1, 3], [3, 4])
    assert (proof.verdict, [(f.kind, f.first, f.next) for f in proof.findings]) == (
        Verdict.PROVEN, [("passed-over", 2, 3)],
    )  # fmt: skip


def test_the_batch_in_hand_ends_with_who_has_it(world: World) -> None:
    """And so does what is called after its commit."""
    old, new = Closing(), Closing()
    publish(world, 4)
    consumer = world.join("a", old)
    old.on_batch = lambda batch: consumer.channel.exchange(new, {})
    world.run(4)
    publish(world, 1)
    world.run(1)

    assert (offsets(old), offsets(new)) == ([0, 1, 2, 3], [4])
    assert old.told == ["open", "processed", "termination"]


def test_one_that_cannot_be_opened_changes_nothing(world: World) -> None:
    """What it raises comes through."""
    old = Closing()
    consumer = begin(world, old)
    with pytest.raises(ConnectionError, match="no database"):
        consumer.channel.exchange(Closing(), {"broken": True})
    publish(world, 1)
    world.run(1)
    assert (offsets(old), old.told) == ([0, 1, 2, 3, 4], ["open", "processed", "processed"])


@pytest.mark.parametrize(("old", "repeated"), [(Periodic(), []), (Collecting(), [2, 3])])
def test_what_is_not_committed_then_is_read_again_by_the_new_one(
    world: World, old: Recording, repeated: list[int]
) -> None:
    """A commit that was put off is written before; what the old one had not finished is the new one's."""
    new = Closing()
    consumer = begin(world, old)
    exchange(world, consumer, new)
    assert (offsets(new), world.commits()) == ([*repeated, 4], {0: 5})


class Finishing(Closing):
    """Commits the given offset on demand."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.context = context

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        super().on_next_batch(batch)
        self.batch = batch
        return BatchResponse.next()


@pytest.mark.parametrize("busy", [False, True])
def test_what_the_old_one_finishes_too_late_commits_nothing_of_what_the_new_one_has_in_hand(
    world: World, busy: bool
) -> None:
    """It is read again, and the new one has not finished it: a crash would lose what it keeps of it."""
    old, new = Finishing(), Finishing()
    consumer = begin(world, old)
    if busy:
        new.on_batch = lambda batch: old.context.advance(old.batch, 3)
    exchange(world, consumer, new)
    old.context.advance(old.batch, 3)
    world.run(1)
    before = world.commits()
    new.context.advance(new.batch, 2)
    world.run(1)
    assert (offsets(new), before, world.commits()) == ([0, 1, 2, 3, 4], {0: 0}, {0: 2})


def test_the_new_one_is_asked_where_it_begins(world: World) -> None:
    """As at a claim, for it may keep its offsets elsewhere than the one before."""
    old, new = Owning(), Owning()
    consumer = begin(world, old)
    exchange(world, consumer, new)
    assert (offsets(new), new.told, world.commits()) == ([1, 2, 3, 4], ["open", "claim", "processed"], {0: 5})


def test_what_failed_for_good_is_tried_by_the_new_one(world: World) -> None:
    """It may be what the options were changed for."""

    def fail(batch: Batch) -> object:
        raise ValueError("wrong table")

    old, new = Closing(answer=fail), Closing()
    publish(world, 1)
    consumer = world.join("a", old, on_error={"max_attempts": 1})
    world.run(4)
    assert "wrong table" in str(consumer.channel.status().partitions[0].held)
    consumer.channel.exchange(new, {})
    world.run(1)
    assert (offsets(new), consumer.channel.status().partitions[0].held) == ([0], None)


def test_what_is_held_is_tried_again_when_asked_for(world: World) -> None:
    """By the same processor, under another `on_error`."""
    answers: list[Callable[[Batch], object]] = []

    def answer(batch: Batch) -> object:
        return answers[0](batch) if answers else 1 / 0

    publish(world, 1)
    consumer = world.join("a", Closing(answer=answer), on_error={"max_attempts": 1})
    world.run(4)
    config = consumer.channel.parts.settings.now
    answers.append(lambda batch: BatchResponse.advance())
    consumer.channel.configure(config.model_copy(update={"on_error": OnErrorConfig(max_attempts=9)}))
    consumer.channel.try_again()
    world.run(1)
    assert (consumer.channel.status().partitions[0].held, world.commits()) == (None, {0: 1})


class Slow(Closing):
    """Takes its time, on an event loop."""

    async def on_next_batch(self, batch: Batch) -> BatchResponse:  # type: ignore[override]
        await asyncio.sleep(2.0)
        return super().on_next_batch(batch)

    async def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> BatchResponse | None:  # type: ignore[override]
        await asyncio.sleep(1.0)
        return super().on_stream_termination(partition, next_offset)


def test_asynchronous_ones_take_over_too(world: World) -> None:
    """A partition that is to be released while it changes processors is released once, with its commit."""
    old, new = Slow(), Slow()
    publish(world, 2)
    consumer = world.join("a", old)
    world.run_until(lambda: bool(old.seen), within=9)
    consumer.channel.exchange(new, {})
    world.run(0.5)
    world.leave("a")
    assert (old.told, offsets(new), world.commits()) == (["open", "processed", "termination"], [], {0: 2})
