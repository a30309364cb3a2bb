"""What comes of an answer: where the partition reads on, what is committed, and when it is due again."""

from __future__ import annotations

import logging

from inbound.channel.answer import Outcome
from inbound.channel.books import Books
from inbound.channel.buffer import Chunk, Cut, record_size
from inbound.channel.commit import ChannelCommits, Pending
from inbound.channel.committer import Committer
from inbound.channel.out_of_range import known_cut
from inbound.channel.partition import Partition, Place
from inbound.channel.reader import Reader
from inbound.channel.schedule import NEVER, Schedule
from inbound.channel.settings import Settings
from inbound.clock import Clock
from inbound.journal import Journal
from inbound.meters import Meters
from inbound.processors.base import BatchEventProcessor, hears_of_commits
from inbound.processors.batch import Batch

#: A rest that is asked for is noted from so many seconds on.
LONG_WAIT = 1.0
#: What waits to be told of its commit is kept, with its records: of all partitions as much as is read ahead, of one no more
#: than this part of it. Then all that is on its way lands first.
KEPT = 8
#: Who goes back to the same offset, and commits nothing, gets the batch at once so many times. Then it rests so many seconds at
#: least, doubling to the longest: it would take a core, and write megabytes of ledger a second.
FREE_REVERTS, SHORTEST_REST, LONGEST_REST = 10, 0.01, 1.0


class Outcomes:
    """Carries out what was answered for partitions that are running. By whoever has them."""

    def __init__(
        self, *, settings: Settings, clock: Clock, journal: Journal, meters: Meters, books: Books, schedule: Schedule,
        committer: Committer, commits: ChannelCommits, reader: Reader,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._clock = clock
        self._journal = journal
        self._meters = meters
        self._books = books
        self._schedule = schedule
        self._committer = committer
        self._commits = commits
        self._reader = reader

    def apply(
        self, partition: Partition, outcome: Outcome, batch: Batch | None, cut: Cut | None, reason: str = "processor"
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
            self._journal.note(
                "waited", f"the processor asked for {outcome.wait:.1f} s before the next read", partition.tp,
                epoch=partition.fence.epoch, level=logging.DEBUG,
            )  # fmt: skip
        # What it went back to may have no records: then nothing is handed out again.
        went_back = outcome.reverted_from is not None and outcome.reverted_from != partition.position.delivered
        if outcome.skipped is not None or went_back:
            self.note(partition, outcome, reason)
        wait = outcome.wait
        if outcome.reverted_from is not None and partition.failure.reverts > FREE_REVERTS:
            wait = max(
                wait, min(LONGEST_REST, SHORTEST_REST * 2 ** min(10, partition.failure.reverts - FREE_REVERTS - 1))
            )
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
            self._schedule.await_records(partition, partition.quiet.idle_since + self._settings.now.idle_time)

    def commit(self, partition: Partition, offset: int, batch: Batch | None = None, size: int = 0) -> None:
        """Have what is before `offset` committed; the caller passes the partition on. `size`: of the batch's records, in bytes."""
        cut, advanced = known_cut(partition), partition.position.advanced
        if cut is not None and cut < offset:
            if advanced is not None and cut <= advanced:
                return  # nothing of what it is about is there
            offset = cut
        settled = partition.position.settled
        mark = self._schedule.advance(partition, offset)
        if mark is None:
            return
        pending = Pending(self._commits, partition, mark)
        if batch is not None:
            pending.of_batch, server = batch.first_offset, server_of(partition)
            if hears_of_commits(server):  # else its records need not be kept until then
                pending.to_tell.append((server, batch))
                partition.kept_bytes = size if settled else partition.kept_bytes + size
        self._committer.submit(pending)

    def limit(self, partition: Partition) -> int:
        """Return how many records may be on their way to the commit when the next batch is handed out."""
        config, advanced, position = self._settings.now, partition.position.advanced, partition.position.delivered
        kept = partition.kept_bytes
        if (
            position < partition.failure.isolate_until
            # Reading has gone back below what is on its way to the commit: a crash would repeat what is read now, too.
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
            # Still in memory: hand it out again without asking Kafka.
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

    def note(self, partition: Partition, outcome: Outcome, reason: str = "processor") -> None:
        """Tell ledger and journal where it skips, or goes back."""
        epoch = partition.fence.epoch
        if outcome.skipped is not None:
            low, high = outcome.skipped
            self._books.note("skip", partition.tp, epoch, from_=low, to=high, reason="processor")
            self._journal.note(
                "skipped", f"the processor skipped offsets {low} to {high - 1}", partition.tp, offset=low, epoch=epoch
            )
        elif outcome.reverted_from is not None:
            self._meters.reverts.add(reason)
            self._books.note(
                "revert", partition.tp, epoch, from_=outcome.reverted_from, to=outcome.position, reason=reason
            )
            partition.failure.reverted(outcome.position)
            if not partition.failure.attempts and not partition.failure.isolate_until:  # a failure has been told
                self._journal.note(
                    "reverted", f"the processor went back from {outcome.reverted_from} to {outcome.position}", partition.tp,
                    offset=outcome.position, epoch=epoch,
                )  # fmt: skip


def server_of(partition: Partition) -> BatchEventProcessor:
    """Return the processor that a partition's callbacks go to; from its first turn on."""
    assert partition.served_by is not None
    return partition.served_by
