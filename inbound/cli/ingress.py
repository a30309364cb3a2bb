"""`inbound ingress`: take CloudEvents in over HTTP until told to stop."""

from __future__ import annotations

import argparse
import logging
import signal
from types import FrameType
from typing import Any

from inbound import logs
from inbound.cli.files import ConfigFiles, add_config_options
from inbound.cli.following import ask_on_hangup
from inbound.cli.help import examples
from inbound.cli.makers import makers
from inbound.cli.watching import FolderWatch
from inbound.ingress.process import IngressProcess
from inbound.interpreter import spare_what_stays
from inbound.latch import Latch

log = logging.getLogger("inbound")


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "ingress",
        help="take CloudEvents in over HTTP",
        description="Take CloudEvents in over HTTP, and write them to Kafka: the section `ingress` of the configuration alone. "
        "(`run` does it too, beside its channels.) 202 says that Kafka has every event of the request. The configuration is "
        "followed as it changes: SIGHUP, or `inbound reload`, has it looked at now. SIGTERM or Ctrl-C: answer "
        "what is under way, end; twice: at once. Exit code 0 after a graceful stop, 1 after a failure, 2 for a bad "
        "configuration.",
        **examples("inbound ingress -c inbound.yaml", "inbound ingress --set ingress.listen=127.0.0.1:8080"),
    )
    add_config_options(parser)
    parser.add_argument(
        "--drain", type=float, default=25.0, metavar="SECONDS", help="how long a graceful stop may take; default: 25"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal comes. Returns the exit code."""
    files = ConfigFiles(args)
    loaded = files.load()
    logs.apply(loaded.config.logging)
    process = IngressProcess(loaded, makers(), source=files, watch=FolderWatch)
    stop = _Signals()
    ask_on_hangup(process.ask_reload)
    process.start()
    spare_what_stays()  # requests are young and many, as records are
    stop.asked.wait()
    log.info("stopping: what is under way is answered, then the listener ends")
    answered = process.stop(args.drain, at_once=lambda: stop.count > 1)
    log.info("stopped")
    return 0 if answered else 1


class _Signals:
    """SIGTERM and SIGINT: once for a graceful stop, twice for at once."""

    def __init__(self) -> None:
        self.count = 0
        self.asked = Latch()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.asked.set()
