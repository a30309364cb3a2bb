"""`inbound status` and `inbound reload`: ask the admin port of running processes."""

from __future__ import annotations

import argparse
import json
import ssl
import sys
import time
from typing import Any

from inbound.admin.client import ELSEWHERE, fetch_status, post, processes_of
from inbound.admin.routes import RELOAD, RELOAD_SECONDS, VERSION
from inbound.cli.inspect.status_text import shown
from inbound.cli.shared.admin_port import TLS, admin_address, admin_url, client_tls
from inbound.cli.shared.command import CONFIG, Command, argument, flag, repeat_interval, several
from inbound.cli.shared.files import admin_token, known_channels, load_config
from inbound.cli.shared.output import watch
from inbound.config import Loaded
from inbound.errors import ConfigError, InboundError
from inbound.observe.status.status import APPLIED, REFUSED, ROLLED_BACK, UNCHANGED

#: Exit code: applied or unchanged, but some manifests cannot be used.
ALL_BUT_MANIFESTS = 3
#: Exit code by outcome.
_CODES = {APPLIED: 0, UNCHANGED: 0, REFUSED: 2, ROLLED_BACK: 1}
_TOLD = {
    APPLIED: "applied",
    UNCHANGED: "nothing has changed",
    REFUSED: "refused: it cannot be used, and no part of it is applied",
    ROLLED_BACK: "rolled back: it does not start, and the configuration before it runs again",
}
#: Extra seconds for a parent that collects the answers of several processes.
_MORE_SECONDS = 10.0


def run_status(args: argparse.Namespace) -> int:
    """Show the status once, or until Ctrl-C. Returns the exit code."""
    loaded = None if args.url else _config(args)
    urls = args.url if loaded is None else [admin_address(loaded.config.admin)]
    expected = None if loaded is None else set(known_channels(loaded)) or None
    tls = client_tls(args)
    if args.watch is None:
        return _show(urls, expected, tls, as_json=args.json)
    return watch(lambda: _show(urls, expected, tls, as_json=args.json), args.watch, clear=not args.json)


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
            # The default port was taken, so the process of this configuration listens on the next one.
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


# -- reload ------------------------------------------------------------------------------------------------------------


def run_reload(args: argparse.Namespace) -> int:
    """Ask, and print the outcome. Returns the exit code."""
    token = None
    tls = client_tls(args)
    try:
        admin = load_config(args).config.admin
        read = admin_token(admin)
        token = read() if read is not None else None
        url = args.url or admin_address(admin)
    except ConfigError as error:
        if args.url is None:
            raise ConfigError(
                f"{error}\nno process is asked: it would refuse this too; the old configuration goes on"
            ) from None
        url = args.url
    code, _, body = post(url, RELOAD, token, RELOAD_SECONDS + _MORE_SECONDS, tls)
    if code != 200:
        first = body.decode(errors="replace").strip().partition("\n")[0][:300]
        raise InboundError(f"{url}: {code}: {first or '(nothing)'}")
    answer = _parsed(url, body)
    if args.json:
        print(json.dumps(answer))
    else:
        _tell(answer)
    exit_code = _CODES.get(str(answer["outcome"]), 1)
    return ALL_BUT_MANIFESTS if exit_code == 0 and answer["problem"] else exit_code


def _parsed(url: str, body: bytes) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(body)
        if answer["v"] == VERSION:
            return answer
    except (ValueError, KeyError, TypeError):
        pass
    raise InboundError(f"{url}: the process there is not this version of inbound; {ELSEWHERE}")


def _tell(answer: dict[str, Any]) -> None:
    outcome = str(answer["outcome"])
    print(_TOLD.get(outcome, outcome))
    for step in answer["steps"]:
        print(f"  {step}")
    if answer["problem"]:
        print("\n".join(f"error: {line}" for line in str(answer["problem"]).splitlines()), file=sys.stderr)


STATUS_COMMAND = Command(
    "status",
    "show what running processes do",
    run_status,
    "Ask the admin port of running processes for their status. Exit code 1 if one does not answer.",
    examples=("inbound status", "inbound status --watch 2", "inbound status --url http://127.0.0.1:8081 --json"),
    arguments=(
        *CONFIG,
        several(
            "--url",
            "admin address, may be given several times; default: admin.listen of the configuration",
            type=admin_url,
            metavar="http://HOST:PORT",
        ),
        TLS,
        flag("--json", "print the raw JSON, a line per address"),
        argument("--watch", type=repeat_interval, metavar="SECONDS", help="repeat until Ctrl-C"),
    ),
)
RELOAD_COMMAND = Command(
    "reload",
    "reload the configuration of a running process",
    run_reload,
    "Have a running process reload its configuration now, through its admin port, and print the outcome. A process also reloads "
    "changed files without this command; the command retries a configuration that did not start. Exit code 0: applied, or "
    "unchanged; 3: the same, but some manifests cannot be used; 2: refused; 1: rolled back, because the new configuration does "
    "not start, or no process answers.",
    examples=("inbound reload", "inbound reload --url http://127.0.0.1:8081"),
    arguments=(
        *CONFIG,
        argument(
            "--url",
            type=admin_url,
            metavar="http://HOST:PORT",
            help="admin address; default: admin.listen of the configuration",
        ),
        flag("--json", "print the answer as JSON"),
        TLS,
    ),
)
