"""Looks at all partitions all the time: what each does, and which of them stand still although they should not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.channel.partition import Partition, Place
from inbound.clock import Clock
from inbound.explain.cause import BENIGN, MOVING, Cause, Explanation
from inbound.explain.causes import FAR_BEHIND, explain
from inbound.explain.gather import Progress, View, settled
from inbound.topic_partition import TopicPartition

#: Looks per interval: what happens is named within the first interval and one look.
LOOKS = 4
#: So many partitions are looked at in a step, and so long after it comes the next one: a look at all of 800 kept the interpreter
#: from commits for 200 ms, every second.
AT_ONCE, BREATH = 64, 0.01
#: At every so many looks the brokers are asked.
ASK_EVERY = 2
#: Something may take so much of an interval before it is named as what a partition stands still for.
PATIENCE = 0.75
#: A partition that has not advanced for so many intervals is told of as stalled.
STALLED = 2.0
#: So many partitions of a channel without anything to read are asked about at a time: is there really nothing?
ASKED = 100
_IDLE = Cause.IDLE.value
_QUIET = frozenset({Cause.IDLE.value, Cause.NOT_FETCHING.value})


@dataclass(eq=False, slots=True)
class _Track:
    """What the detector keeps of one claim of a partition."""

    partition: Partition
    since: float  # clock time of the claim, as far as was seen
    advanced_at: float
    quiet_at: float  # there was nothing to do for it, or somebody wanted it to rest
    looked_at: float
    committed: int
    best: int
    records: int
    reverted_to: int | None = None
    rate: float = 0.0
    ticket: int = -1  # of the schedule: it changes whenever somebody has had the partition
    settling: tuple[float, int] | None = (
        None  # since when a commit is seen on its way, and how many had landed before it
    )

    def look(self, now: float) -> None:
        """Take note of what has changed since the last look."""
        p, seconds = self.partition, now - self.looked_at
        committed, position = p.committed if p.committed is not None else -1, p.position.delivered
        passed, self.records = p.totals.records - self.records, p.totals.records
        if committed > self.committed:
            passed = max(passed, committed - self.committed if self.committed >= 0 else 0)
            self.committed, self.best, self.advanced_at = committed, max(committed, position), now
        elif position > self.best:
            self.best, self.advanced_at = position, now
        elif p.failure.reverts == 1 and p.failure.reverted_to != self.reverted_to and position < self.best:
            self.best = position  # meant to go back there; whoever goes back there again does not get further
        self.reverted_to = p.failure.reverted_to
        if p.position.settled and p.place is not Place.SETTLING:
            self.settling = None
        elif self.settling is None or self.settling[1] != p.totals.commits:
            self.settling = (now, p.totals.commits)
        if seconds > 0:
            self.rate = (self.rate + passed / seconds) / 2
            if self.rate < 0.01:
                self.rate = 0.0
        self.looked_at, self.ticket = now, p.ticket

    def untouched(self, p: Partition) -> bool:
        """Whether an idle partition is as the last look left it: nobody has had it since, and nothing came."""
        return (
            self.ticket == p.ticket
            and p.stall.cause == _IDLE
            and not p.buffer
            and p.stall.unread_since is None
            and p.problem is None
            and p.stall.read_error is None
            and p.place is Place.SCHEDULED
            and p.position.settled
        )

    def still_for(self, now: float) -> float:
        return now - max(self.advanced_at, self.quiet_at)

    def progress(self, now: float) -> Progress:
        settling = None if self.settling is None else now - self.settling[0]
        return Progress(now - self.advanced_at, self.still_for(now), settling, self.rate, now - self.since)


class StallDetector:
    """See `inbound.driver.Part`. What it finds stands in the partitions' `stall`: `cause`, `cause_since`, `since`."""

    def __init__(self, channels: Callable[[], Sequence[InboundKafkaChannel]], clock: Clock, interval: float) -> None:
        """`interval` is in seconds: after two of them without an advance a partition counts as stalled."""
        self._channels = channels
        self._clock = clock
        self.interval = interval
        self._tracks: dict[str, dict[TopicPartition, _Track]] = {}
        self._asked: dict[str, int] = {}
        self._looks = 0
        self._round: Iterator[None] | None = None
        self._next = 0.0

    @property
    def patience(self) -> float:
        return self.interval * PATIENCE

    def run_once(self) -> float | None:
        """Look at partitions of all channels: at each of them once in an interval, at no more than `AT_ONCE` in a step."""
        if self._round is None:
            self._round, self._next = self._look_round(), self._clock.now() + self.interval / LOOKS
        for _ in self._round:
            return self._clock.now() + BREATH
        self._round = None
        return self._next

    def _look_round(self) -> Iterator[None]:
        self._looks += 1
        channels = self._channels()
        for channel in channels:
            yield from self._look(channel)
        names = {channel.name for channel in channels}
        for gone in self._tracks.keys() - names:
            del self._tracks[gone]

    def explain(self, channel: InboundKafkaChannel, partition: Partition) -> Explanation:
        """Say why a held partition does what it does, as it is now, with the stack of its callback. Any thread."""
        view = View(channel, stacks=True)
        track = self._tracks.get(channel.name, {}).get(partition.tp)
        known = track is not None and track.partition is partition
        return explain(
            view.facts(partition, track.progress(view.now) if known and track else Progress()), self.patience
        )

    # -- inside ------------------------------------------------------------------------------------------------------

    def _look(self, channel: InboundKafkaChannel) -> Iterator[None]:
        view, now = View(channel), self._clock.now()
        before = self._tracks.get(channel.name, {})
        tracks: dict[TopicPartition, _Track] = {}
        quiet = []
        undisturbed = view.undisturbed
        calm = undisturbed and view.calm
        for number, partition in enumerate(channel.parts.schedule.held(), 1):
            if number % AT_ONCE == 0:
                yield
                view, now = View(channel), self._clock.now()
                undisturbed = view.undisturbed
                calm = undisturbed and view.calm
            if partition.drained.done:
                continue
            track = before.get(partition.tp)
            if track is None or track.partition is not partition:
                track = _began(partition, now)
            elif calm and track.untouched(partition):
                track.looked_at = track.quiet_at = now
                tracks[partition.tp] = track
                quiet.append(partition.tp)
                continue
            track.look(now)
            tracks[partition.tp] = track
            if partition.place is Place.SCHEDULED and not partition.buffer and partition.stall.cause in _QUIET:
                quiet.append(partition.tp)
            cause = self._at_a_glance(track, view, now) if undisturbed else None
            if cause is not None:
                self._found(channel, track, Explanation(cause, ""), now)
            else:
                self._found(channel, track, explain(view.facts(partition, track.progress(now)), self.patience), now)
        self._tracks[channel.name] = tracks
        if quiet and self._looks % ASK_EVERY == 0:
            self._ask_about(channel, quiet)

    def _at_a_glance(self, track: _Track, view: View, now: float) -> Cause | None:
        """Return what `explain` would say of a partition that nothing is wrong with; None: it has to be asked."""
        p = track.partition
        if not settled(p, now) or (track.settling is not None and now - track.settling[0] >= self.patience):
            return None
        nothing = view.nothing_to_read(p)
        if nothing:
            track.quiet_at = now
        if track.rate and now - track.advanced_at < (self.patience if nothing else self.patience / 2):
            lag = p.lag
            return Cause.CATCHING_UP if lag is not None and lag >= FAR_BEHIND * track.rate else Cause.HEALTHY
        return Cause.IDLE if nothing else None

    def _found(self, channel: InboundKafkaChannel, track: _Track, found: Explanation, now: float) -> None:
        p, wall = track.partition, self._clock.wall()
        if p.stall.cause != found.cause.value or p.stall.cause_since is None:
            p.stall.cause_since = wall - (found.lasting or 0.0)
        still = track.still_for(now)
        if found.cause in BENIGN and found.cause not in MOVING and p.failure.reverts < 2:
            track.quiet_at = now
        stalled = found.cause not in BENIGN and still >= STALLED * self.interval and _has_work(p)
        if stalled and (p.stall.since is None or p.stall.cause != found.cause.value):
            if p.stall.since is None:
                p.stall.since = wall - still
            self._note(
                channel, p, "stalled", f"stands still for {still:.0f} s: {found.text}", found.cause, logging.WARNING
            )
        elif not stalled and p.stall.since is not None:
            text = f"does not stand still any more, after {wall - p.stall.since:.0f} s: {found.cause.value}"
            p.stall.since = None
            self._note(channel, p, "stall-over", text, found.cause, logging.INFO)
        p.stall.cause = found.cause.value

    def _note(self, channel: InboundKafkaChannel, p: Partition, kind: str, text: str, cause: Cause, level: int) -> None:
        channel.parts.journal.note(
            kind, text, p.tp, offset=p.position.delivered, epoch=p.fence.epoch, level=level, cause=cause.value
        )

    def _ask_about(self, channel: InboundKafkaChannel, quiet: list[TopicPartition]) -> None:
        """Have the brokers asked about some of those that seem to have nothing to read, in turn."""
        first = self._asked.get(channel.name, 0) % len(quiet)
        some = (quiet[first:] + quiet[:first])[:ASKED]
        self._asked[channel.name] = first + len(some)
        channel.reader.watching.ask(some)
        channel.parts.schedule.read_soon()


def _began(partition: Partition, now: float) -> _Track:
    committed = partition.committed if partition.committed is not None else -1
    return _Track(partition, now, now, now, now, committed, partition.position.delivered, partition.totals.records)


def _has_work(partition: Partition) -> bool:
    lag = partition.lag
    return (
        lag is None
        or lag > 0
        or bool(partition.buffer)
        or partition.totals.batch_since is not None
        or partition.place is Place.SETTLING
    )
