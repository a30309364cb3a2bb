"""Records as views of confluent-kafka's messages, made when they are used."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterator, Sequence, Set
from itertools import accumulate, groupby
from operator import call
from typing import Any, NamedTuple, overload

from confluent_kafka import Message

from inbound.processors.batch import Record, headers_size
from inbound.topic_partition import TopicPartition

#: Messages of a run whose key and header sizes are measured. Reading headers makes Python objects of them, which costs as
#: much as the rest of a record: for messages that may never be used again, a sample has to do.
SAMPLE = 6

#: Replaces a message's unreadable headers.
_UNREADABLE: list[tuple[str, str | bytes | None]] = [("", b"")]

#: Call it with `operator.call`, which detects its failure. It fails if a name is not UTF-8, while `message.headers()` goes on
#: with a list without that name: the exception is raised elsewhere, and the next look at the list ends the process.
_headers = Message.headers
_partition, _topic, _key, _value = Message.partition, Message.topic, Message.key, Message.value


class _Fields(NamedTuple):
    message: Message
    # Read at once: processors that look at a record read these, and an attribute costs a third of a property.
    key: bytes | None
    value: bytes | None


class MessageRecord(tuple[Message, bytes | None, bytes | None]):
    """One message: see `Record`.

    A tuple, which is made without a step of the interpreter: that saves half a microsecond per record over an object with
    attributes, of the three that reading and touching one take. Not a NamedTuple, whose `__new__` is such a step.
    """

    __slots__ = ()

    message = _Fields.message
    key = _Fields.key
    value = _Fields.value

    @property
    def offset(self) -> int:
        return self.message.offset()  # type: ignore[return-value]  # None only if it was not consumed

    @property
    def timestamp(self) -> int:
        return self.message.timestamp()[1]

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        try:
            found = call(_headers, self[0]) or ()
        except SystemError:
            found = _left_alone(self[0])
        if found is _UNREADABLE:
            raise _unreadable()
        return found  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"<MessageRecord at {self.offset}>"


class Messages(Sequence[Record]):
    """Messages of one partition, which become records when they are used."""

    __slots__ = ("_messages",)

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Messages: ...
    def __getitem__(self, index: int | slice) -> Record | Messages:
        if isinstance(index, slice):
            return Messages(self._messages[index])
        message = self._messages[index]
        return MessageRecord((message, message.key(), message.value()))

    def __iter__(self) -> Iterator[Record]:
        messages = self._messages
        return map(MessageRecord, zip(messages, map(_key, messages), map(_value, messages), strict=False))

    def sizes(self) -> list[int]:
        """Return the exact decoded bytes of each message."""
        return list(map(_size, self._messages))


class Aside:
    """Fetched messages that were not returned yet, by partition."""

    def __init__(self, record_bytes: int) -> None:
        self._record_bytes = record_bytes
        self._messages: dict[TopicPartition, list[Message]] = {}
        self._sizes: dict[TopicPartition, int] = {}
        self.bytes = 0  # of all messages, in memory

    @property
    def partitions(self) -> Set[TopicPartition]:
        """The partitions with messages."""
        return self._messages.keys()

    def get(self, tp: TopicPartition) -> list[Message] | None:
        """Return a partition's messages, if any."""
        return self._messages.get(tp)

    def size(self, tp: TopicPartition) -> int:
        """Return the decoded bytes of a partition's messages."""
        return self._sizes.get(tp, 0)

    def weight(self, tp: TopicPartition) -> int:
        """Return a partition's share of `bytes`."""
        return self.size(tp) + self._record_bytes * len(self._messages.get(tp, ()))

    def all_but(self, partitions: Container[TopicPartition]) -> dict[TopicPartition, list[Message]]:
        """Return all messages but those of `partitions`."""
        return {tp: messages for tp, messages in self._messages.items() if tp not in partitions}

    def add(self, tp: TopicPartition, messages: list[Message]) -> None:
        """Append messages of a partition."""
        size = total_size(messages)
        self._messages.setdefault(tp, []).extend(messages)
        self._sizes[tp] = self.size(tp) + size
        self.bytes += size + self._record_bytes * len(messages)

    def put(self, tp: TopicPartition, messages: list[Message], size: int) -> None:
        """Replace a partition's messages by these, which are `size` decoded bytes."""
        self.drop(tp)
        self._messages[tp], self._sizes[tp] = messages, size
        self.bytes += size + self._record_bytes * len(messages)

    def drop(self, tp: TopicPartition) -> None:
        """Drop a partition's messages."""
        messages = self._messages.pop(tp, None)
        if messages is not None:
            self.bytes -= self._sizes.pop(tp) + self._record_bytes * len(messages)


def has_errors(messages: list[Message]) -> bool:
    """Whether any message is an error instead of a record."""
    return any(map(Message.error, messages))


def runs(messages: list[Message], one_topic: bool) -> Iterator[tuple[tuple[str, int], list[Message]]]:
    """Yield the runs of messages of one (topic, partition), in order.

    `one_topic` says that all are of one topic. Offsets do not show where a run ends: in a compacted topic another
    partition's message can be in the place of a missing offset.
    """
    numbers = map(_partition, messages)
    left: list[object] = list(numbers if one_topic else zip(map(_topic, messages), numbers, strict=True))
    while left:
        # Mostly a poll brings one run of each partition. Counting it is four times as fast as walking through it.
        length = left.count(left[0])
        if left[:length].count(left[0]) < length:
            length = len(list(next(groupby(left))[1]))
        run = messages[-len(left) :][:length]
        left = left[length:]
        yield (run[0].topic(), run[0].partition()), run  # type: ignore[misc]  # they have both


def known_epoch(epoch: int | None) -> int | None:
    """Return librdkafka's leader epoch; None if it is unknown."""
    return epoch if epoch is not None and epoch >= 0 else None


def epoch_of(message: Message) -> int | None:
    """Return a message's leader epoch; None if it is unknown."""
    return known_epoch(message.leader_epoch())


def total_size(messages: list[Message]) -> int:
    """Return the decoded bytes of messages; keys and headers from a sample."""
    if not messages:
        return 0
    sample = messages[:: max(1, len(messages) // SAMPLE)]
    return sum(map(len, messages)) + round(sum(map(_rest_size, sample)) * len(messages) / len(sample))


def fitting(messages: list[Message], size: int, max_bytes: int) -> int:
    """Return how many leading messages fit into `max_bytes`; at least one.

    `size` is the size of all.
    """
    alike = max(1, len(messages) * max_bytes // size)
    if total_size(messages[:alike]) <= max_bytes:
        return alike
    return max(1, bisect_right(list(accumulate(map(_size, messages[:alike]))), max_bytes))


def _size(message: Message) -> int:
    return len(message) + _rest_size(message)


def _left_alone(message: Message) -> Any:
    """Replace a message's headers, so that no later call reads them."""
    message.set_headers(_UNREADABLE)
    return _UNREADABLE


def _unreadable() -> Exception:
    from inbound.processors.cloudevents_values import UnreadableHeadersError  # not needed without events

    return UnreadableHeadersError(
        "the name of one of its headers is not UTF-8, so that confluent-kafka can read none of them; find its publisher, and "
        "move the group past it (inbound offsets reset)"
    )


def _rest_size(message: Message) -> int:
    try:
        headers: Any = call(_headers, message) or ()
    except SystemError:
        headers = _left_alone(message)
    size = len(message.key() or b"") + headers_size(len(headers))
    for name, value in headers:
        size += len(name) + len(value or b"")
    return size
