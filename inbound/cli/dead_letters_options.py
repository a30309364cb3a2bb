"""Which letters the commands of `inbound dead-letters` are about, how they reach the brokers, and how they ask back."""

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

from pydantic_core import PydanticCustomError

from inbound.cli.argument_types import whole
from inbound.cli.files import add_config_options, load_config, warn_of
from inbound.cli.places import state_dir
from inbound.cli.progress import Progress
from inbound.clock import Clock, SystemClock
from inbound.config import Loaded, ReaderConfig, parse_duration, parse_time
from inbound.config.units import shown
from inbound.config.values import topic_name
from inbound.dead_letters.letter import Letter
from inbound.dead_letters.log import LetterLog
from inbound.dead_letters.redrive_ledger import RedriveLedger
from inbound.dead_letters.selection import Place, Selection
from inbound.dead_letters.subscribers import Subscribers
from inbound.errors import ConfigError, LedgerError
from inbound.kafka.base import LogClient
from inbound.kafka.clients import connector
from inbound.ledger.format import path_part

#: Reading that takes longer than that is worth a line of progress. Seconds.
_QUIET = 1.0
_NUMBER = whole(1, 10**9, "a whole number of at least 1")


@dataclass(frozen=True)
class Asked:
    """What a command is about."""

    loaded: Loaded
    log: LetterLog
    subscribers: Subscribers
    selection: Selection
    limit: int | None

    def letters(self) -> Iterator[Letter]:
        """Yield the letters that are chosen, by partition and offset."""
        return islice(filter(self.selection.chooses, self.log.letters()), self.limit)


def add_topic(parser: argparse.ArgumentParser) -> None:
    """Add TOPIC and the options of the configuration."""
    parser.add_argument("topic", metavar="TOPIC", help="the dead letter topic")
    add_config_options(parser)


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose letters; a letter must meet all that are given."""
    group = parser.add_argument_group("which letters")
    group.add_argument(
        "--subscription",
        action="append",
        default=[],
        metavar="NAME",
        help="that this subscription or channel gave up: its name, uid, group, or URL; may be given several times",
    )
    group.add_argument(
        "--since",
        type=time_or_age,
        metavar="TIME",
        help="dead-lettered then or later: 2026-01-31T02:40:00Z, or 2h (ago)",
    )
    group.add_argument("--until", type=time_or_age, metavar="TIME", help="dead-lettered before that time")
    group.add_argument(
        "--reason",
        type=_text,
        metavar="CODE|TEXT",
        help="with this code (503), or with this text in the reason; * and ? stand for any, case does not count",
    )
    group.add_argument("--key", metavar="TEXT", help="with this record key")


def add_limit(parser: argparse.ArgumentParser, text: str) -> None:
    """Add `--limit`."""
    parser.add_argument("--limit", type=_NUMBER, metavar="N", help=text)


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Add `--yes`."""
    parser.add_argument("--yes", action="store_true", help="with --execute: do not ask on the terminal before")


def add_ledger(parser: argparse.ArgumentParser) -> None:
    """Add `--ledger`."""
    parser.add_argument(
        "--ledger",
        type=Path,
        metavar="FILE",
        help="where `redrive` writes down what it sent; default: a file for each topic in ~/.local/state/inbound/dead-letters",
    )


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
    """Return what is no empty text: that of a variable which is not set would choose all letters."""
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
def opened(args: argparse.Namespace, at: Iterable[Place] | None = None, *, from_start: bool = False) -> Iterator[Asked]:
    """Read the configuration, connect, and ask where the topic ends.

    `at` names single letters; with `from_start` what is older than `--since` is read, too.

    Raises:
        ConfigError: the configuration cannot be used, options do not fit together, there is no such topic or letter.
        BrokerUnavailableError: no broker answers.
    """
    try:
        topic = topic_name(args.topic)
    except PydanticCustomError as error:
        raise ConfigError(f"topic {args.topic!r}: {error.message()}") from None
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
        yield Asked(loaded, log, subscribers, selection, getattr(args, "limit", None))
    finally:
        client.close()


def connect(properties: Mapping[str, Any]) -> LogClient:
    """Return a client of the brokers. Raises BrokerUnavailableError."""
    reader = ReaderConfig.model_validate({"client": "kafka-python"})
    return connector(reader, properties, client_id="inbound-dead-letters", isolation="read_committed")()


def clock() -> Clock:
    """Return the machine's clock."""
    return SystemClock()


def _selection(args: argparse.Namespace, subscribers: Subscribers, at: frozenset[Place] | None) -> Selection:
    given = getattr(args, "subscription", None) or []
    since, until = getattr(args, "since", None), getattr(args, "until", None)
    if since is not None and until is not None and since >= until:
        raise ConfigError("--since must be before --until: nothing is in between")
    key = getattr(args, "key", None)
    return Selection(
        frozenset().union(*map(subscribers.words_for, given)) if given else None,
        since,
        until,
        getattr(args, "reason", None),
        None if key is None else key.encode(),
        at,
    )


def ledger_of(args_path: Path | None, log: LetterLog, *, write: bool) -> RedriveLedger:
    """Open the redrive ledger that was named, or the topic's own on this machine.

    Raises:
        ConfigError: it cannot be used.
    """
    path = args_path or state_dir() / "dead-letters" / f"{path_part(log.topic)}.jsonl"
    try:
        return RedriveLedger(path, log.topic, log.topic_id, clock(), write=write)
    except LedgerError as error:
        raise ConfigError(str(error)) from None


def confirmed(args: argparse.Namespace, question: str, answer: str) -> bool:
    """Ask on the terminal, unless `--yes` was given. Returns whether `answer` was typed.

    Raises:
        ConfigError: there is no terminal.
    """
    if args.yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError("--execute asks on the terminal before it begins, and there is none: give --yes, too")
    print(f"{question} Type {answer} to go on: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == answer


@contextmanager
def reading(log: LetterLog) -> Iterator[None]:
    """Show on a terminal how far reading is, once it has taken a while."""
    if not sys.stderr.isatty():
        yield
        return
    began, progress = time.monotonic(), Progress(f"reading {log.topic}", log.size)

    def read(count: int) -> None:
        if time.monotonic() - began > _QUIET:
            progress.update(count)

    log.on_read = read
    try:
        yield
    finally:
        progress.close()
