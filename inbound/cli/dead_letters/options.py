"""The options of `inbound dead-letters`, and the topic that they open."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from inbound.cli.shared.command import CONFIG, argument, checked_topic, flag, several, titled
from inbound.cli.shared.files import load_config, state_dir, warn_of
from inbound.cli.shared.output import ProgressLine
from inbound.clock import Clock, SystemClock
from inbound.config import Loaded, ReaderConfig, parse_duration, parse_time
from inbound.config.units import shown
from inbound.dead_letters.letter import Letter
from inbound.dead_letters.log import LetterLog
from inbound.dead_letters.redrive_ledger import RedriveLedger
from inbound.dead_letters.selection import LetterSelection, Place
from inbound.dead_letters.subscribers import Subscribers
from inbound.errors import ConfigError, LedgerError
from inbound.kafka.base import LogClient
from inbound.kafka.clients.choice import connector
from inbound.ledger.format import path_part

#: Reading that takes longer gets a line of progress. Seconds.
_QUIET = 1.0


@dataclass(frozen=True)
class OpenTopic:
    """An open dead letter topic, and the selection of its letters."""

    loaded: Loaded
    log: LetterLog
    subscribers: Subscribers
    selection: LetterSelection
    limit: int | None

    def letters(self) -> Iterator[Letter]:
        """Yield the chosen letters, by partition and offset."""
        return islice(filter(self.selection.chooses, self.log.letters()), self.limit)


def time_or_age(text: str) -> float:
    """Return seconds since 1970 of a time, or of a duration ago."""
    try:
        return time.time() - parse_duration(text)
    except ValueError:
        pass
    try:
        return parse_time(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"need a time such as 2026-01-31T02:40:00Z, or how long ago such as 2h, got {shown(text)}"
        ) from None


def _text(text: str) -> str:
    """Refuse an empty text: an unset variable would choose all letters."""
    if not text:
        raise argparse.ArgumentTypeError("need a code or a text, got nothing; leave it out for all letters")
    return text


def place(text: str) -> Place:
    """Return partition and offset of `0/17`."""
    partition, slash, offset = text.partition("/")
    numbers = (partition, offset)
    if not slash or not all(one.isascii() and one.isdecimal() and len(one) < 19 for one in numbers):
        raise argparse.ArgumentTypeError(f"need a partition and an offset such as 0/17, got {shown(text)}")
    return int(partition), int(offset)


@contextmanager
def opened(
    args: argparse.Namespace, at: Iterable[Place] | None = None, *, from_start: bool = False
) -> Iterator[OpenTopic]:
    """Read the configuration, connect, and look up the topic's ends.

    `at` names single letters; with `from_start` letters that are older than `--since` are read, too.

    Raises:
        ConfigError: the configuration cannot be used, options do not fit together, there is no such topic or letter.
        BrokerUnavailableError: no broker answers.
    """
    topic = checked_topic(args.topic)
    loaded = load_config(args)
    subscribers = Subscribers(loaded)
    warn_of(subscribers.refused)
    places = None if at is None else frozenset(at)
    selection = _selection(args, subscribers, places)
    client = connect(loaded.config.kafka)
    try:
        log = LetterLog(client, topic, clock())
        if places is not None:
            log.narrow_to(places)
        if selection.since is not None and not from_start:
            log.begin_at(selection.since)
        yield OpenTopic(loaded, log, subscribers, selection, getattr(args, "limit", None))
    finally:
        client.close()


def connect(properties: Mapping[str, Any]) -> LogClient:
    """Return a client of the brokers. Raises BrokerUnavailableError."""
    reader = ReaderConfig.model_validate({"client": "kafka-python"})
    return connector(reader, properties, client_id="inbound-dead-letters", isolation="read_committed")()


def clock() -> Clock:
    return SystemClock()


def _selection(args: argparse.Namespace, subscribers: Subscribers, at: frozenset[Place] | None) -> LetterSelection:
    given = getattr(args, "subscription", None) or []
    since, until = getattr(args, "since", None), getattr(args, "until", None)
    if since is not None and until is not None and since >= until:
        raise ConfigError("--since must be before --until: nothing is in between")
    key = getattr(args, "key", None)
    return LetterSelection(
        frozenset().union(*map(subscribers.words_for, given)) if given else None,
        since,
        until,
        getattr(args, "reason", None),
        None if key is None else key.encode(),
        at,
    )


def ledger_of(args_path: Path | None, log: LetterLog, *, write: bool) -> RedriveLedger:
    """Open the redrive ledger that `--ledger` or the topic names.

    Raises:
        ConfigError: it cannot be used.
    """
    path = args_path or state_dir() / "dead-letters" / f"{path_part(log.topic)}.jsonl"
    try:
        return RedriveLedger(path, log.topic, log.topic_id, clock(), write=write)
    except LedgerError as error:
        raise ConfigError(str(error)) from None


def confirmed(args: argparse.Namespace, question: str, answer: str) -> bool:
    """Return whether the user, or `--yes`, confirms the change.

    Raises:
        ConfigError: there is no terminal.
    """
    if args.yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError("--execute asks on the terminal before it begins, and there is no terminal: give --yes, too")
    print(f"{question} Type {answer} to go on: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == answer


@contextmanager
def reading(log: LetterLog) -> Iterator[None]:
    """Show on a terminal how far a slow read is."""
    if not sys.stderr.isatty():
        yield
        return
    began, progress = time.monotonic(), ProgressLine(f"reading {log.topic}", log.size)

    def read(count: int) -> None:
        if time.monotonic() - began > _QUIET:
            progress.update(count)

    log.show_progress(read)
    try:
        yield
    finally:
        progress.close()


#: The topic, and the configuration that says how to reach it.
TOPIC = (argument("topic", metavar="TOPIC", help="the dead letter topic"), *CONFIG)
#: A letter must meet all that are given.
FILTERS = titled(
    "which letters",
    several(
        "--subscription",
        "that this subscription or channel gave up: its name, uid, group, or URL; may be given several times",
        metavar="NAME",
    ),
    argument(
        "--since",
        type=time_or_age,
        metavar="TIME",
        help="dead-lettered then or later: 2026-01-31T02:40:00Z, or 2h (ago)",
    ),
    argument("--until", type=time_or_age, metavar="TIME", help="dead-lettered before that time"),
    argument(
        "--reason",
        type=_text,
        metavar="CODE|TEXT",
        help="with this code (503), or with this text in the reason; * and ? are wildcards, case does not count",
    ),
    argument("--key", metavar="TEXT", help="with this record key"),
)
YES = flag("--yes", "with --execute: do not ask on the terminal before")
LEDGER = argument(
    "--ledger",
    type=Path,
    metavar="FILE",
    help="where `redrive` notes the letters that it sent; default: a file for each topic in "
    "~/.local/state/inbound/dead-letters",
)
