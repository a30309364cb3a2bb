"""The `simple` processor, its options, and its read rate."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from inbound.clock import Clock
from inbound.config.values import StrictModel, duration, rate, refuse
from inbound.errors import PartitionLostError
from inbound.processors.base import BatchEventProcessor, Context
from inbound.processors.batch import Batch, BatchResponse, Verb, record_size
from inbound.processors.simple.delivery import AtLeastOnce, AtMostOnce, NamedSink, SinkDelivery, smaller
from inbound.processors.sinks.choice import SinkChoice
from inbound.topic_partition import TopicPartition

#: Seconds in which each partition with records takes one turn, at the full rate. A shorter time is smoother, and makes more
#: commits.
SLICE = 0.25


@dataclass(frozen=True)
class Turn:
    """The part of a batch to take now, and the wait."""

    batch: Batch
    part: Batch
    wait: float = 0.0
    max_bytes: int | None = None

    def bounded(self, answer: BatchResponse) -> BatchResponse:
        """Return the answer for `part` as one for the whole batch."""
        offset = answer.offset
        if offset is None and self.part is not self.batch and answer.verb is not Verb.REVERT:
            offset = self.part.next_offset
        wait, max_bytes = max(answer.wait, self.wait), smaller(answer.max_bytes, self.max_bytes)
        return replace(answer, offset=offset, wait=wait, max_bytes=max_bytes)


class Pace:
    """Shares a rate among the partitions that have records. Any thread.

    A turn moves a common time forward by its part of the rate, and its partition waits until then. So the partitions take
    turns, and in any time t they take at most rate * t, and one turn of each partition.
    """

    def __init__(self, per_second: float | None, clock: Clock) -> None:
        self.rate = per_second  # records; None: no bound
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at = clock.now()
        self._active: dict[TopicPartition, bool] = {}  # whether one of its batches was longer than its turn

    def set_rate(self, per_second: float | None) -> None:
        """Change the rate from the next turn on; current waits stay."""
        with self._lock:
            self.rate = per_second
            self._free_at = min(self._free_at, self._clock.now())
            self._active = dict.fromkeys(self._active, False)

    def turn(self, batch: Batch) -> Turn:
        """Return the part of `batch` to take now: at least one record."""
        tp = TopicPartition(batch.topic, batch.partition)
        rate = self.rate
        if rate is None:
            return Turn(batch, batch)
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
            return Turn(batch, part, wait)
        # The next batch should be about as long as its turn, and not cut again.
        mean = sum(map(record_size, batch.records)) / len(batch)
        return Turn(batch, part, wait, max(1, round(mean * most)))

    def waits(self) -> dict[TopicPartition, tuple[str, str]]:
        """Return why the active partitions wait, if a rate is set."""
        with self._lock:
            if self.rate is None:
                return {}
            return dict.fromkeys(self._active, ("rate", f"max_read_rate ({self.rate:g} events/s) is reached"))

    def forget(self, partition: TopicPartition) -> None:
        """Remove a lost or released partition."""
        with self._lock:
            self._active.pop(partition, None)


class SimpleOptions(StrictModel):
    """When to commit, how fast to read, and where events go."""

    mode: Literal["every-batch", "periodic"] = Field(
        default="every-batch", description="commit after each sent batch, or once per `period`"
    )
    period: Annotated[float, duration(over=True)] = Field(
        default=30.0, description="sent records are committed after this time at the latest; only with `mode: periodic`"
    )
    no_duplication: bool = Field(
        default=False, description="commit first, then send: at most once; only with `mode: every-batch`"
    )
    max_read_rate: Annotated[float, rate()] | None = Field(
        default=None, description="records per second, for all partitions of this process together"
    )
    sinks: tuple[SinkChoice, ...] = Field(min_length=1, description="the sinks, in the order of sending")
    undecodable: Literal["fail", "skip"] = Field(
        default="fail",
        description="what a record that is no event causes if a sink takes only events: an error (see `on_error`), or only a "
        "warning",
    )

    @model_validator(mode="after")
    def _check(self) -> SimpleOptions:
        refuse(
            "SimpleOptions",
            (
                self.mode != "periodic" and "period" in self.model_fields_set,
                "period",
                f"is used only with mode: periodic, but mode is {self.mode}; change one of the two",
            ),
            (
                self.mode == "periodic" and self.no_duplication,
                "no_duplication",
                "cannot be true with mode: periodic, which sends before it commits, so that a crash repeats; "
                "use mode: every-batch, or no_duplication: false",
            ),
        )
        return self


class SimpleProcessor(BatchEventProcessor):
    """Sends batches to sinks in order, at least or at most once.

    At least once: a sink that fails at an event ends the batch there, and the next read starts at that event. Earlier sinks get
    the rest a second time, so list the sink that fails most often first.
    """

    Options = SimpleOptions

    @property
    def not_sent(self) -> int:
        return self._delivery.not_sent

    @property
    def max_read_rate(self) -> float | None:
        return self._pace.rate

    def set_max_read_rate(self, per_second: float | None) -> None:
        self._pace.set_rate(per_second)

    def open(self, context: Context) -> None:
        """Open the sinks; if one fails, close the others and raise."""
        options: SimpleOptions = context.options
        self._period = options.period if options.mode == "periodic" else None
        self._pace = Pace(options.max_read_rate, context.clock)
        self._sinks: list[NamedSink] = []
        with ExitStack() as opened:
            for choice in options.sinks:
                sink = choice.make()
                sink.open(replace(context, options=choice.options))
                opened.callback(sink.close)
                self._sinks.append((choice.type, sink))
            kind = AtMostOnce if options.no_duplication else AtLeastOnce
            self._delivery: SinkDelivery = kind(self._sinks, options.undecodable, context)
            # With `no_duplication`, a committed batch is sent before the next one is delivered.
            self.commits_first = options.no_duplication
            opened.callback(self._delivery.close)
            self._opened = opened.pop_all()

    def waits(self) -> Mapping[TopicPartition, tuple[str, str]]:
        return self._pace.waits()

    def close(self) -> None:
        """Close all sinks, the last one first, even if one fails."""
        self._opened.close()

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        turn = self._pace.turn(batch)
        return self._deferred(batch, turn.bounded(self._delivery.on_next_batch(turn.part)))

    def on_batch_processed(self, batch: Batch) -> None:
        self._delivery.on_batch_processed(batch)

    def on_exception(self, partition: TopicPartition, error: Exception) -> BatchResponse | None:
        if isinstance(error, PartitionLostError):
            self._gone(partition)
        return None

    def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> BatchResponse | None:
        self._gone(partition)
        return None

    def _gone(self, partition: TopicPartition) -> None:
        self._delivery.on_gone(partition)
        self._pace.forget(partition)

    def _deferred(self, batch: Batch, answer: BatchResponse) -> BatchResponse:
        """Delay the commit to the end of the period."""
        if self._period is None or answer.verb is Verb.REVERT:
            return answer
        if answer.verb is Verb.NEXT:  # a sink withholds the commit
            within = answer.commit_within
            return answer if within is None else replace(answer, commit_within=smaller(within, self._period))
        if answer.offset is not None and answer.offset > batch.next_offset and not answer.skip:
            return answer  # past the batch: the channel refuses it
        return BatchResponse.next(
            answer.offset, wait=answer.wait, max_bytes=answer.max_bytes, commit_within=self._period
        )
