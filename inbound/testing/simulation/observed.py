"""Processors in the simulator: the user's own, watched by the judge; and a moody one that gives every kind of answer."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from inbound.processors.base import BatchEventProcessor, Context, MaybeLater, async_callbacks
from inbound.processors.batch import Batch, BatchResponse
from inbound.testing.simulation.judge import Judge
from inbound.testing.simulation.scheduler import Scheduler
from inbound.testing.world import Consumer
from inbound.topic_partition import TopicPartition

T = TypeVar("T")

PLAIN_ONLY = "the simulator plays plain processors only, whose callbacks are written without `async`"


def plain(answer: MaybeLater[T]) -> T:
    """Return a callback's answer. Raises TypeError for a coroutine."""
    if isinstance(answer, Awaitable):
        raise TypeError(f"{answer!r}: {PLAIN_ONLY}")
    return answer


class Observed(BatchEventProcessor):
    """Hands everything on to the processor inside, tells the judge, and lets time pass in callbacks."""

    def __init__(self, inner: BatchEventProcessor, judge: Judge, scheduler: Scheduler) -> None:
        if callbacks := async_callbacks(type(inner)):
            raise TypeError(f"{type(inner).__name__}.{callbacks[0]}: {PLAIN_ONLY}")
        self.inner = inner
        self.consumer: Consumer | None = None  # set once it is made
        #: Returns how long the next callback takes, in seconds.
        self.duration: Callable[[], float] = lambda: 0.0
        self._judge = judge
        self._scheduler = scheduler

    def open(self, context: Context) -> None:
        self.inner.open(context)

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        assert self.consumer is not None
        given = self._judge.begins(self.consumer, batch)
        response: BatchResponse | None = None
        try:
            seconds = self.duration()
            if seconds:
                self._scheduler.spend(self.consumer, seconds)
            response = plain(self.inner.on_next_batch(batch))
        finally:
            self._judge.ends(given, response)
        return response

    def on_batch_processed(self, batch: Batch) -> None:
        self.inner.on_batch_processed(batch)

    def on_exception(self, partition: TopicPartition, error: Exception) -> BatchResponse | None:
        return plain(self.inner.on_exception(partition, error))

    def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> BatchResponse | None:
        return plain(self.inner.on_stream_termination(partition, next_offset))

    def on_reset(self, partition: TopicPartition, old_offset: int | None, new_offset: int) -> None:
        assert self.consumer is not None
        self._judge.told(self.consumer, partition, old_offset, new_offset)
        self.inner.on_reset(partition, old_offset, new_offset)

    def on_idle(self, partition: TopicPartition) -> BatchResponse | None:
        return plain(self.inner.on_idle(partition))

    def on_pause(self, partition: TopicPartition) -> None:
        self.inner.on_pause(partition)

    def on_resume(self, partition: TopicPartition) -> None:
        self.inner.on_resume(partition)

    def close(self) -> None:
        self.inner.close()


class ObservedStarts(Observed):
    """Of a processor that says itself where claims begin."""

    def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
        return plain(self.inner.on_claim(partition, committed))


class Steady(BatchEventProcessor):
    """Advances, always."""

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        return BatchResponse.advance()


class Moody(BatchEventProcessor):
    """Gives every kind of answer, and fails, until it is told to be good."""

    def __init__(self, seed: str, calm: Callable[[], bool]) -> None:
        self._rng = random.Random(seed)
        self._calm = calm
        self._failures: dict[tuple[str, int], int] = {}  # in a row, by partition

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        mood, place = self._rng.random(), (batch.topic, batch.partition)
        if mood >= 0.95 and not self._calm() and self._failures.get(place, 0) < 2:  # after more, the waits get long
            self._failures[place] = self._failures.get(place, 0) + 1
            raise RuntimeError("in a bad mood")
        self._failures[place] = 0
        if self._calm() or mood < 0.7:
            return BatchResponse.advance()
        if mood < 0.78:
            return BatchResponse.advance(batch.records[-1].offset)
        if mood < 0.84:
            return BatchResponse.next()
        if mood < 0.9:
            return BatchResponse.revert(wait=self._rng.choice((0.0, 0.2)))
        return BatchResponse.advance(wait=0.5)
