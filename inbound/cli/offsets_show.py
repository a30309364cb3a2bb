"""`inbound offsets show` and `export`: by ZooKeeper and Kafka alone, so they work while no consumer is alive."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inbound.cli import offsets_exporter
from inbound.cli.argument_types import repeat_interval
from inbound.cli.help import examples
from inbound.cli.offsets_options import Chosen, add_selection, chosen, refusing
from inbound.cli.offsets_text import shown
from inbound.cli.status import pause, watch
from inbound.cli.zookeeper import with_zookeeper
from inbound.clock import SystemClock
from inbound.errors import ConfigError, InboundError
from inbound.offsets.changes import OffsetsError
from inbound.offsets.csv_file import csv_text
from inbound.offsets.gather import ask_for, problems_of, read_groups, rows_for
from inbound.offsets.model import GroupNodes, Logs, Row, as_json

Found = list[tuple[GroupNodes, list[Row]]]


def add_parsers(commands: Any) -> None:
    """Add the commands to `inbound offsets`."""
    show = commands.add_parser(
        "show",
        help="show what is committed, the logs' ends, and the lag",
        description="Show for each partition what is committed, where its log begins and ends, the lag, the owner, the epoch and "
        "the time of the last commit. Asks ZooKeeper and Kafka, and no consumer. Exit code 1 if one of the two does not answer, "
        "or an offset cannot be read: then everything else is shown.",
        **examples(
            "inbound offsets show",
            "inbound offsets show --group orders-svc --topic orders:0,1 --watch 2",
            "inbound offsets show --all-groups --json",
            "inbound offsets show --metrics --listen 127.0.0.1:9308",
        ),
    )
    add_selection(show)
    show.add_argument("--json", action="store_true", help="print JSON; with --watch a line each time")
    show.add_argument(
        "--watch",
        type=repeat_interval,
        nargs="?",
        const=2.0,
        metavar="SECONDS",
        help="again and again until Ctrl-C; default: 2",
    )
    offsets_exporter.add_options(show)
    show.set_defaults(run=refusing(run_show))
    export = commands.add_parser(
        "export",
        help="write the offsets as CSV",
        description="Write a line for each partition that has an offset: topic,partition,offset, or with several groups "
        "group,topic,partition,offset. It is what kafka-consumer-groups writes with --export and reads with --from-file, and what "
        "`offsets import` and `offsets reset --from-file` read.",
        **examples("inbound offsets export > offsets.csv", "inbound offsets export --group orders-svc -o offsets.csv"),
    )
    add_selection(export)
    export.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to a file; default: standard output")
    export.set_defaults(run=refusing(run_export))


def run_show(args: argparse.Namespace) -> int:
    """Show the offsets once, or until Ctrl-C. Returns the exit code."""
    what = chosen(args)
    if args.metrics:
        if args.json or args.watch is not None:
            raise ConfigError("--metrics serves until it is stopped: leave --json and --watch out")
        return offsets_exporter.run(args, what)
    if args.listen is not None or args.interval is not None:
        raise ConfigError("--listen and --interval go with --metrics")
    if args.watch is None:
        return _show(what, as_json=args.json, indent=2)
    try:
        watch(lambda: _show_again(what, args), lambda: pause(args.watch), clear=not args.json)
    except KeyboardInterrupt:
        pass  # how one ends watching
    return 0


def run_export(args: argparse.Namespace) -> int:
    """Write the offsets. Returns the exit code."""
    what = chosen(args)
    groups = _read(what)
    found = [(nodes, rows_for(nodes, what.reads, {}, what.selection)) for nodes in groups]
    rows = [row for _, some in found for row in some]
    broken = problems_of({}, rows)
    if broken:
        raise InboundError("\n".join(broken))  # a file that lacks them would look whole
    text = csv_text(rows, groups=len(found) > 1)
    if args.output is None:
        print(text, end="")
        return 0
    try:
        args.output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--output: {args.output} cannot be written: {error.strerror}") from None
    return 0


def gather(what: Chosen) -> tuple[Found, dict[Any, Logs]]:
    """Return the rows of all groups that are meant, and what the brokers said.

    Raises:
        InboundError: ZooKeeper does not answer, or a group is unknown.
    """
    groups = _read(what)
    logs = ask_for(groups, what.reads, what.connect, SystemClock(), what.selection)
    return [(nodes, rows_for(nodes, what.reads, logs, what.selection)) for nodes in groups], dict(logs)


def _read(what: Chosen) -> list[GroupNodes]:
    return with_zookeeper(
        what.config.zookeeper, lambda zk: read_groups(zk, what.groups, what.reads, what.selection)
    )  # fmt: skip


def _show(what: Chosen, *, as_json: bool, indent: int | None) -> int:
    found, logs = gather(what)
    problems = problems_of(logs, [row for _, rows in found for row in rows])
    print(_json(found, problems, indent) if as_json else shown(found, time.time()))
    sys.stdout.flush()
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _show_again(what: Chosen, args: argparse.Namespace) -> int:
    try:
        return _show(what, as_json=args.json, indent=None)
    except (ConfigError, OffsetsError):
        raise
    except InboundError as error:  # ZooKeeper is away: it is looked for again
        print(f"error: {error}", file=sys.stderr)
        return 1


def _json(found: Found, problems: Sequence[str], indent: int | None) -> str:
    return json.dumps(as_json(found, at=time.time(), problems=problems), indent=indent)
