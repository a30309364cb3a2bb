"""A recorder that raises at offset 5 of partition 0, after it has written down what is before."""

from __future__ import annotations

from recorder import Recorder  # type: ignore[import-not-found]  # it stands beside this file, which is on the path

from inbound import Batch, BatchResponse


class Raising(Recorder):  # type: ignore[misc]  # see above
    """Records everything but one."""

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        if batch.partition == 0 and batch.first_offset <= 5 < batch.next_offset:
            raise ValueError("no such order")
        response: BatchResponse = super().on_next_batch(batch)
        return response
