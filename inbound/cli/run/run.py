"""`inbound run` consumes; `inbound ingress` accepts CloudEvents over HTTP."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING

from inbound.cli.run.folder_watch import FolderWatch
from inbound.cli.shared.command import CONFIG, Command, StopSignals, argument, ask_on_hangup, whole
from inbound.cli.shared.files import ConfigFiles, admin_token, state_dir, token_reader
from inbound.config import AdminConfig, Config, load_policy, read_text
from inbound.config.secrets import remember
from inbound.http.server.rights import Token
from inbound.ingress.server import Ingress
from inbound.observe import logs
from inbound.observe.jmx.policy import Policy, ReadPolicy
from inbound.observe.tracing.process import ProcessTracing
from inbound.plan.plan import check_runs, plan_all
from inbound.process.application import Application
from inbound.process.ingress import IngressProcess
from inbound.process.sections import Makers
from inbound.runtime.interpreter import spare_what_stays

if TYPE_CHECKING:
    from inbound.observe.profiling.listener import ProfilingListener

log = logging.getLogger("inbound")


def run(args: argparse.Namespace) -> int:
    """Run one process, or a parent of several. Returns the exit code."""
    files = ConfigFiles(args)
    loaded = files.load()
    apply_logging(loaded.config)
    if args.processes > 1:
        from inbound.cli.run.processes import Supervisor

        check_runs(plan_all(loaded), loaded.config)
        profiling_listener(loaded.config, index=args.processes - 1)  # not started: only its errors are wanted now
        return Supervisor(args, loaded, files=files).run()
    child = args.child is not None
    application = Application(
        loaded,
        lock_dir=state_dir() / "ids",
        spool_dir=state_dir() / "ledger-spool",
        index=args.child,
        listen="127.0.0.1:0" if child else None,
        source=files,
        watch=FolderWatch,
        makers=makers(index=args.child, token=_token_of_parent if child else admin_token),
        idle=child,  # its parent has decided to run, and would count an end as a death
    )
    stop = StopSignals(application.request_stop)
    ask_on_hangup(application.reconfiguration.ask)
    if child:
        _token_from_stdin()
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


def _announce(descriptor: int, url: str) -> None:
    with suppress(BrokenPipeError):  # the parent has died: `_follow_parent` stops us
        os.write(descriptor, f"{url}\n".encode())
    os.close(descriptor)


def _token_of_parent(admin: AdminConfig) -> Callable[[], str]:
    """Return the reader of the parent's token: only the parent may operate."""
    return _token_from_stdin


@cache
def _token_from_stdin() -> str:
    token = b""
    while not token.endswith(b"\n") and (letter := os.read(0, 1)):  # no more: `_follow_parent` waits for the end
        token += letter
    remember(token.strip())
    return token.decode().strip()


def _follow_parent(application: Application) -> None:
    """Stop when standard input ends: the parent has died."""

    def follow() -> None:
        while os.read(0, 4096):
            continue
        application.request_stop()

    threading.Thread(target=follow, name="parent", daemon=True).start()


def run_ingress(args: argparse.Namespace) -> int:
    """Serve until a signal comes. Returns the exit code."""
    files = ConfigFiles(args)
    loaded = files.load()
    apply_logging(loaded.config)
    process = IngressProcess(loaded, makers(), source=files, watch=FolderWatch)
    stop = StopSignals()
    ask_on_hangup(process.reconfiguration.ask)
    process.start()
    spare_what_stays()  # requests are young and many, as records are
    stop.asked.wait()
    log.info("stopping: requests in flight are answered, then the listener ends")
    answered = process.stop(args.drain, at_once=lambda: stop.count > 1)
    log.info("stopped")
    return 0 if answered else 1


# -- the parts of a process, from files --------------------------------------------------------------------------------


def makers(*, index: int | None = None, token: Callable[[AdminConfig], Token | None] = admin_token) -> Makers:
    """Return what makes the parts of a process.

    `index` is the process's number under `--processes`; `token` reads the admin port's token.
    """
    tracing = ProcessTracing()
    return Makers(
        token=token,
        policy=admin_policy,
        ingress=partial(_ingress, shared=index is not None, tracing=tracing),
        logs=apply_logging,
        profiling=partial(profiling_listener, index=index),
        tracing=tracing,
    )


def apply_logging(config: Config) -> None:
    logs.apply(config.logging)


def _ingress(config: Config, *, shared: bool, tracing: ProcessTracing) -> Ingress | None:
    """Return the ingress, not started; processes of one parent share its port."""
    if config.ingress is None:
        return None
    token = token_reader(config.ingress.token_file, "ingress.token_file")
    return Ingress(config.ingress, config.kafka, token=token, shared=shared, tracing=tracing)


def profiling_listener(config: Config, *, index: int | None = None) -> ProfilingListener | None:
    """Return the profiling listener, not started; None if not configured.

    Without it, its modules are not imported. `index` is this process's number under `--processes`.

    Raises:
        ConfigError: a file that it needs cannot be used, or there is no port so high.
    """
    if config.profiling is None:
        return None
    from inbound.observe.profiling.listener import ProfilingListener

    token = token_reader(config.profiling.token_file, "profiling.token_file")
    return ProfilingListener(config.profiling, token=token, index=index, hosts=config.admin.hosts)


def admin_policy(admin: AdminConfig) -> ReadPolicy | None:
    """Return the reader of the JMX policy; None without one.

    It reads the file at each request.

    Raises:
        ConfigError: the file cannot be used. The reader raises it, too.
    """
    path = admin.policy
    if path is None:
        return None

    @lru_cache(maxsize=1)
    def policy_of(text: str) -> Policy:
        return Policy(load_policy(text, str(path)), str(path))

    def read() -> Policy:
        return policy_of(read_text(path, "admin.policy"))

    read()
    return read


RUN = Command(
    "run",
    "consume until stopped",
    run,
    "Consume until stopped. SIGTERM or Ctrl-C: finish batches, commit, leave; twice: stop at once. A manifest that cannot be "
    "used stops only itself. Exit code 0 after a graceful stop, 1 after a failure, 2 for a bad configuration, or if no manifest "
    "can be used and there is nothing else to run.",
    examples=("inbound run -c inbound.yaml", "inbound run --processes 4 --set channels.orders.workers=8"),
    arguments=(
        *CONFIG,
        argument(
            "--processes",
            type=whole(1, 256, "1 to 256 processes"),
            default=1,
            metavar="N",
            help="run N consumer processes behind one admin port",
        ),
        argument("--child", type=int, default=None, help=argparse.SUPPRESS),
        argument("--announce", type=int, default=None, help=argparse.SUPPRESS),
    ),
)
INGRESS = Command(
    "ingress",
    "accept CloudEvents over HTTP",
    run_ingress,
    "Accept CloudEvents over HTTP, and write them to Kafka, as the section `ingress` of the configuration says. `inbound run` "
    "does it too, beside its channels. 202 says that Kafka has every event of the request. The ingress follows changes of the "
    "configuration; SIGHUP, or `inbound reload`, makes it look now. SIGTERM or Ctrl-C: answer the requests in flight, then "
    "end; twice: end at once. Exit code 0 after a graceful stop, 1 after a failure, 2 for a bad configuration.",
    examples=("inbound ingress -c inbound.yaml", "inbound ingress --set ingress.listen=127.0.0.1:8080"),
    arguments=(
        *CONFIG,
        argument(
            "--drain",
            type=float,
            default=25.0,
            metavar="SECONDS",
            help="how long a graceful stop may take; default: 25",
        ),
    ),
)
