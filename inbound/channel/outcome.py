"""Carries out the outcome of a processor's answer: moves, commits, waits."""

from __future__ import annotations

import logging

from inbound.channel.commit import Pending
from inbound.channel.parts import Parts
from inbound.channel.reader import Reader
from inbound.channel.response import Decision
from inbound.partition.buffer import Chunk, Cut, record_size
from inbound.partition.partition import Partition, Place
from inbound.partition.schedule import NEVER
from inbound.processors.base import BatchEventProcessor, acts_on_commits
from inbound.processors.batch import Batch
from inbound.runtime.backoff import Backoff

#: Seconds from which on a requested wait is noted in the journal.
LONG_WAIT = 1.0
#: Batches that wait for on_batch_processed keep their records: all partitions together as much as `prefetch_bytes`, one at
#: most this part of it. Beyond it the commits in flight land first.
KEPT = 8
#: A processor that reverts to the same offset, without a commit, gets the batch at once so many times. Then it backs off: else
#: it would use up a core, and write megabytes of ledger a second.
FREE_REVERTS, REST = 10, Backoff(0.01, 1.0)


class Outcomes:
    """Carries out answers for running partitions. Called by their owner."""

    def __init__(self, parts: Parts, reader: Reader) -> None:
        self._parts = parts
        self._clock = parts.clock
        self._schedule = parts.schedule
        self._reader = reader

    def apply(
        self, partition: Partition, outcome: Decision, batch: Batch | None, cut: Cut | None, reason: str = "processor"
    ) -> None:
        """Carry an outcome out, and pass the partition on."""
        if partition.place is Place.ABANDONED:
            self._schedule.put_back(partition, NEVER)  # its callback has ended; the answer comes too late
            return
        if outcome.position != partition.position.delivered:
            self._move_to(partition, outcome.position, batch, cut)
        if outcome.max_bytes is not None:
            partition.max_bytes = outcome.max_bytes
        if outcome.wait >= LONG_WAIT and not partition.failure.attempts:
            self._parts.journal.note(
                "waited", f"the processor asked for {outcome.wait:.1f} s before the next read", partition.tp,
                epoch=partition.fence.epoch, level=logging.DEBUG,
            )  # fmt: skip
        # Where it went back to there may be no records: then nothing is redelivered.
        went_back = outcome.reverted_from is not None and outcome.reverted_from != partition.position.delivered
        if outcome.skipped is not None or went_back:
            self.note(partition, outcome, reason)
        wait = outcome.wait
        if outcome.reverted_from is not None:
            wait = max(wait, REST.delay(partition.failure.reverts - FREE_REVERTS))
        partition.rest_until = self._clock.now() + wait if wait else 0.0
        if partition.position.deferred is not None:
            partition.position.limit_deferred(outcome.position)
        if outcome.commit_within is not None:
            partition.position.defer_commit(outcome.position, self._clock.now() + outcome.commit_within)
        if outcome.commit is not None:
            partition.position.take_deferred()
            partition.failure.reverts, partition.failure.reverted_to = 0, None
            self.commit(partition, outcome.commit, batch, cut.size if cut is not None else 0)
        limit = self.limit(partition)
        if not partition.position.is_open(limit):
            self._schedule.settle(partition, within=limit)
        elif partition.rest_until or partition.buffer or batch is None:
            self._schedule.put_back(partition, partition.rest_until or self._clock.now())
        else:
            partition.quiet.idle_since = self._clock.now()
            self._schedule.await_records(partition, partition.quiet.idle_since + self._parts.settings.now.idle_time)

    def commit(self, partition: Partition, offset: int, batch: Batch | None = None, size: int = 0) -> None:
        """Commit records before `offset`; the caller passes the partition on.

        `size`: of the batch's records, in bytes.
        """
        cut, advanced = partition.known_cut(), partition.position.advanced
        if cut is not None and cut < offset:
            if advanced is not None and cut <= advanced:
                return  # none of its records is there
            offset = cut
        settled = partition.position.settled
        mark = self._schedule.advance(partition, offset)
        if mark is None:
            return
        pending = Pending(self._parts, partition, mark)
        if batch is not None:
            pending.of_batch, server = batch.first_offset, server_of(partition)
            if acts_on_commits(server):  # else its records need not be kept until then
                pending.to_tell.append((server, batch))
                partition.kept_bytes = size if settled else partition.kept_bytes + size
        self._parts.committer.submit(pending)

    def limit(self, partition: Partition) -> int:
        """Return how many records may be uncommitted at the next delivery."""
        config, advanced, position = self._parts.settings.now, partition.position.advanced, partition.position.delivered
        kept = partition.kept_bytes
        if (
            position < partition.failure.isolate_until
            # Reading has gone back below the commits in flight: a crash would repeat the records read now, too.
            or (advanced is not None and position < advanced)
            or partition.noted
            or (kept and kept > config.reader.prefetch_bytes // max(KEPT, self._schedule.count))
            or server_of(partition).commits_first
        ):
            return 0
        return config.max_uncommitted_records

    def _move_to(self, partition: Partition, target: int, batch: Batch | None, cut: Cut | None) -> None:
        partition.position.delivered = target
        partition.position.go_back(target)
        if batch is not None and cut is not None and batch.first_offset <= target < batch.next_offset:
            # Still in memory: redeliver it without asking Kafka.
            rest = [record for record in cut.records if record.offset >= target]
            if rest:
                partition.buffer.put_back(Chunk(rest, cut.next_offset, sum(map(record_size, rest))))
            else:
                partition.position.delivered = batch.next_offset  # only offsets without records are left of it
            return
        partition.failure.isolate_until = 0
        partition.buffer.jump()
        partition.problem = None  # it was about the position before the jump
        self._reader.jump(partition)

    def note(self, partition: Partition, outcome: Decision, reason: str = "processor") -> None:
        """Note skips and reverts in ledger and journal."""
        epoch = partition.fence.epoch
        if outcome.skipped is not None:
            low, high = outcome.skipped
            self._parts.ledger_notes.note("skip", partition.tp, epoch, from_=low, to=high, reason="processor")
            self._parts.journal.note(
                "skipped", f"the processor skipped offsets {low} to {high - 1}", partition.tp, offset=low, epoch=epoch
            )
        elif outcome.reverted_from is not None:
            self._parts.meters.reverts.add(reason)
            self._parts.ledger_notes.note(
                "revert", partition.tp, epoch, from_=outcome.reverted_from, to=outcome.position, reason=reason
            )
            partition.failure.reverted(outcome.position)
            if not partition.failure.attempts and not partition.failure.isolate_until:  # a failure has been told
                self._parts.journal.note(
                    "reverted", f"the processor went back from {outcome.reverted_from} to {outcome.position}", partition.tp,
                    offset=outcome.position, epoch=epoch,
                )  # fmt: skip


def server_of(partition: Partition) -> BatchEventProcessor:
    """Return the processor that serves a partition, from its first turn on."""
    assert partition.served_by is not None
    return partition.served_by
