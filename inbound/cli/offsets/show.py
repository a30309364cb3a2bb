"""`inbound offsets show` and `export` ask ZooKeeper and Kafka alone."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from inbound.admin.listener import AdminServer
from inbound.cli.offsets.options import ALL_GROUPS, GROUPS, TOPICS, Chosen, chosen
from inbound.cli.shared.command import CONFIG, Command, StopSignals, amount, argument, flag, repeat_interval, titled
from inbound.cli.shared.output import Cell, count, number, one_line, table, watch, write_file
from inbound.cli.shared.zookeeper import with_zookeeper
from inbound.clock import SystemClock
from inbound.config.values import split_address
from inbound.errors import ConfigError, InboundError
from inbound.observe import logs
from inbound.observe.explain.facts import duration
from inbound.offsets.changes import OffsetsError
from inbound.offsets.csv_file import csv_text
from inbound.offsets.gather import ask_for, problems_of, read_groups, rows_for
from inbound.offsets.model import GroupSnapshot, Row, Total
from inbound.offsets.model import as_json as json_of
from inbound.process.exporter import OffsetsExporter, Subjects
from inbound.process.zookeeper.client import zookeeper_client
from inbound.runtime.driver import Wakeup

log = logging.getLogger("inbound")

Found = list[tuple[GroupSnapshot, list[Row]]]

_HEADERS = ("TOPIC", "PARTITION", "COMMITTED", "LOG-START", "LOG-END", "LAG", "OWNER", "EPOCH", "LAST COMMIT", "NOTES")
#: The default address: Prometheus expects exporters of Kafka's groups at this port.
LISTEN = "127.0.0.1:9308"
INTERVAL = 15.0
#: So many members are named.
_NAMED = 5


def run_show(args: argparse.Namespace) -> int:
    """Show the offsets once, or until Ctrl-C. Returns the exit code."""
    what = chosen(args)
    if args.metrics:
        if args.json or args.watch is not None:
            raise ConfigError("--metrics serves until it is stopped: leave --json and --watch out")
        return _export_metrics(args, what)
    if args.listen is not None or args.interval is not None:
        raise ConfigError("--listen and --interval go with --metrics")
    if args.watch is None:
        return _show(what, as_json=args.json, indent=2)
    return watch(lambda: _show_again(what, args), args.watch, clear=not args.json)


def run_export(args: argparse.Namespace) -> int:
    """Write the offsets. Returns the exit code."""
    what = chosen(args)
    groups = _read(what)
    found = [(nodes, rows_for(nodes, what.reads, {}, what.selection)) for nodes in groups]
    rows = [row for _, some in found for row in some]
    broken = problems_of({}, rows)
    if broken:
        raise InboundError("\n".join(broken))  # a file without them would look complete
    text = csv_text(rows, groups=len(found) > 1)
    if args.output is None:
        print(text, end="")
        return 0
    write_file("--output", args.output, text, ConfigError)
    return 0


def _read(what: Chosen) -> list[GroupSnapshot]:
    return with_zookeeper(
        what.config.zookeeper, lambda zk: read_groups(zk, what.groups, what.reads, what.selection)
    )  # fmt: skip


def _show(what: Chosen, *, as_json: bool, indent: int | None) -> int:
    groups = _read(what)
    logs = ask_for(groups, what.reads, what.connect, SystemClock(), what.selection)
    found = [(nodes, rows_for(nodes, what.reads, logs, what.selection)) for nodes in groups]
    problems = problems_of(logs, [row for _, rows in found for row in rows])
    now = time.time()
    print(json.dumps(json_of(found, at=now, problems=problems), indent=indent) if as_json else shown(found, now))
    sys.stdout.flush()
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _show_again(what: Chosen, args: argparse.Namespace) -> int:
    try:
        return _show(what, as_json=args.json, indent=None)
    except (ConfigError, OffsetsError):
        raise
    except InboundError as error:  # ZooKeeper is unavailable: the next look tries again
        print(f"error: {error}", file=sys.stderr)
        return 1


# -- text ---------------------------------------------------------------------------------------------------------------


def shown(groups: Sequence[tuple[GroupSnapshot, Sequence[Row]]], now: float) -> str:
    """Return a heading and table per group; `now` is Unix time."""
    if not groups:
        return "no groups"
    return "\n\n".join(_group(nodes, rows, now) for nodes, rows in groups)


def _group(nodes: GroupSnapshot, rows: Sequence[Row], now: float) -> str:
    total = Total.of(rows)
    lag = "?" if total.lag is None else number(total.lag)
    parts = [_members(nodes), count(total.partitions, "partition")]
    if total.unowned:
        parts.append(f"{total.unowned:,} without an owner")
    if total.uncommitted:
        parts.append(f"{total.uncommitted:,} without an offset")
    heading = f"group {one_line(nodes.group)}: {', '.join(parts)}, lag {lag}"
    return f"{heading}\n{table(_HEADERS, [_cells(row, now) for row in rows])}" if rows else heading


def _members(nodes: GroupSnapshot) -> str:
    if not nodes.members:
        return "no members" if nodes.exists else "no members yet, and no offsets"
    more = f" and {len(nodes.members) - _NAMED} more" if len(nodes.members) > _NAMED else ""
    return f"{count(len(nodes.members), 'member')} ({', '.join(map(one_line, nodes.members[:_NAMED]))}{more})"


def _cells(row: Row, now: float) -> tuple[Cell, ...]:
    return (
        row.topic, row.partition, row.committed, row.start, row.end, "?" if row.lag is None else row.lag, row.owner,
        row.epoch, _when(row.committed_at, now), "; ".join(row.notes),
    )  # fmt: skip


def _when(at: float | None, now: float) -> str | None:
    if at is None:
        return None
    return f"{datetime.fromtimestamp(at).strftime('%Y-%m-%d %H:%M:%S')} ({duration(now - at)} ago)"


# -- metrics -----------------------------------------------------------------------------------------------------------


def _export_metrics(args: argparse.Namespace, what: Chosen) -> int:
    """Read and serve until a signal comes. Returns the exit code.

    Raises:
        ConfigError: the address, or a file that the configuration names, cannot be used.
    """
    logs.apply(what.config.logging)
    clock, wakeup = SystemClock(), Wakeup()
    zk = zookeeper_client(what.config.zookeeper, clock, on_change=wakeup.set)
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

    StopSignals(exporter.stop)
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


_EXPORTER = titled(
    "as an exporter",
    flag(
        "--metrics",
        "serve the offsets at /metrics until SIGTERM or Ctrl-C; while a server does not answer, the metrics that depend on it "
        "are left out",
    ),
    argument("--listen", type=_address, metavar="HOST:PORT", help=f"where; default: {LISTEN}"),
    argument(
        "--interval",
        type=amount(1.0, 3600.0, "seconds between 1 and 3600"),
        metavar="SECONDS",
        help=f"how often to read the offsets; default: {INTERVAL:g}; a scrape reads nothing",
    ),
)
SHOW = Command(
    "show",
    "show committed offsets, the ends of the logs, and the lag",
    run_show,
    "Show for each partition the committed offset, the start and the end of its log, the lag, the owner, the epoch and the "
    "time of the last commit. Asks ZooKeeper and Kafka, and no consumer. Exit code 1 if one of the two does not answer, or an "
    "offset cannot be read: then everything else is shown.",
    examples=(
        "inbound offsets show",
        "inbound offsets show --group orders-svc --topic orders:0,1 --watch 2",
        "inbound offsets show --all-groups --json",
        "inbound offsets show --metrics --listen 127.0.0.1:9308",
    ),
    arguments=(
        *CONFIG,
        GROUPS,
        ALL_GROUPS,
        TOPICS,
        flag("--json", "print JSON; with --watch a line each time"),
        argument(
            "--watch",
            type=repeat_interval,
            nargs="?",
            const=2.0,
            metavar="SECONDS",
            help="repeat until Ctrl-C; default: 2",
        ),
        _EXPORTER,
    ),
)
EXPORT = Command(
    "export",
    "write the offsets as CSV",
    run_export,
    "Write a line for each partition that has an offset: topic,partition,offset, or with several groups "
    "group,topic,partition,offset. It is the format that kafka-consumer-groups writes with --export and reads with --from-file, "
    "and that `offsets import` and `offsets reset --from-file` read.",
    examples=("inbound offsets export > offsets.csv", "inbound offsets export --group orders-svc -o offsets.csv"),
    arguments=(
        *CONFIG,
        GROUPS,
        ALL_GROUPS,
        TOPICS,
        argument("-o", "--output", type=Path, metavar="FILE", help="write to a file; default: standard output"),
    ),
)
