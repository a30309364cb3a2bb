"""Processors in the simulator: the user's own, watched by the judge; moody ones, and ones that keep their offsets.

Callbacks that are coroutines are played too, on an event loop that waits for nothing but the simulated time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from inspect import isawaitable
from typing import TYPE_CHECKING, TypeVar

from inbound.errors import BadResponseError, InboundError, OffsetOutOfRangeError, PartitionLostError, ProcessorError
from inbound.processors.base import BatchEventProcessor, Context, MaybeLater, gives_starts, has_room, is_async
from inbound.processors.batch import Batch, BatchResponse
from inbound.testing.simulation.judge import Judge
from inbound.testing.simulation.scheduler import Scheduler
from inbound.testing.simulation.witness import GroupMember
from inbound.topic_partition import TopicPartition

T = TypeVar("T")
Tell = Callable[[GroupMember, TopicPartition, object], None]

#: How often a callback that is a coroutine looks whether the storm is over, in seconds.
LOOK = 0.25


class Observed(BatchEventProcessor):
    """Passes each call on to the processor inside, tells the judge, and lets time pass in callbacks."""

    #: Whether it says itself where claims begin.
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
        """A callback comes: between `open` and `close`, and at no other time."""
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
        """The process that it runs in."""
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
        """Tell the judge of an answer when it is there."""
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
    """Of a processor that says itself where claims begin."""

    starts = True

    def on_claim(self, partition: TopicPartition, committed: int | None) -> MaybeLater[int | None]:
        self.heard("on_claim")
        return self._telling(self.inner.on_claim(partition, committed), partition, self._judge.placed)


class ObservedLater(Observed):
    """Of a processor whose `on_next_batch` is a coroutine: batches of many partitions are under way at once."""

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
    """Of a processor that says how much it takes."""

    def room(self, partition: TopicPartition, committed: int) -> int | None:
        return self.inner.room(partition, committed)


def _of_the_batch(error: Exception) -> bool:
    return not isinstance(error, InboundError) or isinstance(error, BadResponseError | ProcessorError)


@cache
def observing(kind: type[BatchEventProcessor]) -> type[Observed]:
    """Return what watches a processor of this class: it is what the channel takes it for."""
    chosen = {ObservedRoom: has_room(kind), ObservedStarts: gives_starts(kind), ObservedLater: is_async(kind)}
    bases = tuple(base for base, so in chosen.items() if so) or (Observed,)
    return type(f"Observed{kind.__name__}", bases, {"Options": kind.Options, "makes_spans": kind.makes_spans})


class Steady(BatchEventProcessor):
    """Advances, always."""

    def on_next_batch(self, batch: Batch) -> MaybeLater[BatchResponse]:
        return BatchResponse.advance()


class Moody(BatchEventProcessor):
    """Gives every kind of answer, and fails, until the storm is over; where records may be given up, some always fail."""

    def __init__(
        self,
        seed: str,
        calm: Callable[[], bool],
        *,
        end: Callable[[TopicPartition], int],
        poisoned: Callable[[int], bool] = lambda offset: False,
    ) -> None:
        self._rng = random.Random(seed)
        self._calm = calm
        self._end = end  # of the log: who skips past it is held there
        self._poisoned = poisoned
        self._failures: dict[TopicPartition, int] = {}  # in a row

    def on_next_batch(self, batch: Batch) -> MaybeLater[BatchResponse]:
        if any(self._poisoned(record.offset) for record in batch.records):
            raise RuntimeError("a record that is no good")
        tp, rng = TopicPartition(batch.topic, batch.partition), self._rng
        if self._calm():
            return rng.choice((BatchResponse.advance(), BatchResponse.next(commit_within=0.5)))
        if rng.random() < 0.06 and self._failures.get(tp, 0) < 2:  # after more, the waits get long
            self._failures[tp] = self._failures.get(tp, 0) + 1
            raise RuntimeError("in a bad mood")
        self._failures[tp] = 0
        return self._answer(tp, rng.random(), batch.first_offset, batch.next_offset)

    def _answer(self, tp: TopicPartition, mood: float, first: int, end: int) -> BatchResponse:
        rng = self._rng
        if mood < 0.6:
            return BatchResponse.advance()
        if mood < 0.67:
            return BatchResponse.advance(rng.randint(first, end))
        if mood < 0.70:
            return BatchResponse.advance(min(end + rng.randint(1, 3), self._end(tp)), skip=True)
        if mood < 0.75:
            return BatchResponse.next()
        if mood < 0.80:
            return BatchResponse.next(commit_within=rng.choice((0.0, 0.3, 2.0)))
        if mood < 0.83:
            return BatchResponse.next(min(rng.randint(first, end + 2), self._end(tp)))
        if mood < 0.88:
            return BatchResponse.revert(wait=rng.choice((0.0, 0.2)))
        if mood < 0.92:
            return BatchResponse.revert(rng.randint(max(0, first - 4), end))
        if mood < 0.94:  # refused: below what is committed, or past the batch
            return rng.choice((BatchResponse.advance(end + 2), BatchResponse.revert(end + 2)))
        return BatchResponse.advance(wait=0.5)

    def on_exception(self, partition: TopicPartition, error: Exception) -> MaybeLater[BatchResponse | None]:
        if self._calm() or self._rng.random() < 0.9:
            return None
        return self._rng.choice((BatchResponse.revert(), BatchResponse.advance(), BatchResponse.next()))

    def on_idle(self, partition: TopicPartition) -> MaybeLater[BatchResponse | None]:
        return BatchResponse.advance() if self._rng.random() < 0.5 or self._calm() else None

    def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> MaybeLater[BatchResponse | None]:
        return BatchResponse.advance() if self._rng.random() < 0.5 else None


class MoodyLater(Moody):
    """The same as a coroutine."""

    async def on_next_batch(self, batch: Batch) -> BatchResponse:
        answer = super().on_next_batch(batch)
        assert isinstance(answer, BatchResponse)
        return answer


if TYPE_CHECKING:
    from inbound.testing.kafka import FakeKafka
    from inbound.testing.simulation.judge import Judge


@dataclass
class _Row:
    """What the database knows of one partition."""

    epoch: int = -1
    next_offset: int = 0


class Database:
    """Results and offsets of one group, written in one transaction."""

    def __init__(self, judge: Judge, kafka: FakeKafka) -> None:
        self._judge = judge
        self._kafka = kafka
        self._rows: dict[TopicPartition, _Row] = {}
        #: Where claims began of which nothing is written: an operator may have set the group's offset before.
        self._begins: dict[TopicPartition, int] = {}

    def next_offset(self, tp: TopicPartition) -> int | None:
        """Return where a claim reads on; None: at the group's offset, as nothing was written of that partition yet."""
        if tp in self._rows:
            return self._rows[tp].next_offset
        self._begins[tp] = max(self._begins.get(tp, 0), self._judge.commit_of(tp) or 0)
        return None

    def write(self, batch: Batch) -> bool:
        """Write what is new in a batch. Returns False, and writes nothing: a later claim has written already."""
        tp = TopicPartition(batch.topic, batch.partition)
        row = self._rows.get(tp) or _Row(next_offset=self._begins.get(tp, 0))
        if batch.epoch < row.epoch:
            return False
        missing = [o for o in self._kafka.offsets(*tp) if row.next_offset <= o < batch.first_offset]
        if missing:
            self._judge.violated(f"the database gets {tp} from {batch.first_offset} on, and never got {missing}")
        self._rows[tp] = _Row(batch.epoch, max(row.next_offset, batch.next_offset))
        return True

    def check(self) -> None:
        """Judge what is there at the end: all that is committed."""
        for tp, row in self._rows.items():
            missing = [o for o in self._kafka.offsets(*tp) if row.next_offset <= o < (self._judge.commit_of(tp) or 0)]
            if missing:
                self._judge.violated(f"the database never got {missing} of {tp}, which are committed")


class Owning(BatchEventProcessor):
    """Writes each record once, and answers in all ways that leave the group's commit behind, until the storm is over."""

    def __init__(self, seed: str, database: Database, calm: Callable[[], bool]) -> None:
        self._rng = random.Random(seed)
        self._database = database
        self._calm = calm
        self._failures: dict[TopicPartition, int] = {}  # in a row

    def on_claim(self, partition: TopicPartition, committed: int | None) -> MaybeLater[int | None]:
        if self._fails(partition):
            if self._rng.random() < 0.5:
                raise RuntimeError("the database does not answer")
            return -1
        return self._database.next_offset(partition)

    def on_next_batch(self, batch: Batch) -> MaybeLater[BatchResponse]:
        tp, mood = TopicPartition(batch.topic, batch.partition), self._rng.random()
        written = self._database.write(batch)
        if self._calm():
            return BatchResponse.advance()
        if not written:
            return BatchResponse.advance() if mood < 0.5 else BatchResponse.revert()
        if self._fails(tp):
            raise RuntimeError("the answer of the database is lost")
        if mood < 0.5:
            return BatchResponse.advance()
        if mood < 0.65:
            return BatchResponse.advance(self._rng.randint(batch.first_offset, batch.next_offset))
        if mood < 0.85:
            return BatchResponse.next()
        return BatchResponse.next(commit_within=self._rng.choice((0.0, 0.3, 2.0)))

    def on_idle(self, partition: TopicPartition) -> MaybeLater[BatchResponse | None]:
        return BatchResponse.advance() if self._rng.random() < 0.5 or self._calm() else None

    def _fails(self, tp: TopicPartition) -> bool:
        fails = not self._calm() and self._failures.get(tp, 0) < 2 and self._rng.random() < 0.06
        self._failures[tp] = self._failures.get(tp, 0) + 1 if fails else 0
        return fails


class OwningLater(Owning):
    """The same as coroutines."""

    async def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
        answer = super().on_claim(partition, committed)
        assert answer is None or isinstance(answer, int)
        return answer

    async def on_next_batch(self, batch: Batch) -> BatchResponse:
        answer = super().on_next_batch(batch)
        assert isinstance(answer, BatchResponse)
        return answer
