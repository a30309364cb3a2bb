"""The base classes of sinks: for batches, or for single events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from inbound.processors.base import Context
from inbound.processors.batch import Batch, BatchResponse, Record

if TYPE_CHECKING:
    from cloudevents.core.v1.event import CloudEvent


class Sink:
    """What both kinds have in common.

    Made without arguments; `open` brings the options.

    Set `Options` to a pydantic model to have the sink's options validated before anything starts; a sink without one
    takes no options. `send` is called in up to `workers` threads at once, for different partitions: lock what they
    share.
    """

    Options: type[Any] | None = None
    #: Whether it can do something with records that are no events; else `undecodable` says what becomes of them.
    takes_other_records: bool = True

    @classmethod
    def made_for(cls, options: Any) -> Sink:
        """Make a sink, not yet opened. A class whose options say which of several it is returns another one."""
        return cls()

    def open(self, context: Context) -> None:
        """Called once, before the first `send`. `context.options` are the sink's own. An error ends the process."""

    def close(self) -> None:
        """Called once, after the last `send`, if `open` succeeded."""


class BatchEventSink(Sink, ABC):
    """Takes whole batches, with the records that are no events."""

    @abstractmethod
    def send(self, batch: Batch) -> BatchResponse | None:
        """Pass `batch` on. None means that all of it arrived; see `BatchResponse` for the rest.

        An error means that nothing arrived: the batch will come again.
        """


class EventSink(Sink, ABC):
    """Takes one event after the other."""

    takes_other_records = False

    @abstractmethod
    def send(self, event: CloudEvent) -> None:
        """Pass `event` on. An error means that it did not arrive: it will come again, with those after it."""

    def send_record(self, event: CloudEvent, record: Record) -> None:
        """What is called with each event, and the record that it stood in: by default it calls `send`.

        For a sink that needs more of the record than the event has, such as the headers of a trace.
        """
        self.send(event)
