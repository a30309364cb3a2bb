"""How the `simple` processor gets a batch to its sinks. What comes first, the sending or the commit, is in the two kinds:
`at_least_once.py` and `at_most_once.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, TypeAlias, TypeVar

from inbound.errors import BadResponseError, UndecodableError
from inbound.processors.base import Context
from inbound.processors.batch import Batch, BatchResponse, Undecodable
from inbound.processors.sinks.base import BatchEventSink, EventSink
from inbound.topic_partition import TopicPartition

N = TypeVar("N", int, float)

#: A sink, and the name that the configuration gives it.
NamedSink: TypeAlias = tuple[str, BatchEventSink | EventSink]


class Delivery(ABC):
    """Sends batches to sinks that are open. Called as the processor is: for one partition never twice at a time."""

    def __init__(self, sinks: Sequence[NamedSink], undecodable: Literal["fail", "skip"], context: Context) -> None:
        self._sinks = sinks
        self._fail_undecodable = undecodable == "fail"
        self._log = context.log
        self._stopping = context.stopping
        self._clock = context.clock
        #: Records that a sink was to get after their commit and did not, since the start; of two sinks each counts.
        self.not_sent = 0

    @abstractmethod
    def on_next_batch(self, batch: Batch) -> BatchResponse:
        """Send `batch`, or promise to, and answer for it."""

    def on_batch_processed(self, batch: Batch) -> None:
        """The commit that was answered for `batch` has landed."""

    def on_gone(self, partition: TopicPartition) -> None:
        """`partition` is not ours any more, or nothing more will be done for it."""

    def close(self) -> None:
        """Nothing more comes. The sinks are still open."""

    def _first_refused(self, batch: Batch) -> Undecodable | None:
        """Return the first record that is no event and may not be passed over; where it may, warn of each."""
        if all(sink.takes_other_records for _, sink in self._sinks):
            return None
        if self._fail_undecodable:
            return batch.undecodable[0] if batch.undecodable else None
        for record, reason in batch.undecodable:
            where = f"{batch.topic}/{batch.partition}@{record.offset}"
            self._log.warning("%s is no event and is passed over (undecodable: skip): %s", where, reason)
        return None


def undecodable_error(batch: Batch, refused: Undecodable) -> UndecodableError:
    """Return the error for a record that stops a batch at its very beginning."""
    return UndecodableError(
        f"{batch.topic}/{batch.partition}: the record at offset {refused.record.offset} is no event: {refused.reason}. "
        "`undecodable: skip` passes over such records; `on_error` can skip or dead-letter this one"
    )


def smaller(one: N | None, other: N | None) -> N | None:
    """Return the smaller of two bounds; None is no bound."""
    return other if one is None else one if other is None else min(one, other)


def checked(name: str, answer: BatchResponse | None) -> BatchResponse:
    """Return what a batch sink answered; None is all of it. Raises BadResponseError."""
    if answer is None:
        return BatchResponse.advance()
    if not isinstance(answer, BatchResponse):
        raise BadResponseError(f"sink {name}: send must return a BatchResponse or None, got {answer!r}")
    return answer
