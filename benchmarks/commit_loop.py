"""One channel whose commits are timed, in a process of its own.

    python -m benchmarks.commit_loop CONFIG RECORDS

Prints one JSON line: what its committer counted, and how long each commit took, in seconds. Of RECORDS, the first and the
last tenth are left out.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from benchmarks.meter import touch
from inbound import Batch, BatchEventProcessor, BatchResponse
from inbound.application import Application
from inbound.channel.commit import Pending
from inbound.channel.partition import Partition
from inbound.channel.parts import Parts
from inbound.config import load, read_text

#: The longest time that one run may take, in seconds.
LIMIT = 120.0


class Working(BatchEventProcessor):
    """Touches every record, then waits as if for a database; options: `wait`, in seconds."""

    def open(self, context: object) -> None:
        self._wait = float(context.options["wait"])  # type: ignore[attr-defined]

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        touch(batch.records)
        if self._wait:
            time.sleep(self._wait)
        return BatchResponse.advance()


class Window:
    """Stands between a committer and those it works with, and notes when each commit was submitted and has landed.

    Nothing of a processor would do: its `on_batch_processed` comes when a worker is free.
    """

    def __init__(self, parts: Parts, records: int) -> None:
        self.over = threading.Event()
        self.records = 0
        committer = parts.committer
        self._commits = parts.commits
        self._submit, self._landed = committer.submit, committer._landed
        self._first, self._last = 0.1 * records, 0.9 * records
        self._began: tuple[float, int, int] | None = None  # when, and the committer's counters
        self._ended = (0.0, 0, 0)
        self._latencies: list[float] = []
        self._submitted: dict[Partition, deque[tuple[Pending, float]]] = {}
        self._landed_records: dict[Partition, int] = {}
        committer.submit = self._note_submit  # type: ignore[method-assign]
        committer._landed = self._note_landed  # type: ignore[method-assign]

    def _note_submit(self, pending: Pending) -> None:
        self._submitted.setdefault(pending.partition, deque()).append((pending, time.monotonic()))
        self._submit(pending)

    def _note_landed(self, pending: Pending) -> None:
        self._landed(pending)
        now = time.monotonic()
        waiting, landed = self._submitted[pending.partition], []
        while waiting and waiting[0][0].mark.order <= pending.mark.order:  # the newest stands for those before it
            landed.append(waiting.popleft())
        if pending.of_batch is None or self.over.is_set():
            return  # the first position of a partition; or the drain at the end
        self._landed_records[pending.partition] = pending.mark.records
        self.records = sum(self._landed_records.values())
        if self._began is not None:
            self._latencies += [now - submitted for _, submitted in landed]
        elif self.records >= self._first:
            self._began = (now, self._commits.landed, self._commits.transactions)
        if self.records >= self._last:
            self._ended = (now, self._commits.landed, self._commits.transactions)
            self.over.set()

    def result(self) -> dict[str, Any]:
        """Return what there was in the window; latencies in seconds."""
        assert self._began is not None
        seconds, commits, transactions = (b - a for a, b in zip(self._began, self._ended, strict=True))
        return {"seconds": seconds, "commits": commits, "transactions": transactions, "latencies": self._latencies}


def main(config: Path, records: int) -> None:
    """Run a channel until it has processed nine tenths of `records`."""
    application = Application(load(read_text(config), filename=str(config)), lock_dir=config.parent / "ids")
    window = Window(application.channels[0].parts, records)
    try:
        application.start()
        if not window.over.wait(LIMIT):
            raise SystemExit(f"only {window.records} of {records} records after {LIMIT:.0f} s")
    finally:
        application.stop()
    print(json.dumps(window.result()))


if __name__ == "__main__":
    # Under its import name, so that the configuration's plugin is of this very module.
    from benchmarks import commit_loop

    commit_loop.main(Path(sys.argv[1]), int(sys.argv[2]))
