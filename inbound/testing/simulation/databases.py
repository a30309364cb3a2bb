"""Processors that keep their offsets beside their results (`docs/plugin-offsets.md`); their database must get every record."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inbound.processors.base import BatchEventProcessor, MaybeLater
from inbound.processors.batch import Batch, BatchResponse
from inbound.topic_partition import TopicPartition

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
        #: Where claims began of which nothing is written: somebody may have set the group's offset by hand before.
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
    """Writes each record once, and answers in all ways that leave the group's commit behind, until it is told to be good."""

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
