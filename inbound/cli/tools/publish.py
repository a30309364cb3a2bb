"""`inbound publish` writes records to a topic or an ingress."""

from __future__ import annotations

import argparse
import secrets
import ssl
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from urllib3.util import Url, parse_url

from inbound.cli.shared.command import Command, amount, argument, checked_topic, flag, one_of, parsed, titled, whole
from inbound.cli.shared.files import load_config, token_reader
from inbound.cli.shared.output import ProgressLine, first_of, note
from inbound.config import Config, parse_size
from inbound.config.http_values import http_url
from inbound.config.kafka_properties import DEFAULT_SERVERS
from inbound.errors import ConfigError
from inbound.observe.tracing.process import ProcessTracing
from inbound.processors.cloudevents_http import HttpAnswer, HttpMessage
from inbound.processors.sinks.http_client import HttpClient
from inbound.publishing import (
    Encoded,
    Format,
    NumberedEvent,
    Posting,
    Published,
    check_lines,
    lines_in,
    lines_of,
    numbered,
    prepare_topic,
    publisher_to,
    read_ahead,
    records_of,
    with_key,
)
from inbound.publishing.posting import Post
from inbound.publishing.publisher import Publisher, RecordProducer
from inbound.publishing.sources import NumberedLine

_DEFAULT_CONFIG = Path("inbound.yaml")
_STDIN = "standard input"
_RATE = amount(0.001, 1e9, "events a second such as 500/s", "/s")
_COUNT = whole(1, 10**12, "a whole number of at least 1")
#: Times for one request to an ingress, in seconds.
_CONNECT, _TOTAL = 5.0, 60.0
#: So many refused events are named; the others are counted.
_NAMED = 10
_ONLY_WITH_TO = ("batch", "token_file", "ca_file", "client_cert")
_NOT_WITH_TO = ("plain", "create", "partitions")


def run(args: argparse.Namespace) -> int:
    """Publish, and wait until all records have arrived. Returns the exit code."""
    topic = checked_topic(args.topic)
    _check(args)
    config = _config(args)
    with closing(ProcessTracing()) as tracing:
        if args.to is not None:
            if config is not None:
                tracing.configure(config.tracing)
            return _post(args, topic, tracing)
        properties = {"bootstrap.servers": args.bootstrap_servers or DEFAULT_SERVERS}
        total, records = _records(args)
        if config is not None:
            properties = dict(config.kafka)
            tracing.configure(config.tracing)
        prepare_topic(properties, topic, create=args.create, partitions=args.partitions)
        with closing(publisher_to(properties, topic, partial(_traced, tracing=tracing))) as publisher:
            _publish(args, topic, total, publisher, records)
        return 0


def _check(args: argparse.Namespace) -> None:
    """Refuse options that would have no effect."""
    if args.config is not None and args.bootstrap_servers is not None:
        raise ConfigError("-c does not go with --bootstrap-servers: both name the brokers; leave one out")
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
        raise ConfigError("--structured goes with CloudEvents: a plain line is written unchanged; leave one out")
    for name in _ONLY_WITH_TO if args.to is None else ():
        if getattr(args, name) is not None:
            raise ConfigError(
                f"{_option(name)} goes with --to: -c has the settings for brokers; leave it out, or give --to"
            )
    for name in _NOT_WITH_TO if args.to is not None else ():
        if getattr(args, name):
            raise ConfigError(
                f"{_option(name)} does not go with --to: an ingress takes CloudEvents for its own topics; leave it out"
            )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _config(args: argparse.Namespace) -> Config | None:
    if args.config is None and args.to is None and args.bootstrap_servers is None and _DEFAULT_CONFIG.exists():
        args.config = _DEFAULT_CONFIG
    return None if args.config is None else load_config(args).config


def _publish(
    args: argparse.Namespace, topic: str, total: int | None, sender: Publisher | Posting, records: Any
) -> Published:
    """Send all records, and print the count. Raises ConfigError if none."""
    what = "records" if args.plain else "events"
    with closing(ProgressLine(f"publishing to {topic}", total)) as progress:
        try:
            published = sender.publish(records, rate=args.rate, progress=progress.update)
        except (ConfigError, KeyboardInterrupt):
            progress.close()
            note(f"published {sender.delivered:,} {what} to {topic}, then stopped")
            raise
    if not published.count and not (isinstance(sender, Posting) and sender.refused):
        raise ConfigError(f"{_STDIN}: held no {what}, so nothing was published; write one line for each")
    print(f"published {published.count:,} {what} to {topic} in {published.seconds:.1f} s ({published.rate:,.0f}/s)")
    return published


def _traced(producer: RecordProducer, tracing: ProcessTracing) -> RecordProducer:
    """Return the producer, with a trace per record if configured."""
    if tracing.spans is None:
        return producer
    from inbound.observe.tracing.spans import TracedProducer

    return TracedProducer(producer, tracing.spans)


# -- to an ingress -------------------------------------------------------------------------------------------------------


def _post(args: argparse.Namespace, topic: str, tracing: ProcessTracing) -> int:
    batch = 100 if args.batch is None else args.batch
    if not 1 <= batch <= 10_000:
        raise ConfigError(f"--batch: need 1 to 10000 events, got {batch}")
    with closing(_client(args, topic)) as client:
        total, events = _events(args)
        posting = Posting(_poster(client, tracing), f"{args.to.rstrip('/')} (topic {topic})", batch, args.structured)
        _publish(args, topic, total, posting, events)
    name = "event" if args.generate is not None else _name(args)
    refused = [f"{name}:{refusal.line}: refused: {refusal.reason}" for refusal in posting.refused]
    for line in first_of(refused, _NAMED, "... and {:,} more"):
        note(line)
    if refused:
        note(f"error: {len(refused):,} events were refused by the ingress; all others were published")
    return 1 if refused else 0


def _client(args: argparse.Namespace, topic: str) -> HttpClient:
    try:
        url = parse_url(http_url(args.to))
    except ValueError as error:
        raise ConfigError(f"--to: {error}") from None
    token = token_reader(args.token_file, "--token-file")
    headers = {} if token is None else {"authorization": f"Bearer {token()}"}
    tls = None
    if url.scheme == "https":
        try:
            tls = ssl.create_default_context(cafile=args.ca_file)
            if args.client_cert is not None:
                tls.load_cert_chain(args.client_cert)
        except (OSError, ValueError) as error:
            raise ConfigError(f"--ca-file, --client-cert: {error}; give PEM files") from None
    path = f"{(url.path or '').rstrip('/')}/topics/{topic}"
    target = Url(url.scheme, None, url.host, url.port, path)
    return HttpClient(target, headers=headers, connect_timeout=_CONNECT, timeout=_TOTAL, tls=tls)


def _poster(client: HttpClient, tracing: ProcessTracing) -> Post:
    """Return a post function, with a span if configured."""

    def post(message: HttpMessage, attempt: int) -> HttpAnswer:
        return client.post(message)

    if tracing.spans is None:
        return post
    from inbound.observe.tracing.spans import TracedPost

    return TracedPost(post, tracing.spans, client)


# -- records -------------------------------------------------------------------------------------------------------------
# Both return their number too, if it is known. A bad line of a file raises ConfigError before anything is published; a bad
# line of standard input when it comes.


def _records(args: argparse.Namespace) -> tuple[int | None, Iterable[Encoded]]:
    """Return the records for brokers."""
    form = Format(structured=args.structured, plain=args.plain, key=_key(args))
    if args.generate is not None:
        made = _numbered(args, structured=args.structured)
        return args.generate, ((form.key, value, headers) for _, value, headers in made)
    total, lines = _lines(args, form)
    return total, records_of(lines, _name(args), form, checked=total is not None)


def _events(args: argparse.Namespace) -> tuple[int | None, Iterable[NumberedEvent | None]]:
    """Return the events for an ingress."""
    form, key = Format(structured=True), _key(args)  # every event has this form; `Posting` chooses the one it sends
    if args.generate is not None:
        made = _numbered(args, structured=True)
        return args.generate, (NumberedEvent(number, with_key(record, key)) for number, record in enumerate(made, 1))
    total, lines = _lines(args, form)
    events = _read(lines, _name(args), form, key)
    return total, events if total is not None else read_ahead(events, 1000)


def _read(lines: Iterable[NumberedLine], name: str, form: Format, key: bytes | None) -> Iterator[NumberedEvent]:
    for number, text in lines:
        try:
            event = NumberedEvent(number, with_key(form.encode(text), key))
        except ValueError as error:
            raise ConfigError(
                f"{name}:{number}: {error}; lines before this one are published, the others are not"
            ) from None
        yield event


def _lines(args: argparse.Namespace, form: Format) -> tuple[int | None, Iterator[NumberedLine]]:
    """Return the lines, and their number if it is known."""
    if _name(args) == _STDIN:
        return None, lines_in(sys.stdin.buffer, _STDIN, plain=args.plain)
    total = check_lines(lines_of(args.file, plain=args.plain), _name(args), form)
    return total, lines_of(args.file, plain=args.plain)


def _numbered(args: argparse.Namespace, *, structured: bool) -> Iterator[Encoded]:
    source = f"/inbound/publish/{secrets.token_hex(4)}"
    return numbered(args.generate, source=source, size=args.size, structured=structured)


def _key(args: argparse.Namespace) -> bytes | None:
    return None if args.key is None else args.key.encode()


def _name(args: argparse.Namespace) -> str:
    return _STDIN if args.file is None or str(args.file) == "-" else str(args.file)


def _size(text: str) -> int:
    size = int(text) if text.isdecimal() else parse_size(text)
    if not 0 <= size <= 2**30:
        raise ValueError(f"need at most 1GiB, got {text!r}")
    return size


COMMAND = Command(
    "publish",
    "write CloudEvents, or plain lines, to a topic",
    run,
    "Write records to a topic: from a file or standard input with one CloudEvent in JSON per line (its extension partitionkey "
    "becomes the record's key), or --plain lines, or numbered events. A file is checked before anything is published; standard "
    "input is published line by line, up to the first bad line, which is named. Exit code 0 if every record has arrived, 1 if one "
    "has not, 2 for bad input.",
    examples=(
        "inbound publish orders --create --partitions 8 --generate 1000",
        "inbound publish orders --file events.jsonl --rate 500/s",
        "tail -f app.log | inbound publish logs --plain --key app",
        "inbound publish orders --file events.jsonl --to http://127.0.0.1:8080",
    ),
    arguments=(
        argument("topic", metavar="TOPIC", help="the topic to write to"),
        argument(
            "-c",
            "--config",
            type=Path,
            metavar="FILE",
            help="use the sections kafka and tracing of this configuration; with --to only tracing",
        ),
        one_of(
            argument(
                "--bootstrap-servers",
                metavar="HOST:PORT",
                help="the brokers; default: those of inbound.yaml, or 127.0.0.1:9092",
            ),
            argument("--to", metavar="URL", help="post to the ingress there, such as http://127.0.0.1:8080"),
        ),
        one_of(
            argument(
                "standard_input",
                nargs="?",
                choices=["-"],
                metavar="-",
                help="lines of standard input; default if it is a pipe or file",
            ),
            argument("--file", type=Path, metavar="FILE", help="lines of a file; - is standard input"),
            argument("--generate", type=_COUNT, metavar="N", help="N numbered events"),
        ),
        argument("--rate", type=_RATE, metavar="N/s", help="max records/s; default: unlimited"),
        argument(
            "--size", type=parsed(_size), default=0, metavar="BYTES", help="with --generate: bytes of data, or 1KiB"
        ),
        flag("--plain", "each line is a record's value, unchanged, and not a CloudEvent"),
        argument("--key", metavar="TEXT", help="key of every record; default: the event's partitionkey, if any"),
        flag("--structured", "the whole event as JSON; default: binary mode"),
        flag("--create", "create the topic if it is missing"),
        argument(
            "--partitions", type=_COUNT, metavar="P", help="partitions of a created topic; or check for this number"
        ),
        titled(
            "with --to",
            argument(
                "--batch",
                type=int,
                metavar="N",
                help="events in one request; default: 100. 1: single events, in binary mode",
            ),
            argument("--token-file", type=Path, metavar="FILE", help="the token that the ingress requires"),
            argument("--ca-file", type=Path, metavar="FILE", help="authority of the ingress's certificate; PEM"),
            argument("--client-cert", type=Path, metavar="FILE", help="our certificate and its key; PEM"),
        ),
    ),
    defaults={"set": []},
)
