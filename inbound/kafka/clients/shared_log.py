"""Reads a log once for several channels of a process.

`SharedLog` has the clients; a channel gets a `SharedLogClient` in place of one. A *cursor* is a partition as one client reads it,
with the fetched records that not every channel has taken yet. Each channel has a *place* in a partition: its own position, at
which it takes from a cursor, and its own pause. A client reads a partition at one position alone, so a place that no cursor
passes gets one on another client: it begins elsewhere, or lags so far that too many records would have to be kept.
A place that reaches another cursor joins that one, and a client that reads nothing is closed.

At one offset, two records of one leader epoch are the same. So a place joins a cursor at its offset if both know the same
epoch, or if the place knows none: otherwise its own cursor asks the brokers whether the log was cut, as a client does.

One thread uses it, except for `SharedLogClient.close`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from inbound.clock import Clock
from inbound.errors import BrokerUnavailableError
from inbound.kafka.base import NO_EPOCHS, BrokerFigures, LogClient, LogRange, Poll, TopicMeta
from inbound.kafka.clients.shared_cursor import Cursor, ReadingPlace, SharedClient
from inbound.topic_partition import TopicPartition

#: A place at most `NEAR` offsets before a cursor moves the cursor back; one at most `NEAR` behind it waits up to `ARRIVES`
#: seconds for the cursor: members that start after a crash begin close to each other.
NEAR, ARRIVES = 10_000, 1.0
#: A client that reads nothing is closed after this time. Seconds.
UNUSED = 10.0
#: All channels ask for topics every few seconds: they share an answer for this time. Seconds.
SAME_TOPICS = 0.5
#: A client without records for `IDLE_AFTER` seconds is polled when it wakes us, or after `IDLE_LOOK` seconds.
IDLE_AFTER, IDLE_LOOK = 1.0, 2.0
#: Interval of polls while the brokers are unavailable. Seconds.
RETRY = 0.5
#: With several clients a poll of one waits no longer. Seconds.
TURN = 0.005


class SharedLog:
    """Polls the clients of all its views."""

    def __init__(self, connect: Callable[[], LogClient], clock: Clock, wake: Callable[[], None]) -> None:
        """`wake` is called, from any thread, when `pump` has something to do."""
        self._connect = connect
        self._clock = clock
        self._wake = wake
        self._lines: list[SharedClient] = []
        self._views: list[SharedLogClient] = []
        self._cursors: dict[TopicPartition, list[Cursor]] = {}
        self._topics: dict[object, tuple[float, Mapping[str, TopicMeta]]] = {}
        self._asked: list[Callable[[], bool]] = []
        self._fetch_bytes = 0
        self.searching: dict[ReadingPlace, None] = {}  # places that look for a cursor, or wait for theirs

    def view(self) -> SharedLogClient:
        """Return a client for one more channel; may raise BrokerUnavailableError."""
        if not self._lines:
            self._add_line()
        view = SharedLogClient(self, self._lines[0].log)
        self._views.append(view)
        return view

    @property
    def unused(self) -> bool:
        """Whether every view is closed."""
        return all(view.closed for view in self._views)

    def close(self) -> None:
        """Close all clients."""
        for line in self._lines:
            line.log.close()
        self._lines.clear()

    def pump(self, seconds: float) -> float:
        """Poll the clients, `seconds` at most, and return the next due time.

        It wakes the views that get records.
        """
        for view in [view for view in self._views if view.closed]:
            self._views.remove(view)
            view.forget(list(view.places))
        try:
            self._find_cursors()
            self._settle()
        except BrokerUnavailableError as error:
            self._tell(self._views, error)
        wait = seconds if len(self._lines) == 1 else min(seconds, TURN)
        due = [self._poll(line, wait) for line in list(self._lines)]
        self._merge()
        self._close_unused()
        if self.searching:
            due.append(self._clock.now() + TURN)
        return min(due, default=self._clock.now() + IDLE_LOOK)

    def figures(self) -> list[BrokerFigures]:
        """Return the measurements of all clients. Any thread."""
        return [one for line in list(self._lines) for one in line.log.figures()]

    # -- for the views -------------------------------------------------------------------------------------------------

    @property
    def log(self) -> LogClient:
        """The client for questions that are not about positions."""
        return self._lines[0].log

    def topics(self, names: Collection[str], pattern: str | None) -> Mapping[str, TopicMeta]:
        """Return the brokers' last answer, or ask again if it is old."""
        now, key = self._clock.now(), (frozenset(names), pattern)
        asked = [answered for answered in self._asked if not answered()]
        if len(asked) < len(self._asked):
            self._topics.clear()  # another channel may have an older answer
        self._asked = asked
        known = self._topics.get(key)
        if known is None or self._asked or now >= known[0] + SAME_TOPICS:
            known = self._topics[key] = now, self.log.topics(names, pattern)
        return known[1]

    def ask_topics(self) -> Callable[[], bool]:
        """Ask the brokers for topics again."""
        self._topics.clear()
        answered = self.log.ask_topics()
        self._asked.append(answered)
        return answered

    def share_limits(self) -> None:
        """Bound fetches by the smallest limit of all channels; divide held bytes."""
        limit = min(view.fetch_bytes for view in self._views if view.fetch_bytes)
        if limit != self._fetch_bytes:
            self._fetch_bytes = limit
            for line in self._lines:
                line.log.limit_fetches(limit)
        held = sum(line.log.held_bytes for line in self._lines) // len(self._views)
        for view in self._views:
            view.held_bytes = held

    @property
    def aside_bytes(self) -> int:
        """One channel's share of the bytes aside."""
        return sum(line.log.aside_bytes for line in self._lines) // max(1, len(self._views))

    # -- cursors -------------------------------------------------------------------------------------------------------

    def _find_cursors(self) -> None:
        now = self._clock.now()
        for place in list(self.searching):
            if place.awaits is not None and now < place.awaits:
                continue
            alone = place.awaits is not None  # its cursor did not arrive in time
            place.leaves()
            if not place.paused and (alone or not self._join(place, now)):
                self._make(place)
            if place.awaits is None:
                self.searching.pop(place, None)

    def _join(self, place: ReadingPlace, now: float) -> bool:
        """Join a cursor at or near the position, if there is one."""
        cursors = self._cursors.get(place.tp, [])
        for cursor in cursors:
            number = cursor.joint(place.position, place.epoch)
            if number is not None:
                place.joins(cursor, number)
                return True
        for cursor in cursors:
            if cursor.stands or abs(place.position - cursor.position) > NEAR:
                continue
            if place.position > cursor.position:
                place.joins(cursor, cursor.next, now + ARRIVES)
                return True
            if not cursor.chunks:
                # All its places are at its position: they compare epochs when the cursor comes there again.
                for other in cursor.places:
                    other.awaits = now + ARRIVES
                    self.searching[other] = None
                cursor.position, cursor.epoch, cursor.begun = place.position, place.epoch, False
                place.joins(cursor, cursor.next)
                return True
        return False

    def _make(self, place: ReadingPlace) -> None:
        """Make a cursor for this place alone."""
        line = next((line for line in self._lines if place.tp not in line.cursors), None) or self._add_line()
        cursor = line.cursors[place.tp] = Cursor(place.tp, line, place.position, place.epoch)
        self._cursors.setdefault(place.tp, []).append(cursor)
        place.joins(cursor, cursor.next)

    def _add_line(self) -> SharedClient:
        line = SharedClient(self._connect(), self._clock.now())
        if self._fetch_bytes:
            line.log.limit_fetches(self._fetch_bytes)
        self._lines.append(line)
        return line

    def _settle(self) -> None:
        """Assign, pause and resume partitions of the clients."""
        for line in self._lines:
            cursors = list(line.cursors.values())
            if gone := [cursor for cursor in cursors if not cursor.places]:
                line.log.forget([cursor.tp for cursor in gone if cursor.begun])
                for cursor in gone:
                    del line.cursors[cursor.tp]
                    self._cursors[cursor.tp].remove(cursor)
                    if not self._cursors[cursor.tp]:
                        del self._cursors[cursor.tp]
            if new := [cursor for cursor in cursors if cursor.places and not cursor.begun]:
                epochs = {cursor.tp: cursor.epoch for cursor in new if cursor.epoch is not None}
                line.log.read({cursor.tp: cursor.position for cursor in new}, epochs)
                for cursor in new:
                    cursor.begun, cursor.paused = True, False
            begun = [cursor for cursor in line.cursors.values() if cursor.begun]
            pause = [cursor for cursor in begun if not (cursor.paused or cursor.wanted)]
            resume = [cursor for cursor in begun if cursor.paused and cursor.wanted]
            for some, tell, paused in ((pause, line.log.pause, True), (resume, line.log.resume, False)):
                if some:
                    tell([cursor.tp for cursor in some])
                for cursor in some:
                    cursor.paused = paused
            if new or resume:
                line.active_at, line.alone_until = self._clock.now(), 0.0

    def _merge(self) -> None:
        """Move places that have reached an older cursor to it."""
        for cursors in self._cursors.values():
            for at, cursor in enumerate(cursors[1:], 1):
                for place in list(cursor.places):
                    for other in cursors[:at]:
                        number = other.joint(place.position, place.epoch) if place.awaits is None else None
                        if number is not None:
                            place.joins(other, number)
                            break

    def _close_unused(self) -> None:
        now = self._clock.now()
        for line in self._lines[1:]:
            if line.cursors:
                line.active_at = max(line.active_at, now - UNUSED + IDLE_AFTER)
            elif now >= line.active_at + UNUSED:
                self._lines.remove(line)
                line.log.close()

    # -- what comes ----------------------------------------------------------------------------------------------------

    def _poll(self, line: SharedClient, seconds: float) -> float:
        now = self._clock.now()
        reading = any(not cursor.paused for cursor in line.cursors.values())
        if not reading:
            line.log.tend()
            return now + IDLE_LOOK
        if now < line.alone_until:
            return line.alone_until
        idle = line.log.wakes and now >= line.active_at + IDLE_AFTER
        # Before the poll: the client may call `wake` at once, from another thread.
        line.alone_until = now + IDLE_LOOK if idle else 0.0

        def wake() -> None:
            line.alone_until = 0.0
            self._wake()

        try:
            polled = line.log.poll(0.0, wake) if idle else line.log.poll(seconds)
        except BrokerUnavailableError as error:
            line.alone_until = now + RETRY
            self._tell(self._views, error)
            return line.alone_until
        except Exception as error:  # a defect: the client may have lost records, so its cursors read them again
            for cursor in line.cursors.values():
                cursor.begun = False
            line.alone_until = 0.0
            self._tell({place.view: None for cursor in line.cursors.values() for place in cursor.places}, error)
            return now
        if self._feed(line, polled):
            line.active_at = self._clock.now()
        if not polled.will_wake:
            line.alone_until = 0.0
        return line.alone_until or self._clock.now()

    def _feed(self, line: SharedClient, polled: Poll) -> bool:
        concerned = (*polled.fetched, *polled.out_of_range, *polled.diverged, *polled.unreadable, *polled.failed)
        cursors = [line.cursors[tp] for tp in dict.fromkeys(concerned) if tp in line.cursors]
        for cursor in cursors:
            tp = cursor.tp
            if tp in polled.fetched:
                cursor.takes_in(polled.fetched[tp])
                self._arrive(cursor)
                cursor.let_go()
            if tp in polled.diverged:
                cursor.diverged, cursor.cut = True, polled.diverged[tp]
            cursor.out_of_range |= tp in polled.out_of_range
            cursor.unreadable = polled.unreadable.get(tp, cursor.unreadable)
        for cursor in cursors:
            for place in cursor.places:
                if cursor.tp in polled.failed:
                    place.view.failed[cursor.tp] = polled.failed[cursor.tp]
                place.view.news[place] = None
                if not place.paused:
                    place.view.wakes_up()
        return bool(cursors)

    def _arrive(self, cursor: Cursor) -> None:
        """Let waiting places join the cursor at their position and epoch."""
        for place in [place for place in cursor.places if place.awaits is not None]:
            number = cursor.joint(place.position, place.epoch) if place.position <= cursor.position else None
            if number is not None:
                place.number, place.awaits = number, None
                self.searching.pop(place, None)
            else:
                place.number = cursor.next
                if place.position <= cursor.position:
                    place.awaits = 0.0  # it gets its own cursor, whose client asks whether the log was cut

    def _tell(self, views: Iterable[SharedLogClient], error: Exception) -> None:
        for view in views:
            view.problem = error
            view.wakes_up()


class SharedLogClient(LogClient):
    """One channel's client over a `SharedLog`. `poll` never waits.

    It has no figures of brokers: requests are not for one channel. `SharedLog.figures` has them, once.
    """

    wakes = pushes = True

    def __init__(self, shared: SharedLog, log: LogClient) -> None:
        self._shared = shared
        self.record_bytes = log.record_bytes
        self.places: dict[TopicPartition, ReadingPlace] = {}
        self.news: dict[ReadingPlace, None] = {}
        self.failed: dict[TopicPartition, Exception] = {}
        self.problem: Exception | None = None
        self.fetch_bytes = 0
        self.closed = False
        self._wake: Callable[[], None] | None = None

    def wakes_up(self) -> None:
        """Wake the channel to poll."""
        wake, self._wake = self._wake, None
        if wake is not None:
            wake()

    @property
    def aside_bytes(self) -> int:
        return self._shared.aside_bytes

    def topics(self, names: Collection[str], pattern: str | None) -> Mapping[str, TopicMeta]:
        return self._shared.topics(names, pattern)

    def ask_topics(self) -> Callable[[], bool]:
        return self._shared.ask_topics()

    def reachable(self) -> bool:
        return self._shared.log.reachable()

    def log_ranges(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        return self._shared.log.log_ranges(partitions)

    def offsets_at(self, partitions: Collection[TopicPartition], time_ms: int) -> Mapping[TopicPartition, int | None]:
        return self._shared.log.offsets_at(partitions, time_ms)

    def peek(
        self, partitions: Collection[TopicPartition], wake: Callable[[], None]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        found = {}
        for tp in partitions:
            place = self.places[tp]
            if place.cursor is not None and (told := place.cursor.line.log.peek([tp], wake).get(tp)) is not None:
                found[tp] = place.position, told[1]
        return found

    def unled(self) -> Collection[TopicPartition]:
        lines = {id(p.cursor.line): p.cursor.line for p in self.places.values() if p.cursor is not None}
        return [tp for line in lines.values() for tp in line.log.unled() if tp in self.places]

    def read(
        self, positions: Mapping[TopicPartition, int], leader_epochs: Mapping[TopicPartition, int] = NO_EPOCHS
    ) -> None:
        self.forget([tp for tp in positions if tp in self.places])
        for tp, position in positions.items():
            place = self.places[tp] = ReadingPlace(self, tp, position, leader_epochs.get(tp))
            self._shared.searching[place] = None

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            place = self.places.pop(tp)
            place.leaves()
            self.news.pop(place, None)
            self._shared.searching.pop(place, None)
            self.failed.pop(tp, None)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            self.places[tp].paused = True

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            place = self.places[tp]
            place.paused = False
            self.news[place] = None
            if place.cursor is None:
                self._shared.searching[place] = None

    def limit_fetches(self, partition_bytes: int) -> None:
        self.fetch_bytes = partition_bytes
        self._shared.share_limits()

    def poll(self, seconds: float, wake: Callable[[], None] | None = None) -> Poll:
        problem, self.problem = self.problem, None
        if problem is not None:
            raise problem
        polled = Poll(failed=self.failed)
        self.failed = {}
        news, self.news = self.news, {}
        for place in news:
            if self._take(place, polled):
                self.news[place] = None
        told = polled.fetched or polled.out_of_range or polled.diverged or polled.unreadable or polled.failed
        polled.will_wake = not told and wake is not None
        self._wake = wake if polled.will_wake else None
        return polled

    def _take(self, place: ReadingPlace, polled: Poll) -> bool:
        """Take one chunk, and return whether another poll may bring more."""
        cursor, tp = place.cursor, place.tp
        if place.paused or cursor is None or place.awaits is not None:
            return False  # it gets into `news` again when that changes
        if place.number < cursor.next:
            polled.fetched[tp] = place.takes(cursor)
            return True
        if cursor.out_of_range:
            polled.out_of_range[tp] = place.position
        if cursor.diverged:
            polled.diverged[tp] = cursor.cut
        if cursor.unreadable is not None and place.told is not cursor.unreadable:
            polled.unreadable[tp] = place.told = cursor.unreadable
        return cursor.out_of_range or cursor.diverged

    def close(self) -> None:
        """Close the view; the next `pump` removes it. Any thread."""
        self.closed = True
