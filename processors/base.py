"""The one class that users write: BatchEventProcessor."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from inbound.processors.batch import Batch, BatchResponse
from inbound.topic_partition import TopicPartition


@dataclass
class Context:
    """What a processor knows of the channel it runs in; handed to `open`."""

    channel: str
    group: str
    consumer_id: str
    #: The class's `Options` model filled from the configuration's `options`, or the plain mapping where it has none.
    options: Any = field(default_factory=dict)
    #: Set when the channel is about to stop: finish what you do, start nothing long.
    stopping: threading.Event = field(default_factory=threading.Event)
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("inbound.processor"))

    def wait(self, seconds: float) -> bool:
        """Sleep, but wake early when the channel stops. Returns True if it is stopping."""
        return self.stopping.wait(seconds)


class BatchEventProcessor(ABC):
    """Handles batches of records; `on_next_batch` is the only method you must write.

    Callbacks for one partition never overlap; those for different partitions run at the same time in up to `workers`
    threads. Whatever a callback raises goes to `on_exception`, and never ends the channel.

    Set `Options` to a pydantic model to have the configuration's `options` validated before anything starts. Set
    `ordered = False` if batches of one partition may run in any order (replay uses it).
    """

    Options: type[Any] | None = None
    ordered: bool = True

    def open(self, context: Context) -> None:
        """Called once, before the first batch. An error here ends the process: it cannot do its work."""

    @abstractmethod
    def on_next_batch(self, batch: Batch) -> BatchResponse:
        """Handle one batch and say how to go on. At least one record, all of one partition, in offset order."""

    def on_batch_processed(self, batch: Batch) -> None:
        """Called after the commit of `batch` has landed, before the partition's next batch."""

    def on_exception(self, partition: TopicPartition, error: Exception) -> BatchResponse | None:
        """Called with what went wrong on `partition`; None takes the default.

        OffsetOutOfRangeError: an offset in the answer is ignored, Kafka is asked for a valid one. TransientError: the
        connection is away; inbound retries. PartitionLostError: nothing is committed, the answer is ignored. Anything
        else is your own error: by default the batch is read again after 1 s, doubling to 60 s (see `on_error`).
        """
        return None

    def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> BatchResponse | None:
        """Called before `partition` is given up in good order. `next_offset` is the one to be read next.

        `BatchResponse.advance()` commits everything handed out so far; None leaves the commit where it is.
        """
        return None

    def on_reset(self, partition: TopicPartition, old_offset: int, new_offset: int) -> None:
        """Called after somebody moved the group's offset, before the first batch from there."""

    def on_idle(self, partition: TopicPartition) -> BatchResponse | None:
        """Called once when `partition` has had nothing to read for `idle_time`; again only after more records."""
        return None

    def on_pause(self, partition: TopicPartition) -> None:
        """Called when reading of `partition` is paused."""

    def on_resume(self, partition: TopicPartition) -> None:
        """Called when reading of `partition` goes on."""

    def close(self) -> None:
        """Called once, after the last callback."""
