"""The sources of published records: lines, or generated numbered events.

A line is one CloudEvent in the JSON format:
`{"specversion": "1.0", "id": "1", "source": "/shop", "type": "shop.order", "partitionkey": "anna", "data": {"sum": 3}}`.
Its extension `partitionkey`, if set, becomes the record's key. Empty lines are skipped. A plain line is a record's value, even if
it is empty.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

from cloudevents.core.v1.event import CloudEvent

from inbound.errors import ConfigError
from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_kafka import decode_record, encode_binary, encode_structured, partition_key
from inbound.processors.cloudevents_values import STRUCTURED_CONTENT_TYPE

#: Key, value and headers of a record.
Encoded: TypeAlias = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]

#: A longer line shows that the file is of another kind, and must not fill the memory. Bytes.
LONGEST_LINE = 16 * 2**20
#: The most bad lines in a message, which counts the others.
_NAMED = 10
_AS_STRUCTURED = (("content-type", STRUCTURED_CONTENT_TYPE.encode()),)


class NumberedEvent(NamedTuple):
    """One event to publish: its line (or number, from 1) and record."""

    line: int
    record: Encoded


class NumberedLine(NamedTuple):
    """One line, and its number, from 1."""

    number: int
    text: bytes


@dataclass(frozen=True)
class Format:
    """The format of lines: events (binary or `structured`), or `plain` text."""

    structured: bool = False
    plain: bool = False
    #: Key of every record; None: the event's partitionkey, if it has one.
    key: bytes | None = None

    def encode(self, text: bytes) -> Encoded:
        """Return the record of a line, or raise ValueError with its fault."""
        if self.plain:
            return self.key, text, []
        event = decode_record(PlainRecord(0, value=text, headers=_AS_STRUCTURED))
        key = partition_key(event) if self.key is None else self.key
        if self.structured:
            return encode_structured(event, key)
        encoded = encode_binary(event, key)
        if key is None and encoded[1] is None:
            raise ValueError(
                "an event with neither data nor partitionkey has no binary form here; add one, or --structured"
            )
        return encoded


def lines_of(path: Path, *, plain: bool = False) -> Iterator[NumberedLine]:
    """Yield the lines of a file; raises as `lines_in` does."""
    try:
        with path.open("rb") as file:
            yield from lines_in(file, str(path), plain=plain)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; name a file of JSON lines with --file") from None


def lines_in(stream: BinaryIO, name: str, *, plain: bool = False) -> Iterator[NumberedLine]:
    """Yield a stream's lines one by one; empty ones only if `plain`.

    Raises ConfigError if the stream cannot be read, or a line is too long.
    """
    for number in itertools.count(1):
        try:
            text = stream.readline(LONGEST_LINE + 1)
        except OSError as error:
            raise ConfigError(f"{name}:{number}: cannot be read: {error.strerror}") from None
        if not text:
            return
        if len(text) > LONGEST_LINE:
            raise ConfigError(f"{name}:{number}: longer than 16 MiB; a record takes 1 MiB, so split it")
        text = text.removesuffix(b"\n").removesuffix(b"\r") if plain else text.strip()
        if text or plain:
            yield NumberedLine(number, text)


def check_lines(lines: Iterable[NumberedLine], name: str, form: Format) -> int:
    """Check all lines before one is published, and return their number.

    Raises ConfigError with the file, line and fault of bad ones, up to ten.
    """
    count = 0
    problems = []
    for number, text in lines:
        count += 1
        try:
            form.encode(text)
        except ValueError as error:
            problems.append(f"{name}:{number}: {error}")
    if problems:
        more = f"\n... and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        bad = "1 line" if len(problems) == 1 else f"{len(problems)} lines"
        raise ConfigError(
            "\n".join(problems[:_NAMED]) + more + f"\n{name}: {bad} of {count} cannot be published, so nothing was; "
            "put them right, or take them out"
        )
    if not count:
        raise ConfigError(f"{name}: holds no events; write one CloudEvent in JSON per line")
    return count


def records_of(lines: Iterable[NumberedLine], name: str, form: Format, *, checked: bool) -> Iterator[Encoded]:
    """Yield the lines' records, or raise ConfigError at a bad line.

    If the lines were `checked` before, the file has changed since.
    """
    for number, text in lines:
        try:
            record = form.encode(text)
        except ValueError as error:
            cause = "the file changed while it was published: " if checked else ""
            raise ConfigError(
                f"{name}:{number}: {error}; {cause}lines before this one are in the topic, the others are not. Put it right, "
                f"and publish from line {number} on"
            ) from None
        yield record


def read_ahead(events: Iterable[NumberedEvent], most: int) -> Iterator[NumberedEvent | None]:
    """Read events on another thread, and yield None while none is there.

    So events of a slow pipe do not wait until a request is full. Errors of `events` come through.
    """
    waiting: queue.Queue[NumberedEvent | BaseException | None] = queue.Queue(most)

    def read() -> None:
        try:
            for event in events:
                waiting.put(event)
            waiting.put(None)
        except BaseException as error:
            waiting.put(error)

    threading.Thread(target=read, name="publish-reader", daemon=True).start()
    while True:
        if waiting.empty():
            yield None
        found = waiting.get()
        if found is None:
            return
        if isinstance(found, BaseException):
            raise found
        yield found


def numbered(count: int, *, source: str, size: int = 0, structured: bool = False) -> Iterator[Encoded]:
    """Yield `count` events with ids and data `{"number": 1}` and so on.

    Padding brings the data to `size` bytes. `source` must differ between runs: source and id together identify an event.
    """
    for number in range(1, count + 1):
        data: dict[str, object] = {"number": number}
        padding = size - len('{"number":,"padding":""}') - len(str(number))
        if padding > 0:
            data["padding"] = "." * padding
        attributes = {
            "specversion": "1.0",
            "id": str(number),
            "source": source,
            "type": "inbound.numbered",
            "datacontenttype": "application/json",
        }
        event = CloudEvent(attributes, data)
        yield encode_structured(event) if structured else encode_binary(event)
