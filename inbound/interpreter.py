"""How the interpreter is set for a process that handles many records."""

from __future__ import annotations

import gc

#: Young objects that the garbage collector lets come together before it walks them. Records are young and many, and
#: walking them was a large part of the cost of reading: see docs/benchmarks.md.
GC_THRESHOLD = 50_000


def spare_what_stays() -> None:
    """Have the garbage collector leave alone what is there now, and come by rarely."""
    # What stays for good is not walked again and again: that halves the cost of reading.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 50)
