"""A command: its name, help, options and function.

It also has the options, value types and signals that several commands share. A wrong value ends with exit code 2.
"""

from __future__ import annotations

import argparse
import math
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from pydantic_core import PydanticCustomError

from inbound.config.units import shown
from inbound.config.values import topic_name
from inbound.errors import ConfigError
from inbound.runtime.signals import Latch, handled

#: Adds an argument, or several, to a parser or to a group of one.
Argument = Callable[[Any], object]

#: Begins the examples at the end of a help.
TITLE = "examples:"


@dataclass(frozen=True)
class Command:
    """One command of the command line; with `commands`, a group of them."""

    name: str
    help: str  # in the list of commands
    run: Callable[[argparse.Namespace], int] | None = None
    description: str | None = None
    examples: tuple[str, ...] = ()  # command lines that work as they stand
    arguments: tuple[Argument, ...] = ()
    defaults: Mapping[str, object] = field(default_factory=dict)
    commands: tuple[Command, ...] = ()

    def add_to(self, parsers: Any) -> None:
        """Add the command, and the commands below it, to argparse's subparsers."""
        parser = parsers.add_parser(
            self.name,
            help=self.help,
            description=self.description,
            formatter_class=HelpFormatter,
            epilog="\n  ".join((TITLE, *self.examples)),
        )
        for add in self.arguments:
            add(parser)
        parser.set_defaults(run=self.run, **self.defaults)
        add_commands(parser, self.commands, "|".join(command.name for command in self.commands))


def add_commands(parser: argparse.ArgumentParser, commands: tuple[Command, ...], metavar: str) -> None:
    """Add commands, one of which must be given.

    Without commands, the parser stays as it is. `metavar` stands for the command in usage and errors.
    """
    if commands:
        inner = parser.add_subparsers(title="commands", metavar=metavar, required=True)
        for command in commands:
            command.add_to(inner)


class HelpFormatter(argparse.HelpFormatter):
    """Wraps texts as argparse does, except the lines of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(TITLE) else super()._fill_text(text, width, indent)


def argument(*flags: str, **settings: Any) -> Argument:
    """Return an argument; see `argparse.ArgumentParser.add_argument`."""
    return lambda parser: parser.add_argument(*flags, **settings)


def flag(name: str, explained: str, **settings: Any) -> Argument:
    """Return an option without a value: true if it is given."""
    return argument(name, action="store_true", help=explained, **settings)


def several(name: str, explained: str, **settings: Any) -> Argument:
    """Return an option that may repeat; by default an empty list."""
    return argument(name, action="append", default=[], help=explained, **settings)


def one_of(*arguments: Argument, required: bool = False) -> Argument:
    """Return arguments of which at most one may be given."""

    def add(parser: Any) -> None:
        group = parser.add_mutually_exclusive_group(required=required)
        for each in arguments:
            each(group)

    return add


def titled(title: str, *arguments: Argument) -> Argument:
    """Return arguments below a title of their own in the help."""

    def add(parser: Any) -> None:
        group = parser.add_argument_group(title)
        for each in arguments:
            each(group)

    return add


T = TypeVar("T")


def parsed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return `parse` for argparse, which prints its ValueError's message."""

    def value(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return value


def amount(lowest: float, highest: float, need: str, unit: str = "") -> Callable[[str], float]:
    """Return an argument type: a number, which `unit` may follow."""

    def value(text: str) -> float:
        try:
            found = float(text.removesuffix(unit))
        except ValueError:
            found = math.nan
        if not lowest <= found <= highest:
            raise argparse.ArgumentTypeError(f"need {need}, got {shown(text)}")
        return found

    return value


def whole(lowest: int, highest: int, need: str) -> Callable[[str], int]:
    """Return an argument type: a whole number between the two."""

    def value(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or len(text) > 18 or not lowest <= int(text) <= highest:
            raise argparse.ArgumentTypeError(f"need {need}, got {shown(text)}")
        return int(text)

    return value


#: How often a command shows something again.
repeat_interval = amount(0.1, 86400.0, "seconds between 0.1 and 86400")
offset_number = whole(0, 10**18 - 1, "an offset: a whole number from 0 on")


def partition_numbers(text: str) -> tuple[int, ...]:
    """Return the partitions of `0,3-5`."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        numbers = (first, last if dash else first)
        if not all(number.isascii() and number.isdecimal() and len(number) < 7 for number in numbers):
            raise argparse.ArgumentTypeError(f"need numbers of partitions such as 0,3-5, got {shown(text)}")
        if int(numbers[0]) > int(numbers[1]):
            raise argparse.ArgumentTypeError(f"need the smaller number first in {part.strip()!r}")
        found |= set(range(int(numbers[0]), int(numbers[1]) + 1))
    return tuple(sorted(found))


#: The configuration: `load_config` reads it.
CONFIG = (
    argument(
        "-c",
        "--config",
        type=Path,
        default=Path("inbound.yaml"),
        metavar="FILE",
        help="the configuration; default: inbound.yaml in this folder",
    ),
    several(
        "--set",
        "override a value of the file, such as channels.orders.workers=8; may be given several times. Environment variables "
        "override values too: INBOUND__CHANNELS__ORDERS__WORKERS=8",
        metavar="KEY=VALUE",
    ),
)
#: Without --execute a command prints its changes and makes none.
EXECUTION = one_of(
    flag("--dry-run", "only print what would be done; this is the default"),
    flag("--execute", "do it"),
)
PARTITIONS = argument(
    "--partitions", type=partition_numbers, metavar="0,3-5", help="only these partitions; default: all"
)


def key_value(option: str, item: str, need: str = "KEY=VALUE") -> tuple[str, str]:
    """Return both parts of an option's KEY=VALUE. Raises ConfigError."""
    key, equals, value = item.partition("=")
    if not equals or not key:
        raise ConfigError(f"{option} {item}: need {need}")
    return key, value


def checked_topic(name: str) -> str:
    """Return a topic's name. Raises ConfigError if Kafka forbids it."""
    try:
        return topic_name(name)
    except PydanticCustomError as error:
        raise ConfigError(f"topic {name!r}: {error.message()}") from None


def check_channel(name: str, channels: Iterable[str]) -> None:
    """Raise ConfigError if the configuration has no channel of that name."""
    known = list(channels)
    if name not in known:
        raise ConfigError(f"no channel {name!r} in this configuration; there are: {', '.join(known) or 'none'}")


# -- signals -----------------------------------------------------------------------------------------------------------


class StopSignals:
    """Counts SIGTERM and SIGINT: the second stops at once. Main thread."""

    def __init__(self, ask: Callable[[], object] | None = None) -> None:
        """From now on each signal sets `asked` and calls `ask`."""
        self.count = 0
        self.asked = Latch()
        self._ask = ask
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.asked.set()
        if self._ask is not None:
            self._ask()


@contextmanager
def stopping(stop: Latch | threading.Event, tell: Callable[[], object]) -> Iterator[None]:
    """The first signal sets `stop` and calls `tell`, the second interrupts."""

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        tell()

    with handled(handle):
        yield


def ask_on_hangup(ask: Callable[[], object]) -> None:
    """Let SIGHUP call `ask`, which reloads the configuration.

    For the main thread. `ask` runs on a thread of its own: the signal may have interrupted a thread that has a lock.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=ask, name="hangup", daemon=True).start()

    signal.signal(signal.SIGHUP, handle)
