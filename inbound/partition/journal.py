"""Decisions, partition by partition: bounded, in memory, with one log line each.

An ordinary batch leaves no event: counters cover those.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

#: Events kept for each partition, and for the channel itself.
PER_PARTITION, OF_CHANNEL = 64, 256
#: Events kept in all (about 400 bytes each): beyond it the partitions with the oldest last events are forgotten.
IN_ALL = 20_000


@dataclass(frozen=True, slots=True)
class Happened:
    """One decision, or the same one several times in a row."""

    at: float  # seconds since 1970; of the first of several
    kind: str  # `claimed`, `reverted`, `held`, ...; the same word in the log's `event` field
    text: str  # a sentence for a person, without the partition; of the last of several
    tp: TopicPartition | None = None  # None: the whole channel
    offset: int | None = None
    epoch: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    count: int = 1
    last: float | None = None  # of the last of several, seconds since 1970; None: it came once


class Journal:
    """The events of one channel. All methods from any thread."""

    def __init__(self, channel: str, group: str, wall: Callable[[], float]) -> None:
        self._fields = {"channel": channel, "group": group}
        self._wall = wall
        self._lock = threading.Lock()
        self._of: OrderedDict[TopicPartition | None, deque[Happened]] = OrderedDict()
        self._kept = 0

    def note(
        self,
        kind: str,
        text: str,
        tp: TopicPartition | None = None,
        *,
        offset: int | None = None,
        epoch: int | None = None,
        level: int = logging.INFO,
        **facts: Any,
    ) -> None:
        """Keep an event, and log it on `level`.

        `facts` go to logs in JSON; they hold no secret. An event of the same kind, offset and epoch as the one before
        is counted there, and logged, if it is no warning, only at the 2nd, 4th, 8th, ... time.
        """
        count = self._keep(Happened(self._wall(), kind, text, tp, offset, epoch, facts))
        if log.isEnabledFor(level) and (level >= logging.WARNING or not count & (count - 1)):
            subject = f"channel {self._fields['channel']}" if tp is None else f"{self._fields['group']} {tp}"
            where = {} if tp is None else {"topic": tp.topic, "partition": tp.partition}
            places = {"offset": offset, "epoch": epoch, "count": count if count > 1 else None}
            extra = {"event": kind, **self._fields, **where, **{k: v for k, v in places.items() if v is not None}}
            log.log(level, "%s: %s", subject, text, extra={"inbound": {**extra, **facts}})

    def of(self, tp: TopicPartition | None = None) -> tuple[Happened, ...]:
        """Return the events of a partition, or of the channel, oldest first."""
        with self._lock:
            return tuple(self._of.get(tp, ()))

    def last(self, tp: TopicPartition | None, *kinds: str) -> Happened | None:
        """Return the last event of these kinds. None: there is none."""
        with self._lock:
            return next((event for event in reversed(self._of.get(tp, ())) if event.kind in kinds), None)

    def forget(self, tp: TopicPartition) -> None:
        """Drop a deleted topic's partition."""
        with self._lock:
            self._kept -= len(self._of.pop(tp, ()))

    def _keep(self, event: Happened) -> int:
        """Keep an event. Returns how often it has come in a row."""
        with self._lock:
            events = self._of.get(event.tp)
            if events is None:
                events = self._of[event.tp] = deque(maxlen=OF_CHANNEL if event.tp is None else PER_PARTITION)
            self._of.move_to_end(event.tp)
            before = events[-1] if events else None
            if (
                before is not None
                and (before.kind, before.offset, before.epoch) == (event.kind, event.offset, event.epoch)
                and (event.tp is not None or before.text == event.text)
            ):
                events[-1] = replace(event, at=before.at, count=before.count + 1, last=event.at)
                return events[-1].count
            self._kept += len(events) < (events.maxlen or 0)
            events.append(event)
            while self._kept > IN_ALL and len(self._of) > 1:
                _, forgotten = self._of.popitem(last=False)
                self._kept -= len(forgotten)
            return 1
