"""Takes the facts of a running channel. Any thread: it only looks, and what it sees may be a moment old."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from inbound.channel import callbacks, delivery, turn
from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.channel.partition import Fate, Partition, Place
from inbound.explain.facts import ChannelFacts, Facts, PartitionFacts, SessionFacts
from inbound.topic_partition import TopicPartition

#: Records that the client has not fetched so long after their leader told of them are not on their way. Seconds.
UNFETCHED = 1.0
#: A leader that does not answer is away after so long: not while a connection is made anew, or the machine is held up. Seconds.
LEADERLESS = 2.0
#: An internal thread that has not come back for so long is stuck, if it is in no callback. Seconds.
STUCK = 15.0
#: What brokers say when we may not, or nobody knows us.
_REFUSED = re.compile("authori[sz]ation|authentication|sasl|AccessDenied", re.IGNORECASE)


#: The files from which processors are called.
_CALLERS = (f'"{turn.__file__}"', f'"{delivery.__file__}"', f'"{callbacks.__file__}"')
#: Stands for what needs no look where a partition does not rest.
_AT_REST = ("rate", "")


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known of a partition's progress; see `inbound.explain.detector`."""

    advanced_for: float = 0.0
    still_for: float = 0.0
    settling_for: float | None = None
    rate: float = 0.0
    held_for: float = 0.0


class View:
    """One channel at one moment: what partitions share is looked at once, and only if somebody wants to know."""

    def __init__(self, channel: InboundKafkaChannel, *, stacks: bool = False) -> None:
        self._channel = channel
        self._parts = channel.parts
        self.now = channel.parts.clock.now()
        self._waits: Mapping[TopicPartition, tuple[str, str]] | None = None
        self._facts: ChannelFacts | None = None
        self._stacks = _stacks(channel) if stacks else {}

    @property
    def undisturbed(self) -> bool:
        """Whether nothing stands against all partitions of the channel."""
        parts, connection = self._parts, self._parts.zk.connection
        return (
            connection is not None
            and parts.zk.certain(connection.session.id)
            and not parts.schedule.paused
            and not self._channel.membership.resets.closed
            and (parts.books.problem is None or parts.books.degrade)
            and self._channel.reader.problem is None
            and not self._silent()
        )

    @property
    def calm(self) -> bool:
        """Whether what is idle in an undisturbed channel stays so until somebody touches it."""
        reader = self._channel.reader
        waits = self._channel.opened and bool(self._parts.service.said("waits"))
        return not (waits or reader.watching.unled or reader.some_paused) and self._parts.pausing.allows()

    def facts(self, partition: Partition, progress: Progress) -> Facts:
        """Return all that is known of a held partition."""
        return Facts(
            partition=self._of(partition, progress),
            channel=self.channel(partition.tp),
            session=self._session(partition),
        )

    def waits(self, tp: TopicPartition) -> tuple[str, str] | None:
        """Return what the processor says that a partition waits for."""
        if self._waits is None:
            self._waits = self._parts.service.said("waits") if self._channel.opened else {}
        return self._waits.get(tp)

    def nothing_to_read(self, partition: Partition) -> bool:
        """Whether a settled partition of an undisturbed channel only waits for records."""
        reader = self._channel.reader
        stream = reader.stream_of(partition)
        return (
            partition.place is Place.SCHEDULED
            and not partition.buffer
            and partition.rest_until <= self.now
            and stream is not None
            and not stream.paused
            and partition.tp not in reader.watching.unled
            and partition.tp.topic in reader.topics.found
            and (self.waits(partition.tp) or _AT_REST)[0] == "rate"
            and self._parts.pausing.allows()
        )

    # -- inside ------------------------------------------------------------------------------------------------------

    def _of(self, partition: Partition, progress: Progress) -> PartitionFacts:
        reader, now = self._channel.reader, self.now
        stream, batch = reader.stream_of(partition), partition.batch
        callback, since = in_callback(partition)
        away = reader.watching.unled.get(partition.tp)
        problem, error = partition.problem, partition.stall.read_error
        return PartitionFacts(
            topic=partition.tp.topic,
            partition=partition.tp.partition,
            place=partition.place.value,
            fate=partition.fate.name.lower(),
            epoch=partition.fence.epoch,
            position=partition.position.delivered,
            committed=partition.committed,
            end=partition.end,
            buffered=partition.buffer.records,
            buffered_bytes=partition.buffer.size,
            advanced_for=progress.advanced_for,
            still_for=progress.still_for,
            settling_for=progress.settling_for,
            uncommitted=partition.position.uncommitted,
            commit_problem=partition.commit_problem,
            rate=progress.rate,
            held_for=progress.held_for,
            callback_for=now - since if since is not None else None,
            callback=callback,
            batch=(batch.first_offset, batch.next_offset) if batch is not None else None,
            stack=self._stacks.get(partition),
            rest_for=max(0.0, partition.rest_until - now),
            waits=self.waits(partition.tp),
            attempts=partition.failure.attempts,
            failing=partition.failure.failing,
            last_error=partition.failure.last_error,
            held=partition.failure.held,
            held_cause=partition.failure.held_cause,
            dead_letter_problem=partition.failure.dead_letter_problem,
            read_error=error,
            refused=error is not None and bool(_REFUSED.search(error)),
            out_of_range=str(problem) if problem is not None else None,
            no_room=partition.no_room,
            reverts=partition.failure.reverts,
            reverted_to=partition.failure.reverted_to,
            opened=stream is not None,
            reader_paused=stream is not None and stream.paused,
            led=away is None or now - away < LEADERLESS,
            unread=_unread(partition, now),
        )

    def channel(self, tp: TopicPartition) -> ChannelFacts:
        """Return the facts of the channel, for whoever holds, or held, `tp`."""
        if self._facts is None:
            self._facts = self._make()
        facts, reader = self._facts, self._channel.reader
        if reader.topics.known and tp.topic not in reader.topics.found:
            return _without_topic(facts)
        return facts

    def _make(self) -> ChannelFacts:
        parts, reader, now = self._parts, self._channel.reader, self.now
        held = parts.schedule.held()
        busy = [(str(p.tp), now - since) for p in held if (since := in_callback(p)[1]) is not None]
        fullest = sorted(((str(p.tp), p.buffer.size) for p in held if p.buffer.size), key=lambda of: -of[1])
        paused = [pause.told(self._channel.name) for pause in parts.pausing.pauses] if parts.schedule.paused else []
        return ChannelFacts(
            name=self._channel.name,
            group=parts.settings.now.group,
            consumer=parts.consumer_id,
            pauses=tuple(paused),
            resets=tuple(
                (r.topic, r.name, r.step, parts.clock.wall() - r.since if r.since else None)
                for r in self._channel.membership.resets.status()
            ),
            kafka_problem=reader.problem,
            kafka_refused=reader.problem is not None and bool(_REFUSED.search(reader.problem)),
            ledger_problem=parts.books.problem,
            degrade=parts.books.degrade,
            workers=parts.settings.now.workers,
            event_loop=parts.service.asynchronous,
            busy=tuple(sorted(busy, key=lambda of: -of[1])),
            prefetch=(reader.read_ahead, parts.settings.now.reader.prefetch_bytes),
            fullest=tuple(fullest[:3]),
            silent=self._silent(),
            commits_waiting=parts.committer.waiting(parts.commits),
        )

    def _session(self, partition: Partition) -> SessionFacts:
        parts = self._parts
        connection = parts.zk.connection
        away = parts.journal.last(None, "suspended") if connection is None else None
        return SessionFacts(
            connected=connection is not None,
            certain=self.now < parts.zk.doubtful_from(partition.fence.session),
            away_for=parts.clock.wall() - away.at if away is not None else None,
            known_pauses=parts.pausing.allows() or parts.schedule.paused,
        )

    def _silent(self) -> tuple[str, ...]:
        found = []
        for thread in self._channel.threads():
            if not thread.alive:
                found.append(f"{thread.name} is dead")
            elif thread.last_step_age > STUCK and not (thread.in_callback or "event-loop" in thread.name):
                found.append(f"{thread.name} has been stuck for {thread.last_step_age:.0f} s")
        return tuple(found)


def in_callback(partition: Partition) -> tuple[str, float | None]:
    """Return the callback that a partition is in, and the clock time at which it was called; None: it is in none."""
    other, since = partition.totals.other_call, partition.totals.batch_since
    return other if other is not None and since is None else ("on_next_batch", since)


def settled(partition: Partition, now: float) -> bool:
    """Whether nothing speaks against a partition of an undisturbed channel: if it moves, that is all there is to say."""
    return (
        partition.place is not Place.STARTING
        and partition.fate is Fate.KEEP
        and not (partition.failure.attempts or partition.failure.reverts > 1)
        and (partition.failure.held, partition.problem, partition.stall.read_error) == (None,) * 3
        and (partition.failure.dead_letter_problem, partition.commit_problem) == (None,) * 2
        and not _unread(partition, now)
    )


def _unread(partition: Partition, now: float) -> int:
    """How many records its leader has that have not been fetched since that was found."""
    stall, since = partition.stall, partition.stall.unread_since
    if since is None or now - since < UNFETCHED or partition.buffer or partition.position.delivered != stall.unread_at:
        return 0
    return max(0, (stall.log_end or 0) - (stall.log_position or 0))


def _without_topic(facts: ChannelFacts) -> ChannelFacts:
    return replace(facts, topic_exists=False)


def _stacks(channel: InboundKafkaChannel) -> dict[Partition, str]:
    found: dict[Partition, str] = {}
    for worker, driver in zip(channel.workers, channel.drivers, strict=False):
        found |= worker.stacks(driver.stack)
    return {partition: _below_us(stack) for partition, stack in found.items()}


def _below_us(stack: str) -> str:
    """Return the part of a stack that is the processor's: what called it is the same each time."""
    frames = re.split(r"(?m)^(?=  File )", stack)
    ours = [number for number, frame in enumerate(frames) if any(file in frame.partition("\n")[0] for file in _CALLERS)]
    return "".join(frames[ours[-1] + 1 :]) if ours and ours[-1] + 1 < len(frames) else stack
