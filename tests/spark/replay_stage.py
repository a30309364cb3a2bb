"""One unit of a replay on made-up records: the real loop over a processor with given answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from inbound import Batch, BatchEventProcessor, BatchResponse
from inbound.channel.worker import finish
from inbound.config import ChannelConfig
from inbound.ledger import Done, MemoryLedger, Note
from inbound.partition.buffer import Chunk
from inbound.processors.base import is_async
from inbound.processors.batch import PlainRecord, Record
from inbound.spark.replay.feed import UnitRecords
from inbound.spark.replay.plan import Unit
from inbound.spark.replay.run import ReplayParts, UnitRun
from inbound.testing import ManualClock
from inbound.topic_partition import TopicPartition

Answer = Callable[[Batch], object]


class Told(BatchEventProcessor):
    """Gives the answers that it was made with, and records its calls."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.handed: list[tuple[int, int]] = []
        self.processed: list[tuple[int, int]] = []
        self.ended_at: list[int] = []
        self.last: object = None

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        self.handed.append((batch.first_offset, batch.next_offset))
        answer: Any = self.answers.pop(0) if self.answers else BatchResponse.advance()
        if callable(answer):
            answer = answer(batch)
        if isinstance(answer, BaseException):
            raise answer
        result: BatchResponse = answer
        return result

    def on_batch_processed(self, batch: Batch) -> None:
        self.processed.append((batch.first_offset, batch.next_offset))

    def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> Any:
        self.ended_at.append(next_offset)
        return self.last


class Stage:
    """A unit of partition 0, `offsets` in its log, batches of at most `batch` records."""

    def __init__(
        self,
        processor: BatchEventProcessor,
        offsets: Sequence[int] = range(10),
        *,
        first: int = 0,
        end: int | None = None,
        start: int | None = None,
        batch: int = 4,
        **channel: Any,
    ) -> None:
        self.processor = processor
        self.ledger = MemoryLedger()
        self.clock = ManualClock()
        self.unit = Unit(0, "orders", 0, first, end if end is not None else max(offsets, default=-1) + 1)
        self.start = first if start is None else start
        self.reread: list[tuple[int, int]] = []
        self.dead: list[int] = []
        self._log = list(offsets)
        reader = {"max_batch_records": batch, **channel.pop("reader", {})}
        self.config = ChannelConfig.model_validate(
            {"topics": ["orders"], "group": "g", "processor": {"type": "x:Y"}, "reader": reader, **channel}
        )
        self.run_of: UnitRun | None = None

    def run(self) -> str | None:
        """Replay the unit; returns why it is held."""
        if is_async(type(self.processor)):
            return asyncio.run(self._whole())
        return finish(self._whole())

    def _whole(self) -> Coroutine[Any, Any, str | None]:
        async def whole() -> str | None:
            parts = ReplayParts(self.clock, self.config, self.processor, self.ledger)
            source = UnitRecords(self._chunks(0, self.unit.next), self.unit, self.start, self._read_again)
            self.run_of = UnitRun(parts, self.unit, self.start, 1, source, self._dead_letter)
            return await self.run_of.run()

        return whole()

    @property
    def marks(self) -> list[int | None]:
        return [entry.commit for entry in self.ledger.entries if isinstance(entry, Done)]

    @property
    def notes(self) -> list[tuple[str, int, int]]:
        found = [entry for entry in self.ledger.entries if isinstance(entry, Note)]
        return [(note.kind, note.facts["from"], note.facts["to"]) for note in found]

    def _chunks(self, first: int, end: int) -> Iterator[Chunk]:
        records = [PlainRecord(n, value=b"%d" % n) for n in self._log if first <= n < end]
        for at in range(0, len(records), 3):
            part = records[at : at + 3]
            yield Chunk(part, part[-1].offset + 1, sum(len(record.value or b"") for record in part))

    def _read_again(self, first: int, end: int) -> Iterator[Chunk]:
        self.reread.append((first, end))
        return self._chunks(first, end)

    def _dead_letter(self, topic: str, partition: int, records: Sequence[Record], why: str) -> None:
        self.dead += [record.offset for record in records]
