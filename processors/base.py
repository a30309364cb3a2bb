"""The class that users write, BatchEventProcessor, and its Context."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import Any, Protocol, TypeAlias, TypeVar

from inbound.clock import Clock, SystemClock
from inbound.errors import BadResponseError, ConfigError
from inbound.processors.batch import Batch, BatchResponse, is_offset
from inbound.processors.spans import NO_TRACING, Tracing
from inbound.processors.stopping import StopEvent
from inbound.topic_partition import TopicPartition

T = TypeVar("T")
#: What a callback returns: its answer, or the coroutine of an `async def`.
MaybeLater: TypeAlias = T | Awaitable[T]


class TopicWriter(Protocol):
    """Publishes to one topic."""

    def send(self, records: Sequence[tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]]) -> None:
        """Publish records, and block until all are acknowledged. Any thread.

        Raises:
            BrokerUnavailableError: not all were acknowledged; publish them again.
        """


def no_topics(topic: str) -> TopicWriter:
    """Refuse to publish: the processor has no Kafka."""
    raise ConfigError(f"topic {topic}: nothing can be published from here: the processor runs without a channel")


@dataclass
class Context:
    """The channel that a processor runs in; passed to `open`."""

    channel: str
    group: str
    consumer_id: str
    #: The class's `Options` model with the configuration's `options`; without a model the plain mapping.
    options: Any = field(default_factory=dict)
    #: Set when the channel is about to stop: finish your work, start nothing long.
    stopping: StopEvent = field(default_factory=StopEvent)
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("inbound.processor"))
    #: The channel's clock: code that measures time with it can be tested without waiting.
    clock: Clock = field(default_factory=SystemClock)
    #: Seconds for callbacks to end when the channel stops.
    shutdown_timeout: float = 25.0
    #: Commits records before an offset: see `advance`.
    commit: Callable[[Batch, int], None] = field(default=lambda batch, offset: None, repr=False)
    #: Opens a writer to a topic of the channel's Kafka; the channel closes it.
    open_topic: Callable[[str], TopicWriter] = field(default=no_topics, repr=False)
    #: Makes spans, for a processor that sets `makes_spans`.
    tracing: Tracing = field(default=NO_TRACING, repr=False)

    def advance(self, batch: Batch, offset: int) -> None:
        """Commit the records before `offset` once the partition's callbacks have returned.

        For a processor that answered `next` and finished records later. `batch` is any batch of the same claim; `offset` is
        at most the end of the answered batches, and ignored beyond the delivered records. After the claim has ended nothing
        is committed. Any thread.

        Raises:
            BadResponseError: `offset` is no offset, or `batch` is no batch.
        """
        if not isinstance(batch, Batch):
            raise BadResponseError(
                f"channel {self.channel}: Context.advance got {batch!r}; pass a batch that on_next_batch received"
            )
        if not is_offset(offset):
            raise BadResponseError(
                f"{batch.topic}/{batch.partition}: Context.advance got {offset!r}; pass the next offset to read, a whole number"
            )
        self.commit(batch, offset)

    def wait(self, seconds: float) -> bool:
        """Sleep until the time is over or the channel stops; True: stopping."""
        return self.stopping.wait(seconds)

    async def sleep(self, seconds: float) -> bool:
        """Do as `wait`, in a coroutine, while other coroutines run."""
        return await self.stopping.sleep(seconds)


class BatchEventProcessor(ABC):
    """Handles batches of records; `on_next_batch` is the only required method.

    Callbacks for one partition never overlap; those for different partitions run at the same time in up to `workers`
    threads. What a callback raises goes to `on_exception`, and never ends the channel.

    If `on_next_batch` is `async def`, the other callbacks may be too. All of them run on one event loop in its own thread,
    for all partitions at once; `workers` has no effect. Code that blocks instead of awaiting stops all of them. `open` and
    `close` run on that loop too: make and close the loop's objects there. A coroutine that does not end within
    `shutdown_timeout` is cancelled.

    Set `Options` to a pydantic model to have the configuration's `options` validated before anything starts. Set
    `ordered = False` if batches of one partition may run in any order (replay uses it).
    """

    Options: type[Any] | None = None
    ordered: bool = True
    #: Bytes that are read ahead unless the configuration sets them; None: the usual default.
    prefetch_bytes: int | None = None
    #: Whether the processor makes its own spans, by `Context.tracing`; else each batch has one around `on_next_batch`.
    makes_spans: bool = False
    #: For a processor whose coroutines never block their loop, not for a millisecond: all channels of such processors in a
    #: process run on one loop, and read each topic once.
    shares_loop: bool = False
    #: Whether a partition's next batch waits until the commits before it have landed, in spite of `max_uncommitted_records`:
    #: for a processor whose `on_batch_processed` must come before the next batch.
    commits_first: bool = False

    @classmethod
    def own_topics(cls, options: Any) -> tuple[str, ...]:
        """Return the topics through which the processor sends itself records.

        `options` are those of `Context.options`. The channel reads these topics beside its own, always from their start.
        """
        return ()

    @property
    def not_sent(self) -> int:
        """Records committed but not delivered since the start. Any thread.

        For status and metrics.
        """
        return 0

    @property
    def max_read_rate(self) -> float | None:
        """The most records per second; None: no bound. Any thread."""
        return None

    def set_max_read_rate(self, per_second: float | None) -> None:
        """Set `max_read_rate` until the options change. Any thread.

        For a processor that paces itself; others have no rate to set.
        """
        raise NotImplementedError(f"{type(self).__name__} has no read rate")

    def status(self) -> Mapping[str, Any]:
        """Return JSON for status and metrics, without blocking. Any thread."""
        return {}

    def waits(self) -> Mapping[TopicPartition, tuple[str, str]]:
        """Return why partitions wait outside of callbacks: kind and sentence.

        For `inbound explain`. Kinds are `subscriber`, `dead-letters`, `retry-topic`, `undecodable`, `window` (delivered
        records are not finished), `limit` (requests wait for their turn), `delayed` (the next record is not due yet) and
        `rate` (the processor keeps to a rate). Any thread; it must not block.
        """
        return {}

    def room(self, partition: TopicPartition, committed: int) -> int | None:
        """Return the most records for the partition's next batch; None: as configured.

        With 0 nothing is delivered until another commit of the partition has landed, or new records have come. Called as
        the other callbacks are, but it must not block; `committed` is the group's commit. If the log was cut below the
        delivered offsets, or `on_next_batch` failed, one record is delivered nevertheless: earlier deliveries from its
        offset on are void.
        """
        return None

    def open(self, context: Context) -> MaybeLater[None]:
        """Called once, before the first batch; an error ends the process."""

    @abstractmethod
    def on_next_batch(self, batch: Batch) -> MaybeLater[BatchResponse]:
        """Handle one batch, and answer what to commit and read next.

        It has at least one record, all of one partition, in offset order.
        """

    def on_claim(self, partition: TopicPartition, committed: int | None) -> MaybeLater[int | None]:
        """Called once per claim of `partition`, before its first batch.

        For processors that keep offsets with their results. Return the offset to read first, or None to go on at
        `committed`, the group's commit (None: it has none yet). The returned offset replaces the commit before the first
        batch. Below the log's start or beyond its end it is treated as a commit there: see `on_exception` and
        `on_truncation`. After an error, or an answer that is no offset, it is called again after 1 s, doubling to 60 s;
        after `on_error.max_attempts` the partition is held. Nothing is read before you have answered.

        Not called again when an expired session is recovered under the same claim, nor for a topic that was deleted and
        recreated: that is read from its start. A partition that is released before its first batch ends without another
        callback.
        """
        return None

    def on_batch_processed(self, batch: Batch) -> MaybeLater[None]:
        """Called in order after the commit of `batch` has landed.

        It comes before the partition's next callback. Later batches may have been delivered before that: as many records
        as `max_uncommitted_records` allows. Set `commits_first` to have each batch wait for this call.
        """

    def on_exception(self, partition: TopicPartition, error: Exception) -> MaybeLater[BatchResponse | None]:
        """Called with an error on `partition`; None takes the default.

        OffsetOutOfRangeError: an offset in the answer is ignored, Kafka is asked for a valid one. TransientError: the
        servers are unavailable; inbound retries. PartitionLostError: nothing is committed, the answer is ignored. Anything
        else is your own error: by default the batch is read again after 1 s, doubling to 60 s (see `on_error`).
        """
        return None

    def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> MaybeLater[BatchResponse | None]:
        """Called before `partition` is released gracefully.

        `next_offset` is the next one to read. `BatchResponse.advance()` commits everything delivered so far; None leaves
        the commit unchanged.
        """
        return None

    def on_reset(self, partition: TopicPartition, old_offset: int | None, new_offset: int) -> MaybeLater[None]:
        """Called after a reset has moved the group's offset.

        It comes before the first batch from there, and before `on_claim`. `old_offset` is the group's offset before, None
        if it had none. Called with each claim until something is committed: once, as a rule, and again after a crash. An
        error in it is logged, and reading begins nevertheless.
        """

    def on_idle(self, partition: TopicPartition) -> MaybeLater[BatchResponse | None]:
        """Called after `idle_time` without records, once until more records come."""
        return None

    def on_pause(self, partition: TopicPartition) -> MaybeLater[None]:
        """Called when reading of `partition` is paused."""

    def on_resume(self, partition: TopicPartition) -> MaybeLater[None]:
        """Called when reading of `partition` goes on."""

    def close(self) -> MaybeLater[None]:
        """Called once, after the last callback."""


def is_async(cls: type[BatchEventProcessor]) -> bool:
    """Return whether processors of this class run on an event loop."""
    return iscoroutinefunction(cls.on_next_batch)


def gives_starts(cls: type[BatchEventProcessor]) -> bool:
    """Return whether processors of this class choose where a claim begins."""
    return cls.on_claim is not BatchEventProcessor.on_claim


def has_room(cls: type[BatchEventProcessor]) -> bool:
    """Return whether processors of this class limit their batches' size."""
    return cls.room is not BatchEventProcessor.room


def acts_on_commits(processor: BatchEventProcessor) -> bool:
    """Return whether a processor has its own `on_batch_processed`."""
    called = getattr(processor.on_batch_processed, "__func__", None)
    return called is not BatchEventProcessor.on_batch_processed


def paces(cls: type[BatchEventProcessor]) -> bool:
    """Return whether processors of this class have a settable read rate."""
    return cls.set_max_read_rate is not BatchEventProcessor.set_max_read_rate


#: The names of all callbacks.
CALLBACKS = ("open", *(name for name in vars(BatchEventProcessor) if name.startswith("on_")), "close")


def async_callbacks(cls: type[BatchEventProcessor]) -> list[str]:
    """Return the names of the callbacks that are coroutines."""
    return [name for name in CALLBACKS if iscoroutinefunction(getattr(cls, name))]
