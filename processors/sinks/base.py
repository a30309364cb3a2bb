"""The base classes of sinks: for batches, or for single events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from inbound.processors.base import Context
from inbound.processors.batch import Batch, BatchResponse, Record

if TYPE_CHECKING:
    from cloudevents.core.v1.event import CloudEvent


class Sink:
    """Base of both kinds of sinks.

    A sink is made without arguments; `open` brings the options. Set `Options` to a pydantic model to have them validated before
    anything starts; a sink without a model takes no options. `send` is called in up to `workers` threads at once, for different
    partitions: lock what they share.
    """

    Options: type[Any] | None = None
    #: Whether the sink takes records that are no events; else the option `undecodable` decides about them.
    takes_other_records: bool = True

    @classmethod
    def made_for(cls, options: Any) -> Sink:
        """Make a sink, not yet opened; perhaps of another class, by `options`."""
        return cls()

    def open(self, context: Context) -> None:
        """Called once, before `send`, with the sink's options in `context`.

        An error ends the process.
        """

    def close(self) -> None:
        """Called once, after the last `send`, if `open` succeeded."""


class BatchEventSink(Sink, ABC):
    """Takes whole batches, with the records that are no events."""

    @abstractmethod
    def send(self, batch: Batch) -> BatchResponse | None:
        """Send `batch`; None: all of it arrived, else see `BatchResponse`.

        An error means that nothing arrived: the batch is sent again.
        """


class EventSink(Sink, ABC):
    """Takes one event after the other."""

    takes_other_records = False

    @abstractmethod
    def send(self, event: CloudEvent) -> None:
        """Send `event`.

        An error means that it did not arrive: it is sent again, with those after it.
        """

    def send_record(self, event: CloudEvent, record: Record) -> None:
        """Send `event` of `record`; by default, call `send`.

        For a sink that needs more of the record than the event has, such as the headers of a trace.
        """
        self.send(event)
