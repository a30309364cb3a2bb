"""`inbound publish --to URL`: the events go to an ingress, not to the brokers."""

from __future__ import annotations

import argparse
import secrets
import ssl
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from urllib3.util import Url, parse_url

from inbound.cli.files import load_config, token_reader
from inbound.cli.progress import Progress
from inbound.errors import ConfigError
from inbound.processors.cloudevents_http import HttpMessage
from inbound.processors.http_values import http_url
from inbound.processors.sinks.http_client import HttpClient
from inbound.publishing import Event, Format, Posting, check_lines, lines_in, lines_of, numbered, read_ahead, with_key
from inbound.publishing.posting import Answer, Post
from inbound.publishing.sources import Line
from inbound.tracing.process import ProcessTracing

_STDIN = "standard input"
#: Times for one request, in seconds.
_CONNECT, _TOTAL = 5.0, 60.0
#: So many refused events are named; of the others only the number is said.
_NAMED = 10
_ONLY_HERE = {"batch": "--batch", "token_file": "--token-file", "ca_file": "--ca-file", "client_cert": "--client-cert"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what is asked only with `--to`."""
    group = parser.add_argument_group("with --to")
    group.add_argument(
        "--batch", type=int, metavar="N", help="events in one request; default: 100. 1: each alone, in binary mode"
    )
    group.add_argument("--token-file", type=Path, metavar="FILE", help="the token that the ingress asks for")
    group.add_argument("--ca-file", type=Path, metavar="FILE", help="who signed the certificate of the ingress; PEM")
    group.add_argument("--client-cert", type=Path, metavar="FILE", help="our certificate and its key; PEM")


def check_unused(args: argparse.Namespace) -> None:
    """Raise ConfigError for options that mean nothing without `--to`."""
    for name, option in _ONLY_HERE.items():
        if getattr(args, name) is not None:
            raise ConfigError(f"{option} goes with --to: brokers are told by -c; leave it out, or give --to")


def post(args: argparse.Namespace, topic: str) -> int:
    """Post what `args` name to the ingress. Returns the exit code."""
    for given, option in ((args.plain, "--plain"), (args.create, "--create"), (args.partitions, "--partitions")):
        if given:
            raise ConfigError(
                f"{option} does not go with --to: an ingress takes CloudEvents for topics of its own; leave it out"
            )
    batch = 100 if args.batch is None else args.batch
    if not 1 <= batch <= 10_000:
        raise ConfigError(f"--batch: need 1 to 10000 events, got {batch}")
    with closing(ProcessTracing()) as tracing:
        if args.config is not None:
            tracing.configure(load_config(args).config.tracing)
        return _post(args, topic, batch, tracing)


def _post(args: argparse.Namespace, topic: str, batch: int, tracing: ProcessTracing) -> int:
    client = _client(args, topic)
    total, events = _events(args)
    posting = Posting(_poster(client, tracing), f"{args.to.rstrip('/')} (topic {topic})", batch, args.structured)
    progress = Progress(f"publishing to {topic}", total)
    try:
        published = posting.publish(events, rate=args.rate, progress=progress.update)
    except (ConfigError, KeyboardInterrupt):
        progress.close()
        print(f"published {posting.delivered:,} events to {topic}, then stopped", file=sys.stderr)
        raise
    finally:
        progress.close()
        client.close()
    refused = posting.refused
    if not published.count and not refused:
        raise ConfigError(f"{_STDIN}: held no events, so nothing was published; write one line for each")
    print(f"published {published.count:,} events to {topic} in {published.seconds:.1f} s ({published.rate:,.0f}/s)")
    for refusal in refused[:_NAMED]:
        print(f"{_name(args)}:{refusal.line}: refused: {refusal.reason}", file=sys.stderr)
    if len(refused) > _NAMED:
        print(f"... and {len(refused) - _NAMED:,} more", file=sys.stderr)
    if refused:
        print(f"error: {len(refused):,} events were refused by the ingress; all others were published", file=sys.stderr)
    return 1 if refused else 0


def _poster(client: HttpClient, tracing: ProcessTracing) -> Post:
    """Return what posts a message, in a span if any are made."""

    def post(message: HttpMessage, attempt: int) -> Answer:
        return client.post(message)

    if tracing.spans is None:
        return post
    from inbound.tracing.publishing import TracedPost

    return TracedPost(post, tracing.spans, client)


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


def _events(args: argparse.Namespace) -> tuple[int | None, Iterable[Event | None]]:
    """Return how many events there are, if that is known, and the events.

    Raises:
        ConfigError: a line of a file cannot be published, before any is; for standard input the events raise it.
    """
    form = Format(structured=True)  # how each goes out is decided later; this form holds every event
    key = None if args.key is None else args.key.encode()
    if args.generate is not None:
        source = f"/inbound/publish/{secrets.token_hex(4)}"
        made = numbered(args.generate, source=source, size=args.size, structured=True)
        return args.generate, (Event(number, with_key(record, key)) for number, record in enumerate(made, 1))
    if args.file is None or str(args.file) == "-":
        return None, read_ahead(_read(lines_in(sys.stdin.buffer, _STDIN), _STDIN, form, key), 1000)
    total = check_lines(lines_of(args.file), str(args.file), form)
    return total, _read(lines_of(args.file), str(args.file), form, key)


def _read(lines: Iterable[Line], name: str, form: Format, key: bytes | None) -> Iterator[Event]:
    for number, text in lines:
        try:
            event = Event(number, with_key(form.encode(text), key))
        except ValueError as error:
            raise ConfigError(
                f"{name}:{number}: {error}; lines before this one are published, the others are not"
            ) from None
        yield event


def _name(args: argparse.Namespace) -> str:
    if args.generate is not None:
        return "event"
    return _STDIN if args.file is None or str(args.file) == "-" else str(args.file)
