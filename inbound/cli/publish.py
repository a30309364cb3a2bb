"""`inbound publish`: write records to a topic, from lines of a file or of standard input, or numbered events."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_core import PydanticCustomError

from inbound.cli import publish_to as ingress
from inbound.cli.argument_types import amount, whole
from inbound.cli.files import load_config
from inbound.cli.help import examples
from inbound.cli.progress import Progress
from inbound.config import Config, parse_size
from inbound.config.kafka_properties import DEFAULT_SERVERS
from inbound.config.values import topic_name
from inbound.errors import ConfigError
from inbound.publishing import (
    Encoded,
    Format,
    check_lines,
    lines_in,
    lines_of,
    numbered,
    prepare_topic,
    publisher_to,
    records_of,
)
from inbound.publishing.publisher import Producer
from inbound.tracing.process import ProcessTracing

_DEFAULT_CONFIG = Path("inbound.yaml")
_STDIN = "standard input"
_RATE = amount(0.001, 1e9, "events a second such as 500/s", "/s")
_COUNT = whole(1, 10**12, "a whole number of at least 1")


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "publish",
        help="write CloudEvents, or plain lines, to a topic",
        description="Write records to a topic: from a file or standard input with one CloudEvent in JSON per line (its "
        "extension partitionkey becomes the record's key), or --plain lines, or numbered events. A file is checked before "
        "anything is published; standard input is published as it comes, up to the first bad line, which is named. Exit code "
        "0 if every record has arrived, 1 if one has not, 2 for bad input.",
        **examples(
            "inbound publish orders --create --partitions 8 --generate 1000",
            "inbound publish orders --file events.jsonl --rate 500/s",
            "tail -f app.log | inbound publish logs --plain --key app",
            "inbound publish orders --file events.jsonl --to http://127.0.0.1:8080",
        ),
    )
    parser.add_argument("topic", metavar="TOPIC", help="the topic to write to")
    parser.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        help="take the sections kafka and tracing of this configuration; with --to only tracing",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="the brokers; default: those of inbound.yaml, or 127.0.0.1:9092",
    )
    where.add_argument(
        "--to",
        metavar="URL",
        help="post to the ingress there, such as http://127.0.0.1:8080; of a configuration that -c names only tracing counts",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "standard_input",
        nargs="?",
        choices=["-"],
        metavar="-",
        help="lines of standard input; default if it is a pipe or file",
    )
    what.add_argument("--file", type=Path, metavar="FILE", help="lines of a file; - is standard input")
    what.add_argument("--generate", type=_COUNT, metavar="N", help="N numbered events")
    parser.add_argument(
        "--rate", type=_RATE, metavar="N/s", help="at most so many a second; default: as fast as it goes"
    )
    parser.add_argument(
        "--size", type=_size, default=0, metavar="BYTES", help="with --generate: bytes of data, or 1KiB"
    )
    parser.add_argument(
        "--plain", action="store_true", help="each line is a record's value as it stands, not a CloudEvent"
    )
    parser.add_argument("--key", metavar="TEXT", help="key of every record; default: the event's partitionkey, if any")
    parser.add_argument("--structured", action="store_true", help="the whole event as JSON; default: binary mode")
    parser.add_argument("--create", action="store_true", help="create the topic if it is missing")
    parser.add_argument("--partitions", type=_COUNT, metavar="P", help="how many a created topic gets; or check for it")
    ingress.add_options(parser)
    parser.set_defaults(run=run, set=[])


def run(args: argparse.Namespace) -> int:
    """Publish, and wait until all has arrived. Returns the exit code."""
    try:
        topic = topic_name(args.topic)
    except PydanticCustomError as error:
        raise ConfigError(f"topic {args.topic!r}: {error.message()}") from None
    _check(args)
    if args.to is not None:
        return ingress.post(args, topic)
    ingress.check_unused(args)
    config = _config(args)
    properties = _properties(args, config)
    total, records = _source(args)
    tracing = ProcessTracing()
    if config is not None:
        tracing.configure(config.tracing)
    try:
        return _publish(args, topic, properties, total, records, tracing)
    finally:
        tracing.close()


def _publish(
    args: argparse.Namespace,
    topic: str,
    properties: dict[str, Any],
    total: int | None,
    records: Iterable[Encoded],
    tracing: ProcessTracing,
) -> int:
    prepare_topic(properties, topic, create=args.create, partitions=args.partitions)
    publisher = publisher_to(properties, topic, partial(_traced, tracing=tracing))
    progress = Progress(f"publishing to {topic}", total)
    what = "records" if args.plain else "events"
    try:
        published = publisher.publish(records, rate=args.rate, progress=progress.update)
    except (ConfigError, KeyboardInterrupt):
        progress.close()
        print(f"published {publisher.delivered:,} {what} to {topic}, then stopped", file=sys.stderr)
        raise
    finally:
        progress.close()
        publisher.close()
    if not published.count:
        raise ConfigError(f"{_STDIN}: held no {what}, so nothing was published; write one line for each")
    print(f"published {published.count:,} {what} to {topic} in {published.seconds:.1f} s ({published.rate:,.0f}/s)")
    return 0


def _traced(producer: Producer, tracing: ProcessTracing) -> Producer:
    """Return a producer that begins a trace with each record, if any are made."""
    if tracing.spans is None:
        return producer
    from inbound.tracing.publishing import TracedProducer

    return TracedProducer(producer, tracing.spans)


def _check(args: argparse.Namespace) -> None:
    """Refuse combinations that would silently mean nothing."""
    if args.config is not None and args.bootstrap_servers is not None:
        raise ConfigError("-c does not go with --bootstrap-servers: both say where the brokers are; leave one out")
    if args.generate is None:
        if args.size:
            raise ConfigError("--size goes with --generate: lines have their own size; leave it out")
        if args.file is None and args.standard_input is None and (sys.stdin is None or sys.stdin.isatty()):
            raise ConfigError(
                "nothing to publish: give --file FILE, --generate N, or - and type one CloudEvent per line"
            )
    elif args.plain:
        raise ConfigError("--plain goes with lines: --generate makes CloudEvents; leave one out")
    if args.plain and args.structured:
        raise ConfigError("--structured goes with CloudEvents: a plain line is written as it stands; leave one out")


def _source(args: argparse.Namespace) -> tuple[int | None, Iterable[Encoded]]:
    """Return how many records there are, if that is known, and the records.

    Raises:
        ConfigError: a line of a file cannot be published, before any is; for standard input the records raise it.
    """
    form = Format(structured=args.structured, plain=args.plain, key=None if args.key is None else args.key.encode())
    if args.generate is not None:
        source = f"/inbound/publish/{secrets.token_hex(4)}"
        made = numbered(args.generate, source=source, size=args.size, structured=args.structured)
        return args.generate, ((form.key, value, headers) for _, value, headers in made)
    if args.file is None or str(args.file) == "-":
        return None, records_of(lines_in(sys.stdin.buffer, _STDIN, plain=args.plain), _STDIN, form, checked=False)
    name = str(args.file)
    total = check_lines(lines_of(args.file, plain=args.plain), name, form)
    return total, records_of(lines_of(args.file, plain=args.plain), name, form, checked=True)


def _config(args: argparse.Namespace) -> Config | None:
    """Return the configuration that the brokers are taken from; None: from none."""
    if args.bootstrap_servers is not None:
        return None
    if args.config is None:
        if not _DEFAULT_CONFIG.exists():
            return None
        args.config = _DEFAULT_CONFIG
    return load_config(args).config


def _properties(args: argparse.Namespace, config: Config | None) -> dict[str, Any]:
    if config is not None:
        return dict(config.kafka)
    return {"bootstrap.servers": args.bootstrap_servers or DEFAULT_SERVERS}


def _size(text: str) -> int:
    try:
        size = int(text) if text.isdecimal() else parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0 <= size <= 2**30:
        raise argparse.ArgumentTypeError(f"need at most 1GiB, got {text!r}")
    return size
