"""`inbound demo` sends real flights through real servers and killed processes."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import inbound
from inbound.cli.shared.command import Command, amount, argument, flag
from inbound.cli.shared.files import jar_cache, java_command
from inbound.cli.shared.output import Cell, ProgressLine, note, table
from inbound.cli.shared.proof_text import shown
from inbound.cli.spark.validate import Wish, prove
from inbound.config import load, read_text
from inbound.demo import accounting, flights
from inbound.demo.consumers import DemoError
from inbound.demo.scenario import PARTITIONS, TOPIC, DemoPlan, DemoResult, Scenario
from inbound.embedded import EmbeddedCluster
from inbound.proof.model import Proof
from inbound.runtime.signals import handled
from inbound.spark.session import SparkSettings, spark_session

if TYPE_CHECKING:
    from inbound.spark.archive.job import TopicSummary

#: Seconds: a session has to expire in that time, and other members have to claim its partitions.
_SHORTEST = 20.0
#: Flights: with fewer there is often no batch in flight to kill a process in.
_FEWEST = 20_000
#: Spark runs for half a minute: compiling for speed would cost more than it saves.
_SHORT_LIVED = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"}
_SECONDS = amount(_SHORTEST, 86400, f"seconds from {_SHORTEST:.0f}", "s")


def run(args: argparse.Namespace) -> int:
    """Run the demo; return 0 only if all figures are right."""
    plugin = _plugin()
    _need_spark()
    with handled(_interrupt):  # SIGTERM, like Ctrl-C, ends all that was started
        folder = _folder(args.dir)
        worth_a_look = True
        try:
            result, ending = _run_in(folder, plugin, args.seconds, args.flights)
            problems = result.problems + ending.problems
            worth_a_look = bool(problems)
        except KeyboardInterrupt:
            worth_a_look = False
            note("interrupted; all servers and processes have ended")
            raise
        finally:
            if worth_a_look or args.keep or args.dir is not None:
                note(f"logs, journals and ledger are in {folder}")
            else:
                shutil.rmtree(folder)
    if not args.json:
        _print_tables(result)
        _print_ending(ending, result.expected)
    for problem in problems:
        note(f"failed: {problem}")
    print(json.dumps(figures(result, ending)), flush=True)
    return 1 if problems else 0


@dataclass(frozen=True, slots=True)
class Ending:
    """The results of the Spark jobs."""

    proof: Proof
    archive: TopicSummary
    carriers: Mapping[str, flights.Sums]
    problems: list[str]


def figures(result: DemoResult, ending: Ending) -> dict[str, int | float | str | None]:
    """Return the figures of the last line."""
    account, dispatched = result.account, result.dispatched
    seconds = account.failover_seconds
    return {
        "published": account.published,
        "delivered": account.delivered,
        "lost": account.lost,
        "duplicated": account.duplicated,
        "in_flight_at_kill": account.in_flight_at_kill,
        "duplicates_allowed": account.duplicates_allowed,
        "failover_seconds": None if seconds is None else round(seconds, 2),
        "accepted_by_ingress": dispatched.accepted,
        "received_by_subscriber": dispatched.received,
        "repeated_to_subscriber": dispatched.repeated,
        "verdict": ending.proof.verdict.name.lower().replace("_", " "),
        "archived": ending.archive.totals.events,
    }


def _run_in(folder: Path, plugin: Path, seconds: float, count: int) -> tuple[DemoResult, Ending]:
    archive = flights.fetch(jar_cache().parent / "data", progress=note)
    cluster = EmbeddedCluster(folder / "cluster", jars=jar_cache(), java=java_command(), progress=note)
    with cluster:
        plan = DemoPlan(folder, plugin, archive, seconds, count, f"demo-{os.getpid()}", flights.read)
        with closing(ProgressLine("counted", count)) as progress:
            result = Scenario(
                plan, zookeeper=cluster.zookeeper_hosts, kafka=cluster.bootstrap_servers, teller=progress
            ).run()
        return result, _end(folder, result)


def _end(folder: Path, result: DemoResult) -> Ending:
    """Prove, archive and count the flights in one Spark session."""
    config = folder / "inbound.yaml"
    loaded = load(read_text(config), filename=str(config), environ=os.environ)
    settings = SparkSettings(jar_cache(), java_command(), conf=_SHORT_LIVED)
    with spark_session(settings, "demo", note) as spark:
        note("comparing ledger, ZooKeeper and log (spark validate)")
        proof = prove(loaded, Wish(), settings, note)
        note(f"archiving topic {TOPIC} (spark archive)")
        to = folder / "archive"
        archive = accounting.archived(spark, loaded.config.kafka, TOPIC, to, lambda line: None)
        carriers = accounting.carriers_of(spark, to)
    problems = accounting.problems(
        proof, archive, carriers, published=result.account.published, expected=result.expected
    )  # fmt: skip
    return Ending(proof, archive, carriers, problems)


def _print_ending(ending: Ending, expected: Mapping[str, flights.Sums]) -> None:
    print("Spark's proof from ledger, ZooKeeper and log")
    print(shown(ending.proof))
    counts = ending.archive.totals
    print(
        f"\nDelays per carrier, from the archive ({counts.events:,} events in {counts.files:,} files), against the CSV"
    )
    lines: list[list[Cell]] = []
    for carrier, sums in expected.items():
        found = ending.carriers.get(carrier)
        means = [None if one is None or not one.departed else one.minutes / one.departed for one in (found, sums)]
        lines.append([carrier, *means, "equal" if found == sums else "DIFFERENT"])
    headers = ["carrier", "minutes late, mean", "in the CSV", "all sums"]
    print(table(headers, lines), end="\n\n", flush=True)


def _print_tables(result: DemoResult) -> None:
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


def _need_spark() -> None:
    """Raise DemoError early if a Python package for Spark is missing."""
    for name in ("pyspark", "pyarrow", "pandas"):
        if find_spec(name) is None:
            raise DemoError(
                f"the demo proves itself with Spark, and {name} is not installed: pip install 'inbound-kafka[spark]'"
            )


def _plugin() -> Path:
    """Return the example's file: in the checkout, or installed with the package."""
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


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _flights(text: str) -> int:
    try:
        count = int(text.replace(",", ""))
    except ValueError:
        count = 0
    if not _FEWEST <= count <= flights.ROWS:
        raise argparse.ArgumentTypeError(f"need a number of flights from {_FEWEST:,} to {flights.ROWS:,}, got {text!r}")
    return count


COMMAND = Command(
    "demo",
    "watch it survive a kill -9, on real data",
    run,
    f"Publishes {flights.ROWS:,} flights to its own Kafka while 3 processes count delays per carrier; one is killed with SIGKILL "
    "inside a batch, one is stopped, one joins. Beside it, events go through an ingress and Kafka to an HTTP subscriber. Then "
    "every event is accounted for, `spark validate` proves it from ledger and log, and the topic is archived. The last line is a "
    "JSON object; exit code 0 if nothing was lost, nothing repeated except by the kill, and all is proven.",
    examples=("inbound demo", "inbound demo --seconds 20 --flights 60000 --json"),
    arguments=(
        argument("--dir", type=Path, metavar="D", help="an empty folder for all files, kept; default: temporary"),
        flag("--keep", "keep the temporary folder, with logs, journals, ledger"),
        flag("--json", "print only the JSON object to standard output"),
        argument(
            "--seconds",
            type=_SECONDS,
            default=45.0,
            metavar="S",
            help="how long publishing takes, from 20; default: 45",
        ),
        argument(
            "--flights",
            type=_flights,
            default=flights.ROWS,
            metavar="N",
            help=f"only the first N, from {_FEWEST:,}, for a quick look or a small machine",
        ),
    ),
)
