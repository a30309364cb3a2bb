"""A processor that writes down every delivered record on its own: the tests judge inbound by that.

One file per process, or per name, plain writes, so that a SIGKILL loses nothing that was written:
`B partition first next` when a batch begins, `R partition offset` for each record, `E partition first next` at its end.
"""

from __future__ import annotations

import os
import time

from pydantic import BaseModel, ConfigDict

from inbound import Batch, BatchEventProcessor, BatchResponse, Context


class Options(BaseModel):
    """Where to write, and how slow to be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: str
    name: str | None = None  # of the file; None: the process's id, which is the same in every container
    seconds_per_record: float = 0.0


class Recorder(BatchEventProcessor):
    """Records everything, and advances."""

    Options = Options

    def open(self, context: Context) -> None:
        self._context = context
        self._pause = context.options.seconds_per_record
        path = os.path.join(context.options.folder, f"{context.options.name or os.getpid()}.seen")
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        self._begin(batch)
        if self._pause:
            for record in batch.records:
                self._write(f"R {batch.partition} {record.offset}\n")
                time.sleep(self._pause)
        else:
            self._write("".join(f"R {batch.partition} {record.offset}\n" for record in batch.records))
        self._end(batch)
        return BatchResponse.advance()

    def close(self) -> None:
        os.close(self._file)

    def _begin(self, batch: Batch) -> None:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._write(f"B {batch.partition} {batch.first_offset} {batch.next_offset} {now:.3f}\n")

    def _end(self, batch: Batch) -> None:
        self._write(f"E {batch.partition} {batch.first_offset} {batch.next_offset}\n")

    def _write(self, text: str) -> None:
        os.write(self._file, text.encode())
