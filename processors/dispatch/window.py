"""The open events of one partition, in order. Pure, without a clock.

An event is open from its admission until it is finished (delivered, dead-lettered, or passed over). The events of one lane are
sent one after the other: a lane is the whole partition, or one record key; without order each event has its own.

In a partition whose events wait to be due, admitted events are held first, in offset order, and enter a lane when they are
released.

The window counts from the group's commit, not from the first open event: a crash redelivers events that are finished behind an
open one as well as those in flight. Passed-over records are not sent, so they do not count; they are read again, and have their
own bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal

from inbound.processors.batch import Record

Ordering = Literal["partition", "key", "none"]

#: The most passed-over records of a partition behind the group's commit.
MOST_PASSED_OVER = 10_000


class Lane:
    """Events that must be sent one after the other."""

    __slots__ = ("key", "out", "waiting")

    def __init__(self, key: bytes | None) -> None:
        self.key = key
        self.out = 0  # its events in flight, in one request
        self.waiting: deque[OpenEvent] = deque()


class OpenEvent:
    """One open event."""

    __slots__ = ("finished", "lane", "payload", "record")

    def __init__(self, record: Record, lane: Lane | None = None) -> None:
        self.record = record
        self.lane = lane  # None: no event waits for it
        self.finished = False
        self.payload: object = None  # its encoded form in a batch

    @property
    def offset(self) -> int:
        return self.record.offset


class SendWindow:
    """The open events of one partition, from one claim of it."""

    def __init__(self, size: int, ordering: Ordering) -> None:
        """`size` is the most admitted events behind the group's commit."""
        self.size = size
        self.ordering: Ordering = ordering
        self.wanted: Ordering = ordering  # becomes `ordering` when nothing is open
        self.next_offset = 0  # the end of the admitted events
        self.in_flight = 0
        self.unsent = 0  # admitted and not taken
        self.passed = 0  # events that the front has passed
        #: In offset order; finished events stay until all before them are finished.
        self._open: deque[OpenEvent] = deque()
        self._admitted: deque[int] = deque()  # offsets behind the commit
        #: Passed-over records behind the commit: last offset and number of each batch; and the total.
        self._passed_over: deque[tuple[int, int]] = deque()
        self._passed_over_records = 0
        self._ready: deque[OpenEvent] = deque()
        self._lanes: dict[bytes | None, Lane] = {}
        self._held: deque[OpenEvent] = deque()

    @property
    def held(self) -> Record | None:
        """The first held record; the others wait behind it."""
        return self._held[0].record if self._held else None

    @property
    def front(self) -> int:
        """The offset of the first open event, or `next_offset`."""
        return self._open[0].record.offset if self._open else self.next_offset

    @property
    def open(self) -> int:
        """The number of unfinished events, and finished ones behind them."""
        return len(self._open)

    @property
    def ready(self) -> bool:
        """Whether an event can be sent now."""
        return bool(self._ready)

    @property
    def room_left(self) -> bool:
        """Whether more records may be admitted, since the last `room`."""
        return len(self._admitted) < self.size and self._passed_over_records < MOST_PASSED_OVER

    def room(self, committed: int) -> int:
        """Return how many more records may be admitted after this commit."""
        admitted = self._admitted
        while admitted and admitted[0] < committed:
            admitted.popleft()
        while self._passed_over and self._passed_over[0][0] < committed:
            self._passed_over_records -= self._passed_over.popleft()[1]
        if self.wanted != self.ordering:
            if self._open:
                return 0  # open events keep the old order, later ones get the new one
            self.ordering = self.wanted
        return max(0, min(self.size - len(admitted), MOST_PASSED_OVER - self._passed_over_records))

    def admit(
        self, records: Sequence[Record], next_offset: int, *, hold: bool = False, pass_over: Collection[int] = ()
    ) -> None:
        """Open these records, in offset order, up to `next_offset`.

        With `hold` they wait for `let_go`. Records with offsets in `pass_over` are not opened: they count as finished.
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
        """Release the first held event, which is due."""
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
            lane.out = 1  # so the next event of its lane waits

    def take(self) -> OpenEvent | None:
        """Return an event to send now, or None."""
        if not self._ready:
            return None
        self.in_flight += 1
        self.unsent -= 1
        return self._ready.popleft()

    def take_more(self, first: OpenEvent, fits: Callable[[OpenEvent], bool]) -> list[OpenEvent]:
        """Return the events that go with `first` while each `fits`.

        They are in the order of their lanes, one lane after the other.
        """
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
        """Finish a taken event; after its request, its lane goes on."""
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
    """Return offsets for a message: `17`, or `17 to 116 (100 events)`."""
    found = [entry.offset for entry in entries]
    return str(found[0]) if len(found) == 1 else f"{min(found)} to {max(found)} ({len(found)} events)"


#: Events that are sent together, with a number of their sender.
RequestPart = tuple[list[OpenEvent], int]


def in_turn(parts: Sequence[RequestPart]) -> list[list[RequestPart]]:
    """Return these ordered parts in chains that can be sent at once.

    The parts of a chain are sent one after the other. Parts that share a lane are in one chain; the first chain begins with the
    first part.
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
