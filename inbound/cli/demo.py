"""`inbound demo`: real flights through a real Kafka and ZooKeeper, while processes are killed, stopped and added."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import inbound
from inbound.cli import places
from inbound.cli.argument_types import amount
from inbound.cli.help import examples
from inbound.cli.progress import Progress
from inbound.cli.proof_text import shown
from inbound.cli.spark_validate import Wish, prove
from inbound.cli.table import Cell, table
from inbound.config import load, read_text
from inbound.demo import flights, proving
from inbound.demo.consumers import DemoError
from inbound.demo.scenario import PARTITIONS, TOPIC, Plan, Result, Scenario
from inbound.embedded import EmbeddedCluster
from inbound.proof.model import Proof
from inbound.spark.session import SparkSettings, spark_session

if TYPE_CHECKING:
    from inbound.spark.archive.job import TopicSummary

#: Below this the course is too dense: a session has to end, and its partitions to be read by others.
_SHORTEST = 20.0
#: Below this too few are in work at any time for one to be killed inside a batch.
_FEWEST = 20_000
#: Of a Spark that lives for half a minute: compiling for speed would cost more than it brings.
_SHORT_LIVED = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"}
_SECONDS = amount(_SHORTEST, 86400, f"seconds from {_SHORTEST:.0f}", "s")


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "demo",
        help="watch it survive a kill -9, on real data",
        description=f"Publishes {flights.ROWS:,} flights to a Kafka of its own while 3 processes count delays per carrier; one is "
        "killed with SIGKILL inside a batch, one is stopped, one joins. Beside it, events go through an ingress and "
        "Kafka to an HTTP subscriber. Then every event is accounted for, `spark validate` proves it from ledger and log, and "
        "the topic is archived. The last line is a JSON object; exit code 0 if nothing was lost, nothing repeated but what "
        "the kill explains, and all is proven.",
        **examples("inbound demo", "inbound demo --seconds 20 --flights 60000 --json"),
    )
    parser.add_argument(
        "--dir", type=Path, metavar="D", help="an empty folder for everything, kept; default: temporary"
    )
    parser.add_argument("--keep", action="store_true", help="keep the temporary folder, with logs, journals, ledger")
    parser.add_argument("--json", action="store_true", help="print nothing but the JSON object to standard output")
    parser.add_argument(
        "--seconds", type=_SECONDS, default=45.0, metavar="S", help="how long publishing takes, from 20; default: 45"
    )
    parser.add_argument(
        "--flights", type=_flights, default=flights.ROWS, metavar="N",
        help=f"only the first N, from {_FEWEST:,}, for a quick look or a small machine",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the demo and print what came out. Returns 0 only if all figures are as they must be."""
    plugin = _plugin()
    _need_spark()
    with _ended_by_sigterm():
        folder = _folder(args.dir)
        worth_a_look = True
        try:
            result, ending = _run_in(folder, plugin, args.seconds, args.flights)
            problems = result.problems + ending.problems
            worth_a_look = bool(problems)
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
        _print_ending(ending, result.expected)
    for problem in problems:
        _say(f"failed: {problem}")
    sys.stderr.flush()
    print(json.dumps(figures(result, ending)), flush=True)
    return 1 if problems else 0


@dataclass(frozen=True, slots=True)
class Ending:
    """What Spark found in the end."""

    proof: Proof
    archive: TopicSummary
    carriers: Mapping[str, flights.Sums]
    problems: list[str]


def figures(result: Result, ending: Ending) -> dict[str, int | float | str | None]:
    """Return what the last line says."""
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


def _run_in(folder: Path, plugin: Path, seconds: float, count: int) -> tuple[Result, Ending]:
    archive = flights.fetch(places.jar_cache().parent / "data", progress=_say)
    cluster = EmbeddedCluster(folder / "cluster", jars=places.jar_cache(), java=places.java_command(), progress=_say)
    with cluster:
        plan = Plan(folder, plugin, archive, seconds, count, f"demo-{os.getpid()}", flights.read)
        progress = Progress("counted", count)
        try:
            result = Scenario(
                plan, zookeeper=cluster.zookeeper_hosts, kafka=cluster.bootstrap_servers, teller=progress
            ).run()
        finally:
            progress.close()
        return result, _end(folder, result)


def _end(folder: Path, result: Result) -> Ending:
    """Prove it all, archive the flights, and count the carriers in the archive: with one Spark."""
    config = folder / "inbound.yaml"
    loaded = load(read_text(config), filename=str(config), environ=os.environ)
    settings = SparkSettings(places.jar_cache(), places.java_command(), conf=_SHORT_LIVED)
    with spark_session(settings, "demo", _say) as spark:
        _say("the ledger, ZooKeeper and the log are compared (spark validate)")
        proof = prove(loaded, Wish(), settings, _say)
        _say(f"topic {TOPIC} is archived (spark archive)")
        to = folder / "archive"
        archive = proving.archived(spark, loaded.config.kafka, TOPIC, to, lambda line: None)
        carriers = proving.carriers_of(spark, to)
    problems = proving.problems(
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


def _need_spark() -> None:
    """Raise DemoError now, and not after a minute, if what Spark needs in Python is missing."""
    for name in ("pyspark", "pyarrow", "pandas"):
        if find_spec(name) is None:
            raise DemoError(
                f"the demo proves itself with Spark, and {name} is not installed: pip install 'inbound-kafka[spark]'"
            )


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


def _flights(text: str) -> int:
    try:
        count = int(text.replace(",", ""))
    except ValueError:
        count = 0
    if not _FEWEST <= count <= flights.ROWS:
        raise argparse.ArgumentTypeError(f"need a number of flights from {_FEWEST:,} to {flights.ROWS:,}, got {text!r}")
    return count
