"""A processor that writes each record to a database exactly once, although some may be delivered twice.

The trick is one transaction: the rows, and the offset up to which they go. After a crash the database knows better than
any other place, so `on_claim` begins there, for any commit of the group.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from inbound import Batch, BatchEventProcessor, BatchResponse, Context, TopicPartition

SCHEMA = (
    'CREATE TABLE IF NOT EXISTS payments (topic TEXT, partition INTEGER, "offset" INTEGER, key BLOB, value BLOB)',
    "CREATE TABLE IF NOT EXISTS positions (topic TEXT, partition INTEGER, next_offset INTEGER NOT NULL, "
    "epoch INTEGER NOT NULL, PRIMARY KEY (topic, partition))",
)


class Options(BaseModel):
    """What the configuration may set under `processor.options`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database: Path = Field(description="the SQLite file; made where it is missing, and shared by all processes")


class OvertakenError(Exception):
    """Another consumer has written to this partition since: we are the one that is behind."""


class Payments(BatchEventProcessor):
    """Stores payments. Note that `payments` has no unique key: nothing here relies on the database to drop repeats."""

    Options = Options

    def open(self, context: Context) -> None:
        self._lock = threading.Lock()  # workers share the connection, and SQLite has one writer at a time anyway
        self._connection = sqlite3.connect(
            context.options.database, timeout=30, isolation_level=None, check_same_thread=False
        )
        # No `journal_mode = WAL`: of two processes that switch to it at once, one gets "database is locked" at once,
        # with any timeout. What takes turns is a transaction.
        with self._transaction() as database:
            for statement in SCHEMA:
                database.execute(statement)

    def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
        with self._transaction() as database:
            position = database.execute(
                "SELECT next_offset FROM positions WHERE topic = ? AND partition = ?", partition
            ).fetchone()
        return None if position is None else int(position[0])

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        place = batch.topic, batch.partition
        with self._transaction() as database:
            position = database.execute(
                "SELECT next_offset, epoch FROM positions WHERE topic = ? AND partition = ?", place
            ).fetchone()
            next_offset, epoch = position or (batch.first_offset, batch.epoch)
            if epoch > batch.epoch:
                raise OvertakenError(
                    f"{batch!r} of epoch {batch.epoch}: epoch {epoch} has written since; nothing is written"
                )
            # The one before us may have written between our `on_claim` and now: its rows are skipped.
            rows = [(*place, r.offset, r.key, r.value) for r in batch.records if r.offset >= next_offset]
            database.executemany("INSERT INTO payments VALUES (?, ?, ?, ?, ?)", rows)
            database.execute(
                "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?)",
                (*place, max(next_offset, batch.next_offset), batch.epoch),
            )
        return BatchResponse.advance()

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing. IMMEDIATE: what is read in it stands until it has been acted on."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
