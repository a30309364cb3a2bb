"""The stall detector: finds the cause of every partition's state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.clock import Clock
from inbound.observe.explain.facts import BENIGN, MOVING, Cause, Explanation
from inbound.observe.explain.gather import ChannelView, settled
from inbound.observe.explain.rules import FAR_BEHIND, explain
from inbound.partition.partition import Partition, Place
from inbound.topic_partition import TopicPartition

#: Looks per interval: a cause is named within one interval and one look.
LOOKS = 4
#: Partitions per step, and the seconds to the next step: a look at all of 800 kept the interpreter from commits for 200 ms,
#: every second.
AT_ONCE, BREATH = 64, 0.01
#: The brokers are asked at every second look.
ASK_EVERY = 2
#: A step that takes this part of an interval is named as the cause.
PATIENCE = 0.75
#: A partition that has not advanced for so many intervals is stalled.
STALLED = 2.0
#: Idle partitions of a channel that the brokers are asked about at a time: is there really nothing to read?
ASKED = 100
_IDLE = Cause.IDLE.value
_QUIET = frozenset({Cause.IDLE.value, Cause.NOT_FETCHING.value})


@dataclass(eq=False, slots=True)
class _Track:
    """The progress of one claim of a partition."""

    partition: Partition
    since: float  # clock time of the first look after the claim
    advanced_at: float
    quiet_at: float  # it was idle, or its wait was wanted
    looked_at: float
    committed: int
    best: int
    records: int
    reverted_to: int | None = None
    rate: float = 0.0
    ticket: int = -1  # of the schedule: it changes each time that a worker, or the reader, has had the partition
    #: Since when a commit is in flight, and how many had landed before it.
    settling: tuple[float, int] | None = None

    def look(self, now: float) -> None:
        """Record the changes since the last look."""
        p, seconds = self.partition, now - self.looked_at
        committed, position = p.committed if p.committed is not None else -1, p.position.delivered
        passed, self.records = p.totals.records - self.records, p.totals.records
        if committed > self.committed:
            passed = max(passed, committed - self.committed if self.committed >= 0 else 0)
            self.committed, self.best, self.advanced_at = committed, max(committed, position), now
        elif position > self.best:
            self.best, self.advanced_at = position, now
        elif p.failure.reverts == 1 and p.failure.reverted_to != self.reverted_to and position < self.best:
            self.best = position  # a first revert is meant; a second one to the same offset is no progress
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
        """Whether an idle partition has not changed since the last look."""
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

    def progress(self, now: float) -> dict[str, Any]:
        """Return the fields of `PartitionFacts` that are known here alone."""
        return {
            "advanced_for": now - self.advanced_at,
            "still_for": self.still_for(now),
            "settling_for": None if self.settling is None else now - self.settling[0],
            "rate": self.rate,
            "held_for": now - self.since,
        }


class StallDetector:
    """A `Part` of the process that sets each partition's `stall`.

    It writes `cause`, `cause_since` and `since`.
    """

    def __init__(self, channels: Callable[[], Sequence[InboundKafkaChannel]], clock: Clock, interval: float) -> None:
        """A partition is stalled after two `interval`s (seconds) without an advance."""
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
        """Look at up to `AT_ONCE` partitions, at each `LOOKS` times per interval."""
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
        self._tracks = {channel.name: self._tracks[channel.name] for channel in channels}

    def explain(self, channel: InboundKafkaChannel, partition: Partition) -> Explanation:
        """Explain a held partition now, with its callback's stack. Any thread."""
        view = ChannelView(channel, stacks=True)
        track = self._tracks.get(channel.name, {}).get(partition.tp)
        progress = track.progress(view.now) if track is not None and track.partition is partition else {}
        return explain(*view.facts(partition, progress), self.patience)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _look(self, channel: InboundKafkaChannel) -> Iterator[None]:
        view, now, parts = ChannelView(channel), self._clock.now(), channel.parts
        before = self._tracks.get(channel.name, {})
        tracks: dict[TopicPartition, _Track] = {}
        quiet = []
        for number, partition in enumerate(parts.schedule.held(), 1):
            if number % AT_ONCE == 0:
                yield
                view, now = ChannelView(channel), self._clock.now()
            if partition.drained.done:
                continue
            track = before.get(partition.tp)
            if track is None or track.partition is not partition:
                track = _began(partition, now)
            elif view.calm and track.untouched(partition):
                track.looked_at = track.quiet_at = now
                tracks[partition.tp] = track
                quiet.append(partition.tp)
                continue
            track.look(now)
            tracks[partition.tp] = track
            if partition.place is Place.SCHEDULED and not partition.buffer and partition.stall.cause in _QUIET:
                quiet.append(partition.tp)
            cause = self._at_a_glance(track, view, now) if view.undisturbed else None
            found = (
                Explanation(cause, "") if cause else explain(*view.facts(partition, track.progress(now)), self.patience)
            )
            self._found(channel, track, found, now)
        self._tracks[channel.name] = tracks
        if quiet and self._looks % ASK_EVERY == 0:
            self._ask_about(channel, quiet)

    def _at_a_glance(self, track: _Track, view: ChannelView, now: float) -> Cause | None:
        """Return a healthy partition's cause without all facts; None: `explain` decides."""
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
        p, parts, wall = track.partition, channel.parts, self._clock.wall()
        if p.stall.cause != found.cause.value or p.stall.cause_since is None:
            p.stall.cause_since = wall - (found.lasting or 0.0)
        still = track.still_for(now)
        if found.cause in BENIGN and found.cause not in MOVING and p.failure.reverts < 2:
            track.quiet_at = now
        kind, text, level = "", "", logging.INFO
        stalled = found.cause not in BENIGN and still >= STALLED * self.interval and _has_work(p)
        if stalled and (p.stall.since is None or p.stall.cause != found.cause.value):
            if p.stall.since is None:
                p.stall.since = wall - still
            kind, text, level = "stalled", f"stalled for {still:.0f} s: {found.text}", logging.WARNING
        elif not stalled and p.stall.since is not None:
            kind, text = "stall-over", f"not stalled any more, after {wall - p.stall.since:.0f} s: {found.cause.value}"
            p.stall.since = None
        if kind:
            parts.journal.note(
                kind, text, p.tp, offset=p.position.delivered, epoch=p.fence.epoch, level=level, cause=found.cause.value
            )
        p.stall.cause = found.cause.value

    def _ask_about(self, channel: InboundKafkaChannel, quiet: list[TopicPartition]) -> None:
        """Ask the brokers about some seemingly idle partitions, in turn."""
        first = self._asked.get(channel.name, 0) % len(quiet)
        some = (quiet[first:] + quiet[:first])[:ASKED]
        self._asked[channel.name] = first + len(some)
        channel.peek(some)


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
