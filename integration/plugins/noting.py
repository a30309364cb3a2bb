"""A processor and a sink that write down what they are handed, and how long after it was published."""

from __future__ import annotations

import os
import time

from pydantic import BaseModel, ConfigDict

from inbound import Batch, BatchEventProcessor, BatchResponse, Context
from inbound.processors.sinks import BatchEventSink


class Options(BaseModel):
    """Where to write; whether opening fails; and what can be changed without any effect."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str
    broken: bool = False
    label: str = ""


class _Notes:
    """One line for each batch, in one write: topic, partition, seconds since its oldest record, offsets."""

    def __init__(self, options: Options) -> None:
        if options.broken:
            raise ConnectionError("no database at db:5432")
        self._file = os.open(options.file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def write(self, batch: Batch) -> None:
        late = time.time() - batch.records[0].timestamp / 1000
        offsets = " ".join(str(record.offset) for record in batch.records)
        os.write(self._file, f"{batch.topic} {batch.partition} {late:.3f} {offsets}\n".encode())

    def close(self) -> None:
        os.close(self._file)


class Noting(BatchEventProcessor):
    """Writes down everything, and advances."""

    Options = Options

    def open(self, context: Context) -> None:
        self._notes = _Notes(context.options)

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        self._notes.write(batch)
        return BatchResponse.advance()

    def close(self) -> None:
        self._notes.close()


class NotingSink(BatchEventSink):
    """The same as a sink."""

    Options = Options

    def open(self, context: Context) -> None:
        self._notes = _Notes(context.options)

    def send(self, batch: Batch) -> None:
        self._notes.write(batch)

    def close(self) -> None:
        self._notes.close()
