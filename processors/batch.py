"""The batch that a processor handles (`Batch`) and its answer (`BatchResponse`)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeGuard

from inbound.topic_partition import MOST_OFFSET

if TYPE_CHECKING:
    from cloudevents.core.v1.event import CloudEvent


#: Memory of a header besides its bytes (60 to 150): a record can have half a million empty ones for each MiB.
HEADER_BYTES = 64
#: Headers that the clients' figure for a record's memory already covers.
FEW_HEADERS = 16


class Record(Protocol):
    """One Kafka record, as the reader's client delivers it, unchanged."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int:
        """Milliseconds since the Unix epoch; -1 where the record has none."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None:
        """The payload; None is a tombstone."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """The headers in the record's order, with repeated names.

        Raises:
            ValueError: a name is not UTF-8, and the client cannot read any header.
        """


def record_size(record: Record) -> int:
    """Return a record's decoded bytes, with the memory of many headers."""
    headers = readable_headers(record)
    size = len(record.key or b"") + len(record.value or b"") + headers_size(len(headers))
    for name, value in headers:
        size += len(name) + len(value or b"")
    return size


def readable_headers(record: Record) -> Sequence[tuple[str, bytes | None]]:
    """Return the record's headers; none where they cannot be read."""
    try:
        return record.headers or ()
    except ValueError:
        return ()


def headers_size(count: int) -> int:
    """Return the memory of headers beyond `FEW_HEADERS`, besides their bytes."""
    return HEADER_BYTES * max(0, count - FEW_HEADERS)


class PlainRecord(NamedTuple):
    """A record made by hand, for tests of processors and for fakes."""

    offset: int
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Undecodable(NamedTuple):
    """A record that is no CloudEvent, and why."""

    record: Record
    reason: str


#: Attributes of a batch that cannot be set: the channel commits by them.
_FIXED = frozenset({"topic", "partition", "first_offset", "next_offset", "epoch", "claim"})


class Batch:
    """Consecutive records of one partition, in offset order.

    `records` cannot be changed: sort or filter a copy. `next_offset` is the offset to read after this batch. It can be more
    than the last record's offset + 1: compacted records and transaction markers take offsets too.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    records: Sequence[Record]
    epoch: int
    claim: object

    def __init__(
        self,
        topic: str,
        partition: int,
        first_offset: int,
        next_offset: int,
        records: Sequence[Record],
        epoch: int = 0,
        lost: threading.Event | None = None,
        claim: object = None,
    ) -> None:
        #: `claim`: the channel's own mark; None in a batch made by hand.
        self.__dict__.update(
            topic=topic, partition=partition, first_offset=first_offset, next_offset=next_offset, records=records,
            epoch=epoch, claim=claim,
        )  # fmt: skip
        if lost is not None:
            self.__dict__["_lost"] = lost

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute. Raises AttributeError for those in `_FIXED`."""
        if name in _FIXED:
            raise AttributeError(
                f"{self.topic}/{self.partition}: {name} of a batch cannot be set; the answer decides what is committed, such as "
                "BatchResponse.advance(offset)"
            )
        self.__dict__[name] = value

    @property
    def lost(self) -> threading.Event:
        """Set when the claim is lost, or doubtful.

        This happens while you work on this batch; after your answer it may stay unset. Your answer may not be committed, and
        another consumer may already get the same records. Any thread.
        """
        # Made on first use: few processors use it, and an Event costs as much as the rest of a batch. `setdefault` is one
        # step, so two threads get the same Event.
        event: threading.Event | None = self.__dict__.get("_lost")
        return event if event is not None else self.__dict__.setdefault("_lost", threading.Event())

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return (
            f"<Batch {self.topic}/{self.partition} {self.first_offset}..{self.next_offset - 1} ({len(self)} records)>"
        )

    @property
    def events(self) -> Sequence[CloudEvent]:
        """The records as CloudEvents, in order, except `undecodable`; decoded on first use."""
        return self._decoded[0]

    @property
    def event_offsets(self) -> Sequence[int]:
        """The offset of each of `events`, in the same order."""
        return [record.offset for record in self.event_records]

    @property
    def event_records(self) -> Sequence[Record]:
        """The record of each of `events`, in the same order."""
        if not self.undecodable:
            return self.records
        others = {undecodable.record.offset for undecodable in self.undecodable}
        return [record for record in self.records if record.offset not in others]

    @property
    def undecodable(self) -> Sequence[Undecodable]:
        """The records that are no CloudEvents, each with the reason."""
        return self._decoded[1]

    def before(self, offset: int) -> Batch | None:
        """Return the part of this batch before `offset`; None: no records."""
        if offset >= self.next_offset:
            return self
        records = [record for record in self.records if record.offset < offset]
        if not records:
            return None
        return Batch(self.topic, self.partition, self.first_offset, offset, records, self.epoch, self.lost, self.claim)

    @cached_property
    def _decoded(self) -> tuple[list[CloudEvent], list[Undecodable]]:
        from inbound.processors.cloudevents_kafka import decode_records

        return decode_records(self.topic, self.partition, self.records)


class Verb(Enum):
    """What a BatchResponse asks for."""

    ADVANCE = "advance"
    REVERT = "revert"
    NEXT = "next"


@dataclass(frozen=True, slots=True)
class BatchResponse:
    """A processor's immutable answer, made by `advance`, `revert` and `next`.

    `wait` is the seconds until the next read of this partition; `max_bytes` bounds the next read only; `commit_within` is in
    seconds, None: nothing is committed before another answer.
    """

    verb: Verb
    offset: int | None = None
    wait: float = 0.0
    max_bytes: int | None = None
    skip: bool = False
    commit_within: float | None = None

    @classmethod
    def advance(
        cls, offset: int | None = None, *, wait: float = 0.0, max_bytes: int | None = None, skip: bool = False
    ) -> BatchResponse:
        """Commit the batch, or the part before `offset`, the next to read.

        The rest is read again. An `offset` below the commit is refused, and one past the batch without `skip=True`.
        """
        if cls is BatchResponse and offset is None and wait == 0 and max_bytes is None and not skip:
            return _ADVANCE
        return cls(Verb.ADVANCE, offset, wait, max_bytes, skip)

    @classmethod
    def revert(cls, offset: int | None = None, *, wait: float = 0.0, max_bytes: int | None = None) -> BatchResponse:
        """Commit nothing, and read again from the commit, or from `offset`.

        If the commit is beyond the batch's start, the batch is read again.
        """
        return cls(Verb.REVERT, offset, wait, max_bytes)

    @classmethod
    def next(
        cls,
        offset: int | None = None,
        *,
        wait: float = 0.0,
        max_bytes: int | None = None,
        commit_within: float | None = None,
    ) -> BatchResponse:
        """Commit nothing, and read on after the batch, or from `offset`.

        With `commit_within`, the records before that offset are committed so many seconds later at the latest, even without
        another batch, and when the partition is released gracefully. The seconds count from the first such answer since the
        last commit; `on_batch_processed` is not called for such a commit.
        """
        return cls(Verb.NEXT, offset, wait, max_bytes, commit_within=commit_within)

    def __post_init__(self) -> None:
        problem = _problem(self.offset, self.wait, self.max_bytes, self.commit_within)
        if problem:
            raise ValueError(f"BatchResponse.{self.verb.value}: {problem}")


def is_offset(value: object) -> TypeGuard[int]:
    """Return whether `value` is an offset that Kafka can have."""
    return type(value) is int and 0 <= value <= MOST_OFFSET


def _problem(offset: Any, wait: Any, max_bytes: Any, commit_within: Any) -> str | None:
    if offset is not None and type(offset) is int and offset > MOST_OFFSET:
        return f"offset must be at most {MOST_OFFSET}, the largest that Kafka counts"
    if offset is not None and not is_offset(offset):
        return f"offset must be an integer of at least 0, got {offset!r}"
    if not _are_seconds(wait):
        return f"wait must be seconds of at least 0, got {wait!r}"
    if max_bytes is not None and (type(max_bytes) is not int or max_bytes < 1):
        return f"max_bytes must be an integer of at least 1, got {max_bytes!r}"
    if commit_within is not None and not _are_seconds(commit_within):
        return f"commit_within must be seconds of at least 0, got {commit_within!r}"
    return None


def _are_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= sys.float_info.max


#: The answer to nearly every batch.
_ADVANCE = BatchResponse(Verb.ADVANCE)
