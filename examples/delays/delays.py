"""A processor that counts flights and their delays per carrier, and keeps its counts through a `kill -9`.

The interesting part is the journal. inbound delivers at least once: after a crash, what was in work is delivered again,
here or in another process. So each line of the journal holds, in one write, what was counted *and* the offsets that it
was counted from. A reader drops the offsets that are there twice, and has exact counts.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from inbound import Batch, BatchEventProcessor, BatchResponse, Context


class Options(BaseModel):
    """What the configuration may set under `processor.options`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    journal: Path = Field(description="folder for the journals; each process writes a file of its own")
    slice: int = Field(default=20, ge=1, description="flights that are counted, and written, at a time")
    pause: float = Field(default=0.0, ge=0, description="seconds of make-believe work, such as a query, per slice")


class Journal:
    """A file of JSON lines. A line that was written survives the death of the process, though not of the machine."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.{os.getpid()}.jsonl"
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._lock = threading.Lock()

    def write(self, what: str, batch: Batch, **more: Any) -> None:
        """Append a line. Unbuffered: what were still in our memory when we are killed would be lost."""
        entry = {"at": round(time.time(), 4), "what": what, "topic": batch.topic, "partition": batch.partition, **more}
        line = memoryview(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
        with self._lock:  # several workers write
            while line:
                line = line[os.write(self._file, line) :]

    def close(self) -> None:
        os.close(self._file)


class DelaysPerCarrier(BatchEventProcessor):
    """Counts departures and minutes of delay per carrier, slice by slice."""

    Options = Options

    def open(self, context: Context) -> None:
        self.context = context
        self.options: Options = context.options
        self.journal = Journal(self.options.journal, context.consumer_id)

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        self.journal.write("begin", batch, first=batch.first_offset, next=batch.next_offset)
        data: list[Any] = [event.get_data() for event in batch.events]
        flights = [
            (offset, flight["carrier"], flight["dep_delay"])
            for offset, flight in zip(batch.event_offsets, data, strict=True)
        ]
        for record, reason in batch.undecodable:
            where = f"{batch.topic}/{batch.partition}@{record.offset}"
            self.context.log.warning("%s is no event and is passed over: %s", where, reason)
        done = batch.next_offset
        for start in range(0, len(flights), self.options.slice):
            if batch.lost.is_set() or (start and self.context.stopping.is_set()):
                done = flights[start][0]  # commit up to here; the next owner goes on from here
                break
            self.journal.write("counted", batch, flights=flights[start : start + self.options.slice])
            self.context.wait(self.options.pause)
        self.journal.write("end", batch, next=done)
        return BatchResponse.advance(done)

    def close(self) -> None:
        self.journal.close()
