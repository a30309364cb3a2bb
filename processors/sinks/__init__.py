"""The sinks of the `simple` processor, one per file, and their base classes.

Begin with `base.py`; `choice.py` finds a sink by its name or `module:Class`, and a new shipped sink is named there. A
sink sees batches or events, and decides nothing about commits: an error or its answer does.
"""

from inbound.processors.sinks.base import BatchEventSink, EventSink

__all__ = ["BatchEventSink", "EventSink"]
