"""Mutants of refused nodes, releases, abandoned turns and watches: a partition that stays where it is, or keeps others there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from inbound.channel.async_worker import AsyncWorker
from inbound.channel.commit import Pending
from inbound.channel.committer import RETRY, Committer
from inbound.channel.failure_policy import FailurePolicy
from inbound.channel.response import Decision
from inbound.channel.turn import Turns
from inbound.coordinators.zookeeper import Call, Watch, ZooKeeper
from inbound.group.claims import Claims
from inbound.group.partition_backoff import PartitionBackoff
from inbound.partition.partition import Fate, Partition, Place
from inbound.processors.batch import Batch
from inbound.topic_partition import TopicPartition
from tests.simulation.planting import Mutant, Plant, all_of, storm_has

Original = Callable[..., Any]


# -- what ZooKeeper refuses for one node -------------------------------------------------------------------------------


def _sent_with_the_others(plant: Plant) -> None:
    def set_apart(original: Original, self: Committer, pending: Pending, why: str) -> None:
        plant.bite()
        self._requeue([pending])
        self._not_before = self._clock.now() + RETRY

    plant.around(Committer, "_set_apart", set_apart)


def _refused_without_backoff(plant: Plant) -> None:
    def set_apart(original: Original, self: Committer, pending: Pending, why: str) -> None:
        original(self, pending, why)
        plant.bite()
        pending.not_before = 0.0

    plant.around(Committer, "_set_apart", set_apart)


def _claimed_without_backoff(plant: Plant) -> None:
    def rests(original: Original, self: PartitionBackoff, tp: TopicPartition) -> bool:
        if original(self, tp):
            plant.bite()
        return False

    plant.around(PartitionBackoff, "rests", rests)


# -- releases ----------------------------------------------------------------------------------------------------------


def _release_begins_late(plant: Plant) -> None:
    """A release listens for the drain from its first step on."""

    async def give_up(original: Original, self: Claims, partition: Partition) -> None:
        if partition.drained.done:
            plant.bite()
            await Call("a drain that was before")
        await original(self, partition)

    plant.around(Claims, "_give_up", give_up)


def _left_without_the_last_commit(plant: Plant) -> None:
    def commit_in(original: Original, self: Claims, session: int) -> None:
        if any(p.fate is Fate.RELEASE and p.fence.session != session for p in self._parts.schedule.held()):
            plant.bite()

    plant.around(Claims, "commit_in", commit_in)


# -- turns that are abandoned ------------------------------------------------------------------------------------------


def _cancellation_escapes(plant: Plant) -> None:
    """Only exceptions are caught where a dead letter is on its way, and partitions passed on that are running."""

    async def give_up(original: Original, self: FailurePolicy, partition: Partition, batch: Batch) -> Decision:
        outcome: Decision = await original(self, partition, batch)
        if partition.place is Place.ABANDONED:
            plant.bite()
            raise asyncio.CancelledError
        return outcome

    def rescue(original: Original, self: Turns, partition: Partition) -> None:
        if partition.place is not Place.ABANDONED:
            original(self, partition)

    async def serve(original: Original, self: AsyncWorker, partition: Partition) -> None:
        try:
            await self._turns.serve(partition)
        finally:
            del self._under_way[partition]
            self._schedule.end_turn(self)

    plant.around(FailurePolicy, "_give_up", give_up)
    plant.around(Turns, "rescue", rescue)
    plant.around(AsyncWorker, "_serve", serve)


def _given_up_although_abandoned(plant: Plant) -> None:
    import inbound.channel.failure_policy as failures

    def abandoned(original: Original, partition: Partition) -> bool:
        if original(partition):
            plant.bite()
        return False

    plant.around(failures, "_abandoned", abandoned)


# -- watches -----------------------------------------------------------------------------------------------------------


def _watches_pile_up(plant: Plant) -> None:
    def read(original: Original, self: Watch, zk: ZooKeeper, ask: Original, path: str, **named: Any) -> Call[Any]:
        plant.bite()
        call: Call[Any] = ask(path, lambda: self.fired())  # another one each time
        return call

    plant.around(Watch, "_read", read)


RELEASES = (
    Mutant(
        "refused-with-the-others", "what is refused for one node is sent alone",
        "one bad node stops every commit of the channel", _sent_with_the_others,
        drawn=storm_has("offset refused", "epoch refused", "offset garbled"),
    ),
    Mutant(
        "refused-without-backoff", "a commit that is refused for its node is tried ever more rarely",
        "it is sent a hundred times a second", _refused_without_backoff,
        drawn=storm_has("offset refused", "epoch refused", "offset garbled"),
    ),
    Mutant(
        "claimed-without-backoff", "a partition whose nodes cannot be used is tried ever more rarely",
        "it costs ZooKeeper some twenty requests a second", _claimed_without_backoff,
        drawn=storm_has("offset refused", "epoch refused", "offset garbled"),
    ),
    Mutant(
        "release-begins-late", "a release ends however its partition goes",
        "a leaving member waits without end, and the next claim is never released", _release_begins_late,
    ),
    Mutant(
        "left-without-the-last-commit", "who leaves commits in the session that it has",
        "a claim from one that is over is not recovered, and its commit waits without end", _left_without_the_last_commit,
        drawn=all_of(storm_has("leave"), storm_has("expire", "expire all", "freeze", "cut off")),
    ),
    Mutant(
        "cancellation-escapes", "a turn passes its partition on, however it ends",
        "a partition whose dead letter was on its way is never claimed again", _cancellation_escapes, "reset",
        drawn=lambda plan: plan.setup.patience < 25 and plan.setup.letters_take > 0,
    ),
    Mutant(
        "given-up-although-abandoned", "nothing is given up of a partition that was abandoned",
        "the ledger says of a record that it was skipped, and it comes again", _given_up_although_abandoned, "reset",
        drawn=lambda plan: plan.setup.patience < 25 and bool(plan.setup.gives_up),
    ),
    Mutant(
        "watches-pile-up", "a watch is set once",
        "all of them are called at once when a connection breaks", _watches_pile_up,
    ),
)  # fmt: skip
