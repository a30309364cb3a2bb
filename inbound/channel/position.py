"""Where a partition stands in its log: what is read, delivered, advanced over and committed."""

from __future__ import annotations

from typing import NamedTuple

from inbound.channel.window import Window


class ReadTo(NamedTuple):
    """Up to where a log was read, and under which leader the end of that was written, as Kafka counts leaders.

    A log that was cut before an offset up to there says so to who names the leader (see `LogClient.read`).
    """

    offset: int
    leader_epoch: int


def read_to(offset: int | None, leader_epoch: int | None) -> ReadTo | None:
    """Return that; None where one of them is not known."""
    return None if offset is None or leader_epoch is None else ReadTo(offset, leader_epoch)


class Position(Window):
    """Four offsets: `read`, `delivered`, `advanced` and `committed`. What is before each was.

    The last two, and what lies between them, are the commit window's. What is read and not delivered is in the buffer; what
    is delivered and not advanced over, the processor keeps. Fields are written by who has the partition in its place.
    """

    __slots__ = (
        "commit_due",
        "deferred",
        "delivered",
        "finished",
        "given_start",
        "high_watermark",
        "placed",
        "read",
    )

    def __init__(self, committed: int | None, *, delivered: int = 0, read: ReadTo | None = None) -> None:
        super().__init__(committed)
        self.delivered = delivered  # the next offset to deliver
        self.read = read  # None: not known. Replaced by the reader, and by who moves the position over a cut
        self.high_watermark: int | None = None
        self.deferred: int | None = None  # what is before it may be committed, and is at `commit_due` at the latest
        self.commit_due = float("inf")  # clock time
        #: Told by the processor when nobody expects it, and so under the schedule's lock: what is before it is finished.
        self.finished: int | None = None
        self.placed = False  # the processor was asked where this claim begins; looked at only where it wants to be
        self.given_start: int | None = None  # what it said, until that is committed; None: the group's commit

    def leader_epoch_at(self, offset: int) -> int | None:
        """Return what the brokers are to compare with who reads on at `offset`; None: nothing is known."""
        read = self.read
        return read.leader_epoch if read is not None and offset <= read.offset else None

    def defer_commit(self, offset: int, due: float) -> None:
        """Note that what is before `offset` is to be committed at `due`, or earlier if that was said before."""
        if self.advanced is None or offset > self.advanced:
            # What is finished before its time is no reason to forget what may be committed beyond it.
            self.deferred, self.commit_due = max(offset, self.deferred or 0), min(self.commit_due, due)

    def limit_deferred(self, offset: int) -> None:
        """Forget of a deferred commit what goes beyond `offset`: from there on it is read again."""
        if self.deferred is not None and offset < self.deferred:
            if self.advanced is not None and offset > self.advanced:
                self.deferred = offset
            else:
                self.take_deferred()

    def take_deferred(self) -> int | None:
        """Return the offset to commit, if a commit was deferred; from here on none is."""
        offset, self.deferred, self.commit_due = self.deferred, None, float("inf")
        return offset
