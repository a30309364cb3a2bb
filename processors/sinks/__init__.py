"""The sinks of the `simple` processor and their base classes.

Begin with `base.py`; `choice.py` finds a sink by its name or `module:Class`, and lists the shipped ones, each in its own file. A
sink gets batches or events; its answer or error decides what is committed.
"""

from inbound.processors.sinks.base import BatchEventSink, EventSink

__all__ = ["BatchEventSink", "EventSink"]
