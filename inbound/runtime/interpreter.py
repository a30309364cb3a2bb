"""Tunes the garbage collector for a process with many records."""

from __future__ import annotations

import gc

#: The garbage collector's thresholds: young objects before it walks them (records are young and many, and walking them was a
#: large part of the cost of reading: see docs/benchmarks.md); such walks before it walks their survivors, too; and those walks
#: before it walks all objects. All threads wait for a walk: with 20 for the second a walk of a million objects took 120 to
#: 140 ms, and delayed each commit in flight as much.
GC_THRESHOLDS = (50_000, 2, 500)
#: Delivered bytes after which young objects are collected, however few: the thresholds count objects, and a batch that a processor
#: leaves in a cycle (a frame that keeps the exception that it has caught) keeps all its records.
MOST_GARBAGE = 256 * 2**20


def spare_what_stays() -> None:
    """Freeze lasting objects, and collect garbage rarely."""
    # The collector does not walk frozen objects: that halves the cost of reading.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


class DeliveredBytes:
    """Collects garbage after every `MOST_GARBAGE` delivered bytes. Any thread.

    A count that is lost between threads only delays a collection.
    """

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, size: int) -> None:
        """Count a batch."""
        self._bytes += size
        if self._bytes >= MOST_GARBAGE:
            self._bytes = 0
            gc.collect(1)
