"""`inbound run` with one or more processes, measured from outside.

    python -m benchmarks.processes_loop CONFIG COUNT PROCESSES FOLDER

Prints the JSON line of `benchmarks.meter`: from when each of the processes has handed out a batch until they have
processed COUNT records more. CPU and memory are those of all of them.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.meter import peak_mib, result_line, touch
from benchmarks.processes import Measured
from inbound import Batch, BatchEventProcessor, BatchResponse

#: What a process tells of itself, in a file mapped into its memory: records so far, CPU seconds so far.
TALLY = struct.Struct("<qd")
#: How long the processes may take to begin, and to process the records, in seconds.
LIMIT = 120.0
#: How often the tallies are looked at, in seconds.
EVERY = 0.01


class Tallying(BatchEventProcessor):
    """Touches every record, and counts them where other processes can see it; options: folder."""

    def open(self, context: object) -> None:
        folder = Path(context.options["folder"])  # type: ignore[attr-defined]
        with open(folder / f"{os.getpid()}.tally", "w+b") as file:
            file.truncate(TALLY.size)
            self._tally = mmap.mmap(file.fileno(), TALLY.size)
        self._records = 0
        self._lock = threading.Lock()

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        touch(batch.records)
        with self._lock:
            self._records += len(batch)
            TALLY.pack_into(self._tally, 0, self._records, time.process_time())
        return BatchResponse.advance()


@dataclass(frozen=True, slots=True)
class Reading:
    """What all processes had done at one moment."""

    at: float
    #: Records and CPU seconds of each process that has begun.
    tallies: tuple[tuple[int, float], ...]

    @property
    def records(self) -> int:
        return sum(records for records, _ in self.tallies)

    @property
    def cpu(self) -> float:
        return sum(cpu for _, cpu in self.tallies)


def main(config: Path, count: int, processes: int, folder: Path) -> None:
    """Run the processes until they have processed `count` records."""
    arguments = ["run", "-c", str(config), "--processes", str(processes)]
    with Measured(folder / "log", "inbound", *arguments) as parent:
        readings = _readings(folder, parent)
        began = next(reading for reading in readings if len(reading.tallies) == processes)
        # The parent only watches; with one process there is none, and `parent` is that process.
        watching = parent.cpu_seconds() if processes > 1 else 0.0
        ended = next(reading for reading in readings if reading.records - began.records >= count)
        watching = parent.cpu_seconds() - watching if processes > 1 else 0.0
        rss_mib = sum(peak_mib(path.stem) for path in folder.glob("*.tally"))
    print(result_line(ended.records - began.records, ended.at - began.at, ended.cpu - began.cpu + watching, rss_mib))


def _readings(folder: Path, parent: Measured) -> Iterator[Reading]:
    """Yield what the tallies say, again and again; the benchmark ends if that takes too long."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        contents = [path.read_bytes() for path in folder.glob("*.tally")]
        tallies = (TALLY.unpack(content) for content in contents if len(content) == TALLY.size)
        yield Reading(time.monotonic(), tuple((records, cpu) for records, cpu in tallies if records))
        time.sleep(EVERY)
    raise SystemExit(f"not all records within {LIMIT:.0f} s; the processes said:\n{parent.said()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
