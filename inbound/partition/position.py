"""A partition's offsets: read, delivered, advanced over and committed. Pure.

After a crash the deliveries without a landed commit are repeated: the batch in hand, and the commit window before it.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from inbound.kafka.base import ReadTo

#: Uncommitted batches that are kept apart, at about 150 bytes each. Beyond it each two of them count as one.
MOST_BATCHES = 10_000


class Mark(NamedTuple):
    """One commit of a partition, numbered in the order of requests."""

    order: int
    offset: int
    surely: int  # records delivered in the claim before that offset, at least: it may divide a batch


class Position:
    """Four offsets of a partition: `read`, `delivered`, `advanced` and `committed`.

    The records before each of them were read, delivered, and so on. Between the last two is the commit window: a
    processor has answered for it, and its commit has not landed. Records that are read and not delivered are in the
    buffer; the processor keeps those that are delivered and not advanced over.

    The committer calls `land` under the schedule's lock; the owner of the partition's place calls everything else, or a
    caller under that lock where no other has the partition.
    """

    __slots__ = (
        "_base", "_handed", "_order", "_records", "_records_landed", "_total", "advanced", "commit_due", "committed", "deferred",
        "delivered", "finished", "given_start", "high_watermark", "landed_order", "placed", "read",
    )  # fmt: skip

    def __init__(self, committed: int | None, *, delivered: int = 0, read: ReadTo | None = None) -> None:
        self.committed = committed  # the offset in ZooKeeper, as far as we know
        self.advanced = committed  # records before it are committed, or their commit is in flight; never withdrawn
        #: The batches that are not known to have landed: where each begins and ends, and the number of records delivered
        #: up to its end.
        self._handed: deque[tuple[int, int, int]] = deque()
        self._base = self._total = 0  # that number before the first of them, and after the last
        self._records = 0  # that number at `advanced`, at most, and at the newest offset that landed, at least
        self._records_landed = 0
        self._order = 0
        self.landed_order = 0
        self.delivered = delivered  # the next offset to deliver
        self.read = read  # None: not known. Replaced by the reader, and where the position moves over a cut
        self.high_watermark: int | None = None
        self.deferred: int | None = None  # records before it may be committed, and are at `commit_due` at the latest
        self.commit_due = float("inf")  # clock time
        #: All records before it are finished. Set at any time, under the schedule's lock.
        self.finished: int | None = None
        self.placed = False  # the processor was asked for a start; used only for processors that give starts
        self.given_start: int | None = None  # the start that it gave, until that is committed; None: the group's commit

    # -- the commit window --------------------------------------------------------------------------------------------

    def deliver(self, first: int, end: int, records: int) -> None:
        """Note a batch from `first` up to, but without, `end`."""
        while self._handed and self.committed is not None and self._handed[0][1] <= self.committed:
            self._base = self._handed.popleft()[2]
        self._total += records
        self._handed.append((first, end, self._total))
        if len(self._handed) > MOST_BATCHES:
            batches = list(self._handed)
            pairs = zip(batches[:-1:2], batches[1::2], strict=False)
            self._handed = deque((first, end, total) for (first, _, _), (_, end, total) in pairs)
            self._handed.extend(batches[2 * len(self._handed) :])

    def go_back(self, offset: int) -> None:
        """Note that records from `offset` on are redelivered."""
        while self._handed and self._handed[-1][1] > offset:
            first = self._handed[-1][0]
            divided = (first, offset, self._counted(offset)[1]) if first < offset else None
            self._handed.pop()
            if divided is not None:
                self._handed.append(divided)
        self._total = max(self._handed[-1][2] if self._handed else self._base, self._records)

    def advance(self, offset: int) -> Mark:
        """Note that the records before `offset` are to be committed."""
        self.advanced = offset
        surely, most = self._counted(offset)
        self._records = max(self._records, most)
        self._order += 1
        return Mark(self._order, offset, surely)

    def _counted(self, offset: int) -> tuple[int, int]:
        """Return how many records were delivered before `offset`: at least, at most.

        In a batch that it divides, each offset may have a record, on either side.
        """
        behind, before = None, self._base
        for batch in reversed(self._handed):  # the newest first: mostly the answer is for it
            if batch[1] <= offset:
                before = batch[2]
                break
            behind = batch
        if behind is None:
            return self._total, self._total
        first, end, total = behind
        records = min(total - before, end - first)
        most = total - records + min(records, max(0, offset - first))
        return total - min(records, end - max(first, offset)), most

    def land(self, mark: Mark) -> None:
        """Note that a commit landed.

        Where it divides a batch, the rest of that may be finished by now: 1. Of 0 to 3, 0 and 1 are finished, and 2 is
        committed; 2. the others are, too; 3. 2 lands: two records are in flight.
        """
        self.committed, self.landed_order, self._records_landed = mark.offset, mark.order, mark.surely

    def withdraw(self) -> None:
        """Note that no more commit will land: the partition is lost."""
        self.advanced, self._records_landed, self.landed_order = self.committed, self._records, self._order

    @property
    def settled(self) -> bool:
        """Whether no commit is in flight.

        By the order, and not by the offset: over a cut, `advanced` can equal the offset in ZooKeeper as far as we know,
        while a later commit, and the one that takes it back, are in flight.
        """
        return self.landed_order == self._order

    @property
    def uncommitted(self) -> int:
        """The number of records answered for and uncommitted, at most."""
        return 0 if self.settled else self._records - self._records_landed

    def is_open(self, limit: int) -> bool:
        """Whether another batch may be delivered.

        `limit` records may be in flight; 0: no commit may be.
        """
        return self.settled or 0 < limit >= self.uncommitted

    # -- where reading goes on ----------------------------------------------------------------------------------------

    def leader_epoch_at(self, offset: int) -> int | None:
        """Return the leader epoch for a read at `offset`. None: unknown."""
        read = self.read
        return read.leader_epoch if read is not None and offset <= read.offset else None

    def defer_commit(self, offset: int, due: float) -> None:
        """Have records before `offset` committed at `due`, or earlier."""
        if self.advanced is None or offset > self.advanced:
            # An offset finished before its time is no reason to forget a later one that may be committed.
            self.deferred, self.commit_due = max(offset, self.deferred or 0), min(self.commit_due, due)

    def limit_deferred(self, offset: int) -> None:
        """Cut a deferred commit at `offset`: records from there on are redelivered."""
        if self.deferred is not None and offset < self.deferred:
            if self.advanced is not None and offset > self.advanced:
                self.deferred = offset
            else:
                self.take_deferred()

    def take_deferred(self) -> int | None:
        """Return the deferred commit's offset, and forget it; None: there is none."""
        offset, self.deferred, self.commit_due = self.deferred, None, float("inf")
        return offset
