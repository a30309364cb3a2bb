"""The recorder as an asynchronous processor: it writes the same lines, and awaits instead of sleeping."""

from __future__ import annotations

import asyncio
import os
import time

from pydantic import BaseModel, ConfigDict

from inbound import Batch, BatchEventProcessor, BatchResponse, Context


class Options(BaseModel):
    """Where to write, and how long a batch takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: str
    seconds_per_record: float = 0.0


class AsyncRecorder(BatchEventProcessor):
    """Records everything, takes `seconds_per_record` for each batch, and advances."""

    Options = Options

    async def open(self, context: Context) -> None:
        self._pause = context.options.seconds_per_record
        path = os.path.join(context.options.folder, f"{os.getpid()}.seen")
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    async def on_next_batch(self, batch: Batch) -> BatchResponse:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        lines = [f"B {batch.partition} {batch.first_offset} {batch.next_offset} {now:.3f}\n"]
        lines += [f"R {batch.partition} {record.offset}\n" for record in batch.records]
        self._write("".join(lines))
        await asyncio.sleep(self._pause)
        self._write(f"E {batch.partition} {batch.first_offset} {batch.next_offset}\n")
        return BatchResponse.advance()

    async def close(self) -> None:
        os.close(self._file)

    def _write(self, text: str) -> None:
        os.write(self._file, text.encode())
