"""An attempt at a unit on an executor, from scan to mark."""

from __future__ import annotations

import asyncio
import logging
import pickle
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from inspect import isawaitable
from itertools import chain
from pathlib import Path
from typing import Any

from inbound.channel.failure_policy import DeadLetters
from inbound.channel.worker import finish
from inbound.clock import SystemClock
from inbound.config import ChannelConfig
from inbound.embedded.locks import holder
from inbound.errors import LedgerError, ProcessorError, SparkError
from inbound.kafka.base import LogClient
from inbound.kafka.clients.choice import connector
from inbound.kafka.clients.dead_letter_topic import DeadLetterTopic
from inbound.kafka.python.producer import KafkaTopicWriter
from inbound.ledger.base import Ledger
from inbound.plan.plugins import find_processor
from inbound.processors.base import BatchEventProcessor, Context, TopicWriter
from inbound.runtime.text import describe
from inbound.spark.replay.feed import UnitRecords, from_arrow, from_kafka
from inbound.spark.replay.marks import ReplayFolder
from inbound.spark.replay.plan import Unit
from inbound.spark.replay.run import ReplayParts, UnitRun

log = logging.getLogger("inbound.replay")

#: Time to wait for the end of an earlier attempt, which may be inside a callback. Seconds.
OVERTAKEN = 60.0
#: The columns of an attempt's row: its unit, its last mark, why it was held.
RESULT = "unit int, mark long, held string"


@dataclass(frozen=True)
class ReplayJob:
    """The input of every attempt, sent pickled with secrets by Spark."""

    folder: Path
    name: str
    units: tuple[Unit, ...]
    channel: str
    config: ChannelConfig
    processor: str
    options: Any
    kafka: Mapping[str, Any]


class ReplayTask:
    """Replays the unit whose records Spark passes; yields one row."""

    def __init__(self, job: ReplayJob, import_paths: tuple[str, ...]) -> None:
        # Options may be of a user's class, which can be imported only once the paths are set.
        self._job = pickle.dumps(job)
        self._import_paths = import_paths

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        sys.path[:0] = [path for path in self._import_paths if path not in sys.path]
        job: ReplayJob = pickle.loads(self._job)
        unit = _unit_of(job, first)
        mark, held = attempt(job, unit, chain([first], batches))
        names = ["unit", "mark", "held"]
        types = [pyarrow.int32(), pyarrow.int64(), pyarrow.string()]
        columns = [pyarrow.array([value], type) for value, type in zip((unit.number, mark, held), types, strict=True)]
        yield pyarrow.RecordBatch.from_arrays(columns, names=names)


def attempt(job: ReplayJob, unit: Unit, batches: Iterator[Any]) -> tuple[int, str | None]:
    """Replay the rest of a unit; return its mark and hold reason.

    Raises:
        SparkError: another attempt at it is still running.
        LedgerError: the marks cannot be written.
    """
    folder = ReplayFolder(job.folder, job.name)
    lock = folder.lock_of(unit)
    try:
        taken = lock.acquire(OVERTAKEN)
    except OSError as error:
        raise LedgerError(
            f"{lock.path}: {error.strerror}: executors need the folder of --marks too, on shared storage"
        ) from None
    if not taken:
        raise SparkError(
            f"{unit.tp}: another attempt (pid {holder(lock.path)}) still runs after {OVERTAKEN:.0f} s, and two would deliver "
            "the same offsets; begin the same replay again when it has ended"
        )
    with lock:
        standing = folder.standing(unit)
        if standing.complete:
            return standing.mark, None
        number = 1 + max((one.number for one in standing.attempts), default=0)
        ledger = folder.ledger_of(unit, SystemClock())
        why = "it was interrupted"
        try:
            ledger.note("claimed", **unit.tp._asdict(), epoch=number, position=standing.mark, session=None)
            mark, held = _replayed(job, unit, standing.mark, number, ledger, batches)
            why = held or ("it ended" if mark >= unit.next else "the processor answered without advance")
            return mark, held
        except Exception as error:
            why = describe(error)
            raise
        finally:
            ledger.note("released", **unit.tp._asdict(), epoch=number, why=why)
            ledger.close()


def _replayed(
    job: ReplayJob, unit: Unit, start: int, number: int, ledger: Ledger, batches: Iterator[Any]
) -> tuple[int, str | None]:
    cls = find_processor(job.processor).cls
    me = f"replay-{job.name}-{unit.number}-{number}"

    def connect() -> LogClient:
        return connector(job.config.reader, job.kafka, client_id=me, isolation=job.config.isolation)()

    source = UnitRecords(from_arrow(batches, unit), unit, start, lambda low, high: from_kafka(connect, unit, low, high))
    with ExitStack() as stack:
        dead_letters: DeadLetters | None = None
        if (topic := job.config.on_error.dead_letter_topic) is not None:
            dead_letter_topic = DeadLetterTopic(job.kafka, topic, job.config.group, me)
            stack.callback(dead_letter_topic.close)
            dead_letters = dead_letter_topic.send
        parts = ReplayParts(SystemClock(), job.config, cls(), ledger)
        reading = stack.enter_context(ThreadPoolExecutor(1, "reading")) if parts.asynchronous else None

        def open_topic(topic: str) -> TopicWriter:
            writer = KafkaTopicWriter(job.kafka, topic, me)
            stack.callback(writer.close)
            return writer

        async def whole() -> tuple[int, str | None]:
            run = UnitRun(parts, unit, start, number, source, dead_letters, reading)
            context = Context(
                channel=job.channel,
                group=job.config.group,
                consumer_id=me,
                options=job.options,
                shutdown_timeout=job.config.shutdown_timeout,
                commit=run.advance,
                open_topic=open_topic,
            )
            held = await _served(unit, parts.processor, context, run)
            return run.mark, held

        if parts.asynchronous:
            with asyncio.Runner() as runner:
                return runner.run(whole())
        return finish(whole())


async def _served(unit: Unit, processor: BatchEventProcessor, context: Context, run: UnitRun) -> str | None:
    """Run the attempt between the processor's `open` and `close`."""
    name = type(processor).__name__
    try:
        await _awaited(processor.open(context))
    except Exception as error:
        raise ProcessorError(
            f"{unit.tp}: {name}.open failed: {describe(error)}; nothing was delivered, the processor cannot do its "
            "work without it"
        ) from error
    try:
        return await run.run()
    finally:
        context.stopping.set()
        try:
            await _awaited(processor.close())
        except Exception as error:
            log.error("%s: %s.close failed: %s", unit.tp, name, describe(error))


async def _awaited(answer: Any) -> Any:
    return await answer if isawaitable(answer) else answer


def _unit_of(job: ReplayJob, batch: Any) -> Unit:
    topic, partition = batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
    offset = batch.column("offset")[0].as_py()
    for unit in job.units:
        if unit.tp == (topic, partition) and unit.first <= offset < unit.next:
            return unit
    raise SparkError(f"{topic}/{partition}: Spark delivered offset {offset}, which is not of this replay")
