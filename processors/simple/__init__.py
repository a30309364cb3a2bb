"""The `simple` processor: sends batches to sinks, and commits before or after.

Begin with `processor.py`: the options, the processor, and its read rate. `delivery.py` has the two orders of sending and
committing: at least once, at most once. The sinks themselves are in `processors/sinks`.
"""

from inbound.processors.simple.processor import SimpleOptions, SimpleProcessor

__all__ = ["SimpleOptions", "SimpleProcessor"]
