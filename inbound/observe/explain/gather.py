"""Gathers the facts of a running channel.

Any thread: no lock is taken, so a fact may be a moment old.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from inbound.channel import delivery, processor_session, turn
from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.observe.explain.facts import ChannelFacts, PartitionFacts, SessionFacts
from inbound.partition.partition import Fate, Partition, Place
from inbound.topic_partition import TopicPartition

#: Seconds from the leader's announcement of records after which their fetch is no longer in flight.
UNFETCHED = 1.0
#: Seconds after which a silent leader is unavailable: a reconnect, or a busy machine, takes less.
LEADERLESS = 2.0
#: Seconds in one step after which an internal thread is stuck, unless it is in a callback.
STUCK = 15.0
#: Words in the errors of brokers that refuse our credentials or rights.
_REFUSED = re.compile("authori[sz]ation|authentication|sasl|AccessDenied", re.IGNORECASE)

#: The files from which processors are called.
_CALLERS = tuple(f'"{one.__file__}"' for one in (turn, delivery, processor_session))


class ChannelView:
    """One channel at one moment.

    Shared facts are read once, when the first partition needs them.
    """

    def __init__(self, channel: InboundKafkaChannel, *, stacks: bool = False) -> None:
        self._channel = channel
        self._parts = parts = channel.parts
        self._reader = channel.reader
        self.now = parts.clock.now()
        self._stacks = _stacks(channel) if stacks else {}

    @cached_property
    def undisturbed(self) -> bool:
        """Whether the channel has no problem that concerns all its partitions."""
        parts, connection = self._parts, self._parts.zk.connection
        return (
            connection is not None
            and parts.zk.certain(connection.session.id)
            and not parts.schedule.paused
            and not self._channel.membership.resets.closed
            and (parts.ledger_notes.problem is None or parts.ledger_notes.degrade)
            and self._reader.problem is None
            and not self._silent()
        )

    @cached_property
    def calm(self) -> bool:
        """Whether idle partitions stay idle until one of them changes."""
        if not self.undisturbed or self._waits:
            return False
        return not (self._reader.watching.unled or self._reader.some_paused) and self._parts.pause_state.allows()

    def facts(
        self, partition: Partition, progress: Mapping[str, Any]
    ) -> tuple[PartitionFacts, ChannelFacts, SessionFacts]:
        """Return all facts of a held partition; the detector keeps `progress`."""
        channel, topics = self._of_channel, self._reader.topics
        if topics.known and partition.tp.topic not in topics.found:
            channel = replace(channel, topic_exists=False)
        return self._of(partition, progress), channel, self._session(partition)

    def nothing_to_read(self, partition: Partition) -> bool:
        """Whether a settled partition of an undisturbed channel only waits for records."""
        reader = self._reader
        stream = reader.stream_of(partition)
        return (
            partition.place is Place.SCHEDULED
            and not partition.buffer
            and partition.rest_until <= self.now
            and stream is not None
            and not stream.paused
            and partition.tp not in reader.watching.unled
            and partition.tp.topic in reader.topics.found
            and self._waits.get(partition.tp, ("rate", ""))[0] == "rate"
            and self._parts.pause_state.allows()
        )

    # -- inside ------------------------------------------------------------------------------------------------------

    @cached_property
    def _waits(self) -> Mapping[TopicPartition, tuple[str, str]]:
        """The waits that the processor reports."""
        return self._parts.service.said("waits") if self._channel.opened else {}

    def _of(self, partition: Partition, progress: Mapping[str, Any]) -> PartitionFacts:
        reader, now, failure = self._reader, self.now, partition.failure
        stream, batch = reader.stream_of(partition), partition.batch
        callback, since = in_callback(partition)
        away = reader.watching.unled.get(partition.tp)
        problem, error = partition.problem, partition.stall.read_error
        return PartitionFacts(
            topic=partition.tp.topic,
            place=partition.place.value,
            fate=partition.fate.name.lower(),
            position=partition.position.delivered,
            committed=partition.committed,
            end=partition.end,
            buffered=partition.buffer.records,
            uncommitted=partition.position.uncommitted,
            commit_problem=partition.commit_problem,
            callback_for=now - since if since is not None else None,
            callback=callback,
            batch=(batch.first_offset, batch.next_offset) if batch is not None else None,
            stack=self._stacks.get(partition),
            rest_for=max(0.0, partition.rest_until - now),
            waits=self._waits.get(partition.tp),
            attempts=failure.attempts,
            failing=failure.failing,
            last_error=failure.last_error,
            held=failure.held,
            held_cause=failure.held_cause,
            dead_letter_problem=failure.dead_letter_problem,
            read_error=error,
            refused=error is not None and bool(_REFUSED.search(error)),
            out_of_range=str(problem) if problem is not None else None,
            no_room=partition.no_room,
            reverts=failure.reverts,
            reverted_to=failure.reverted_to,
            reader_paused=stream is not None and stream.paused,
            led=away is None or now - away < LEADERLESS,
            unread=_unread(partition, now),
            **progress,
        )

    @cached_property
    def _of_channel(self) -> ChannelFacts:
        parts, reader, now = self._parts, self._reader, self.now
        held = parts.schedule.held()
        busy = [(str(p.tp), now - since) for p in held if (since := in_callback(p)[1]) is not None]
        fullest = sorted(((str(p.tp), p.buffer.size) for p in held if p.buffer.size), key=lambda of: -of[1])
        pauses = parts.pause_state.pauses if parts.schedule.paused else ()
        return ChannelFacts(
            name=self._channel.name,
            pauses=tuple(pause.told(self._channel.name) for pause in pauses),
            resets=tuple(
                (r.topic, r.name, r.step, parts.clock.wall() - r.since if r.since else None)
                for r in self._channel.resets()
            ),
            kafka_problem=reader.problem,
            kafka_refused=reader.problem is not None and bool(_REFUSED.search(reader.problem)),
            ledger_problem=parts.ledger_notes.problem,
            degrade=parts.ledger_notes.degrade,
            workers=parts.settings.now.workers,
            event_loop=parts.service.asynchronous,
            busy=tuple(sorted(busy, key=lambda of: -of[1])),
            prefetch=(reader.read_ahead, parts.settings.now.reader.prefetch_bytes),
            fullest=tuple(fullest[:3]),
            silent=self._silent(),
            commits_waiting=parts.committer.waiting(parts),
        )

    def _session(self, partition: Partition) -> SessionFacts:
        parts = self._parts
        connection = parts.zk.connection
        away = parts.journal.last(None, "suspended") if connection is None else None
        return SessionFacts(
            connected=connection is not None,
            certain=self.now < parts.zk.doubtful_from(partition.fence.session),
            away_for=parts.clock.wall() - away.at if away is not None else None,
            known_pauses=parts.pause_state.allows() or parts.schedule.paused,
        )

    def _silent(self) -> tuple[str, ...]:
        return tuple(
            f"{thread.name} has been stuck for {thread.last_step_age:.0f} s"
            if thread.alive
            else f"{thread.name} is dead"
            for thread in self._channel.threads()
            if not thread.alive
            or (thread.last_step_age > STUCK and not (thread.in_callback or "event-loop" in thread.name))
        )


def in_callback(partition: Partition) -> tuple[str, float | None]:
    """Return a partition's callback and the clock time of its call.

    The time is None if no callback runs.
    """
    other, since = partition.totals.other_call, partition.totals.batch_since
    return other if other is not None and since is None else ("on_next_batch", since)


def settled(partition: Partition, now: float) -> bool:
    """Whether an undisturbed channel's partition has no problem of its own."""
    return (
        partition.place is not Place.STARTING
        and partition.fate is Fate.KEEP
        and not (partition.failure.attempts or partition.failure.reverts > 1)
        and (partition.failure.held, partition.problem, partition.stall.read_error) == (None,) * 3
        and (partition.failure.dead_letter_problem, partition.commit_problem) == (None,) * 2
        and not _unread(partition, now)
    )


def _unread(partition: Partition, now: float) -> int:
    """Return the number of records that stay unfetched for `UNFETCHED` seconds."""
    stall, since = partition.stall, partition.stall.unread_since
    if since is None or now - since < UNFETCHED or partition.buffer or partition.position.delivered != stall.unread_at:
        return 0
    return max(0, (stall.log_end or 0) - (stall.log_position or 0))


def _stacks(channel: InboundKafkaChannel) -> dict[Partition, str]:
    found: dict[Partition, str] = {}
    for worker, driver in zip(channel.workers, channel.drivers, strict=False):
        found |= worker.stacks(driver.stack)
    return {partition: below_inbound(stack) for partition, stack in found.items()}


def below_inbound(stack: str) -> str:
    """Return the processor's part of a stack, without inbound's calling frames."""
    frames = re.split(r"(?m)^(?=  File )", stack)
    ours = [number for number, frame in enumerate(frames) if any(file in frame.partition("\n")[0] for file in _CALLERS)]
    return "".join(frames[ours[-1] + 1 :]) if ours and ours[-1] + 1 < len(frames) else stack
