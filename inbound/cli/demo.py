"""`inbound demo`: real flights through a real Kafka and ZooKeeper, while processes are killed, stopped and added."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import inbound
from inbound.cli import places
from inbound.cli.progress import Progress
from inbound.cli.table import table
from inbound.demo import flights
from inbound.demo.accounting import Account
from inbound.demo.consumers import DemoError
from inbound.demo.scenario import PARTITIONS, Plan, Result, Scenario
from inbound.embedded import EmbeddedCluster

#: Below this the course is too dense: a session has to end, and its partitions to be read by others.
_SHORTEST = 20.0


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "demo",
        help="watch it survive a kill -9, on real data",
        description="Publishes 336,776 flights to a Kafka of its own while 3 processes count delays per carrier; one is "
        "killed with SIGKILL inside a batch, one is stopped, one joins. Then every event is accounted for. The last "
        "line is a JSON object; exit code 0 if nothing was lost, and nothing repeated but what the kill explains.",
    )
    parser.add_argument(
        "--dir", type=Path, metavar="D", help="an empty folder for everything, kept; default: temporary"
    )
    parser.add_argument("--keep", action="store_true", help="keep the temporary folder, with logs, journals, ledger")
    parser.add_argument("--json", action="store_true", help="print nothing but the JSON object to standard output")
    parser.add_argument(
        "--seconds", type=_seconds, default=45.0, metavar="S", help="how long publishing takes, from 20; default: 45"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the demo and print what came out. Returns 0 only if all figures are as they must be."""
    plugin = _plugin()
    with _ended_by_sigterm():
        folder = _folder(args.dir)
        worth_a_look = True
        try:
            result = _run_in(folder, plugin, args.seconds)
            worth_a_look = bool(result.problems)
        except KeyboardInterrupt:
            worth_a_look = False
            _say("interrupted; everything that was started has ended")
            raise
        finally:
            if worth_a_look or args.keep or args.dir is not None:
                _say(f"logs, journals and ledger are in {folder}")
            else:
                shutil.rmtree(folder)
    if not args.json:
        _print_tables(result)
    for problem in result.problems:
        _say(f"failed: {problem}")
    sys.stderr.flush()
    print(json.dumps(figures(result.account)), flush=True)
    return 1 if result.problems else 0


def figures(account: Account) -> dict[str, int | float | None]:
    """Return what the last line says."""
    seconds = account.failover_seconds
    return {
        "published": account.published,
        "delivered": account.delivered,
        "lost": account.lost,
        "duplicated": account.duplicated,
        "in_flight_at_kill": account.in_flight_at_kill,
        "duplicates_allowed": account.duplicates_allowed,
        "failover_seconds": None if seconds is None else round(seconds, 2),
    }


def _run_in(folder: Path, plugin: Path, seconds: float) -> Result:
    archive = flights.fetch(places.jar_cache().parent / "data", progress=_say)
    cluster = EmbeddedCluster(folder / "cluster", jars=places.jar_cache(), java=places.java_command(), progress=_say)
    with cluster:
        plan = Plan(folder, plugin, archive, seconds, f"demo-{os.getpid()}", flights.read)
        progress = Progress("counted", flights.ROWS)
        try:
            return Scenario(
                plan, zookeeper=cluster.zookeeper_hosts, kafka=cluster.bootstrap_servers, teller=progress
            ).run()
        finally:
            progress.close()


def _print_tables(result: Result) -> None:
    account = result.account
    rows: list[list[str | int | float | None]] = []
    for consumer, (name, story) in result.processes.items():
        shares = [account.shares.get((consumer, partition)) for partition in range(PARTITIONS)]
        seen = [share and share.seen for share in shares]
        again = [share and (share.repeated or None) for share in shares]
        rows.append([f"{name}, {story}", *seen, sum(filter(None, seen))])
        if any(again):
            rows.append(["- of these counted before", *again, sum(filter(None, again))])
    print("\nFlights that each process counted, per partition")
    print(table(["process", *(f"p{number}" for number in range(PARTITIONS)), "total"], rows))
    print("\nDelays per carrier, as counted by the processes, against the CSV")
    lines: list[list[str | int | float | None]] = []
    for carrier, expected in result.expected.items():
        sums = account.carriers.get(carrier)
        mean = None if sums is None or not sums.departed else sums.minutes / sums.departed
        flights_counted, departed = (None, None) if sums is None else (sums.flights, sums.departed)
        verdict = "equal" if sums == expected else "DIFFERENT"
        lines.append([carrier, flights_counted, expected.flights, departed, expected.departed, mean, verdict])
    headers = ["carrier", "flights", "in the CSV", "departed", "in the CSV", "minutes late, mean", "all sums"]
    print(table(headers, lines), end="\n\n", flush=True)


def _plugin() -> Path:
    """Return the example's file: of the checkout, or as it was installed with the package."""
    package = Path(inbound.__file__).resolve().parent
    for folder in (package.parent / "examples" / "delays", package / "demo" / "delays"):
        if (folder / "delays.py").exists():
            return folder / "delays.py"
    raise DemoError("the demo's processor examples/delays/delays.py is not here; run the demo in a checkout of inbound")


def _folder(given: Path | None) -> Path:
    if given is None:
        return Path(tempfile.mkdtemp(prefix="inbound-demo-"))
    folder = given.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        used = any(folder.iterdir())
    except OSError as error:
        raise DemoError(f"{folder}: cannot be used: {error.strerror}; give another --dir") from None
    if used:
        raise DemoError(f"{folder}: is not empty, and the demo starts from nothing; give another --dir")
    return folder


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the demo as Ctrl-C does: everything it started is ended first."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _seconds(text: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = math.nan
    if not _SHORTEST <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"need seconds from {_SHORTEST:.0f}, got {text!r}")
    return seconds
