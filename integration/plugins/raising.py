"""A recorder that raises where a batch holds offset 5 of partition 0, and answers nonsense to that record alone."""

from __future__ import annotations

from recorder import Recorder  # type: ignore[import-not-found]  # it stands beside this file, which is on the path

from inbound import Batch, BatchResponse


class Raising(Recorder):  # type: ignore[misc]  # see above
    """Records everything but one."""

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        if batch.partition == 0 and batch.first_offset <= 5 < batch.next_offset:
            if batch.next_offset - batch.first_offset > 1:
                raise ValueError("no such order")
            return None  # type: ignore[return-value]  # on purpose
        response: BatchResponse = super().on_next_batch(batch)
        return response
