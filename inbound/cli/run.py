"""`inbound run`: consume until told to stop."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import FrameType
from typing import Any

from inbound import logs
from inbound.application import Application
from inbound.cli.argument_types import whole
from inbound.cli.files import ConfigFiles, add_config_options, admin_token
from inbound.cli.following import ask_on_hangup
from inbound.cli.help import examples
from inbound.cli.makers import makers
from inbound.cli.places import state_dir
from inbound.cli.policy import admin_policy
from inbound.cli.profiles import profiling_listener
from inbound.cli.watching import FolderWatch
from inbound.config import AdminConfig
from inbound.config.known_secrets import remember
from inbound.planning import check_runs, plan_all

log = logging.getLogger("inbound")


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "run",
        help="consume until stopped",
        description="Consume until stopped. SIGTERM or Ctrl-C: finish batches, commit, leave; twice: at once. "
        "A manifest that cannot be used stops only itself. Exit code 0 after a graceful stop, 1 after a failure, 2 for a bad "
        "configuration, or if no manifest can be used and nothing else is to run.",
        **examples(
            "inbound run -c inbound.yaml",
            "inbound run --processes 4 --set channels.orders.workers=8",
        ),
    )
    add_config_options(parser)
    parser.add_argument(
        "--processes",
        type=whole(1, 256, "1 to 256 processes"),
        default=1,
        metavar="N",
        help="run N consumer processes behind one admin port",
    )
    parser.add_argument("--child", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--announce", type=int, default=None, help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run one process, or watch over several."""
    files = ConfigFiles(args)
    loaded = files.load()
    logs.apply(loaded.config.logging)
    if args.processes > 1:
        from inbound.cli.processes import Supervisor

        check_runs(plan_all(loaded), loaded.config)
        profiling_listener(loaded.config, index=args.processes - 1)  # not started: what is wrong with it is said now
        return Supervisor(args, loaded, files=files).run()
    child = args.child is not None
    config = loaded.config
    token = _token_of_parent if child else admin_token
    make = makers(index=args.child, token=token)
    application = Application(
        loaded,
        lock_dir=state_dir() / "ids",
        spool_dir=state_dir() / "ledger-spool",
        index=args.child,
        listen="127.0.0.1:0" if child else None,
        token=token(config.admin),
        policy=admin_policy(config.admin),
        ingress=make.ingress(config),
        source=files,
        watch=FolderWatch,
        makers=make,
        idle=child,  # its parent has decided, and would count it among those that die
    )
    stop = _Signals(application)
    ask_on_hangup(application.ask_reload)
    if child:
        _told()
        _follow_parent(application)
    try:
        application.start()
        if args.announce is not None and application.admin is not None:
            _announce(args.announce, application.admin.url)
        application.wait()
    finally:
        log.info("stopping: batches in flight end, commits are written, partitions released")
        fatal = application.stop(at_once=lambda: stop.count > 1)
    if fatal is not None:
        print(f"error: {fatal}", file=sys.stderr)
        return 1
    log.info("stopped")
    return 0


class _Signals:
    """SIGTERM and SIGINT: once for a graceful stop, twice for at once."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self.count = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self._application.request_stop()


def _announce(descriptor: int, url: str) -> None:
    """Tell the parent where the admin port is."""
    with suppress(BrokenPipeError):  # it is gone: `_follow_parent` sees to that
        os.write(descriptor, f"{url}\n".encode())
    os.close(descriptor)


def _token_of_parent(admin: AdminConfig) -> Callable[[], str]:
    """Return what returns the token that our parent has told us, whatever the configuration says: nobody else may operate."""
    return _told


@cache
def _told() -> str:
    token = b""
    while not token.endswith(b"\n") and (letter := os.read(0, 1)):  # not more: `_follow_parent` waits for the end
        token += letter
    remember(token.strip())
    return token.decode().strip()


def _follow_parent(application: Application) -> None:
    """Stop when standard input ends: our parent holds its other end, and is gone."""

    def follow() -> None:
        while os.read(0, 4096):
            continue
        application.request_stop()

    threading.Thread(target=follow, name="parent", daemon=True).start()
