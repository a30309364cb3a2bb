"""`inbound publish`: write CloudEvents to a topic, from a file of JSON lines or numbered ones."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic_core import PydanticCustomError

from inbound.cli.files import load_config
from inbound.cli.progress import Progress
from inbound.config import parse_size
from inbound.config.kafka_properties import DEFAULT_SERVERS
from inbound.config.values import topic_name
from inbound.errors import ConfigError
from inbound.publishing import Encoded, Publisher, check_lines, lines_of, numbered, prepare_topic, records_of

_DEFAULT_CONFIG = Path("inbound.yaml")


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "publish",
        help="write CloudEvents to a topic",
        description="Write CloudEvents to a topic: from a file with one event in JSON per line (its extension "
        "partitionkey becomes the record's key), or numbered ones. A file is checked before anything is published. "
        "Exit code 0 if every event has arrived, 1 if one has not, 2 for bad input.",
    )
    parser.add_argument("topic", metavar="TOPIC")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="the brokers; default: those of inbound.yaml, or 127.0.0.1:9092",
    )
    where.add_argument("-c", "--config", type=Path, metavar="FILE", help="take the kafka section of this configuration")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--file", type=Path, metavar="FILE", help="one CloudEvent in JSON per line")
    what.add_argument("--generate", type=_count, metavar="N", help="N numbered events")
    parser.add_argument(
        "--rate", type=_rate, metavar="N/s", help="at most so many a second; default: as fast as it goes"
    )
    parser.add_argument(
        "--size", type=_size, default=0, metavar="BYTES", help="with --generate: bytes of data, or 1KiB"
    )
    parser.add_argument("--structured", action="store_true", help="the whole event as JSON; default: binary mode")
    parser.add_argument("--create", action="store_true", help="create the topic if it is missing")
    parser.add_argument("--partitions", type=_count, metavar="P", help="how many a created topic gets; or check for it")
    parser.set_defaults(run=run, set=[])


def run(args: argparse.Namespace) -> int:
    """Publish, and wait until all has arrived. Returns the exit code."""
    try:
        topic = topic_name(args.topic)
    except PydanticCustomError as error:
        raise ConfigError(f"topic {args.topic!r}: {error.message()}") from None
    if args.size and args.file is not None:
        raise ConfigError("--size goes with --generate: the events of a file have their own size; leave it out")
    properties = _properties(args)
    records: Iterable[Encoded]
    if args.file is not None:
        name = str(args.file)
        total = check_lines(lines_of(args.file), name, structured=args.structured)
        records = records_of(lines_of(args.file), name, structured=args.structured)
    else:
        total = args.generate
        source = f"/inbound/publish/{secrets.token_hex(4)}"
        records = numbered(total, source=source, size=args.size, structured=args.structured)
    prepare_topic(properties, topic, create=args.create, partitions=args.partitions)
    publisher = Publisher(properties, topic)
    progress = Progress(f"publishing to {topic}", total)
    try:
        published = publisher.publish(records, rate=args.rate, progress=progress.update)
    finally:
        progress.close()
        publisher.close()
    print(f"published {published.count:,} events to {topic} in {published.seconds:.1f} s ({published.rate:,.0f}/s)")
    return 0


def _properties(args: argparse.Namespace) -> dict[str, Any]:
    if args.bootstrap_servers is not None:
        return {"bootstrap.servers": args.bootstrap_servers}
    if args.config is None:
        if not _DEFAULT_CONFIG.exists():
            return {"bootstrap.servers": DEFAULT_SERVERS}
        args.config = _DEFAULT_CONFIG
    return dict(load_config(args).config.kafka)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10**12:
        raise argparse.ArgumentTypeError(f"need a whole number of at least 1, got {text!r}")
    return int(text)


def _rate(text: str) -> float:
    number = text.removesuffix("/s")
    try:
        rate = float(number)
    except ValueError:
        rate = 0.0
    if not 0.001 <= rate <= 1e9:
        raise argparse.ArgumentTypeError(f"need events a second such as 500/s, got {text!r}")
    return rate


def _size(text: str) -> int:
    try:
        size = int(text) if text.isdecimal() else parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0 <= size <= 2**30:
        raise argparse.ArgumentTypeError(f"need at most 1GiB, got {text!r}")
    return size
