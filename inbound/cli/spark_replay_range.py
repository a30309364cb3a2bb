"""Which offsets a replay is asked for, as flags."""

from __future__ import annotations

import argparse
import re
from datetime import datetime

from inbound.cli.argument_types import offset_number, partition_numbers
from inbound.errors import ConfigError
from inbound.spark.replay.plan import Asked


def add_range_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say from where to where, and of which partitions."""
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-earliest", action="store_true", help="from the first offset in the log; the default")
    start.add_argument("--from-offset", type=offset_number, metavar="N", help="from this offset of each partition")
    start.add_argument("--from-time", type=_time, metavar="RFC3339", help="from the first record of this time or later")
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--to-latest", action="store_true", help="up to the last offset there is now; the default")
    end.add_argument(
        "--to-offset", type=offset_number, metavar="N", help="up to this offset of each partition, without it"
    )
    end.add_argument(
        "--to-time", type=_time, metavar="RFC3339", help="up to the first record of this time or later, without"
    )
    parser.add_argument(
        "--range", action="append", default=[], dest="ranges", metavar="[TOPIC/]P:FIRST:NEXT",
        help="these offsets of one partition, NEXT excluded, instead of --from and --to; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--partitions", type=partition_numbers, metavar="0,3-5", help="only these partitions; default: all"
    )
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        dest="topics",
        help="only this topic of the channel; may be given several times",
    )


def asked_of(args: argparse.Namespace, topics: tuple[str, ...]) -> Asked:
    """Return what the flags ask for, of a channel that reads `topics`.

    Raises:
        ConfigError: flags that exclude each other, or a topic that the channel does not read.
    """
    for topic in args.topics:
        if topic not in topics:
            raise ConfigError(
                f"--topic {topic}: the channel does not read it; it reads {', '.join(topics) or 'none that exists'}"
            )
    chosen = tuple(topic for topic in topics if topic in args.topics) if args.topics else topics
    if not chosen:
        raise ConfigError("the channel's topics_pattern matches no topic that exists; there is nothing to replay")
    bounds = (args.from_offset, args.from_time, args.to_offset, args.to_time, args.partitions)
    if args.ranges:
        if args.from_earliest or args.to_latest or any(bound is not None for bound in bounds):
            raise ConfigError("--range names partitions and offsets itself; leave --from…, --to… and --partitions out")
        given = tuple(sorted(_range(text, chosen) for text in args.ranges))
        return Asked(tuple(sorted({topic for topic, *_ in given})), "", "", None, given)
    start = args.from_offset if args.from_offset is not None else args.from_time or "earliest"
    end = args.to_offset if args.to_offset is not None else args.to_time or "latest"
    if isinstance(start, int) and isinstance(end, int) and start >= end:
        raise ConfigError(f"--from-offset {start} --to-offset {end}: the range is empty; --to-offset must be larger")
    if start == args.from_time and end == args.to_time and _moment(start) >= _moment(end):
        raise ConfigError(f"--from-time {start[1:]} --to-time {end[1:]}: the range is empty; --to-time must be later")
    return Asked(chosen, start, end, args.partitions)


def _range(text: str, topics: tuple[str, ...]) -> tuple[str, int, int, int]:
    match = re.fullmatch(r"(?:(.+)/)?(\d+):(\d+):(\d+)", text, re.ASCII)
    if match is None:
        raise ConfigError(
            f"--range {text}: need PARTITION:FIRST:NEXT, such as 0:100:200, or TOPIC/PARTITION:FIRST:NEXT"
        )
    topic, *numbers = match.groups()
    if topic is None:
        if len(topics) != 1:
            raise ConfigError(f"--range {text}: the channel reads {', '.join(topics)}; say which: TOPIC/{text}")
        topic = topics[0]
    if topic not in topics:
        raise ConfigError(f"--range {text}: the channel does not read {topic}; it reads {', '.join(topics)}")
    partition, first, end = map(int, numbers)
    return topic, partition, first, end


def _time(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or "T" not in text.upper():
        raise argparse.ArgumentTypeError(f"need a time with its zone, such as 2025-01-31T12:00:00Z, got {text}")
    return f"@{text}"


def _moment(text: object) -> datetime:
    return datetime.fromisoformat(str(text)[1:])
