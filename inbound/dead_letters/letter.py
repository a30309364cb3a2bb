"""A dead letter: its facts, and the record that was read. Pure.

Letters have three kinds of writers: the dispatcher (Knative's attributes, and the record's origin), a channel's
`on_error: {then: dead-letter}` (headers alone), and others that write Knative's attributes and no origin.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from inbound.processors.batch import Record
from inbound.processors.cloudevents_bridge import RecordParts
from inbound.processors.cloudevents_kafka import decode_record, read_headers
from inbound.processors.cloudevents_plain import members_of, parse_json
from inbound.processors.cloudevents_values import Refused, write_json
from inbound.processors.dead_letters import (
    GROUP,
    KIND,
    OFFSET,
    PARTITION,
    PREFIX,
    REASON,
    REDRIVES,
    REPLY,
    TOPIC,
    Origin,
    number_in,
    origin_in,
)
from inbound.processors.dispatch import delayed_retry

#: Knative's attributes of a dead letter.
DEST, CODE, DATA = "knativeerrordest", "knativeerrorcode", "knativeerrordata"
ERRORS = (DEST, CODE, DATA)

Headers = Sequence[tuple[str, bytes | None]]
LetterKind = Literal["event", "reply", "failure", "unknown"]


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter without its value: there may be millions."""

    partition: int
    offset: int
    timestamp: int  # milliseconds since the Unix epoch, of when it was dead-lettered; -1: unknown
    key: bytes | None
    #: `event`: a subscriber refused it; `reply`: the reply's receiver did; `failure`: a processor failed on it;
    #: `unknown`: it says nothing.
    kind: LetterKind
    group: str | None  # that gave it up
    origin: Origin | None
    destination: str | None  # the URL that refused it
    code: str | None
    reason: str  # decoded; may be empty
    event_id: str | None  # None: it is no CloudEvent
    event_type: str | None
    redrives: int

    @property
    def place(self) -> str:
        """`partition/offset`, as the commands take it."""
        return f"{self.partition}/{self.offset}"

    @property
    def why(self) -> str:
        """The code and the reason in one text."""
        return " ".join(filter(None, (self.code, self.reason)))


def letter_of(partition: int, record: Record) -> Letter:
    """Return the letter in a record; unreadable facts are missing."""
    _, own = _own_headers(record.headers)
    attributes = _attributes(record)
    code, data = attributes.get(CODE), attributes.get(DATA)
    reason = own.get(REASON)
    kind: LetterKind = "unknown"
    if reason is not None:
        kind = "failure"
    elif own.get(KIND) == REPLY:
        kind = "reply"
    elif code is not None or DEST in attributes:
        kind = "event"
    failed = kind == "failure"
    counters = [{name: (raw or b"").decode(errors="replace")} for name, raw in record.headers if name == REDRIVES]
    return Letter(
        partition,
        record.offset,
        record.timestamp,
        record.key,
        kind,
        own.get(GROUP),
        origin_in(own, TOPIC, PARTITION, OFFSET),
        None if failed else attributes.get(DEST),
        None if failed else code,
        reason if reason is not None else error_text(data),
        attributes.get("id"),
        attributes.get("type"),
        max((number_in(header, REDRIVES) or 0 for header in counters), default=0),
    )


def error_text(data: str | None) -> str:
    """Return the text of `knativeerrordata`, decoded if it is base64."""
    if not data:
        return ""
    try:
        return base64.b64decode(data, validate=True).decode(errors="replace")
    except (binascii.Error, ValueError):
        return data


def as_read(record: Record) -> RecordParts:
    """Return the record as it was before it was dead-lettered.

    It loses the last set of origin headers, the headers of a delayed retry of the same group, and Knative's attributes where the
    dispatcher has added them. A value in structured mode keeps the text of its other members, without white space between
    them. Null headers are empty, as the writer of the letter had to write them.
    """
    start, own = _own_headers(record.headers)
    group = own.get(GROUP, "").encode()
    has_waited = any(name == delayed_retry.GROUP and raw == group for name, raw in record.headers)
    added = (delayed_retry.PREFIX,) if has_waited else ()
    headers = [
        (name, raw or b"")
        for number, (name, raw) in enumerate(record.headers)
        if not name.startswith(added if number < start else (PREFIX, *added))
    ]
    value = record.value
    if REASON in own:  # written by on_error, which adds no attributes: those that are there were read
        return RecordParts(record.key, value, headers)
    prefix = "ce_"
    try:
        decode_record(record)
        if read_headers(record.headers)[0] is None:  # in structured mode
            return RecordParts(record.key, _without_members(value), headers)
    except Refused:
        prefix = ""  # what is no event has plain headers
    names = {prefix + name for name in ERRORS}
    return RecordParts(record.key, value, [(name, raw) for name, raw in headers if name.lower() not in names])


def counted(parts: RecordParts, redrives: int) -> RecordParts:
    """Return the record with its number of redrives in a header."""
    headers = [(name, raw) for name, raw in parts.headers if name != REDRIVES]
    return parts._replace(headers=[*headers, (REDRIVES, str(redrives).encode())])


# -- inside --------------------------------------------------------------------------------------------------------------


def _own_headers(headers: Headers) -> tuple[int, dict[str, str]]:
    """Return where the last set of origin headers begins, and the set."""
    starts = [number for number, (name, _) in enumerate(headers) if name == GROUP]
    if not starts:
        return len(headers), {}
    return starts[-1], {
        name: (raw or b"").decode(errors="replace") for name, raw in headers[starts[-1] :] if name.startswith(PREFIX)
    }


def _attributes(record: Record) -> dict[str, str]:
    """Return the event's id, type and errors, or plain headers' errors."""
    try:
        found = decode_record(record).get_attributes()
    except Refused:
        return {
            name: (raw or b"").decode(errors="replace") for name, raw in record.headers if name.lower() in ERRORS
        }  # fmt: skip
    return {name: str(found[name]) for name in ("id", "type", *ERRORS) if found.get(name) is not None}


def _without_members(value: bytes | None) -> bytes | None:
    """Return a JSON object without Knative's members, other values unchanged."""
    if value is None or b"knativeerror" not in value:
        return value
    try:
        parsed = parse_json(value)
        if not isinstance(parsed, dict) or not any(name in parsed for name in ERRORS):
            return value
        members = {name: text for name, text in members_of(value.decode()).items() if name not in ERRORS}
    except (Refused, UnicodeDecodeError):
        return value
    return ("{" + ",".join(f"{write_json(name).decode()}:{text}" for name, text in members.items()) + "}").encode()
