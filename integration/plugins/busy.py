"""A processor that computes: what a profile of it should show is known."""

from __future__ import annotations

import hashlib

from inbound import Batch, BatchEventProcessor, BatchResponse


class Busy(BatchEventProcessor):
    """Hashes each record for some milliseconds of processor time: longer than a thread may keep the interpreter from others."""

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        for record in batch.records:
            self.weigh(record.value or b"")
        return BatchResponse.advance()

    def weigh(self, value: bytes) -> bytes:
        """Compute, in Python, so that the function itself is what takes the time."""
        for _ in range(20_000):
            value = hashlib.sha256(value).digest()
        return value
