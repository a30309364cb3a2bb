"""A bound on the events per second of one process, kept by short batches and by rests between them."""

from __future__ import annotations

import threading
from dataclasses import replace

from inbound.clock import Clock
from inbound.processors.batch import Batch, BatchResponse, Verb, record_size
from inbound.processors.delivery import smaller
from inbound.topic_partition import TopicPartition

#: What all partitions together may take in this time, in seconds, is what they take in one turn each. Shorter is
#: smoother, and makes more commits.
SLICE = 0.25


class Turn:
    """What one partition may take of a batch now, and when it comes again."""

    def __init__(self, batch: Batch, part: Batch, wait: float, max_bytes: int | None) -> None:
        self.part = part
        self._whole = part is batch
        self._wait = wait
        self._max_bytes = max_bytes

    def bounded(self, answer: BatchResponse) -> BatchResponse:
        """Return the answer for `part` as one for the batch that was handed out."""
        offset = answer.offset
        if offset is None and not self._whole and answer.verb is not Verb.REVERT:
            offset = self.part.next_offset
        return replace(
            answer,
            offset=offset,
            wait=max(answer.wait, self._wait),
            max_bytes=smaller(answer.max_bytes, self._max_bytes),
        )


class Pace:
    """Shares out a rate over the partitions that have something to read. Any thread.

    What is taken moves a common clock reading on by its share of the rate, and who took it rests until then. So the
    partitions take turns, and in any time t no more than rate * t is taken, and one turn of each partition.
    """

    def __init__(self, per_second: float | None, clock: Clock) -> None:
        """`per_second`: records; None: as many as come."""
        self._rate = per_second
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at = clock.now()
        self._active: dict[TopicPartition, bool] = {}  # and whether a batch of it was longer than its turn

    @property
    def rate(self) -> float | None:
        """Records per second; None: as many as come."""
        return self._rate

    def set_rate(self, per_second: float | None) -> None:
        """Go at another pace from the next turn on. Who rests rests to the end of it."""
        with self._lock:
            self._rate = per_second
            self._free_at = min(self._free_at, self._clock.now())
            self._active = dict.fromkeys(self._active, False)

    def turn(self, batch: Batch) -> Turn:
        """Say how much of `batch` may be taken now: at least one record."""
        tp = TopicPartition(batch.topic, batch.partition)
        rate = self._rate
        if rate is None:
            return Turn(batch, batch, 0.0, None)
        with self._lock:
            self._active.setdefault(tp, False)
            most = max(1, int(rate * SLICE / len(self._active)))
            count = min(most, len(batch))
            now = self._clock.now()
            self._free_at = max(self._free_at, now) + count / rate
            wait = self._free_at - now
            self._active[tp] |= count < len(batch)
            too_long = self._active[tp]
        part = batch.before(batch.records[count].offset) if count < len(batch) else batch
        assert part is not None
        if not too_long:
            return Turn(batch, part, wait, None)
        # So that what is handed out next is about as long as its turn, and not handed back again.
        mean = sum(map(record_size, batch.records)) / len(batch)
        return Turn(batch, part, wait, max(1, round(mean * most)))

    def waits(self) -> dict[TopicPartition, tuple[str, str]]:
        """Return what the partitions that are read wait for."""
        with self._lock:
            rate = self._rate
            if rate is None:
                return {}
            return dict.fromkeys(self._active, ("rate", f"max_read_rate ({rate:g} events/s) is reached"))

    def forget(self, partition: TopicPartition) -> None:
        """`partition` takes nothing more."""
        with self._lock:
            self._active.pop(partition, None)
