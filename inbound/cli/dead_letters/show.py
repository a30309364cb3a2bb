"""`inbound dead-letters list` and `show`: the letters of a dead letter topic."""

from __future__ import annotations

import argparse
import codecs
import json
import time
from itertools import islice
from typing import Any

from inbound.cli.dead_letters.options import FILTERS, TOPIC, OpenTopic, opened, place, reading
from inbound.cli.shared.command import Command, argument, flag, whole
from inbound.cli.shared.output import Cell, count, note, one_line, table
from inbound.config.secrets import HIDDEN, hide, is_secret_option
from inbound.dead_letters.letter import Letter, letter_of
from inbound.dead_letters.selection import LetterSummary
from inbound.errors import ConfigError, InboundError
from inbound.processors.batch import Record
from inbound.processors.cloudevents_plain import parse_json
from inbound.processors.cloudevents_values import Refused
from inbound.runtime.text import printable

#: So many lines are shown by default.
DEFAULT_LIMIT = 1000
#: So many bytes of a value are shown without --whole.
SHOWN_BYTES = 4096
_REASON, _KEY, _ID = 60, 24, 36
_LIST = ("LETTER", "TIME", "SUBSCRIPTION", "REASON", "KEY", "FROM", "EVENT", "TYPE", "REDRIVES")
_SUMMARY = ("LETTERS", "SUBSCRIPTION", "REASON", "OLDEST", "NEWEST", "REDRIVEN BEFORE")


def run_list(args: argparse.Namespace) -> int:
    """Show the letters, or count them. Returns the exit code."""
    if args.summary and args.limit is not None:
        raise ConfigError("--limit does not go with --summary: it counts all; leave one out")
    with opened(args) as asked:
        if args.summary:
            return _summary(args, asked)
        return _lines(asked) if args.json else _table(asked)


def _lines(asked: OpenTopic) -> int:
    for letter in asked.letters():
        print(json.dumps(as_json(asked.subscribers.name_of(letter), letter), ensure_ascii=False))
    return 0


def _table(asked: OpenTopic) -> int:
    most = asked.limit or DEFAULT_LIMIT
    with reading(asked.log):  # a letter may be large, its line is not
        chosen = islice(filter(asked.selection.chooses, asked.log.letters()), most + 1)
        rows = [list_cells(asked.subscribers.name_of(letter), letter) for letter in chosen]
    print(hide(table(_LIST, rows[:most])) if rows else _empty(asked))
    if len(rows) > most:
        note(
            f"there are more than {count(most, 'letter')}: these are the first; --limit shows more, --summary counts all"
        )
    return 0


def _summary(args: argparse.Namespace, asked: OpenTopic) -> int:
    summary = LetterSummary()
    with reading(asked.log):
        for letter in asked.letters():
            summary.add(asked.subscribers.name_of(letter), letter)
    if args.json:
        for row in summary_json(summary):
            print(json.dumps(row, ensure_ascii=False))
        return 0
    print(summary_table(summary) if summary.total else _empty(asked))
    if summary.total:
        note(count(summary.total, "letter"))
    return 0


def _empty(asked: OpenTopic) -> str:
    return f"{asked.log.topic}: no letters" if asked.selection.everything else f"{asked.log.topic}: no such letters"


def run_show(args: argparse.Namespace) -> int:
    """Show one letter. Returns the exit code."""
    with opened(args, at=[args.letter]) as asked:
        for partition, record in asked.log.records():
            letter = letter_of(partition, record)
            name = asked.subscribers.name_of(letter)
            print(whole_letter(asked.log.topic, name, letter, record, whole=args.whole))
            return 0
        raise InboundError(
            f"topic {asked.log.topic}: no letter at {args.letter[0]}/{args.letter[1]}: there is none at that offset (a marker of a "
            "transaction, or it was deleted just now)"
        )


# -- text ---------------------------------------------------------------------------------------------------------------


def when(milliseconds: int) -> str | None:
    """Return a time in the format of `--since`; None if unknown."""
    if milliseconds < 0:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(milliseconds / 1000))


def list_cells(subscription: str, letter: Letter) -> tuple[Cell, ...]:
    """Return the cells of a letter's line, each cut to its column."""
    return (
        letter.place, when(letter.timestamp), subscription, _short(letter.why, _REASON), _short(key_text(letter.key), _KEY),
        None if letter.origin is None else str(letter.origin), _short(letter.event_id, _ID), _short(letter.event_type, _ID),
        letter.redrives,
    )  # fmt: skip


def as_json(subscription: str, letter: Letter) -> dict[str, Any]:
    """Return a letter for programs, with null for unknown values."""
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


def summary_table(summary: LetterSummary) -> str:
    """Return the counts, the largest first."""
    rows = [
        (kind.count, subscription, reason, when(kind.oldest), when(kind.newest), kind.redriven)
        for subscription, reason, kind in summary.rows()
    ]
    return hide(table(_SUMMARY, rows))


def summary_json(summary: LetterSummary) -> list[dict[str, Any]]:
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
    """Return a letter's facts, headers and value, cut unless `whole`."""
    facts = [
        ("letter", f"{topic} {letter.place}"),
        ("dead-lettered", when(letter.timestamp) or "at an unknown time"),
        ("given up by", _given_up_by(subscription, letter)),
        ("reason", letter.why or "not given"),
        ("from", "unknown" if letter.origin is None else str(letter.origin)),
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


def key_text(key: bytes | None) -> str | None:
    """Return a record's key as text, or in hexadecimal if not UTF-8."""
    if key is None:
        return None
    try:
        return printable(key.decode())
    except UnicodeDecodeError:
        return f"0x{key.hex()}"


def _short(text: str | None, most: int) -> str | None:
    if not text:
        return None
    line = one_line(hide(text[:SHOWN_BYTES])[: 4 * most])  # hidden first: half a secret would not be recognised
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _given_up_by(subscription: str, letter: Letter) -> str:
    parts = [subscription if subscription != "-" else "unknown"]
    if letter.group is not None and letter.group != subscription:
        parts.append(f"group {letter.group}")
    if letter.destination is not None and letter.destination != subscription:
        parts.append(f"{letter.destination} refused {'its reply' if letter.kind == 'reply' else 'it'}")
    return ", ".join(parts)


def _key_json(key: bytes | None) -> dict[str, str | None]:
    try:
        return {"key": None if key is None else key.decode()}
    except UnicodeDecodeError:
        return {"key": None, "key_hex": (key or b"").hex()}


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
    """Return JSON indented, other text unchanged, other bytes in hexadecimal."""
    try:
        if complete:
            return json.dumps(parse_json(data), indent=2, ensure_ascii=False).splitlines()
    except Refused:
        pass
    try:
        # A cut value may end inside a character, which is left out.
        return codecs.getincrementaldecoder("utf-8")().decode(data, final=complete).splitlines()
    except UnicodeDecodeError:
        return _hex_lines(data)


def _hex_lines(data: bytes) -> list[str]:
    return [
        f"{at:06x}  {data[at : at + 16].hex(' '):<47}  "
        + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data[at : at + 16])
        for at in range(0, len(data), 16)
    ]


LIST = Command(
    "list",
    "show a line for each letter, or count them",
    run_list,
    "Show a line for each letter: its place (partition/offset), when it was dead-lettered, by which subscription or channel, "
    "why, the original record, and how often it was redriven. In the order of partition and offset. With --summary count the "
    "letters by subscription and reason.",
    examples=(
        "inbound dead-letters list orders.dead --summary",
        "inbound dead-letters list orders.dead --since 2h --subscription billing",
        "inbound dead-letters list orders.dead --reason '*timeout*' --json",
    ),
    arguments=(
        *TOPIC,
        FILTERS,
        argument(
            "--limit",
            type=whole(1, 10**9, "a whole number of at least 1"),
            metavar="N",
            help=f"at most N lines; default: {DEFAULT_LIMIT}, with --json all",
        ),
        flag("--summary", "count by subscription and reason"),
        flag("--json", "print JSON, a line for each"),
    ),
)
SHOW = Command(
    "show",
    "show one letter as a whole",
    run_show,
    "Show one letter: the reason, decoded, the original record, all headers, and the value: JSON indented, other text unchanged, "
    "other bytes in hexadecimal.",
    examples=("inbound dead-letters show orders.dead 0/17", "inbound dead-letters show orders.dead 0/17 --whole"),
    arguments=(
        *TOPIC,
        argument("letter", type=place, metavar="PARTITION/OFFSET", help="which letter, as `list` shows it"),
        flag("--whole", "the whole value; default: its first 4 KiB"),
    ),
)
