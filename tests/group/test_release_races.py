"""A partition that is lost, abandoned or cancelled while its release or its last callback is on its way: it is claimed again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from inbound import Batch, BatchResponse
from inbound.coordinators.zookeeper import Call, Node, SetData
from inbound.errors import PartitionLostError
from inbound.partition.partition import Fate, Partition
from inbound.partition.position import Position
from inbound.processors.batch import Record
from inbound.testing.clock import FakeLoop
from inbound.testing.world import Consumer, Recording, World
from inbound.topic_partition import TopicPartition
from tests.channel.one_partition import offsets, publish, world
from tests.controller.reset_offset.reset_by_hand import close, move, notes, open_again, stopped
from tests.simulation.stage import in_next_batch, process

__all__ = ["world"]  # the fixture

TP = TopicPartition("orders", 0)


def held(consumer: Consumer) -> Partition:
    """Return the one partition of a consumer."""
    (partition,) = consumer.channel.parts.schedule.held()
    return partition


def fenced(world: World, consumer: Consumer) -> None:
    """Let the commit be refused, and a worker tell the processor: no step of the controller in between."""
    world.ensemble.tree.transaction([SetData(world.paths.epoch(*TP), b"")], 0)
    consumer.channel.parts.committer.run_once()
    world.ensemble.deliver_all()
    consumer.channel.parts.committer.run_once()
    consumer.channel.workers[0].run_once()


def abandoned(world: World, consumer: Consumer) -> None:
    """Let a reset give it up."""
    partition = held(consumer)
    consumer.channel.parts.schedule.abandon(partition)
    consumer.tasks.spawn(consumer.channel.membership.claims.release_abandoned(partition), "release")


@pytest.mark.parametrize("ends", [fenced, abandoned], ids=lambda end: end.__name__)
@pytest.mark.parametrize("after_steps", [0, 1], ids=["before its first step", "after it"])
def test_a_release_of_a_partition_that_goes_otherwise_ends(
    world: World, ends: Callable[[World, Consumer], None], after_steps: int
) -> None:
    """The partition is claimed again and read on, and the group can be left."""
    a = world.join("a")
    world.run(4)
    process(world, "a", {TP: 3})
    assert not held(a).position.settled
    release = a.channel.membership.claims.release(held(a))
    for _ in range(after_steps):
        a.tasks.step()
    ends(world, a)
    world.run(5)
    owned, committed = world.owned(), world.commits()
    world.leave("a", within=3)
    assert (release.done, owned, committed, world.owned()) == (True, {"a": {0}}, {0: 3}, {})


def test_the_next_claim_of_a_partition_is_released_although_the_release_of_the_last_one_has_not_ended(
    world: World,
) -> None:
    """It belongs to one claim: who leaves waits for both, and releases both."""
    a = world.join("a")
    world.run(4)
    claims, schedule = a.channel.membership.claims, a.channel.parts.schedule
    first = held(a)
    before = claims.release(first)
    schedule.abandon(first)
    second = Partition(TP, first.fence, Position(0))
    schedule.adopt(second)
    after = claims.release(second)
    a.tasks.close()
    assert (before is after, second.fate) == (False, Fate.RELEASE)


def test_a_lost_partition_whose_last_callback_hangs_is_claimed_again_when_that_ends() -> None:
    """`on_exception` gets the loss; a reset that waits for the partition gives it up meanwhile."""
    world = World()
    world.kafka.create_topic("orders", 1)
    during: list[dict[str, set[int]]] = []

    class Slow(Recording):
        def on_exception(self, partition: TopicPartition, error: Exception) -> BatchResponse | None:
            if isinstance(error, PartitionLostError) and not during:
                close(world)
                world.run_until(lambda: stopped(world), within=5)
                open_again(world)
                world.run(2)
                during.append(world.owned())
            return None

    a = world.join("a", Slow(), shutdown_timeout="2s", workers=2)
    world.run(4)
    world.ensemble.tree.transaction([SetData(world.paths.epoch(*TP), b"")], 0)
    world.run_until(lambda: bool(during), within=10)
    publish(world, 3)
    world.run(5)
    assert isinstance(a.processor, Recording)
    assert (during, world.owned(), offsets(a.processor)) == ([{"a": set()}], {"a": {0}}, [0, 1, 2])


def test_a_recovery_that_executes_after_its_partitions_release_leaves_no_owner_node_that_nobody_holds(
    world: World,
) -> None:
    """The session has expired, so the release finds no node to delete; the recovery, on its way already, makes one."""
    a = world.join("a")
    world.run(4)
    read = a.zk.get

    def get(path: str, watch: Callable[[], None] | None = None) -> Call[Node | None]:
        if path == world.paths.gate("orders") and a.zk.session != session:  # of the recovery: its first request
            a.zk.get = read  # type: ignore[method-assign]
            a.channel.membership.claims.release(held(a))
            a.channel.workers[0].run_once()
        return read(path, watch)

    session, a.zk.get = a.zk.session, get  # type: ignore[method-assign]
    world.ensemble.expire_session("a")
    world.run_until(lambda: not a.channel.parts.schedule.held(), within=1)
    publish(world, 3)
    world.run(5)
    assert (world.owned(), world.commits()) == ({"a": {0}}, {0: 3})


def test_a_stop_right_after_a_session_has_expired_commits_what_was_processed(world: World) -> None:
    """The process is connected in a new session, and has not registered in it yet: nothing is recovered any more."""
    a = world.join("a")
    world.run(4)
    process(world, "a", {TP: 3})
    before = a.zk.session
    world.ensemble.expire_session("a")
    while a.zk.session == before:
        world.clock.advance(0.1)
        world.ensemble.tick()
    world.leave("a", within=3)
    assert (world.commits(), world.owned()) == ({0: 3}, {})


def test_a_channel_that_is_removed_while_a_reset_waits_commits_what_it_had_in_hand_as_its_session_expired(
    world: World,
) -> None:
    """Nobody recovers its partition, also when the gate opens; the reset fences before it reads the old offsets."""
    a = world.join("a", shutdown_timeout="2s")
    world.run(4)

    def meanwhile() -> None:
        world.ensemble.cut_off("a")
        world.ensemble.expire_session("a")
        close(world)
        world.ensemble.heal("a")

    in_next_batch(world, "a", meanwhile)
    publish(world, 3)
    world.run(5)
    before = world.commits()
    left = a.tasks.spawn(a.channel.membership.leave_group(), "removal")
    world.run_until(lambda: left.done, within=3)
    assert (before, world.commits(), world.owned()) == ({0: 0}, {0: 3}, {"a": set()})


# -- coroutines --------------------------------------------------------------------------------------------------------


class Poisoned(Recording):
    """Fails on record 1, in a coroutine."""

    async def on_next_batch(self, batch: Batch) -> BatchResponse:  # type: ignore[override]
        await asyncio.sleep(0)
        super().on_next_batch(batch)
        if any(record.offset == 1 for record in batch.records):
            raise ValueError("poison")
        return BatchResponse.advance()


def test_a_dead_letter_that_takes_longer_than_a_reset_waits_does_not_keep_its_partition(world: World) -> None:
    """The turn is cancelled. The group goes on at the new offset, and the ledger says of no record that it was given up."""
    sent: list[int] = []

    def dead_letters(topic: str, partition: int, records: Sequence[Record], reason: str) -> None:
        sent.extend(record.offset for record in records)

    on_error = {"max_attempts": 1, "then": "dead-letter", "dead_letter_topic": "dead"}
    a = world.join("a", Poisoned(), dead_letters=dead_letters, on_error=on_error, shutdown_timeout="2s")
    loop = a.channel.parts.worker_wakeup.loop  # type: ignore[attr-defined]
    assert isinstance(loop, FakeLoop)
    loop.executor_takes = 30.0
    publish(world, 3)
    world.run(4)
    close(world)
    world.run_until(lambda: stopped(world), within=5)
    move(world, {0: 2})
    open_again(world)
    world.run(5)
    between = world.owned(), world.commits(), a.channel.status().abandoned, notes(world, "a", "skip")
    world.run(30)
    assert isinstance(a.processor, Recording)
    assert (*between, sent) == ({"a": {0}}, {0: 3}, [], [], [1])


def test_nothing_is_given_up_of_a_partition_that_is_abandoned_while_on_exception_thinks(world: World) -> None:
    """Its record is neither skipped nor noted as skipped: the next owner reads it again."""

    class Thinking(Poisoned):
        async def on_exception(self, partition: TopicPartition, error: Exception) -> BatchResponse | None:  # type: ignore[override]
            self.calls.append(("exception", partition.partition, type(error).__name__))
            if isinstance(error, ValueError) and self.calls.count(self.calls[-1]) == 1:
                await asyncio.sleep(3600)
            return None

    a = world.join("a", Thinking(), on_error={"max_attempts": 1, "then": "skip"}, shutdown_timeout="2s")
    for _ in range(2):
        publish(world, 1)
        world.run(4)
    close(world)
    world.run_until(lambda: stopped(world), within=5)
    before = [*notes(world, "a", "skip"), *a.channel.status().abandoned]
    open_again(world)
    world.run(5)
    skipped = [(facts["from"], facts["to"]) for _, facts in notes(world, "a", "skip")]
    assert (before, skipped, world.commits()) == ([], [(1, 2)], {0: 2})
