"""`inbound spark validate`: prove from ledger, ZooKeeper and log that nothing was lost or processed twice."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import inbound
from inbound.cli import places
from inbound.cli.files import known_channels, load_config
from inbound.cli.help import examples
from inbound.cli.progress import Progress
from inbound.cli.proof_text import shown
from inbound.cli.spark_options import add_spark_options, kafka_for_spark, spark_settings
from inbound.cli.zookeeper import with_zookeeper
from inbound.config import Loaded
from inbound.errors import ConfigError, InboundError
from inbound.ledger.places import FilePath, RemotePath, place_of
from inbound.proof.as_json import to_json
from inbound.proof.model import PartitionKey, Proof, Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from inbound.spark.gather import Subject
    from inbound.spark.ledger_topic import LedgerTopic
    from inbound.spark.proofs import Proven
    from inbound.spark.session import SparkSettings

#: How often a line of progress is printed where it can't be redrawn. Seconds.
PLAIN_EVERY = 10.0


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "validate",
        help="prove that nothing was lost or processed twice",
        description="Judge each partition of a group by what its consumers wrote down (ledger), what ZooKeeper says and what "
        "Kafka's log holds. Exit code 0: proven, 1: anomalies, 3: not provable (it says what is missing), 4: never "
        "claimed (nobody was ever responsible for some records), 2: bad configuration.",
        **examples(
            "inbound spark validate",
            "inbound spark validate --channel orders --output proof",
            "inbound spark validate --group orders-svc --quick --json",
        ),
    )
    add_spark_options(parser)
    whom = parser.add_mutually_exclusive_group()
    whom.add_argument(
        "--channel", action="append", default=[], metavar="NAME", help="only this channel's group; repeatable"
    )
    whom.add_argument("--group", metavar="NAME", help="only this group; need not be in the configuration")
    parser.add_argument("--topic", action="append", default=[], metavar="NAME", help="only this topic; repeatable")
    parser.add_argument("--partitions", type=_numbers, metavar="LIST", help="only these, such as 0,3-7")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--exact", dest="mode", action="store_const", const="exact", help="read which offsets the log has; default"
    )
    mode.add_argument("--quick", dest="mode", action="store_const", const="quick", help="compare ranges; read no log")
    parser.add_argument(
        "--no-repeats", action="store_true", help="a repeat is an anomaly, also where delivery is at least once"
    )
    parser.add_argument("--from-start", action="store_true", help="judge all again, also what was proven before")
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="where is kept up to where one group is proven; default: beside the ledger",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="write proof.html, proof.json and tables as Parquet there"
    )
    parser.add_argument("--json", action="store_true", help="print the proof as JSON, and nothing else")
    parser.set_defaults(run=run, mode="exact")


def run(args: argparse.Namespace) -> int:
    """Validate as told, print the proof; returns the exit code.

    Raises:
        ConfigError: the configuration or an option cannot be used.
    """
    loaded = load_config(args)
    settings = spark_settings(args)
    try:
        from inbound.spark.proofs import check_folder, write_proof
    except ImportError as error:
        return _not_provable(
            args, f"spark: {error.name} is not installed. Install it: pip install 'inbound-kafka[spark]'"
        )
    if args.output is not None:
        check_folder(args.output)
    wish = Wish(
        tuple(args.channel), args.group, tuple(args.topic), args.partitions, args.mode, args.no_repeats, args.from_start,
        args.state,
    )  # fmt: skip
    try:
        proof = prove(loaded, wish, settings, _say)
    except ConfigError:
        raise
    except InboundError as error:
        return _not_provable(args, str(error))
    if args.output is not None:
        write_proof(args.output, proof)
    if args.json:
        sys.stdout.write(to_json(proof))
    else:
        rest = str(args.output / "proof.json") if args.output is not None else "the JSON (--output FOLDER or --json)"
        width = os.get_terminal_size().columns if sys.stdout.isatty() else None
        print(shown(proof, width=width, colour=sys.stdout.isatty(), rest=rest))
        if args.output is not None:
            print(f"\nThe page: {args.output / 'proof.html'}")
    return int(proof.verdict)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be validated, as the command line says it."""

    channels: tuple[str, ...] = ()  # empty: all
    group: str | None = None
    topics: tuple[str, ...] = ()
    partitions: frozenset[int] | None = None
    mode: Literal["quick", "exact"] = "exact"
    no_repeats: bool = False
    from_start: bool = False
    state: Path | None = None


def prove(loaded: Loaded, wish: Wish, settings: SparkSettings, say: Callable[[str], None]) -> Proof:
    """Gather, judge, and keep up to where all is proven.

    Raises:
        InboundError: what is needed is away or can't be read.
        ConfigError: the configuration or the wish cannot be used.
    """
    import pyspark

    from inbound.spark.session import spark_session
    from inbound.spark.validate import Question, Since, validate

    config = loaded.config

    def ask(work: Any) -> Any:
        return with_zookeeper(config.zookeeper, work)

    subjects = _subjects(loaded, wish, ask)
    if wish.state is not None and len(subjects) > 1:
        raise ConfigError("--state: is the file of one group; name it with --group or --channel")
    ledger = _ledger_of(loaded)
    states = _States(subjects, ledger, wish, say)
    with ExitStack() as stack:
        started: list[SparkSession] = []

        def session() -> SparkSession:
            if not started:
                started.append(stack.enter_context(spark_session(settings, "validate", say)))
                stack.enter_context(_progress(started[0]))
            return started[0]

        question = Question(
            subjects=subjects,
            mode=wish.mode,
            kafka=config.kafka,
            spark_kafka=kafka_for_spark(config.kafka),
            ledger=ledger,
            shared_ledger=settings.local or not isinstance(ledger, Path),
            partitions=wish.partitions,
            since={key: Since(one.offset, one.topic_id) for key, one in states.known.items()},
            writer=f"inbound {inbound.__version__}, Spark {pyspark.__version__}",
        )
        proof, topic_ids = validate(question, ask, session, time.time, say)
    states.keep(proof, topic_ids)
    return proof


class _States:
    """Up to where each group is proven: read before, written after."""

    def __init__(
        self, subjects: list[Subject], ledger: FilePath | LedgerTopic | None, wish: Wish, say: Callable[[str], None]
    ) -> None:
        from inbound.spark.proofs import ProvenError, dates, place_of_proven, read_proven

        self.known: dict[PartitionKey, Proven] = {}
        self._say = say
        self._places: dict[str, FilePath] = {}
        self._before: dict[str, dict[PartitionKey, Proven]] = {}
        if wish.mode == "quick":
            return  # it neither needs nor proves what an exact proof does
        for subject in subjects:
            if wish.state is not None:
                place: FilePath = wish.state
            elif isinstance(ledger, (Path, RemotePath)):
                place = place_of_proven(ledger, subject.group)
            else:
                place = place_of_proven(places.state_dir(), subject.group)
            try:
                found = read_proven(place, subject.group)
            except ProvenError as error:
                say(f"{error}; it is left as it is, and all is judged from the start")
                continue
            self._places[subject.group], self._before[subject.group] = place, found
            if found and not wish.from_start:
                self.known.update(found)
                say(
                    f"group {subject.group}: going on from what was proven on {dates(found)} (--from-start judges all again)"
                )

    def keep(self, proof: Proof, topic_ids: Mapping[str, str | None]) -> None:
        """Write up to where all is proven now."""
        from inbound.spark.proofs import moved_on, write_proven

        for group, place in self._places.items():
            before = self._before[group]
            after = {key: one for key, one in moved_on(before, proof, topic_ids).items() if key.group == group}
            if after == before:
                continue
            try:
                write_proven(place, group, after)
            except OSError as error:
                self._say(
                    f"{place}: cannot be written ({error.strerror or error}); the next proof begins where this one began"
                )


def _subjects(loaded: Loaded, wish: Wish, ask: Callable[[Any], Any]) -> list[Subject]:
    from inbound.spark.gather import Subject, topics_of

    channels = known_channels(loaded)
    for name in wish.channels:
        if name not in channels:
            raise ConfigError(f"--channel {name}: there is no such channel; there are: {', '.join(channels)}")
    found: dict[str, Subject] = {}
    for name, channel in channels.items():
        if (wish.channels and name not in wish.channels) or wish.group not in (None, channel.group):
            continue
        subject = Subject.of(channel)
        before = found.get(subject.group)
        if before is not None:
            patterns = dict.fromkeys(one for one in (before.pattern, subject.pattern) if one is not None)
            pattern = "|".join(f"(?:{one})" for one in patterns) if len(patterns) > 1 else next(iter(patterns), None)
            subject = replace(before, topics=tuple(dict.fromkeys((*before.topics, *subject.topics))), pattern=pattern)
        found[subject.group] = subject
    if wish.group is not None and not found:
        topics = wish.topics or tuple(ask(lambda zk: topics_of(zk, wish.group)))
        if not topics:
            raise InboundError(
                f"group {wish.group}: neither the configuration nor ZooKeeper knows it; check the name, and zookeeper.chroot"
            )
        found[wish.group] = Subject(wish.group, topics)
    if wish.topics:
        found = {group: replace(one, topics=wish.topics, pattern=None) for group, one in found.items()}
    if wish.no_repeats:
        found = {group: replace(one, at_most_once=True) for group, one in found.items()}
    return list(found.values())


def _ledger_of(loaded: Loaded) -> FilePath | LedgerTopic | None:
    from inbound.spark.ledger_topic import LedgerTopic

    ledger = loaded.config.ledger
    if ledger.type == "none":
        return None
    if ledger.type == "kafka":
        return LedgerTopic(ledger.topic)
    place = place_of(ledger.path)
    return place.absolute() if isinstance(place, Path) else place


def _not_provable(args: argparse.Namespace, why: str) -> int:
    """Say what is missing where there is nothing to judge by. Nothing is written: an older proof stays."""
    proof = Proof(args.mode, time.time(), 0.0, (), (why,), f"inbound {inbound.__version__}")
    if args.json:
        sys.stdout.write(to_json(proof))
    print(f"not provable: {why}", file=sys.stderr)
    return int(Verdict.NOT_PROVABLE)


@contextmanager
def _progress(spark: SparkSession) -> Iterator[None]:
    from inbound.spark.progress import Stages, watched

    bar = Progress("Spark tasks", None)
    said = time.monotonic()

    def tell(stages: Stages) -> None:
        nonlocal said
        if sys.stderr.isatty():
            bar.update(stages.done, f"of {stages.total:,}, {stages.running:,} running")
        elif time.monotonic() - said >= PLAIN_EVERY:
            said = time.monotonic()
            _say(f"Spark: {stages.done:,} of {stages.total:,} tasks done")

    try:
        with watched(spark, tell):
            yield
    finally:
        bar.close()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _numbers(text: str) -> frozenset[int]:
    """Read `0,3-7`."""
    found: set[int] = set()
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            low, high = int(first), int(last) if dash else int(first)
            if not 0 <= low <= high < 1_000_000:
                raise ValueError
            found.update(range(low, high + 1))
    except ValueError:
        raise argparse.ArgumentTypeError(f"need numbers such as 0,3-7, got {text!r}") from None
    return frozenset(found)
