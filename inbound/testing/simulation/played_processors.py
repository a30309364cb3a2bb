"""The simulator's own processors: steady, moody, or owning their offsets."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from inbound.processors.base import BatchEventProcessor, MaybeLater
from inbound.processors.batch import Batch, BatchResponse
from inbound.testing.kafka import FakeKafka
from inbound.testing.simulation.judge import Judge
from inbound.topic_partition import TopicPartition


class Steady(BatchEventProcessor):
    """Advances, always."""

    def on_next_batch(self, batch: Batch) -> MaybeLater[BatchResponse]:
        return BatchResponse.advance()


class Moody(BatchEventProcessor):
    """Gives every kind of answer and fails, until the storm ends."""

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
        self._end = end  # of the log: a skip past it is held there
        self._poisoned = poisoned  # whether a record always fails
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
    """`Moody` as a coroutine."""

    async def on_next_batch(self, batch: Batch) -> BatchResponse:
        answer = super().on_next_batch(batch)
        assert isinstance(answer, BatchResponse)
        return answer


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
        #: Where claims began of unwritten partitions: an operator may have set the group's offset before.
        self._begins: dict[TopicPartition, int] = {}

    def next_offset(self, tp: TopicPartition) -> int | None:
        """Return where a claim reads on; None: at the group's offset."""
        if tp in self._rows:
            return self._rows[tp].next_offset
        self._begins[tp] = max(self._begins.get(tp, 0), self._judge.commit_of(tp) or 0)
        return None

    def write(self, batch: Batch) -> bool:
        """Write a batch's new records, unless a later claim has written already."""
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
        """Judge that the database has everything that is committed."""
        for tp, row in self._rows.items():
            missing = [o for o in self._kafka.offsets(*tp) if row.next_offset <= o < (self._judge.commit_of(tp) or 0)]
            if missing:
                self._judge.violated(f"the database never got {missing} of {tp}, which are committed")


class Owning(BatchEventProcessor):
    """Writes each record once, and often leaves the group's commit behind."""

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
    """`Owning` as coroutines."""

    async def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
        answer = super().on_claim(partition, committed)
        assert answer is None or isinstance(answer, int)
        return answer

    async def on_next_batch(self, batch: Batch) -> BatchResponse:
        answer = super().on_next_batch(batch)
        assert isinstance(answer, BatchResponse)
        return answer
