"""`inbound dead-letters list` and `show`: what is in a dead letter topic."""

from __future__ import annotations

import argparse
import json
import sys
from itertools import islice
from typing import Any

from inbound.cli.dead_letters_options import Asked, add_filters, add_limit, add_topic, opened, place, reading
from inbound.cli.dead_letters_text import as_json, list_cells, list_table, summary_json, summary_table, whole_letter
from inbound.cli.help import examples
from inbound.cli.table import count
from inbound.dead_letters.letter import letter_of
from inbound.dead_letters.selection import Summary
from inbound.errors import ConfigError, InboundError

#: So many lines are shown where nobody says otherwise.
DEFAULT_LIMIT = 1000


def add_parsers(subcommands: Any) -> None:
    """Add the commands to `inbound dead-letters`."""
    lists = subcommands.add_parser(
        "list",
        help="a line for each letter, or how many there are of each kind",
        description="Show a line for each letter: where it stands (partition/offset), when it was dead-lettered, by which "
        "subscription or channel, why, which record it was, and how often it was redriven. By partition and offset. With "
        "--summary count them by subscription and reason.",
        **examples(
            "inbound dead-letters list orders.dead --summary",
            "inbound dead-letters list orders.dead --since 2h --subscription billing",
            "inbound dead-letters list orders.dead --reason '*timeout*' --json",
        ),
    )
    add_topic(lists)
    add_filters(lists)
    add_limit(lists, f"at most so many lines; default: {DEFAULT_LIMIT}, with --json all")
    lists.add_argument("--summary", action="store_true", help="how many, by subscription and reason")
    lists.add_argument("--json", action="store_true", help="print JSON, a line for each")
    lists.set_defaults(run=run_list)
    show = subcommands.add_parser(
        "show",
        help="everything that one letter says",
        description="Show one letter: why it was given up, decoded, which record it was, all headers, and the value: JSON "
        "indented, other text as it stands, anything else in hexadecimal.",
        **examples("inbound dead-letters show orders.dead 0/17", "inbound dead-letters show orders.dead 0/17 --whole"),
    )
    add_topic(show)
    show.add_argument("letter", type=place, metavar="PARTITION/OFFSET", help="which letter, as `list` shows it")
    show.add_argument("--whole", action="store_true", help="the whole value; default: its first 4 KiB")
    show.set_defaults(run=run_show)


def run_list(args: argparse.Namespace) -> int:
    """Show the letters, or count them. Returns the exit code."""
    if args.summary and args.limit is not None:
        raise ConfigError("--limit does not go with --summary: it counts all; leave one out")
    with opened(args) as asked:
        if args.summary:
            return _summary(args, asked)
        return _lines(asked) if args.json else _table(asked)


def _lines(asked: Asked) -> int:
    for letter in asked.letters():
        print(json.dumps(as_json(asked.subscribers.name_of(letter), letter), ensure_ascii=False))
    return 0


def _table(asked: Asked) -> int:
    most = asked.limit or DEFAULT_LIMIT
    with reading(asked.log):  # a letter may be large, its line is not
        chosen = islice(filter(asked.selection.chooses, asked.log.letters()), most + 1)
        rows = [list_cells(asked.subscribers.name_of(letter), letter) for letter in chosen]
    print(list_table(rows[:most]) if rows else _empty(asked))
    if len(rows) > most:
        print(
            f"there are more than {count(most, 'letter')}: these are the first; --limit shows more, --summary counts all",
            file=sys.stderr,
        )
    return 0


def _summary(args: argparse.Namespace, asked: Asked) -> int:
    summary = Summary()
    with reading(asked.log):
        for letter in asked.letters():
            summary.add(asked.subscribers.name_of(letter), letter)
    if args.json:
        for row in summary_json(summary):
            print(json.dumps(row, ensure_ascii=False))
        return 0
    print(summary_table(summary) if summary.total else _empty(asked))
    if summary.total:
        print(f"{count(summary.total, 'letter')}", file=sys.stderr)
    return 0


def _empty(asked: Asked) -> str:
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
            f"topic {asked.log.topic}: no letter at {args.letter[0]}/{args.letter[1]}: nothing stands there (a marker of a "
            "transaction, or it was deleted just now)"
        )
