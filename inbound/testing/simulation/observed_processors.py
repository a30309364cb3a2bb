"""The judge observes each processor in a simulated run.

Callbacks that are coroutines run on an event loop that waits for nothing but the simulated time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache, partial
from inspect import isawaitable
from typing import TypeVar

from inbound.errors import BadResponseError, InboundError, OffsetOutOfRangeError, PartitionLostError, ProcessorError
from inbound.processors.base import BatchEventProcessor, Context, MaybeLater, gives_starts, has_room, is_async
from inbound.processors.batch import Batch, BatchResponse
from inbound.testing.simulation.judge import Judge
from inbound.testing.simulation.scheduler import Scheduler
from inbound.testing.simulation.witness import GroupMember
from inbound.topic_partition import TopicPartition

T = TypeVar("T")
Tell = Callable[[GroupMember, TopicPartition, object], None]

#: Seconds between a coroutine callback's checks whether the storm is over.
LOOK = 0.25


class Observed(BatchEventProcessor):
    """Forwards calls to the inner processor, and reports them to the judge."""

    #: Whether it chooses where claims begin.
    starts = False

    def __init__(self, inner: BatchEventProcessor, judge: Judge, scheduler: Scheduler) -> None:
        self.inner = inner
        self.consumer: GroupMember | None = None  # set once it is made
        #: Returns how long the next callback takes, in seconds.
        self.duration: Callable[[], float] = lambda: 0.0
        self._judge = judge
        self._scheduler = scheduler
        self._is_open = False

    def open(self, context: Context) -> MaybeLater[None]:
        self._is_open = True
        return self.inner.open(replace(context, commit=partial(self._finished, context.commit)))

    def _finished(self, commit: Callable[[Batch, int], None], batch: Batch, offset: int) -> None:
        self._judge.answers.finished(self.member, batch, offset, self)
        commit(batch, offset)

    def heard(self, what: str) -> None:
        """Judge that a callback comes between `open` and `close`."""
        if not self._is_open:
            self._judge.violated(f"{self.member.name}: {what} of a processor that is not open")

    def _heard_exception(self, partition: TopicPartition, error: Exception) -> None:
        self.heard("on_exception")
        if isinstance(error, OffsetOutOfRangeError) and error.is_cut:
            self._judge.cuts.out_of_range(partition, error)

    def on_next_batch(self, batch: Batch) -> MaybeLater[BatchResponse]:
        self.heard("on_next_batch")
        given = self._judge.begins(self.member, batch, self, starts=self.starts)
        response: object = None
        try:
            seconds = self.duration()
            if seconds and not self._scheduler.calm:
                self._scheduler.spend(self.member, seconds)
            response = answer = self.inner.on_next_batch(batch)
        finally:
            self._judge.answers.ends(given, response)
        return answer

    @property
    def member(self) -> GroupMember:
        """The process that the processor runs in."""
        assert self.consumer is not None
        return self.consumer

    def on_batch_processed(self, batch: Batch) -> MaybeLater[None]:
        self.heard("on_batch_processed")
        return self.inner.on_batch_processed(batch)

    def on_exception(self, partition: TopicPartition, error: Exception) -> MaybeLater[BatchResponse | None]:
        self._heard_exception(partition, error)
        if isinstance(error, PartitionLostError):
            self._scheduler.spend(self.member, self.duration())
        answer = self.inner.on_exception(partition, error)
        # Else an answer means nothing.
        return self._telling(answer, partition, self._judge.answers.after_a_failure) if _of_the_batch(error) else answer

    def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> MaybeLater[BatchResponse | None]:
        self.heard("on_stream_termination")
        return self._telling(
            self.inner.on_stream_termination(partition, next_offset), partition, self._judge.answers.without_a_batch
        )

    def on_reset(self, partition: TopicPartition, old_offset: int | None, new_offset: int) -> MaybeLater[None]:
        self.heard("on_reset")
        self._judge.told(self.member, partition, old_offset, new_offset)
        return self.inner.on_reset(partition, old_offset, new_offset)

    def on_idle(self, partition: TopicPartition) -> MaybeLater[BatchResponse | None]:
        self.heard("on_idle")
        return self._telling(self.inner.on_idle(partition), partition, self._judge.answers.without_a_batch)

    def _telling(self, answer: MaybeLater[T], tp: TopicPartition, tell: Tell) -> MaybeLater[T]:
        """Report an answer to the judge once it is known."""
        if isawaitable(answer):
            return self._tell_later(answer, tp, tell)
        tell(self.member, tp, answer)
        return answer

    async def _tell_later(self, answer: Awaitable[T], tp: TopicPartition, tell: Tell) -> T:
        result = await answer
        tell(self.member, tp, result)
        return result

    def on_pause(self, partition: TopicPartition) -> MaybeLater[None]:
        self.heard("on_pause")
        return self.inner.on_pause(partition)

    def on_resume(self, partition: TopicPartition) -> MaybeLater[None]:
        self.heard("on_resume")
        return self.inner.on_resume(partition)

    def close(self) -> MaybeLater[None]:
        self.heard("close")
        self._is_open = False
        return self.inner.close()


class ObservedStarts(Observed):
    """Observes a processor that chooses where claims begin."""

    starts = True

    def on_claim(self, partition: TopicPartition, committed: int | None) -> MaybeLater[int | None]:
        self.heard("on_claim")
        return self._telling(self.inner.on_claim(partition, committed), partition, self._judge.placed)


class ObservedLater(Observed):
    """Observes a processor whose `on_next_batch` is a coroutine."""

    async def on_next_batch(self, batch: Batch) -> BatchResponse:
        self.heard("on_next_batch")
        given = self._judge.begins(self.member, batch, self, starts=self.starts)
        response: object = None
        try:
            await self._spend(self.duration())
            response = self.inner.on_next_batch(batch)
            if isawaitable(response):
                response = await response
        finally:
            self._judge.answers.ends(given, response)
        return response

    async def on_exception(self, partition: TopicPartition, error: Exception) -> BatchResponse | None:
        self._heard_exception(partition, error)
        if isinstance(error, PartitionLostError):
            await self._spend(self.duration())
        answer = self.inner.on_exception(partition, error)
        if isawaitable(answer):
            answer = await answer
        if _of_the_batch(error):
            self._judge.answers.after_a_failure(self.member, partition, answer)
        return answer

    async def _spend(self, seconds: float) -> None:
        while seconds > 0 and not self._scheduler.calm:
            await asyncio.sleep(min(seconds, LOOK))
            seconds -= LOOK


class ObservedRoom(Observed):
    """Observes a processor that limits the records it takes."""

    def room(self, partition: TopicPartition, committed: int) -> int | None:
        return self.inner.room(partition, committed)


def _of_the_batch(error: Exception) -> bool:
    return not isinstance(error, InboundError) or isinstance(error, BadResponseError | ProcessorError)


@cache
def observing(kind: type[BatchEventProcessor]) -> type[Observed]:
    """Return an observer class with the same callbacks as `kind`."""
    chosen = {ObservedRoom: has_room(kind), ObservedStarts: gives_starts(kind), ObservedLater: is_async(kind)}
    bases = tuple(base for base, so in chosen.items() if so) or (Observed,)
    return type(f"Observed{kind.__name__}", bases, {"Options": kind.Options, "makes_spans": kind.makes_spans})
