"""How the interpreter is set for a process that handles many records."""

from __future__ import annotations

import gc

#: How many young objects come together before the garbage collector walks them (records are young and many, and walking
#: them was a large part of the cost of reading: see docs/benchmarks.md); how many of these walks before it walks what they
#: left, too; and how many of those before it walks all. All threads wait for a walk: with 20 for the second a million
#: objects took 120 to 140 ms, and each commit under way so much longer.
GC_THRESHOLDS = (50_000, 2, 500)


def spare_what_stays() -> None:
    """Have the garbage collector leave alone what is there now, and come by rarely."""
    # What stays for good is not walked again and again: that halves the cost of reading.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
