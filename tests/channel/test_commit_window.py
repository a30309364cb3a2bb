"""Batches that are delivered while commits of earlier ones are on their way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from inbound import Context
from inbound.channel import committer as committer_module
from inbound.channel.commit import Pending
from inbound.coordinators.zookeeper import SetData
from inbound.errors import ZkAmbiguousError
from inbound.ledger.base import Settled
from inbound.partition.partition import Partition
from inbound.processors.base import BatchEventProcessor
from inbound.processors.batch import Batch, BatchResponse
from inbound.testing.world import Consumer, Recording, World
from inbound.topic_partition import TopicPartition

P0 = TopicPartition("orders", 0)
MANY = 12


class Stage:
    """One consumer of one partition with twelve records; reader and worker run, the committer on demand."""

    def __init__(self, processor: Recording | None = None, value: bytes = b"x", **settings: Any) -> None:
        self.world = World()
        self.world.kafka.create_topic("orders", 1)
        settings = {"reader": {"max_batch_records": 2}, **settings}
        self.consumer: Consumer = self.world.join("a", processor or Recording(), **settings)
        self.world.run(4)
        self.world.kafka.publish("orders", 0, [value] * MANY)

    @property
    def processor(self) -> Recording:
        assert isinstance(self.consumer.processor, Recording)
        return self.consumer.processor

    @property
    def partition(self) -> Partition:
        (partition,) = self.consumer.channel.parts.schedule.held()
        return partition

    def work(self, turns: int = 50) -> list[int]:
        """Let reader and worker run, and nothing land. Returns the offsets that were delivered so far."""
        for _ in range(turns):
            self.consumer.channel.reader.run_once()
            self.consumer.channel.workers[0].run_once()
        return [offset for _, offset in self.processor.seen]

    def settled(self) -> list[tuple[int, str]]:
        """Return what the ledger says became of commits."""
        return [(e.commit, e.outcome) for e in self.consumer.ledger.entries if isinstance(e, Settled)]


def test_batches_go_on_while_their_commits_are_on_their_way_and_one_commit_stands_for_all() -> None:
    """Each has its callback when its commit has landed, in their order."""
    stage = Stage()
    handed = stage.work()
    told_before = list(stage.processor.calls)
    stage.world.run(1)
    assert (handed, told_before) == (list(range(MANY)), [])
    assert (stage.settled()[1:], stage.world.commits()) == ([(MANY, "landed")], {0: MANY})
    assert stage.processor.calls == [("processed", 0, end) for end in range(2, MANY + 1, 2)]


def test_a_full_window_stops_delivery_until_something_lands() -> None:
    """Five records may be on their way when a batch is delivered: so the third is the last one."""
    stage = Stage(max_uncommitted_records=5)
    handed = stage.work()
    stage.world.run(1)
    assert (handed, stage.work(), stage.world.commits()) == (list(range(6)), list(range(MANY)), {0: MANY})


def test_without_a_window_each_batch_waits_for_the_commit_of_the_one_before() -> None:
    """As releases before did."""
    stage = Stage(max_uncommitted_records=0)
    handed = stage.work()
    stage.world.run(2)
    commits = [commit for commit, _ in stage.settled()]
    assert (handed, commits) == ([0, 1], [0, 2, 4, 6, 8, 10, 12])


def test_batches_that_wait_to_be_told_of_their_commits_are_kept_within_what_is_read_ahead() -> None:
    """Records of a megabyte each would else fill the memory while ZooKeeper is slow. Without on_batch_processed none is kept."""

    class Deaf(Recording):
        on_batch_processed = BatchEventProcessor.on_batch_processed  # type: ignore[assignment]

    reader = {"max_batch_records": 2, "prefetch_bytes": 4000, "batch_bytes": 1000}
    hears, deaf = Stage(value=bytes(300), reader=reader), Stage(Deaf(), value=bytes(300), reader=reader)
    handed = hears.work(), deaf.work()
    hears.world.run(3)
    assert (len(handed[0]) < MANY, handed[1]) == (True, list(range(MANY)))
    assert hears.world.commits() == {0: MANY}


def test_a_processor_that_must_have_heard_of_a_commit_has_the_strict_rule_for_itself() -> None:
    """Under any configuration."""
    processor = Recording()
    processor.commits_first = True
    assert Stage(processor).work() == [0, 1]


def test_a_ledger_that_cannot_be_written_stops_delivery_by_the_window() -> None:
    """Commits wait for it, and are written when it can be again."""
    stage = Stage(max_uncommitted_records=3)
    done = stage.consumer.ledger.done
    failing = [True]

    def refuse(entries: object) -> None:
        if failing[0]:
            from inbound.errors import LedgerError

            raise LedgerError("no space left")
        done(entries)  # type: ignore[arg-type]

    stage.consumer.ledger.done = refuse  # type: ignore[method-assign]
    stage.world.run(5)
    handed, committed = stage.work(), stage.world.commits()
    failing[0] = False
    stage.world.run(5)
    assert (handed, committed, stage.world.commits()) == ([0, 1, 2, 3], {0: 0}, {0: MANY})


def test_a_refused_commit_drops_all_of_its_claim_and_all_of_it_is_delivered_again() -> None:
    """Also what was delivered behind it. The processor learns of the loss once nothing can land any more."""
    stage = Stage()
    stage.work()
    stage.world.ensemble.tree.transaction([SetData(stage.world.paths.epoch(*P0), b"")], 0)
    stage.world.run(3)
    handed = [offset for _, offset in stage.processor.seen]
    assert (handed, stage.settled()[1]) == (2 * list(range(MANY)), (MANY, "fenced"))
    assert [call for call in stage.processor.calls if call[0] == "exception"] == [
        ("exception", 0, "PartitionLostError")
    ]
    assert stage.world.commits() == {0: MANY}


def test_a_revert_goes_back_to_what_was_advanced_and_not_to_what_has_landed() -> None:
    """An advance is never withdrawn."""
    reverted: list[int] = []

    def answer(batch: Batch) -> BatchResponse:
        if batch.first_offset == 6 and not reverted:
            reverted.append(batch.first_offset)
            return BatchResponse.revert()
        return BatchResponse.advance()

    stage = Stage(Recording(answer))
    handed = stage.work()
    stage.world.run(1)
    assert (handed, stage.world.commits()) == ([*range(8), *range(6, MANY)], {0: MANY})


def test_a_release_waits_until_what_is_on_its_way_has_landed() -> None:
    """The callbacks of commits come before that of the release."""
    stage = Stage()
    stage.work()
    stage.world.leave("a", within=5)
    names = [call[0] for call in stage.processor.calls]
    assert (names, stage.world.commits()) == (["processed"] * 6 + ["termination"], {0: MANY})


class Beginning(Recording):
    """Says where claims begin."""

    def __init__(self, start: int | None) -> None:
        super().__init__()
        self.start = start

    def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
        return self.start


def test_a_successor_that_begins_further_back_has_the_same_window() -> None:
    """A redelivery counts again: it has not landed."""
    stage = Stage(Beginning(None), max_uncommitted_records=5)
    stage.world.run(5)
    before, successor = stage.world.commits(), Beginning(0)
    channel = stage.consumer.channel
    channel.exchange(successor, {})
    stage.world.run_until(lambda: stage.world.commits() == {0: 0}, within=5)
    for _ in range(9):
        if successor.seen:
            break
        channel.parts.committer.run_once()
        channel.reader.run_once()
        channel.workers[0].run_once()
    stage.work()
    assert (before, [offset for _, offset in successor.seen]) == ({0: MANY}, [0, 1, 2, 3, 4, 5])


class Looked(deque[Any]):
    """What waits for a partition; something happens right after a look that found nothing."""

    then: Callable[[], object] | None = None

    def __bool__(self) -> bool:
        then, self.then = (None, self.then) if len(self) else (self.then, None)
        if then is not None:
            then()
            return False
        return len(self) > 0


@pytest.mark.parametrize("end", ["release", "exchange"])
def test_a_commit_that_lands_while_a_turn_begins_is_reported_before_the_partition_goes(end: str) -> None:
    """1. The turn finds no callback that waits; 2. the last commit lands; 3. the turn finds that all has settled."""
    stage = Stage()
    stage.work()
    partition, channel = stage.partition, stage.consumer.channel
    if end == "release":
        channel.membership.claims.release(partition)
    else:
        channel.exchange(Recording(), {})
    channel.parts.committer.run_once()
    stage.world.ensemble.deliver_all()
    partition.callbacks = looked = Looked(partition.callbacks)
    looked.then = channel.parts.committer.run_once
    channel.workers[0].run_once()
    stage.world.run(2)
    assert [call[0] for call in stage.processor.calls] == ["processed"] * 6 + ["termination"]


def test_what_was_finished_before_a_batch_that_fails_is_committed_although_more_was() -> None:
    """Of two offsets that are finished the higher one counts; where that is to be read again, as much as stands before it."""

    class Finishes(Recording):
        def open(self, context: Context) -> None:
            self.context = context

        def on_next_batch(self, batch: Batch) -> BatchResponse:
            super().on_next_batch(batch)
            if batch.first_offset == 2:
                self.context.advance(batch, 2)
                self.context.advance(batch, 3)
                raise RuntimeError("fails")
            return BatchResponse.next()

    stage = Stage(Finishes())
    stage.world.run(2)
    assert stage.world.commits() == {0: 2}


def test_what_was_advanced_is_committed_although_the_partition_was_abandoned() -> None:
    """A callback hangs when the process is to stop; what was answered for before need not come again."""
    stage = Stage()
    stage.work()
    stage.consumer.channel.parts.schedule.abandon(stage.partition)
    for _ in range(3):
        stage.consumer.channel.parts.committer.run_once()
        stage.world.ensemble.deliver_all()
    assert stage.world.commits() == {0: MANY}


def test_a_failing_record_is_looked_for_by_the_strict_rule() -> None:
    """Only the failing batch is delivered one by one, each waiting for the one before."""

    def answer(batch: Batch) -> BatchResponse:
        if any(record.offset == 5 for record in batch.records) and len(batch) > 1:
            raise ValueError("bad")
        return BatchResponse.advance()

    stage = Stage(Recording(answer), on_error={"max_attempts": 1, "then": "hold"})
    handed = stage.work()
    stage.world.run(2)
    assert (handed, stage.world.commits()) == ([0, 1, 2, 3, 4, 5], {0: MANY})


def test_there_is_one_round_of_transactions_in_each_interval_and_the_first_comes_at_once() -> None:
    """However many commits there are."""
    world = World()
    world.kafka.create_topic("orders", 1)
    a = world.join("a", reader={"max_batch_records": 1})
    world.run(4)
    a.channel.parts.committer.interval = 0.1
    before, began = a.channel.parts.transactions, world.clock.now()
    world.kafka.publish("orders", 0, [b"x"])
    world.run(0.05)
    first = world.commits()
    for _ in range(99):
        world.kafka.publish("orders", 0, [b"x"])
        world.run(0.005)
    transactions, rounds = a.channel.parts.transactions - before, (world.clock.now() - began) / 0.1
    world.run(1)
    assert (first, world.commits()) == ({0: 1}, {0: 100})
    assert rounds / 2 < transactions <= rounds + 1


def test_an_answer_that_is_late_is_waited_for_and_the_next_write_is_no_larger() -> None:
    """A server that has too much to do would get more by it."""
    stage = Stage(max_uncommitted_records=5)
    committer = stage.consumer.channel.parts.committer
    stage.work()
    committer.run_once()
    call = committer._call
    assert call is not None
    assert call.deadline is not None
    stage.world.clock.advance(call.deadline - stage.world.clock.now() + 0.01)
    committer.run_once()
    waited = (call.done, committer._call is call)
    stage.world.ensemble.deliver_all()
    committer.run_once()
    epochs = stage.partition.fence.epoch
    stage.world.run(2)
    assert (waited, stage.world.commits(), stage.partition.fence.epoch) == ((False, True), {0: MANY}, epochs)


def test_of_two_commits_that_come_in_the_wrong_order_the_newer_one_counts() -> None:
    """1. What was finished later is marked; 2. a worker has the next answer committed; 3. the first one is handed in."""
    stage = Stage()
    parts, partition = stage.consumer.channel.parts, stage.partition
    stage.work()
    older = partition.position.advance(7)
    newer = partition.position.advance(MANY)
    parts.committer.submit(Pending(parts, partition, newer))
    parts.committer.submit(Pending(parts, partition, older))
    stage.world.run(1)
    late = partition.position.advance(MANY)
    parts.committer.submit(Pending(parts, partition, late))
    stage.world.run(1)
    parts.committer.submit(Pending(parts, partition, older))
    stage.world.run(1)
    assert stage.world.commits() == {0: MANY}


def test_a_commit_that_comes_while_a_newer_one_is_in_flight_is_not_sent_after_it() -> None:
    """The commit would go back, and what waits until the newest one has landed would wait forever."""
    stage = Stage()
    parts, partition = stage.consumer.channel.parts, stage.partition
    stage.work()
    stage.world.run(1)
    older = partition.position.advance(7)
    newer = partition.position.advance(MANY)
    parts.committer.submit(Pending(parts, partition, newer))
    parts.committer.run_once()
    in_flight = parts.committer._call is not None
    parts.committer.submit(Pending(parts, partition, older))
    stage.world.run(1)
    assert (in_flight, stage.world.commits(), partition.position.settled) == (True, {0: MANY}, True)


def test_a_commit_that_comes_late_does_not_make_a_newer_one_forget_that_it_went_without_an_answer() -> None:
    """What was sent before may still execute: the epoch has to be read, and moved on, before anything is sent again."""
    stage = Stage()
    parts, partition = stage.consumer.channel.parts, stage.partition
    committer = parts.committer
    stage.work()
    stage.world.run(1)
    older = partition.position.advance(7)
    newer = partition.position.advance(MANY)
    committer.submit(Pending(parts, partition, newer))
    committer.run_once()
    assert committer._call is not None
    committer._call.fail(ZkAmbiguousError("the connection was lost"))
    committer.run_once()
    committer.submit(Pending(parts, partition, older))
    waits = committer._queue[partition]
    assert (waits.offset, waits.unanswered, waits.unread) == (MANY, MANY, True)


def test_a_closed_channel_has_nothing_more_sent() -> None:
    """Its ledger is closed, too: what is left would be tried forever."""
    stage = Stage()
    stage.work()
    stage.consumer.channel.close()
    parts = stage.consumer.channel.parts
    parts.committer.run_once()
    assert (parts.committer.waiting(parts), stage.settled()[1:]) == (0, [])


def test_a_closed_channel_has_nothing_sent_again_that_was_in_flight() -> None:
    """Its partition was given up while the answer did not come; another channel on the connection goes on."""
    stage = Stage()
    stage.work()
    channel, committer = stage.consumer.channel, stage.consumer.channel.parts.committer
    committer.run_once()
    call = committer._call
    assert call is not None
    channel.close()
    call.fail(ZkAmbiguousError("the connection was lost"))
    committer.run_once()
    assert committer.waiting(channel.parts) == 0


def test_a_callback_that_is_set_on_the_processor_itself_gets_commits() -> None:
    """The class was asked whether it takes them, and a function that `open` had put there was never called."""
    told: list[int] = []

    class Sets(Recording):
        on_batch_processed = BatchEventProcessor.on_batch_processed  # type: ignore[assignment]

        def open(self, context: object) -> None:
            self.on_batch_processed = lambda batch: told.append(batch.next_offset)  # type: ignore[method-assign]

    stage = Stage(Sets())
    stage.consumer.channel.open()
    stage.work()
    stage.world.run(1)
    assert told == list(range(2, MANY + 1, 2))


def test_a_round_sends_each_partition_once_however_fast_new_commits_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """One commit fits into a transaction; while each is on its way both partitions have more to commit."""
    monkeypatch.setattr(committer_module, "MAX_TRANSACTION_OPS", 2)
    world = World()
    world.kafka.create_topic("orders", 2)
    parts = world.join("a").channel.parts
    world.run(4)
    committer, partitions = parts.committer, parts.schedule.held()
    committer.interval = 1.0
    sent_before = parts.transactions
    for offset in range(1, 5):
        for partition in partitions:
            partition.position.delivered = offset
            committer.submit(Pending(parts, partition, partition.position.advance(offset)))
        due = committer.run_once()
        world.ensemble.deliver_all()
    assert parts.transactions - sent_before == 2
    assert due is not None
    assert due > world.clock.now() + 0.5
