"""The open events of one partition, in order.

Pure: no I/O, no clock.

An event is open from its admission until it is finished (delivered, dead-lettered, or passed over). Those of one lane
go one after the other: a lane is the whole partition, or one record key; without order every event has its own.

Of a partition whose events wait for their time, admitted ones are held first, in offset order: they are in no lane until
they are let go.

The window counts from the group's commit, not from the first open event: what is finished behind an open one is sent
again after a crash just as what is in flight. What is passed over is not sent, so it does not count; it is read again,
and has a bound of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal

from inbound.processors.batch import Record

Ordering = Literal["partition", "key", "none"]

#: Records of a partition that are passed over and stand behind the group's commit, at most.
MOST_PASSED_OVER = 10_000


class Lane:
    """What must go one after the other."""

    __slots__ = ("key", "out", "waiting")

    def __init__(self, key: bytes | None) -> None:
        self.key = key
        self.out = 0  # events of it that are being sent, in one request
        self.waiting: deque[OpenEvent] = deque()


class OpenEvent:
    """One open event."""

    __slots__ = ("finished", "lane", "payload", "record")

    def __init__(self, record: Record, lane: Lane | None = None) -> None:
        self.record = record
        self.lane = lane  # None: nothing need wait for it
        self.finished = False
        self.payload: object = None  # its encoded form in a batch

    @property
    def offset(self) -> int:
        return self.record.offset


class SendWindow:
    """The open events of one partition, from one claim of it."""

    def __init__(self, size: int, ordering: Ordering) -> None:
        """`size` is how many events there may be behind the group's commit that were admitted."""
        self.size = size
        self.ordering: Ordering = ordering
        self.wanted: Ordering = ordering  # taken on when nothing is open any more
        self.next_offset = 0  # the end of what was admitted
        self.in_flight = 0
        self.unsent = 0  # admitted and not taken
        self.passed = 0  # events that the front has passed
        self._open: deque[OpenEvent] = (
            deque()
        )  # in offset order; finished ones in between stay until those before them are
        self._admitted: deque[int] = deque()  # offsets behind the commit
        #: What was passed over behind the commit: of each batch its last offset, and how many; and all together.
        self._passed_over: deque[tuple[int, int]] = deque()
        self._passed_over_records = 0
        self._ready: deque[OpenEvent] = deque()
        self._lanes: dict[bytes | None, Lane] = {}
        self._held: deque[OpenEvent] = deque()

    @property
    def held(self) -> Record | None:
        """The first record that is held; those behind it wait for it."""
        return self._held[0].record if self._held else None

    @property
    def front(self) -> int:
        """The offset of the first open event; without one, the end of what was admitted."""
        return self._open[0].record.offset if self._open else self.next_offset

    @property
    def open(self) -> int:
        """How many events are not finished, or stand behind one that is not."""
        return len(self._open)

    @property
    def ready(self) -> bool:
        """Whether an event waits for nothing but to be sent."""
        return bool(self._ready)

    @property
    def room_left(self) -> bool:
        """Whether more records may come before another commit; as of the last look."""
        return len(self._admitted) < self.size and self._passed_over_records < MOST_PASSED_OVER

    def room(self, committed: int) -> int:
        """Return how many more records may be admitted, with the group's commit at `committed`."""
        admitted = self._admitted
        while admitted and admitted[0] < committed:
            admitted.popleft()
        while self._passed_over and self._passed_over[0][0] < committed:
            self._passed_over_records -= self._passed_over.popleft()[1]
        if self.wanted != self.ordering:
            if self._open:
                return 0  # the old order counts for what is open, the new one for what comes
            self.ordering = self.wanted
        return max(0, min(self.size - len(admitted), MOST_PASSED_OVER - self._passed_over_records))

    def admit(
        self, records: Sequence[Record], next_offset: int, *, hold: bool = False, pass_over: Collection[int] = ()
    ) -> None:
        """Open these, in offset order; the offset to read after them is `next_offset`.

        With `hold` they wait for `let_go`. Those with offsets in `pass_over` are not opened: they are finished as they stand.
        """
        for record in records:
            if record.offset in pass_over:
                continue
            entry = OpenEvent(record)
            self._open.append(entry)
            self._admitted.append(record.offset)
            if hold:
                self._held.append(entry)
            else:
                self._line_up(entry)
        if pass_over:
            self._passed_over.append((max(pass_over), len(pass_over)))
            self._passed_over_records += len(pass_over)
        self.next_offset = next_offset

    def let_go(self) -> None:
        """The time of the first held event has come."""
        self._line_up(self._held.popleft())

    def _line_up(self, entry: OpenEvent) -> None:
        record = entry.record
        self.unsent += 1
        if self.ordering == "none" or (self.ordering == "key" and record.key is None):
            self._ready.append(entry)
            return
        key = record.key if self.ordering == "key" else None
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key)
        entry.lane = lane
        if lane.out or lane.waiting:
            lane.waiting.append(entry)
        else:
            self._ready.append(entry)
            lane.out = 1  # reserved: the next of its lane waits

    def take(self) -> OpenEvent | None:
        """Return an event to be sent now, or None."""
        if not self._ready:
            return None
        self.in_flight += 1
        self.unsent -= 1
        return self._ready.popleft()

    def take_more(self, first: OpenEvent, fits: Callable[[OpenEvent], bool]) -> list[OpenEvent]:
        """Return what may go with `first` in one request, as long as each `fits`: lane by lane, each in its order."""
        taken: list[OpenEvent] = []
        entry: OpenEvent = first
        while True:
            lane = entry.lane
            while lane is not None and lane.waiting:
                if not fits(lane.waiting[0]):
                    return self._out(taken)
                taken.append(lane.waiting.popleft())
                lane.out += 1
            if not self._ready or not fits(self._ready[0]):
                return self._out(taken)
            entry = self._ready.popleft()
            taken.append(entry)

    def finish(self, entry: OpenEvent) -> None:
        """Close an event that was taken; the next of its lane may go when the last of its request is closed."""
        entry.finished = True
        self.in_flight -= 1
        lane = entry.lane
        if lane is not None:
            lane.out -= 1
            if not lane.out:
                if lane.waiting:
                    lane.out = 1
                    self._ready.append(lane.waiting.popleft())
                else:
                    del self._lanes[lane.key]
        self._pass()

    def _pass(self) -> None:
        opened = self._open
        while opened and opened[0].finished:
            opened.popleft()
            self.passed += 1

    def close(self) -> None:
        """Send nothing more; events in flight may still be finished."""
        self._ready.clear()
        self._held.clear()
        self.unsent = 0
        for lane in self._lanes.values():
            lane.waiting.clear()

    def _out(self, taken: list[OpenEvent]) -> list[OpenEvent]:
        self.in_flight += len(taken)
        self.unsent -= len(taken)
        return taken


def offsets(entries: Iterable[OpenEvent]) -> str:
    """Return the offsets of these for a message: `17`, or `17 to 116 (100 events)`."""
    found = [entry.offset for entry in entries]
    return str(found[0]) if len(found) == 1 else f"{min(found)} to {max(found)} ({len(found)} events)"


#: Events that go together, and what their sender keeps with them.
RequestPart = tuple[list[OpenEvent], int]


def in_turn(parts: Sequence[RequestPart]) -> list[list[RequestPart]]:
    """Return chains of these parts, which are in order: all chains at once, the parts of each one after the other.

    Parts that share a lane are in one chain; the first chain begins with the first part.
    """
    chains: dict[int, list[RequestPart]] = {}  # by the number of the first part
    chain_of: dict[Lane, int] = {}
    for number, part in enumerate(parts):
        lanes = {entry.lane for entry in part[0] if entry.lane is not None}
        first, *others = sorted({chain_of[lane] for lane in lanes if lane in chain_of}) or [number]
        chain = chains.setdefault(first, [])
        for other in others:
            chain += chains.pop(other)
            chain_of.update({lane: first for lane, at in chain_of.items() if at == other})
        chain.append(part)
        chain_of.update(dict.fromkeys(lanes, first))
    return list(chains.values())
