"""A sink that writes down every record that it is sent, in the form of `recorder.py`: what the tests judge inbound by."""

from __future__ import annotations

import os
import time

from pydantic import BaseModel, ConfigDict

from inbound import Batch, Context
from inbound.processors.sinks import BatchEventSink


class Options(BaseModel):
    """Where to write, and how slow to be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: str
    seconds_per_record: float = 0.0


class RecordingSink(BatchEventSink):
    """One line per record, each written by itself: a kill in between leaves the rest of the batch out."""

    Options = Options

    def open(self, context: Context) -> None:
        self._pause = context.options.seconds_per_record
        path = os.path.join(context.options.folder, f"{os.getpid()}.seen")
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def send(self, batch: Batch) -> None:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._write(f"B {batch.partition} {batch.first_offset} {batch.next_offset} {now:.3f}\n")
        for record in batch.records:
            self._write(f"R {batch.partition} {record.offset}\n")
            time.sleep(self._pause)
        self._write(f"E {batch.partition} {batch.first_offset} {batch.next_offset}\n")

    def close(self) -> None:
        os.close(self._file)

    def _write(self, text: str) -> None:
        os.write(self._file, text.encode())
