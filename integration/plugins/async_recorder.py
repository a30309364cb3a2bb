"""The recorder as an asynchronous processor: it writes the same lines, and awaits instead of sleeping."""

from __future__ import annotations

import asyncio

from inbound import Batch, BatchResponse
from integration.plugins.recorder import Recorder


class AsyncRecorder(Recorder):
    """Records everything, takes `seconds_per_record` for each batch, and advances."""

    async def on_next_batch(self, batch: Batch) -> BatchResponse:  # type: ignore[override]
        self._begin(batch)
        self._write("".join(f"R {batch.partition} {record.offset}\n" for record in batch.records))
        await asyncio.sleep(self._pause)
        self._end(batch)
        return BatchResponse.advance()
