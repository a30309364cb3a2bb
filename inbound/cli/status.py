"""`inbound status`: ask running processes what they do, and why something does not move."""

from __future__ import annotations

import argparse
import json
import ssl
import sys
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from inbound.cli.argument_types import repeat_interval
from inbound.cli.files import add_config_options, known_channels, load_config
from inbound.cli.help import examples
from inbound.cli.status_text import shown
from inbound.cli.tls_options import add_tls_options, client_tls
from inbound.config import AdminConfig, Loaded
from inbound.errors import ConfigError, InboundError
from inbound.http.client import ELSEWHERE, fetch_status, processes_of

#: How to reach a process that listens everywhere.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_CLEAR = "\x1b[H\x1b[2J"


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "status",
        help="show what running processes do",
        description="Ask the admin port of running processes what they do. Exit code 1 if one does not answer.",
        **examples("inbound status", "inbound status --watch 2", "inbound status --url http://127.0.0.1:8081 --json"),
    )
    add_config_options(parser)
    add_address_options(parser, "admin address, may be given several times; default: admin.listen of the configuration")
    parser.add_argument("--json", action="store_true", help="print the raw JSON, a line per address")
    parser.add_argument("--watch", type=repeat_interval, metavar="SECONDS", help="again and again until Ctrl-C")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show the status once, or until Ctrl-C. Returns the exit code."""
    loaded = None if args.url else _config(args)
    urls = args.url if loaded is None else [admin_address(loaded.config.admin)]
    expected = None if loaded is None else set(known_channels(loaded)) or None
    tls = client_tls(args)
    if args.watch is None:
        return _show(urls, expected, tls, as_json=args.json)
    try:
        watch(lambda: _show(urls, expected, tls, as_json=args.json), lambda: pause(args.watch), clear=not args.json)
    except KeyboardInterrupt:
        pass  # how one ends watching
    return 0


def pause(seconds: float) -> bool:
    """Wait, and return False: there is more to show. Ctrl-C raises KeyboardInterrupt."""
    time.sleep(seconds)
    return False


def watch(show: Callable[[], int], wait: Callable[[], bool], *, clear: bool) -> None:
    """Call `show` until `wait` returns True; on a terminal each output takes the place of the one before."""
    while True:
        if clear and sys.stdout.isatty():
            print(_CLEAR, end="")
        show()
        sys.stdout.flush()
        if wait():
            return


def _show(urls: list[str], expected: set[str] | None, tls: ssl.SSLContext | None, *, as_json: bool) -> int:
    failed = False
    for i, url in enumerate(urls):
        try:
            body = fetch_status(url, tls=tls)
            if as_json:
                print(json.dumps(body))
                continue
            processes = processes_of(url, body)
        except InboundError as error:
            print(f"error: {error}", file=sys.stderr)
            failed = True
            continue
        print("\n" * (i > 0) + shown(processes, time.time()))
        found = {channel.name for process in processes for channel in process.channels}
        if expected is not None and found and not found & expected:
            # The default port was taken, so the process asked for listens on the next one.
            print(
                f"note: the process at {url} runs {', '.join(sorted(found))}, the configuration has "
                f"{', '.join(sorted(expected))}; {ELSEWHERE}",
                file=sys.stderr,
            )
    return int(failed)


def _config(args: argparse.Namespace) -> Loaded:
    try:
        return load_config(args)
    except ConfigError as error:
        if args.config.exists():
            raise
        raise ConfigError(f"{error}, or the address of the process with --url") from None


def admin_address(admin: AdminConfig) -> str:
    """Return the address that a configuration's admin port is asked at. Raises ConfigError: that is any free port."""
    if admin.port == 0:
        raise ConfigError(f"admin.listen is {admin.listen}, which is any free port; {ELSEWHERE}")
    host = _EVERYWHERE.get(admin.host, admin.host)
    scheme = "http" if admin.tls is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{admin.port}"


def add_address_options(parser: argparse.ArgumentParser, explained: str) -> None:
    """Add `--url`, for any number of processes, and how to speak TLS to them."""
    parser.add_argument(
        "--url", action="append", type=admin_url, default=[], metavar="http://HOST:PORT", help=explained
    )
    add_tls_options(parser)


def admin_url(text: str) -> str:
    """Return the address that a flag names."""
    given = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(given)
        good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, or a bad IPv6 address
        good = False
    if not good:
        raise argparse.ArgumentTypeError(f"need http://HOST:PORT, got {text!r}")
    return given
