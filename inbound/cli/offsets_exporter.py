"""`inbound offsets show --metrics`: serve lags for Prometheus until told to stop; also while no replica lives."""

from __future__ import annotations

import argparse
import logging
import signal
from types import FrameType

from inbound import logs
from inbound.cli.argument_types import amount
from inbound.cli.offsets_options import Chosen
from inbound.clock import SystemClock
from inbound.config.values import split_address
from inbound.driver import Wakeup
from inbound.http.admin import AdminServer
from inbound.offsets.exporter import OffsetsExporter, Subjects
from inbound.zookeeper_client import zookeeper_client

log = logging.getLogger("inbound")

#: Where the exporter listens if nobody says otherwise: exporters of Kafka's groups are looked for at this port.
LISTEN = "127.0.0.1:9308"
INTERVAL = 15.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `--metrics`, `--listen` and `--interval`."""
    group = parser.add_argument_group("as an exporter")
    group.add_argument(
        "--metrics",
        action="store_true",
        help="serve the offsets at /metrics until SIGTERM or Ctrl-C; while a server does not answer, what depends on it is left "
        "out",
    )
    group.add_argument("--listen", type=_address, metavar="HOST:PORT", help=f"where; default: {LISTEN}")
    group.add_argument(
        "--interval",
        type=amount(1.0, 3600.0, "seconds between 1 and 3600"),
        metavar="SECONDS",
        help=f"how often to look; default: {INTERVAL:g}; scrapes ask nobody",
    )


def run(args: argparse.Namespace, what: Chosen) -> int:
    """Look and serve until a signal comes. Returns the exit code.

    Raises:
        ConfigError: the address, or a file that the configuration names, cannot be used.
    """
    logs.apply(what.config.logging)
    clock, wakeup = SystemClock(), Wakeup()
    zk = zookeeper_client(what.config.zookeeper, clock)
    zk.on_change = wakeup.set
    exporter = OffsetsExporter(
        zk,
        clock,
        Subjects(groups=what.groups, reads=what.reads, selection=what.selection),
        what.connect,
        interval=INTERVAL if args.interval is None else args.interval,
        wakeup=wakeup,
    )
    host, port = args.listen or _address(LISTEN)
    admin = AdminServer(
        exporter.status, host=host, port=port, port_given=True, tls=what.config.admin.tls, hosts=what.config.admin.hosts
    )

    def stop(number: int, frame: FrameType | None) -> None:
        exporter.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    admin.start()
    try:
        log.info("offsets: %s/metrics", admin.url)
        zk.start()
        try:
            exporter.run()
        finally:
            zk.close()
    finally:
        admin.close()
    log.info("stopped")
    return 0


def _address(text: str) -> tuple[str, int]:
    found = split_address(text)
    if found is None or found[1] is None:
        raise argparse.ArgumentTypeError(f"need HOST:PORT such as {LISTEN}, got {text!r}")
    return found[0], found[1]
