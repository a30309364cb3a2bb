"""What the consumers of `benchmarks.latency` and `benchmarks.memory` do with their records. Imports next to nothing."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from pathlib import Path

from inbound import Batch, BatchEventProcessor, BatchResponse

#: A record's value: when it was published, in nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
SENT = struct.Struct("<q")
PADDING = bytes(100 - SENT.size)


def stamped() -> bytes:
    """Return the value of a record that is published now."""
    return SENT.pack(time.monotonic_ns()) + PADDING


class Stamps:
    """Notes when each record was published and seen; kept in memory, and written at the end.

    `ready` appears in the folder once every partition was seen.
    """

    def __init__(self, folder: Path, partitions: int) -> None:
        self._folder = folder
        self._missing = set(range(partitions))
        self._pairs: list[tuple[int, int]] = []

    def add(self, partition: int, values: Iterable[bytes]) -> None:
        """Note a delivery of now. Any thread."""
        now = time.monotonic_ns()
        self._pairs.extend((SENT.unpack_from(value)[0], now) for value in values)
        if partition in self._missing:
            self._missing.discard(partition)
            if not self._missing:
                (self._folder / "ready").touch()

    def save(self) -> None:
        """Write it all."""
        lines = "".join(f"{sent} {seen}\n" for sent, seen in self._pairs)
        (self._folder / "stamps").write_text(lines)


def read_stamps(folder: Path) -> list[tuple[int, int]]:
    """Return what was saved: when each record was published and seen, in nanoseconds."""
    pairs = (line.split() for line in (folder / "stamps").read_text().splitlines())
    return [(int(sent), int(seen)) for sent, seen in pairs]


class Stamping(BatchEventProcessor):
    """Notes when each record came; options: folder, partitions."""

    def open(self, context: object) -> None:
        options = context.options  # type: ignore[attr-defined]
        self._stamps = Stamps(Path(options["folder"]), options["partitions"])

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        self._stamps.add(batch.partition, [record.value or b"" for record in batch.records])
        return BatchResponse.advance()

    def close(self) -> None:
        self._stamps.save()


class Stalled(BatchEventProcessor):
    """Is never through with a batch, until the channel stops."""

    def open(self, context: object) -> None:
        self._stopping = context.stopping  # type: ignore[attr-defined]

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        self._stopping.wait()
        return BatchResponse.revert()
