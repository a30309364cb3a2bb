"""Cursors and places of several channels in one partition: see `shared_log.py`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inbound.errors import UnreadableBatchError
from inbound.kafka.base import Fetched, LogClient
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from inbound.kafka.clients.shared_log import SharedLogClient

#: Decoded bytes of a partition that are kept for a lagging channel; the rest is fetched again for it.
KEPT = 4 * 2**20


@dataclass(eq=False, slots=True)
class FetchedChunk:
    """One poll's records of a partition."""

    at: int  # the position that they were fetched at
    before: int | None  # the leader epoch before `at`
    fetched: Fetched


@dataclass(eq=False)
class Cursor:
    """One partition as one client reads it."""

    tp: TopicPartition
    line: SharedClient
    position: int
    epoch: int | None  # the leader epoch before `position`, if known
    chunks: deque[FetchedChunk] = field(default_factory=deque)
    first: int = 0  # the number of the first chunk
    size: int = 0  # bytes of the chunks
    places: dict[ReadingPlace, None] = field(default_factory=dict)
    begun: bool = False  # its client reads the partition
    paused: bool = False
    #: Why reading cannot go on from `position`: see `Poll`.
    out_of_range: bool = False
    diverged: bool = False
    cut: int | None = None  # the offset of the cut, if it has diverged and the brokers know
    unreadable: UnreadableBatchError | None = None

    @property
    def next(self) -> int:
        """The number of the next chunk."""
        return self.first + len(self.chunks)

    @property
    def stands(self) -> bool:
        """Whether reading cannot go on from the position."""
        return self.out_of_range or self.diverged or self.unreadable is not None

    @property
    def wanted(self) -> bool:
        """Whether a channel takes more records, and none lags too far."""
        crowded = self.size > KEPT and any(not p.paused and p.number == self.first for p in self.places)
        return not crowded and any(not place.paused for place in self.places)

    def joint(self, position: int, epoch: int | None) -> int | None:
        """Return the chunk after `position` and `epoch`; None: maybe another log."""
        if self.stands:
            return None
        if position == self.position:
            return self.next if epoch in (None, self.epoch) else None
        for number, chunk in enumerate(self.chunks, self.first):
            if position == chunk.at:
                return number if epoch in (None, chunk.before) else None
            if chunk.at < position < chunk.fetched.next_offset:
                return number if epoch is None or epoch == chunk.before == chunk.fetched.leader_epoch else None
        return None

    def takes_in(self, fetched: Fetched) -> None:
        self.chunks.append(FetchedChunk(self.position, self.epoch, fetched))
        self.position, self.epoch = fetched.next_offset, fetched.leader_epoch
        self.size += fetched.size

    def let_go(self) -> None:
        """Drop chunks that all channels have taken, and lagging places."""
        while True:
            needed = min((place.number for place in self.places), default=self.next)
            while self.first < needed:
                self.size -= self.chunks.popleft().fetched.size
                self.first += 1
            late = [place for place in self.places if place.paused and place.number == self.first]
            if self.size <= KEPT or not late:
                return
            for place in late:
                del self.places[place]
                place.cursor = None


@dataclass(eq=False)
class ReadingPlace:
    """One channel's position in a partition."""

    view: SharedLogClient
    tp: TopicPartition
    position: int
    epoch: int | None
    cursor: Cursor | None = None  # None: the place looks for one when it wants records
    number: int = 0  # of the next chunk to take
    paused: bool = False
    awaits: float | None = None  # clock time by which the cursor should reach `position`; None: it has
    told: UnreadableBatchError | None = None

    def joins(self, cursor: Cursor, number: int, awaits: float | None = None) -> None:
        self.leaves()
        self.cursor, self.number, self.awaits = cursor, number, awaits
        cursor.places[self] = None
        self.view.news[self] = None
        if number < cursor.next and not self.paused:
            self.view.wakes_up()  # perhaps nothing more comes

    def leaves(self) -> None:
        cursor, self.cursor, self.awaits = self.cursor, None, None
        if cursor is not None:
            del cursor.places[self]
            cursor.let_go()

    def takes(self, cursor: Cursor) -> Fetched:
        """Take the next chunk, from `position` on."""
        chunk = cursor.chunks[self.number - cursor.first]
        fetched = chunk.fetched if chunk.at >= self.position else _from(self.position, chunk.fetched)
        self.number, self.position, self.epoch = self.number + 1, fetched.next_offset, fetched.leader_epoch
        cursor.let_go()
        return fetched


@dataclass(eq=False)
class SharedClient:
    """A client, and the partitions that it reads."""

    log: LogClient
    active_at: float  # the time of its last records, or of its last new or resumed partition
    cursors: dict[TopicPartition, Cursor] = field(default_factory=dict)
    alone_until: float = 0.0  # no poll before, unless it wakes us


def _from(position: int, fetched: Fetched) -> Fetched:
    """Return the records from a position on."""
    records = [record for record in fetched.records if record.offset >= position]
    size = fetched.size * len(records) // len(fetched.records) if fetched.records else 0
    return fetched._replace(records=records, size=size)
