"""What all consumers of `benchmarks.drain` share: touching records, and telling how long it took.

Imports the standard library alone: the peers run in environments of their own. Linux only, for the memory.
"""

from __future__ import annotations

import json
import time


def touch(records: object) -> int:
    """Read key, value and headers of every record, as any processor would. Returns the bytes seen."""
    total = 0
    for record in records:  # type: ignore[attr-defined]
        total += len(record.key) + len(record.value)
        for name, value in record.headers:
            total += len(name) + len(value)
    return total


class Meter:
    """Counts the records of one run; seconds and CPU seconds are between the first record and the end.

    The end is the last record; or, where `end` is called after it, the moment when the last commit has landed.
    Not thread-safe. CPU is that of all threads of this process.
    """

    def __init__(self, count: int, topics: int = 1) -> None:
        """Wait for `count` records. Counting begins when records of so many topics have come."""
        self._count = count
        self._topics = topics
        self._begun: set[str] = set()
        self._seen = 0
        self._began = self._cpu_began = 0.0
        self._seconds = self._cpu = self._rss_mib = 0.0
        self.done = False

    def begin(self, topic: str = "") -> None:
        """Note that records of a topic are at hand. Only the first call for each topic counts."""
        if not self._began:
            self._begun.add(topic)
            if len(self._begun) == self._topics:
                self._began, self._cpu_began = time.monotonic(), time.process_time()

    def add(self, records: int) -> bool:
        """Note that so many more were touched. Returns whether that makes `count` records or more."""
        if self._began:
            self._seen += records
            self.done = self._seen >= self._count
            if self.done:
                self.end()
        return self.done

    def end(self) -> None:
        """Take seconds, CPU and memory now."""
        self._seconds = time.monotonic() - self._began
        self._cpu = time.process_time() - self._cpu_began
        self._rss_mib = peak_mib()

    def line(self) -> str:
        """Return the result as the JSON line that `benchmarks.drain` reads."""
        return result_line(self._seen, self._seconds, self._cpu, self._rss_mib)


def result_line(records: int, seconds: float, cpu: float, rss_mib: float) -> str:
    """Return the JSON line with which every run ends."""
    return json.dumps({"records": records, "seconds": seconds, "cpu": cpu, "rss_mib": rss_mib})


def peak_mib(pid: int | str = "self") -> float:
    """Return the largest resident set that a process ever had, in MiB."""
    # Not getrusage: there a process starts with its parent's peak.
    with open(f"/proc/{pid}/status") as lines:
        found = next(line for line in lines if line.startswith("VmHWM:"))
    return int(found.split()[1]) / 1024
