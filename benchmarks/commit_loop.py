"""One channel whose commits are timed, in a process of its own.

    python -m benchmarks.commit_loop CONFIG RECORDS PARTITIONS

Prints a line when it owns all partitions, and begins to process when it is sent one. Then prints one JSON line: what
its committer counted, its transactions, and how long each commit took, in seconds. Of RECORDS, the first and the last
tenth are left out.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.meter import touch
from inbound import Batch, BatchEventProcessor, BatchResponse
from inbound.channel.commit import Pending
from inbound.channel.parts import Parts
from inbound.config import load, read_text
from inbound.coordinators.zookeeper import MAX_TRANSACTION_OPS, Call, Op, Stat
from inbound.partition.partition import Partition
from inbound.process.application import Application

#: The longest time that one run may take, in seconds.
LIMIT = 120.0


class Working(BatchEventProcessor):
    """Touches every record, then waits as if for a database; options: `wait`, in seconds."""

    go = threading.Event()

    def open(self, context: object) -> None:
        self._wait = float(context.options["wait"])  # type: ignore[attr-defined]

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        if not Working.go.is_set():
            return BatchResponse.revert(wait=0.5)  # not kept: all workers would wake at the same moment
        touch(batch.records)
        if self._wait:
            time.sleep(self._wait)
        return BatchResponse.advance()


class Transactions:
    """Counts the transactions with commits: their rounds, and the operations of the largest one."""

    def __init__(self, folder: str) -> None:
        """`folder` holds the group's offsets."""
        self.rounds = self.largest = 0
        self._folder = folder
        self._full = False  # the last one was
        self._written: set[str] = set()  # in the current round

    def note(self, ops: Sequence[Op]) -> None:
        """Count one: of the round of the one before only if that was full, and has not written the same partitions."""
        written = {op.path for op in ops if op.path.startswith(self._folder)}
        if not written:
            return
        self.largest = max(self.largest, len(ops))
        if not self._full or not self._written.isdisjoint(written):
            self.rounds += 1
            self._written = set()
        self._written |= written
        self._full = len(ops) >= MAX_TRANSACTION_OPS


class Window:
    """Stands between a committer and those it works with, and notes when each commit was submitted and has landed.

    Nothing of a processor would do: its `on_batch_processed` comes when a worker is free.
    """

    def __init__(self, parts: Parts, records: int) -> None:
        self.over = threading.Event()
        self.records = 0
        committer = parts.committer
        self._parts = parts
        self._interval = committer.interval
        self._submit, self._landed = committer.submit, committer._landed
        self._first, self._last = 0.1 * records, 0.9 * records
        self._began: tuple[float, int, int] | None = None  # when, and the committer's counters
        self._ended = (0.0, 0, 0)
        self._latencies: list[float] = []
        self._submitted: dict[Partition, deque[tuple[Pending, float]]] = {}
        self._landed_records: dict[Partition, int] = {}
        self._transactions, self._transaction = Transactions(parts.paths.all_offsets), parts.zk.transaction
        parts.zk.transaction = self._note_transaction  # type: ignore[method-assign]
        committer.submit = self._note_submit  # type: ignore[method-assign]
        committer._landed = self._note_landed  # type: ignore[method-assign]

    def _note_transaction(self, ops: Sequence[Op]) -> Call[list[Stat | None]]:
        if self._began is not None and not self.over.is_set():
            self._transactions.note(ops)
        return self._transaction(ops)

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
        before = self._landed_records.get(pending.partition, 0)
        self._landed_records[pending.partition] = pending.mark.surely
        self.records += pending.mark.surely - before
        if self._began is not None:
            self._latencies += [now - submitted for _, submitted in landed]
        elif self.records >= self._first:
            self._began = (now, self._parts.commits_landed, self._parts.transactions)
        if self.records >= self._last:
            self._ended = (now, self._parts.commits_landed, self._parts.transactions)
            self.over.set()

    def result(self) -> dict[str, Any]:
        """Return what there was in the window; latencies in seconds, `largest` in operations of one transaction."""
        assert self._began is not None
        seconds, commits, transactions = (b - a for a, b in zip(self._began, self._ended, strict=True))
        return {
            "seconds": seconds,
            "commits": commits,
            "transactions": transactions,
            "rounds": self._transactions.rounds,
            "interval": self._interval,
            "largest": self._transactions.largest,
            "latencies": self._latencies,
        }


def main(config: Path, records: int, partitions: int) -> None:
    """Run a channel until it has processed nine tenths of `records`."""
    application = Application(load(read_text(config), filename=str(config)), lock_dir=config.parent / "ids")
    channel = application.channels[0]
    window = Window(channel.parts, records)
    try:
        application.start()
        deadline = time.monotonic() + LIMIT
        while sum(partition.committed is not None for partition in channel.status().partitions) < partitions:
            if time.monotonic() > deadline:
                raise SystemExit(f"not all of {partitions} partitions were claimed after {LIMIT:.0f} s")
            time.sleep(0.1)
        print("claimed", flush=True)
        sys.stdin.readline()
        Working.go.set()
        if not window.over.wait(LIMIT):
            raise SystemExit(f"only {window.records} of {records} records after {LIMIT:.0f} s")
        print(json.dumps(window.result()), flush=True)
    finally:
        application.stop()


if __name__ == "__main__":
    # Under its import name, so that the configuration's plugin is of this very module.
    from benchmarks import commit_loop

    commit_loop.main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
