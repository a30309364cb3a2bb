"""Which groups, topics and partitions the commands of `inbound offsets` are about; and how they reach the servers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from inbound.cli.files import add_config_options, known_channels, load_config
from inbound.config import Config
from inbound.coordinators.paths import path_part
from inbound.errors import ConfigError
from inbound.kafka.base import LogClient
from inbound.offsets.changes import OffsetsError
from inbound.offsets.gather import Reads, reads_of
from inbound.offsets.logs import Way
from inbound.offsets.model import ALL, Selection


@dataclass(frozen=True)
class Chosen:
    """What a command is about, and the configuration that says how to get at it."""

    config: Config
    reads: Mapping[str, Reads]  # by group
    groups: tuple[str, ...] | None  # None: all that ZooKeeper has
    selection: Selection

    def connect(self, way: Way) -> LogClient:
        """Return a client of the brokers. Raises BrokerUnavailableError: they do not answer, or let nobody in."""
        return way.connect(self.config.kafka)


def add_selection(parser: argparse.ArgumentParser, *, all_groups: bool = True, topics: bool = True) -> None:
    """Add `-c`, `--group`, `--all-groups` and `--topic`."""
    add_config_options(parser)
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="NAME",
        help="a group, may be given several times; default: the groups of the configuration",
    )
    if all_groups:
        parser.add_argument("--all-groups", action="store_true", help="every group that ZooKeeper has")
    if topics:
        parser.add_argument(
            "--topic",
            action="append",
            default=[],
            type=topic_of,
            metavar="NAME[:P,P...]",
            help="a topic, and some of its partitions (orders:0,1), may be given several times; default: all",
        )


def chosen(args: argparse.Namespace) -> Chosen:
    """Return what `args` name.

    Raises:
        ConfigError: the configuration cannot be used, or the options do not fit together.
    """
    loaded = load_config(args)
    reads = reads_of(known_channels(loaded))
    everything = getattr(args, "all_groups", False)
    if everything and args.group:
        raise ConfigError("--all-groups does not go with --group: give one of the two")
    groups = tuple(path_part(name, "--group") for name in args.group) or tuple(reads)
    return Chosen(loaded.config, reads, None if everything else groups, selected(getattr(args, "topic", ())))


def selected(topics: Iterable[tuple[str, frozenset[int] | None]]) -> Selection:
    """Return what `--topic` names; given for one topic several times, its partitions together."""
    found: dict[str, frozenset[int] | None] = {}
    for name, partitions in topics:
        before = found.get(name, frozenset())
        found[name] = None if partitions is None or before is None else before | partitions
    return Selection(topics=found) if found else ALL


def topic_of(text: str) -> tuple[str, frozenset[int] | None]:
    """Return topic and partitions of `NAME` or `NAME:0,1`."""
    name, colon, numbers = text.partition(":")
    try:
        path_part(name, "topic")
        partitions = frozenset(map(_number, numbers.split(","))) if colon else None
    except (ConfigError, ValueError):
        raise argparse.ArgumentTypeError(
            f"need a topic, such as orders, or some of its partitions, such as orders:0,1; got {text!r}"
        ) from None
    return name, partitions


def add_execution(parser: argparse.ArgumentParser) -> None:
    """Add `--dry-run` and `--execute`."""
    either: Any = parser.add_mutually_exclusive_group()
    either.add_argument("--dry-run", action="store_true", help="only say what would be done; this is the default")
    either.add_argument("--execute", action="store_true", help="do it")


def refusing(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Return `run`, ended with exit code 2 by what is refused: asking again is of no use before something is changed."""

    def refused(args: argparse.Namespace) -> int:
        try:
            return run(args)
        except OffsetsError as error:
            raise ConfigError(str(error)) from None

    return refused


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(text)
    return int(text)
