"""A processor that writes what it was handed as JSON lines, for tests of what records look like."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from inbound import Batch, BatchEventProcessor, BatchResponse, Context


class Collector(BatchEventProcessor):
    """One line per record: offset, sizes, headers, and the CloudEvent's id where it is one."""

    def open(self, context: Context) -> None:
        path = os.path.join(context.options["folder"], f"{os.getpid()}.jsonl")
        self._file = open(path, "a", buffering=1)  # noqa: SIM115 - closed in close()
        self._lock = threading.Lock()

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        ids = dict(zip(batch.event_offsets, (event.get_id() for event in batch.events), strict=True))
        lines: list[dict[str, Any]] = [
            {
                "partition": batch.partition,
                "offset": record.offset,
                "key": record.key.decode() if record.key is not None else None,
                "value": len(record.value) if record.value is not None else None,
                "headers": [[name, value.decode() if value is not None else None] for name, value in record.headers],
                "event": ids.get(record.offset),
                "batch": len(batch),
            }
            for record in batch.records
        ]
        with self._lock:
            self._file.write("".join(json.dumps(line) + "\n" for line in lines))
        return BatchResponse.advance()

    def close(self) -> None:
        self._file.close()
