"""How the interpreter is set for a process that handles many records."""

from __future__ import annotations

import gc

#: How many young objects come together before the garbage collector walks them (records are young and many, and walking
#: them was a large part of the cost of reading: see docs/benchmarks.md); how many of these walks before it walks what they
#: left, too; and how many of those before it walks all. All threads wait for a walk: with 20 for the second a million
#: objects took 120 to 140 ms, and each commit under way so much longer.
GC_THRESHOLDS = (50_000, 2, 500)
#: After so many bytes of batches it walks the young objects, however few: it counts objects, and a batch that a processor
#: leaves in a circle (a frame that keeps the exception that it has caught) keeps all its records.
MOST_GARBAGE = 256 * 2**20


def spare_what_stays() -> None:
    """Freeze objects that stay, and collect garbage rarely."""
    # Objects that stay for good are not walked again and again: that halves the cost of reading.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


class DeliveredBytes:
    """Counts delivered bytes, and collects garbage after so many. For any threads: a count that is lost costs a later look."""

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, size: int) -> None:
        """Count a batch."""
        self._bytes += size
        if self._bytes >= MOST_GARBAGE:
            self._bytes = 0
            gc.collect(1)
