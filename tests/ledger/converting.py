"""Parquet of a ledger's files at once, for tests that need no process for it."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from inbound.errors import LedgerError
from inbound.ledger.columns import write_parquet
from inbound.ledger.conversion import ParquetWriter
from inbound.ledger.jsonl import split_lines


class Here(ParquetWriter):
    """A writer without a process. With a `problem` it fails."""

    def __init__(self, problem: str | None = None) -> None:
        super().__init__()
        self.problem = problem
        self.asked = 0

    def write(self, path: Path, data: BinaryIO, target: Path) -> Generator[float, None, None]:
        self.asked += 1
        if self.problem is not None:
            raise LedgerError(self.problem)
        write_parquet(split_lines(data), path, target)
        yield from ()

    def close(self) -> None:
        pass
