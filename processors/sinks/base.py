"""The two classes that a sink of the `simple` processor can be: it takes batches, or one event after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from inbound.processors.base import Context
from inbound.processors.batch import Batch, BatchResponse

if TYPE_CHECKING:
    from cloudevents.core.v1.event import CloudEvent


class Sink:
    """What both kinds have in common. Made without arguments; `open` brings the options.

    Set `Options` to a pydantic model to have the sink's options validated before anything starts; a sink without one
    takes no options. `send` is called in up to `workers` threads at once, for different partitions: lock what they
    share.
    """

    Options: type[Any] | None = None

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

    @abstractmethod
    def send(self, event: CloudEvent) -> None:
        """Pass `event` on. An error means that it did not arrive: it will come again, with those after it."""
