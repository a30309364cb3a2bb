"""Parquet of a ledger's files at once, for tests that need no process for it."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from inbound.ledger.conversion import convert
from inbound.ledger.disk import Disk


def convert_here(path: Path, data: BinaryIO, target: Path, disk: Disk) -> Generator[float, None, None]:
    """A `Converter` without steps."""
    convert(path, data, target, disk)
    yield from ()
