"""Where the `simple` processor sends events: the shipped sinks, one per file, and the classes for your own."""

from inbound.processors.sinks.base import BatchEventSink, EventSink

__all__ = ["BatchEventSink", "EventSink"]
