"""Logs that are cut, and grow again: records published then are never skipped silently, at any time and by any member."""

from __future__ import annotations

import logging

import pytest

from inbound import Batch, BatchResponse, Context
from inbound.coordinators.nodes import EpochInfo, decode_epoch
from inbound.coordinators.zookeeper import SetData
from inbound.errors import OffsetOutOfRangeError
from inbound.ledger.base import Done, Range, Settled
from inbound.ledger.memory import Note
from inbound.proof.model import PartitionProof, Verdict
from inbound.testing.world import Recording, World
from inbound.topic_partition import TopicPartition
from tests.channel.one_partition import offsets, publish, start, world
from tests.controller.reset_offset.reset_by_hand import reset
from tests.proof.world_proofs import proofs_of

__all__ = ["world"]  # the fixture

TP = TopicPartition("orders", 0)
moves = pytest.mark.parametrize(("choice", "first"), [("earliest", 0), ("latest", 4)])


def cut(world: World, end: int, grown: int = 0) -> None:
    """Let a replica become the leader that ends at `end`; `grown` records are published after that."""
    world.kafka.truncate("orders", 0, end)
    publish(world, grown)


def held(world: World, name: str = "a") -> str | None:
    """Return why the consumer's only partition is held, as its status says."""
    (partition,) = world.consumers[name].channel.status().partitions
    return partition.held


def notes(world: World, name: str, kind: str) -> list[dict[str, object]]:
    """Return what a consumer's ledger has of this kind."""
    return [e.facts for e in world.consumers[name].ledger.entries if isinstance(e, Note) and e.kind == kind]


def epoch_info(world: World) -> EpochInfo:
    """Return what stands in the epoch node."""
    path = world.paths.epoch(*TP)
    info = decode_epoch(path, world.ensemble.tree.nodes[path].data)
    assert info is not None
    return info


def proof(world: World) -> PartitionProof:
    """Judge the only partition."""
    return proofs_of(world)[TP]


def found(world: World) -> list[tuple[str, int, int]]:
    """Return what a proof finds: kind and range."""
    return [(finding.kind, finding.first, finding.next) for finding in proof(world).findings]


# -- the position that is moved over a cut -----------------------------------------------------------------------------


@moves
def test_what_is_published_after_a_cut_is_read_by_who_claims_next(world: World, choice: str, first: int) -> None:
    """Commit 9, the log is cut to 4, the consumer leaves, ten records come: nobody begins behind the first of them."""
    publish(world, 9)
    start(world, on_truncation=choice)
    cut(world, 4)
    world.run(3)
    committed = world.commits()
    world.leave("a")
    publish(world, 10)
    successor = Recording()
    world.join("b", successor, on_truncation=choice)
    world.run(4)
    assert (committed[0] in (0, 4), offsets(successor)[-10:], world.commits()) == (True, list(range(4, 14)), {0: 14})
    assert (proof(world).verdict, found(world)) == (Verdict.PROVEN, [])


@moves
def test_the_new_position_is_committed_before_the_next_batch(world: World, choice: str, first: int) -> None:
    """In the ledger too: the cut, then the commit, then what is delivered from there."""
    publish(world, 9)
    start(world, on_truncation=choice)
    cut(world, 4)
    publish(world, 3 if choice == "earliest" else 0)
    world.run(3)
    publish(world, 1)
    world.run(1)
    entries = world.consumers["a"].ledger.entries
    at = next(n for n, e in enumerate(entries) if isinstance(e, Note) and e.kind == "truncated")
    after = [e for e in entries[at:] if isinstance(e, Done | Settled | Range)][:3]
    assert [(type(e).__name__, e.first if isinstance(e, Range) else e.commit) for e in after] == [
        ("Done", first), ("Settled", first), ("Range", first)
    ]  # fmt: skip


def test_nothing_is_delivered_from_the_new_position_while_its_commit_is_on_its_way(world: World) -> None:
    """ZooKeeper does not answer; then it does."""
    publish(world, 9)
    processor = start(world, on_truncation="earliest")
    world.ensemble.cut_off("a")
    cut(world, 4)
    world.run(2)
    before = offsets(processor)
    world.ensemble.heal("a")
    world.run(4)
    assert (before, offsets(processor), world.commits()) == ([*range(9)], [*range(9), *range(4)], {0: 4})


def test_who_dies_before_that_commit_leaves_the_cut_to_the_next_owner(world: World) -> None:
    """Which finds it by the leader that the commit was written under, though the log has grown over it by then."""
    publish(world, 9)
    start(world, on_truncation="earliest")
    world.ensemble.cut_off("a")
    cut(world, 4)
    world.run(2)
    world.kill("a")
    publish(world, 10)
    successor = Recording()
    world.join("b", successor, on_truncation="earliest")
    world.run(20)
    assert (offsets(successor), world.commits()) == ([*range(14)], {0: 14})
    assert (proof(world).verdict, found(world)) == (Verdict.PROVEN, [])


def test_a_commit_over_a_cut_that_comes_late_is_refused(world: World) -> None:
    """Another has claimed the partition meanwhile, and has moved it itself: the offset goes back once."""
    publish(world, 9)
    start(world, on_truncation="earliest")
    world.pause("a")
    world.run(15)
    successor = Recording()
    world.join("b", successor, on_truncation="earliest")
    world.run(15)
    cut(world, 4)
    world.run(3)
    publish(world, 2)
    world.run(2)
    world.resume("a")
    world.run(3)
    assert (offsets(successor), world.commits()) == ([*range(6)], {0: 6})


def test_what_is_passed_over_by_latest_is_named(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """In the log and in the ledger, by its offsets: the log had grown when the cut was noticed."""
    publish(world, 9)
    processor = start(world, on_truncation="latest")
    cut(world, 4, grown=10)
    world.run(3)
    publish(world, 1)
    world.run(1)
    assert (offsets(processor), world.commits()) == ([*range(9), 14], {0: 15})
    assert [(n["from"], n["to"]) for n in notes(world, "a", "skip")] == [(4, 14)]
    assert any("; offsets 4 to 13 are passed over" in record.getMessage() for record in caplog.records)
    assert [one for one in found(world) if one[0] == "lost"] == []


def test_the_mirror_follows_a_commit_that_goes_back(world: World) -> None:
    """What lag exporters show is where the group reads on."""
    publish(world, 9)
    start(world, on_truncation="earliest", offsets={"mirror": "kafka"})
    world.run(3)
    cut(world, 4)
    world.run(5)
    assert world.groups.of("group") == {0: 4}


# -- a cut that the client reports -------------------------------------------------------------------------------------


def test_a_cut_is_no_reason_to_read_on_though_the_log_has_grown_over_the_position(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Unclean election, new log 4 to 13, position 9: held, and said. Nothing is delivered, nothing committed."""
    publish(world, 9)
    processor = start(world)
    cut(world, 4, grown=10)
    world.run(10)
    why = held(world) or ""
    assert "the log was cut at 4, before the commit 9, and has grown to 14 since with other records" in why
    assert "`inbound offsets reset --group group --topic orders:0 --to-offset 4 --execute`" in why
    assert (offsets(processor), world.commits()) == ([*range(9)], {0: 9})
    assert ("exception", 0, "OffsetOutOfRangeError") in processor.calls
    assert notes(world, "a", "truncated") == [{"position": 9, "to": None, "cut": 4, "start": 0, "end": 14}]
    assert found(world) == [("lost", 4, 9)]
    assert [record.levelno for record in caplog.records if "held: " in record.getMessage()] == [logging.ERROR]


@moves
def test_a_cut_that_no_consumer_has_noticed_yet_is_not_proven_whole(world: World, choice: str, first: int) -> None:
    """New records stand where the group has committed past. Once a consumer has acted on it, there is a proof."""
    publish(world, 9)
    start(world, on_truncation=choice)
    world.leave("a")
    before = proof(world)
    cut(world, 4, grown=10)
    amid = proof(world)
    world.join("b", on_truncation=choice)
    world.run(4)
    after = proof(world)
    assert [(one.verdict, one.proven) for one in (before, amid, after)] == [
        (Verdict.PROVEN, 9), (Verdict.NOT_PROVABLE, 4), (Verdict.PROVEN, 14)
    ]  # fmt: skip
    assert [text[:42] for text in amid.missing] == ["the log was cut at 4 below the commit 9: w"]


def test_a_held_log_that_is_cut_once_more_has_lost_from_there(world: World) -> None:
    """Nobody looks at what is held: the brokers say it to who gives the proof."""
    publish(world, 9)
    start(world)
    cut(world, 6, grown=4)
    world.run(3)
    once = found(world)
    cut(world, 2, grown=12)
    world.run(3)
    assert (once, found(world), proof(world).missing) == ([("lost", 6, 9)], [("lost", 2, 9)], ())


@pytest.mark.parametrize("elections", [0, 3])
def test_a_cut_is_found_by_who_claims_after_a_restart(world: World, elections: int) -> None:
    """Nobody ran when the log was cut and grew: the epoch node says under which leader the commit was written."""
    publish(world, 9)
    start(world)
    world.leave("a")
    cut(world, 4, grown=10)
    for _ in range(elections):
        world.kafka.elect_leader("orders", 0)
        publish(world, 1)
    processor = start(world)
    assert (offsets(processor), held(world) is not None, world.commits()) == ([], True, {0: 9})
    world.leave("a")
    world.join("b")
    world.run(4)
    assert (held(world, "b") is not None, world.commits()) == (True, {0: 9})
    world.leave("b")
    world.ensemble.tree.transaction([SetData(world.paths.offset(*TP), b"4")], 0)
    processor = start(world)
    assert offsets(processor) == list(range(4, 14 + elections))


def test_a_second_cut_below_the_first_is_found_though_nothing_was_read_between(world: World) -> None:
    """The commit that is moved to where the log was cut still says under which leader what is before it was written."""
    publish(world, 9)
    start(world, on_truncation="latest")
    cut(world, 4)
    world.run(3)
    committed = world.commits()
    world.leave("a")
    cut(world, 2, grown=4)
    world.join("b", Recording(), on_truncation="latest")
    world.run(4)
    assert (committed, [note["cut"] for note in notes(world, "b", "truncated")]) == ({0: 4}, [2])


def test_the_reset_that_a_hold_names_ends_it_and_everything_that_stands_there_is_read_once(world: World) -> None:
    """Without a restart; and all of it is proven."""
    publish(world, 9)
    processor = start(world)
    cut(world, 4, grown=10)
    world.run(10)
    reset(world, {0: 4})
    world.run(10)
    assert (offsets(processor)[9:], held(world), world.commits()) == ([*range(4, 14)], None, {0: 14})
    assert (proof(world).verdict, found(world)) == (Verdict.PROVEN, [])


@moves
def test_a_hold_ends_when_the_configuration_says_what_to_do(world: World, choice: str, first: int) -> None:
    """Reloaded without a restart: what was found out is acted on, though the brokers say nothing more of it."""
    publish(world, 9)
    processor = start(world)
    cut(world, 4, grown=10)
    world.run(3)
    channel = world.consumers["a"].channel
    channel.parts.settings.now = channel.parts.settings.now.model_copy(update={"on_truncation": choice})
    channel.try_again()
    world.run(3)
    publish(world, 1)
    world.run(1)
    assert offsets(processor)[9:] == ([*range(15)] if choice == "earliest" else [14])
    assert world.commits() == {0: 15}


def test_a_cut_behind_the_commit_goes_back_to_the_commit_and_holds_nothing(world: World) -> None:
    """What was read past it with `next()` is read again, as it stands there now; nothing that was committed is gone."""

    def answer(batch: Batch) -> BatchResponse:
        return BatchResponse.advance() if batch.next_offset <= 3 else BatchResponse.next()

    publish(world, 3)
    processor = start(world, answer)
    publish(world, 6)
    world.run(1)
    cut(world, 4, grown=10)
    world.run(3)
    world.leave("a")
    assert (offsets(processor), world.commits()) == ([*range(9), *range(3, 14)], {0: 3})
    successor = Recording()
    world.join("b", successor)
    world.run(4)
    assert (offsets(successor), found(world)) == ([*range(3, 14)], [("repeated", 3, 14)])


def test_what_was_processed_before_a_cut_is_not_lost_though_retention_deletes_it_before_it_is_read_again(
    world: World,
) -> None:
    """Reading goes back to where the log began when the leader was asked; 0 to 2 are deleted before it comes there."""

    class Meanwhile(Recording):
        def on_exception(self, partition: TopicPartition, error: Exception) -> BatchResponse | None:
            if isinstance(error, OffsetOutOfRangeError):
                world.kafka.retain("orders", 0, 3)
            return super().on_exception(partition, error)

    publish(world, 9)
    processor = start(world, kind=Meanwhile, on_truncation="earliest")
    cut(world, 4, grown=10)
    world.run(6)
    assert (offsets(processor), world.commits()) == ([*range(9), *range(3, 14)], {0: 14})
    assert (proof(world).verdict, found(world)) == (Verdict.PROVEN, [])


def test_what_was_read_ahead_and_is_gone_is_not_delivered(world: World) -> None:
    """What was delivered is before the cut: reading goes on there, and nothing is held."""
    publish(world, 9)
    processor = start(world, lambda batch: BatchResponse.advance(wait=2.0), reader={"max_batch_records": 3})
    before = offsets(processor)
    cut(world, 4, grown=10)
    world.run(20)
    assert (before, offsets(processor), world.commits()) == ([0, 1, 2], list(range(14)), {0: 14})
    assert (held(world), notes(world, "a", "revert")) == (None, [])
    assert (proof(world).verdict, found(world)) == (Verdict.PROVEN, [])


@pytest.mark.parametrize(
    ("end", "again"), [(4, [*range(3, 14)]), (9, [12, 13, 14, 15, 16, 17, 18])], ids=["cut", "whole"]
)
def test_a_cut_is_found_where_the_processor_goes_on_behind_what_was_read(
    world: World, end: int, again: list[int]
) -> None:
    """Handed 3 to 8 of 9 records, it goes on at 12; meanwhile another leader has written ten: from 4 on, or from the end on."""

    def answer(batch: Batch) -> BatchResponse:
        if batch.next_offset != 9:
            return BatchResponse.advance() if batch.next_offset == 3 else BatchResponse.next()
        cut(world, end, grown=10)
        return BatchResponse.next(12)

    publish(world, 3)
    processor = start(world, answer)
    publish(world, 6)
    world.run(3)
    assert (offsets(processor), world.commits(), held(world)) == ([*range(9), *again], {0: 3}, None)


def test_a_cut_is_found_where_on_claim_begins_behind_the_commit(world: World) -> None:
    """The epoch node says under which leader what is before the commit was written, and on_claim says 12."""

    class Beside(Recording):
        def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
            return 12 if committed else None

    publish(world, 9)
    start(world)
    world.leave("a")
    cut(world, 4, grown=20)
    successor = Beside()
    world.join("b", successor)
    world.run(4)
    assert (offsets(successor), "the log was cut at 4" in (held(world, "b") or "")) == ([], True)


def test_what_a_processor_finishes_of_a_log_that_was_cut_is_not_committed(world: World) -> None:
    """`Context.advance` for records that are gone, after the new ones at their offsets were delivered."""
    publish(world, 9)
    batches: list[Batch] = []

    class Later(Recording):
        def open(self, context: object) -> None:
            self.context = context

        def on_next_batch(self, batch: Batch) -> BatchResponse:
            super().on_next_batch(batch)
            batches.append(batch)
            return BatchResponse.next()

    processor = Later()
    world.join("a", processor, on_truncation="earliest")
    world.run(4)
    context = processor.context
    cut(world, 0, grown=9)
    world.run(3)
    context.advance(batches[0], 5)  # type: ignore[attr-defined]
    world.run(1)
    before = world.commits()
    context.advance(batches[-1], 5)  # type: ignore[attr-defined]
    world.run(1)
    assert (before, world.commits(), offsets(processor)) == ({0: 0}, {0: 5}, [*range(9), *range(9)])


class Collecting(Recording):
    """Commits its deliveries on demand, or some time later."""

    def open(self, context: Context) -> None:
        self.context = context

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        answer = super().on_next_batch(batch)
        self.batch = batch
        return BatchResponse.next(commit_within=30.0) if self.answer is None and batch.first_offset == 4 else answer


@pytest.mark.parametrize("how", ["deferred", "finished", "answered"])
@pytest.mark.parametrize("choice", ["hold", "latest", "earliest"])
def test_nothing_is_committed_behind_a_cut_that_is_known(world: World, choice: str, how: str) -> None:
    """1. The cut is found; 2. before it is acted on, a commit behind it is due. It would count as one that was there before:
    what was published since is held, or passed over, or all of the log is read again.
    """
    publish(world, 4)
    processor = Collecting()
    a = world.join("a", processor, on_truncation=choice)
    world.run(4)
    (partition,) = a.channel.parts.schedule.held()

    def find_the_cut(batch: object = None) -> None:
        processor.on_batch = lambda batch: None
        cut(world, 6, grown=5)
        for _ in range(9):
            a.channel.reader.run_once()

    if how == "answered":
        processor.answer = lambda batch: BatchResponse.advance()
        processor.on_batch = find_the_cut
    publish(world, 4)
    world.run(1)
    if how != "answered":
        find_the_cut()
        assert partition.problem is not None
    if how == "deferred":
        world.clock.advance(30.0)
    elif how == "finished":
        processor.context.advance(processor.batch, 8)
    world.run(40)
    assert (held(world), offsets(processor)) == (None, [*range(8), *range(6, 11)])
    assert (world.commits(), proof(world).verdict) == ({0: 11}, Verdict.PROVEN)


@pytest.mark.parametrize("second", [3, 0])
def test_a_cut_that_was_noted_above_the_commit_does_not_stand_for_one_below_it(world: World, second: int) -> None:
    """The first one took nothing that is committed, and no commit came after; the log was cut again with nobody there."""
    publish(world, 4)
    start(world, lambda batch: BatchResponse.advance() if batch.next_offset <= 4 else BatchResponse.next())
    publish(world, 5)
    world.run(2)
    cut(world, 6, grown=2)
    world.run(5)
    world.leave("a")
    before = proof(world)
    cut(world, second, grown=10)
    after = proof(world)
    assert (before.verdict, before.proven, after.verdict, after.proven, after.findings) == (
        Verdict.PROVEN, 4, Verdict.NOT_PROVABLE, second, (),
    )  # fmt: skip
