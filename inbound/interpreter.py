"""How the interpreter is set for a process that handles many records."""

from __future__ import annotations

import gc
import sys

from inbound.config import ChannelConfig

#: Young objects that the garbage collector lets come together before it walks them. Records are young and many, and
#: walking them was a large part of the cost of reading: see docs/benchmarks.md.
GC_THRESHOLD = 50_000
#: How long a thread may keep the interpreter from others, in seconds, where records come as fast as librdkafka brings them:
#: with Python's 5 ms the threads that commit waited longer for it than for the disk and ZooKeeper. See decision 16.
SWITCH_INTERVAL = 0.0005


def spare_what_stays() -> None:
    """Have the garbage collector leave alone what is there now, and come by rarely."""
    # What stays for good is not walked again and again: that halves the cost of reading.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 50)


def let_threads_in(config: ChannelConfig) -> None:
    """Let threads take turns as often as the channel's reader needs it."""
    if config.reader.client == "confluent-kafka":
        sys.setswitchinterval(SWITCH_INTERVAL)
