"""Mutants of what is read: topic ids, logs that are cut, records that are given up, clients that raise."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from inbound.channel import failure_policy as failures
from inbound.channel.commit import Pending
from inbound.channel.out_of_range import OutOfRange
from inbound.channel.reader import Reader
from inbound.channel.streams import Stream, Throttle
from inbound.coordinators import nodes, ownership
from inbound.coordinators.nodes import EpochInfo
from inbound.coordinators.ownership import Claim, Ownership
from inbound.coordinators.zookeeper import Check, Node, Op, SetData
from inbound.errors import OffsetOutOfRangeError
from inbound.kafka.base import LogClient
from inbound.partition import schedule, topics
from inbound.partition.partition import Partition
from inbound.processors.batch import Batch
from inbound.proof import claims, judge, log_cuts
from inbound.proof.evidence import Missing
from inbound.proof.model import LedgerEvent, Span
from inbound.testing import kafka
from inbound.testing.kafka import FakeLogClient
from inbound.testing.zookeeper import FakeZooKeeper
from inbound.topic_partition import TopicPartition
from tests.simulation.planting import Mutant, Plant, all_of, family, is_claim, storm_has

Original = Callable[..., Any]


# -- R13: topic ids ----------------------------------------------------------------------------------------------------


def _ids_compared_as_text(plant: Plant) -> None:
    def as_it_stands(original: Original, topic_id: str) -> str:
        return topic_id

    def same(original: Original, one: str, other: str) -> bool:
        if original(one, other) is not (one == other):
            plant.bite()
        return one == other

    plant.around(kafka, "canonical", as_it_stands)
    for module in (nodes, ownership, topics, judge):
        plant.around(module, "same_topic", same)


def _recreation_untold(plant: Plant) -> None:
    def before(original: Original, self: Ownership, path: str, epoch: Node) -> EpochInfo:
        found: EpochInfo = original(self, path, epoch)
        if found.recreated is not None:
            plant.bite()
        return replace(found, recreated=None)

    plant.around(Ownership, "_before", before)


def _recreation_begins_a_topic_each_time(plant: Plant) -> None:
    def chapters(original: Original, given: Sequence[claims.JudgedClaim]) -> list[list[claims.JudgedClaim]]:
        told, found = iter(given), list[list[claims.JudgedClaim]]()
        for chapter in original(given):
            found.append([])
            for claim in chapter:
                if next(told).recreated and found[-1]:
                    plant.bite()
                    found.append([])
                found[-1].append(claim)
        return found

    plant.around(judge, "_chapters", chapters)


# -- R13: logs that are cut ---------------------------------------------------------------------------------------------


def _cut_moves_in_memory_only(plant: Plant) -> None:
    def face(original: Original, self: OutOfRange, partition: Partition, error: OffsetOutOfRangeError) -> None:
        committer, self._parts.committer = self._parts.committer, _Forgets(plant)  # type: ignore[assignment]
        try:
            original(self, partition, error)
        finally:
            self._parts.committer = committer

    plant.around(OutOfRange, "face", face)


class _Forgets:
    """A committer that commits nothing."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant

    def submit(self, pending: Pending) -> None:
        self._plant.bite()
        pending.channel.schedule.landed(pending.partition, pending.mark, ())


def _cut_read_on_once_the_log_has_grown(plant: Plant) -> None:
    """In range again, so it is as if nothing had been."""

    def face(original: Original, self: OutOfRange, partition: Partition, error: OffsetOutOfRangeError) -> None:
        if not error.start <= error.offset <= error.end:
            original(self, partition, error)
            return
        plant.bite()
        partition.problem = None
        partition.buffer.jump()
        self._reader.jump(partition)
        self._schedule.await_records(partition, schedule.NEVER)

    def read(
        original: Original,
        self: FakeLogClient,
        positions: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int],
    ) -> None:
        if epochs:
            plant.bite()
        original(self, positions)

    plant.around(OutOfRange, "face", face)
    plant.around(FakeLogClient, "read", read)


def _cut_unknown_after_a_claim(plant: Plant) -> None:
    """A claim does not carry on under which leader the commit was written."""

    def transaction(original: Original, zk: FakeZooKeeper, ops: Sequence[Op]) -> Any:
        return original(zk, [_without_leader(plant, op) if is_claim(ops) else op for op in ops])

    async def claim(original: Original, self: Ownership, *arguments: Any, **named: Any) -> Claim | None:
        claimed: Claim | None = await original(self, *arguments, **named)
        if claimed is None or claimed.info is None:
            return claimed
        return replace(claimed, info=replace(claimed.info, leader_epoch=None))

    plant.around(FakeZooKeeper, "transaction", transaction)
    plant.around(Ownership, "claim", claim)


def _without_leader(plant: Plant, op: Op) -> Op:
    if not (isinstance(op, SetData) and family(op) == "epochs"):
        return op
    info = nodes.decode_epoch(op.path, op.data)
    if info is None or info.leader_epoch is None:
        return op
    plant.bite()
    return op._replace(data=replace(info, leader_epoch=None).encode())


def _leader_not_committed(plant: Plant) -> None:
    """Commits check the epoch node, for records of any leader."""

    def guard(original: Original, self: Pending, path: str) -> Op:
        op: Op = original(self, path)
        info, epoch = self.partition.info, self.epoch
        if epoch is None and isinstance(op, SetData) and info is not None:
            plant.bite()
            return Check(path, self.partition.fence.epoch)
        return op

    plant.around(Pending, "_guard", guard)


def _leader_committed_for_what_is_gone(plant: Plant) -> None:
    """The commit over a cut names the leader of what was read before."""

    def face(original: Original, self: OutOfRange, partition: Partition, error: OffsetOutOfRangeError) -> None:
        before = partition.position.read
        original(self, partition, error)
        if before is not None and partition.position.read != before and partition.failure.held is None:
            plant.bite()
            partition.position.read = before

    plant.around(OutOfRange, "face", face)


def _cut_unseen_behind_a_jump(plant: Plant) -> None:
    """Where reading goes on behind what was read, no leader is named."""

    def read(original: Original, self: Reader, wanted: Mapping[TopicPartition, tuple[Partition, int]]) -> None:
        known = {partition: partition.position.read for partition, _ in wanted.values()}
        for partition, position in wanted.values():
            if partition.position.read is not None and partition.position.read.offset < position:
                plant.bite()
                partition.position.read = None
        original(self, wanted)
        for partition, read_to in known.items():
            partition.position.read = read_to

    plant.around(Reader, "_read", read)


def _proof_counts_what_is_gone(plant: Plant) -> None:
    def counted(
        original: Original, of: Sequence[claims.JudgedClaim], committed: int | None
    ) -> tuple[list[claims.JudgedClaim], list[Missing], int | None]:
        *_, lowest = original(of, committed)
        if lowest is not None:
            plant.bite()
        return list(of), [], None

    plant.around(judge, "without_cut_off", counted)


def _proof_takes_a_cut_where_the_log_begins_for_certain(plant: Plant) -> None:
    def cut(
        original: Original,
        event: LedgerEvent,
        later: Sequence[Span | LedgerEvent],
        following: int | None,
        missing: list[Missing],
    ) -> int:
        known = len(missing)
        end: int = original(event, later, following, missing)
        if event.facts.get("cut") is not None and len(missing) > known:
            plant.bite()
            del missing[known:]
        return end

    plant.around(log_cuts, "_cut", cut)


def _proof_knows_no_topic_ids(plant: Plant) -> None:
    def chapters(original: Original, of: Sequence[claims.JudgedClaim]) -> list[list[claims.JudgedClaim]]:
        found: list[list[claims.JudgedClaim]] = original(of)
        unnamed: list[list[claims.JudgedClaim]] = original([replace(claim, topic_id=None) for claim in of])
        if len(found) == len(unnamed):
            return found
        plant.bite()
        return unnamed

    plant.around(judge, "_chapters", chapters)


# -- R3: a commit covers what was processed ------------------------------------------------------------------------------


def _given_up_commits_all(plant: Plant) -> None:
    def commit_after(original: Original, partition: Partition, batch: Batch) -> int:
        if original(partition, batch) is None:
            plant.bite()
        return batch.next_offset

    plant.around(failures, "_commit_after", commit_after)


# -- the reader and a client that raises -----------------------------------------------------------------------------------


def _jump_noted_before_it_is_made(plant: Plant) -> None:
    def apply(original: Original, self: Reader) -> None:
        queued = list(self._jumps)
        try:
            original(self)
        except Exception:
            plant.bite()
            for partition in queued:
                stream = self.stream_of(partition)
                if stream is not None:
                    stream.generation = partition.buffer.generation
            self._jumps.clear()
            raise

    plant.around(Reader, "_apply_jumps", apply)


def _opening_lost(plant: Plant) -> None:
    def open_new(original: Original, self: Reader) -> None:
        try:
            original(self)
        except Exception:
            plant.bite()
            self._opening = deque()
            raise

    plant.around(Reader, "_open_new", open_new)


def _throttle_believes_what_it_asks_for(plant: Plant) -> None:
    def apply(
        original: Original, self: Throttle, client: LogClient, streams: Mapping[TopicPartition, Stream], *rest: Any
    ) -> None:
        def believing(verb: str, paused: bool) -> Callable[[Sequence[TopicPartition]], None]:
            ask = getattr(client, verb)

            def asked(partitions: Sequence[TopicPartition]) -> None:
                for tp in partitions:
                    streams[tp].paused = paused
                try:
                    ask(partitions)
                except Exception:
                    plant.bite()
                    raise

            return asked

        client.pause = believing("pause", True)  # type: ignore[method-assign, assignment]
        client.resume = believing("resume", False)  # type: ignore[method-assign, assignment]
        try:
            original(self, client, streams, *rest)
        finally:
            del client.pause, client.resume

    plant.around(Throttle, "apply", apply)


def _new_client_told_to_forget(plant: Plant) -> None:
    def go_on(original: Original, self: Reader) -> None:
        """It reads on with what is left, and has never heard of the rest."""
        gone = {tp: self._streams[tp] for tp in self._left()}
        original(self)
        if gone:
            plant.bite()
            self._streams |= gone

    plant.around(Reader, "_go_on", go_on)


LOGS = (
    Mutant(
        "ids-compared-as-text", "R13: an id in either form is one topic",
        "who reads with another client reads everything again", _ids_compared_as_text,
        drawn=storm_has("other client", "join"),
    ),
    Mutant(
        "recreation-untold", "R13: each claim says that the topic was recreated until something is committed",
        "the process that began the topic dies, and no ledger says so", _recreation_untold,
        drawn=storm_has("recreate"),
    ),
    Mutant(
        "recreation-begins-a-topic-each-time", "R13: claims that say the same are about one topic",
        "the proof names topics that never were", _recreation_begins_a_topic_each_time,
        drawn=storm_has("recreate"),
    ),
    Mutant(
        "cut-moves-in-memory-only", "R13: over a cut, the new position is committed before the next batch",
        "the next owner begins behind what was published since", _cut_moves_in_memory_only,
        drawn=storm_has("cut"),
    ),
    Mutant(
        "cut-unseen-behind-a-jump", "R13: where a processor goes on behind what was read, the leader of that is named",
        "what was published since the cut is passed over", _cut_unseen_behind_a_jump,
        drawn=storm_has("cut"),
    ),
    Mutant(
        "cut-read-on", "R13: that the log holds the position is no reason to read on",
        "what was published between the cut and the position is skipped", _cut_read_on_once_the_log_has_grown,
        drawn=storm_has("cut"),
    ),
    Mutant(
        "cut-unknown-after-a-claim", "R13: a claim carries on under which leader the commit was written",
        "a log that was cut, and has grown, is read on by the next owner", _cut_unknown_after_a_claim,
        drawn=storm_has("cut"),
    ),
    Mutant(
        "leader-not-committed", "R13: a commit says under which leader it was written",
        "a log that was cut while no member read is read on", _leader_not_committed,
        drawn=storm_has("cut"),
    ),
    Mutant(
        "leader-of-what-is-gone", "R13: the commit over a cut says of no leader",
        "the log is taken for cut once more, and read again", _leader_committed_for_what_is_gone,
        drawn=storm_has("cut"),
    ),
    Mutant(
        "proof-counts-what-is-gone", "R13: deliveries before a cut prove nothing of the records there now",
        "PROVEN, although records were passed over", _proof_counts_what_is_gone,
        drawn=storm_has("cut"),
    ),
    Mutant(
        "proof-sure-of-a-cut", "R13: a cut where the log begins may have been before that",
        "PROVEN, although records were deleted unread", _proof_takes_a_cut_where_the_log_begins_for_certain,
        drawn=storm_has("cut"),
    ),
    Mutant(
        "proof-without-topic-ids", "R13: a recreated topic is in the proof",
        "not provable, as the process that began it died at once", _proof_knows_no_topic_ids,
        drawn=all_of(storm_has("recreate"), storm_has("dies writing")),
    ),
    Mutant(
        "given-up-commits-all", "R3: no commit past what the processor has left uncommitted",
        "a record that is given up commits what the processor has collected", _given_up_commits_all,
    ),
    Mutant(
        "jump-noted-before-it-is-made", "the reader: a jump is made once the client has taken it",
        "records from the old position are delivered as those from the new one", _jump_noted_before_it_is_made,
        drawn=all_of(storm_has("client fails"), lambda plan: plan.setup.moody),
    ),
    Mutant(
        "opening-lost", "the reader: what is being opened is tried again after any error of the client",
        "a claimed partition is not read", _opening_lost,
        drawn=storm_has("client fails"),
    ),
    Mutant(
        "throttle-believes", "the reader: a partition is resumed once the client has taken it",
        "a paused partition is never read again", _throttle_believes_what_it_asks_for,
        drawn=storm_has("client fails"),
    ),
    Mutant(
        "new-client-told-to-forget", "the reader: a new client is not asked to forget partitions that it never read",
        "nothing is read any more", _new_client_told_to_forget,
        drawn=storm_has("other client"),
    ),
)  # fmt: skip
