"""Dead letters as tables for people, and as JSON."""

from __future__ import annotations

import codecs
import json
import time
from collections.abc import Sequence
from typing import Any

from inbound.cli.table import Cell, count, one_line, table
from inbound.config.known_secrets import hide
from inbound.config.secrets import HIDDEN, is_secret_option
from inbound.dead_letters.letter import Letter
from inbound.dead_letters.purge_plan import PurgePlan
from inbound.dead_letters.redrive_plan import Plan
from inbound.dead_letters.selection import Summary
from inbound.printable import printable
from inbound.processors.batch import Record
from inbound.processors.cloudevents_json import parse_json
from inbound.processors.cloudevents_values import Refused

#: Of a value, so many bytes are shown where not all were asked for.
SHOWN_BYTES = 4096
_REASON, _KEY, _ID = 60, 24, 36
_LIST = ("LETTER", "TIME", "SUBSCRIPTION", "REASON", "KEY", "FROM", "EVENT", "TYPE", "REDRIVES")
_SUMMARY = ("LETTERS", "SUBSCRIPTION", "REASON", "OLDEST", "NEWEST", "REDRIVEN BEFORE")


def when(milliseconds: int) -> str | None:
    """Return a time as `--since` takes it; None where there is none."""
    if milliseconds < 0:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(milliseconds / 1000))


def list_cells(subscription: str, letter: Letter) -> tuple[Cell, ...]:
    """Return the line of a letter that this subscription gave up; bounded, whatever the letter says."""
    return (
        letter.place, when(letter.timestamp), subscription, _short(letter.why, _REASON), _short(key_text(letter.key), _KEY),
        None if letter.origin is None else str(letter.origin), _short(letter.event_id, _ID), _short(letter.event_type, _ID),
        letter.redrives,
    )  # fmt: skip


def list_table(rows: Sequence[tuple[Cell, ...]]) -> str:
    """Return the lines of letters as a table."""
    return hide(table(_LIST, rows))


def as_json(subscription: str, letter: Letter) -> dict[str, Any]:
    """Return a letter for programs. What is not known is null; a key that is no UTF-8 is `key_hex`."""
    origin = letter.origin
    return {
        "partition": letter.partition,
        "offset": letter.offset,
        "time": when(letter.timestamp),
        "kind": letter.kind,
        "subscription": None if subscription == "-" else hide(subscription),
        "group": letter.group,
        "destination": letter.destination,
        "code": letter.code,
        "reason": hide(letter.reason),
        **_key_json(letter.key),
        "origin": None if origin is None else [origin.topic, origin.partition, origin.offset],
        "event_id": letter.event_id,
        "event_type": letter.event_type,
        "redrives": letter.redrives,
    }


def summary_table(summary: Summary) -> str:
    """Return the counts, the largest first."""
    rows = [
        (kind.count, subscription, reason, when(kind.oldest), when(kind.newest), kind.redriven)
        for subscription, reason, kind in summary.rows()
    ]
    return hide(table(_SUMMARY, rows))


def summary_json(summary: Summary) -> list[dict[str, Any]]:
    """Return the counts for programs."""
    return [
        {
            "letters": kind.count,
            "subscription": hide(subscription),
            "reason": hide(reason),
            "oldest": when(kind.oldest),
            "newest": when(kind.newest),
            "redriven_before": kind.redriven,
        }
        for subscription, reason, kind in summary.rows()
    ]


def whole_letter(topic: str, subscription: str, letter: Letter, record: Record, *, whole: bool) -> str:
    """Return everything that one letter says: facts, headers, value; bounded unless `whole`."""
    facts = [
        ("letter", f"{topic} {letter.place}"),
        ("dead-lettered", when(letter.timestamp) or "at a time that is not known"),
        ("given up by", _given_up_by(subscription, letter)),
        ("reason", letter.why or "it says none"),
        ("from", "it does not say" if letter.origin is None else str(letter.origin)),
        ("event", "no CloudEvent" if letter.event_id is None else f"{letter.event_id} ({letter.event_type})"),
        ("redriven", "never" if not letter.redrives else f"{letter.redrives} times"),
        ("key", key_text(letter.key) or "none"),
    ]
    width = max(len(name) for name, _ in facts)
    lines = [f"{name + ':':<{width + 1}}  {printable(text)}" for name, text in facts]
    lines += ["", f"headers ({len(record.headers)}):"]
    lines += [f"  {printable(name)}: {_header(name, raw)}" for name, raw in record.headers]
    lines += ["", *_value(record.value, whole)]
    return hide("\n".join(lines))


def plan_text(plan: Plan, topic: str, ledger: object) -> str:
    """Return what a redrive will send, and what it will not."""
    parts = []
    if plan.routes:
        rows = [(number, subscription, where) for (subscription, where), number in plan.routes.most_common()]
        parts.append(table(("LETTERS", "GIVEN UP BY", "TO"), rows))
    else:
        parts.append(f"{topic}: no letters to redrive")
    for why, number in plan.refused.most_common():
        parts.append(f"refused, {count(number, 'letter')} ({_named(plan.named[why], number)}): {one_line(why)}")
    for where, number in plan.before.most_common():
        parts.append(f"left out, {count(number, 'letter')}: redriven to {one_line(where)} before, says {ledger}")
    return hide("\n".join(parts))


def purge_table(plan: PurgePlan) -> str:
    """Return what is deleted of each partition."""
    rows = [
        (partition, cut.start, cut.end, cut.letters)
        for partition, cut in plan.cuts.items()
        if cut.end > cut.start
    ]  # fmt: skip
    return table(("PARTITION", "LOG-START", "DELETE BEFORE", "LETTERS"), rows)


def key_text(key: bytes | None) -> str | None:
    """Return a record's key as text, in hexadecimal where it is none; None: there is no key."""
    if key is None:
        return None
    try:
        return printable(key.decode())
    except UnicodeDecodeError:
        return f"0x{key.hex()}"


# -- inside --------------------------------------------------------------------------------------------------------------


def _short(text: str | None, most: int) -> str | None:
    if not text:
        return None
    line = one_line(hide(text[:SHOWN_BYTES])[: 4 * most])  # hidden first: half a secret would not be known again
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _named(places: Sequence[str], number: int) -> str:
    return ", ".join(places) + (f" and {number - len(places):,} more" if number > len(places) else "")


def _given_up_by(subscription: str, letter: Letter) -> str:
    parts = [subscription if subscription != "-" else "it does not say"]
    if letter.group is not None and letter.group != subscription:
        parts.append(f"group {letter.group}")
    if letter.destination is not None and letter.destination != subscription:
        parts.append(f"{letter.destination} refused {'its reply' if letter.kind == 'reply' else 'it'}")
    return ", ".join(parts)


def _key_json(key: bytes | None) -> dict[str, str | None]:
    try:
        return {"key": None if key is None else key.decode()}
    except UnicodeDecodeError:
        assert key is not None
        return {"key": None, "key_hex": key.hex()}


def _header(name: str, raw: bytes | None) -> str:
    if raw is None:
        return "null"
    if is_secret_option(name):
        return HIDDEN
    text = key_text(raw[:SHOWN_BYTES]) or ""
    return text if len(raw) <= SHOWN_BYTES else f"{text}... ({len(raw):,} bytes)"


def _value(value: bytes | None, whole: bool) -> list[str]:
    if value is None:
        return ["value: null"]
    heading = f"value ({len(value):,} bytes):"
    kept = value if whole else value[:SHOWN_BYTES]
    lines = [f"  {printable(line)}" for line in _text_of(kept, len(kept) == len(value))]
    if len(kept) < len(value):
        lines.append(f"  ... and {len(value) - len(kept):,} bytes more; --whole shows them")
    return [heading, *lines]


def _text_of(data: bytes, complete: bool) -> list[str]:
    """Return JSON indented, other text as it stands, anything else in hexadecimal."""
    try:
        if complete:
            return json.dumps(parse_json(data), indent=2, ensure_ascii=False).splitlines()
    except Refused:
        pass
    try:
        # What is cut off may end in the midst of a character: that is left out.
        return codecs.getincrementaldecoder("utf-8")().decode(data, final=complete).splitlines()
    except UnicodeDecodeError:
        return _hex_lines(data)


def _hex_lines(data: bytes) -> list[str]:
    return [
        f"{at:06x}  {data[at : at + 16].hex(' '):<47}  "
        + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data[at : at + 16])
        for at in range(0, len(data), 16)
    ]
