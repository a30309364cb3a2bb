"""`inbound run` with one or more processes, measured from outside.

    python -m benchmarks.processes_loop CONFIG COUNT PROCESSES FOLDER

Prints the JSON line of `benchmarks.meter`: from when each of the processes has delivered a batch until they have
processed COUNT records more, and ZooKeeper has the commits of all of them. CPU and memory are those of all processes.
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

from kazoo.client import KazooClient

from benchmarks.meter import peak_mib, result_line, touch
from benchmarks.processes import Measured
from inbound import Batch, BatchEventProcessor, BatchResponse
from inbound.config import load, read_text
from inbound.coordinators.paths import GroupPaths

#: The most partitions of the topic.
PARTITIONS = 8
#: What a process says of itself, in a file mapped into its memory: records so far; where its deliveries of each
#: partition end.
TALLY = struct.Struct(f"<q{PARTITIONS}q")
OFFSET = struct.Struct("<q")
#: Behind it: not 0 once no more records are to be processed.
OVER = TALLY.size
#: How long the processes may take to begin, and to process the records, in seconds.
LIMIT = 120.0
#: How often the tallies are looked at, in seconds.
EVERY = 0.01


class Tallying(BatchEventProcessor):
    """Touches every record, and counts them where other processes can see it; options: folder."""

    def open(self, context: object) -> None:
        folder = Path(context.options["folder"])  # type: ignore[attr-defined]
        self._stopping = context.stopping  # type: ignore[attr-defined]
        with open(folder / f"{os.getpid()}.tally", "w+b") as file:
            file.truncate(OVER + 1)
            self._tally = mmap.mmap(file.fileno(), OVER + 1)
        self._records = 0
        self._lock = threading.Lock()

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        if self._tally[OVER]:
            self._stopping.wait()
            return BatchResponse.revert()
        OFFSET.pack_into(self._tally, OFFSET.size * (1 + batch.partition), batch.next_offset)
        touch(batch.records)
        with self._lock:
            self._records += len(batch)
            OFFSET.pack_into(self._tally, 0, self._records)
        return BatchResponse.advance()


@dataclass(frozen=True, slots=True)
class Reading:
    """What all processes had done at one moment."""

    at: float
    #: Of each process that has begun: records, and up to where it was delivered each partition.
    tallies: tuple[tuple[int, ...], ...]

    @property
    def records(self) -> int:
        return sum(tally[0] for tally in self.tallies)

    @property
    def delivered(self) -> dict[int, int]:
        """Up to where each partition was delivered; only those of which there was a batch."""
        ends = enumerate(map(max, zip(*(tally[1:] for tally in self.tallies), strict=True)))
        return {partition: end for partition, end in ends if end}


class Offsets:
    """What a channel's group has committed, as ZooKeeper has it."""

    def __init__(self, config: Path) -> None:
        loaded = load(read_text(config), filename=str(config)).config
        (channel,) = loaded.channels.values()
        self._topic, self._paths = channel.topics[0], GroupPaths(channel.group)
        self._client = KazooClient(loaded.zookeeper.hosts)
        self._client.start()

    def reach(self, delivered: dict[int, int]) -> bool:
        """Whether everything that was delivered is committed."""
        calls = [
            (self._client.get_async(self._paths.offset(self._topic, partition)), end)
            for partition, end in delivered.items()
        ]
        return all(int(call.get()[0] or b"0") >= end for call, end in calls)

    def close(self) -> None:
        """Close the connection."""
        self._client.stop()
        self._client.close()


def main(config: Path, count: int, processes: int, folder: Path) -> None:
    """Run the processes until they have processed and committed `count` records."""
    arguments = ["run", "-c", str(config), "--processes", str(processes)]
    offsets = Offsets(config)
    # With one process there is no parent, and `parent` is that process.
    with Measured(folder / "log", "inbound", *arguments) as parent:
        readings = _readings(folder, parent)
        began = next(reading for reading in readings if len(reading.tallies) == processes)
        cpu = parent.tree_cpu_seconds()
        next(reading for reading in readings if reading.records - began.records >= count)
        for path in folder.glob("*.tally"):
            with open(path, "r+b") as file:
                file.seek(OVER)
                file.write(b"1")
        ended = next(reading for reading in readings if offsets.reach(reading.delivered))
        seconds = time.monotonic() - began.at
        cpu = parent.tree_cpu_seconds() - cpu
        rss_mib = sum(peak_mib(path.stem) for path in folder.glob("*.tally"))
    offsets.close()
    print(result_line(ended.records - began.records, seconds, cpu, rss_mib))


def _readings(folder: Path, parent: Measured) -> Iterator[Reading]:
    """Yield what the tallies say, again and again; the benchmark ends if that takes too long."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        contents = [path.read_bytes() for path in folder.glob("*.tally")]
        tallies = (TALLY.unpack(content[:OVER]) for content in contents if len(content) > OVER)
        yield Reading(time.monotonic(), tuple(tally for tally in tallies if tally[0]))
        time.sleep(EVERY)
    raise SystemExit(f"not all records within {LIMIT:.0f} s; the processes said:\n{parent.said()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
