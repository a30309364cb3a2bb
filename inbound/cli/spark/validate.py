"""`inbound spark validate` proves that nothing was lost or processed twice."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import inbound
from inbound.cli.shared.command import PARTITIONS, Command, argument, check_channel, flag, one_of, several
from inbound.cli.shared.files import known_channels, load_config, state_dir
from inbound.cli.shared.output import ProgressLine, note
from inbound.cli.shared.proof_text import shown
from inbound.cli.shared.zookeeper import with_zookeeper
from inbound.cli.spark.options import SPARK, kafka_for_spark, lazy_session, ledger_place, spark_settings, subjects_of
from inbound.config import Loaded
from inbound.errors import ConfigError, InboundError
from inbound.ledger.places import FilePath, RemotePath
from inbound.proof.export import to_json
from inbound.proof.model import PartitionKey, Proof, Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from inbound.spark.cluster_state import Subject
    from inbound.spark.ledger_topic import LedgerTopicName
    from inbound.spark.proofs import Proven
    from inbound.spark.session import SparkSettings

#: Time between two lines of progress where they can't be redrawn. Seconds.
PLAIN_EVERY = 10.0


def run(args: argparse.Namespace) -> int:
    """Validate, and print the proof. Returns the exit code.

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
        tuple(args.channel), args.group, tuple(args.topic),
        None if args.partitions is None else frozenset(args.partitions), args.mode, args.no_repeats, args.from_start,
        args.state,
    )  # fmt: skip
    try:
        proof = prove(loaded, wish, settings, note)
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
    """The proof that the command line asks for."""

    channels: tuple[str, ...] = ()  # empty: all
    group: str | None = None
    topics: tuple[str, ...] = ()
    partitions: frozenset[int] | None = None
    mode: Literal["quick", "exact"] = "exact"
    no_repeats: bool = False
    from_start: bool = False
    state: Path | None = None


def prove(loaded: Loaded, wish: Wish, settings: SparkSettings, say: Callable[[str], None]) -> Proof:
    """Gather, judge, and note the offsets up to which all is proven.

    Raises:
        InboundError: a server or a file is unavailable.
        ConfigError: the configuration or the wish cannot be used.
    """
    import pyspark

    from inbound.spark.validate import ProofRequest, validate

    config = loaded.config
    ask = partial(with_zookeeper, config.zookeeper)
    subjects = _subjects(loaded, wish, ask)
    if wish.state is not None and len(subjects) > 1:
        raise ConfigError("--state: is the file of one group; name it with --group or --channel")
    ledger = ledger_place(config.ledger)
    if isinstance(ledger, Path):
        ledger = ledger.absolute()
    states = _States(subjects, ledger, wish, say)
    with lazy_session(settings, "validate", say, _progress) as session:
        question = ProofRequest(
            subjects=subjects,
            mode=wish.mode,
            kafka=config.kafka,
            spark_kafka=kafka_for_spark(config.kafka),
            ledger=ledger,
            shared_ledger=settings.local or not isinstance(ledger, Path),
            partitions=wish.partitions,
            since=states.known,
            writer=f"inbound {inbound.__version__}, Spark {pyspark.__version__}",
        )
        proof, topic_ids = validate(question, ask, session, time.time, say)
    states.keep(proof, topic_ids)
    return proof


class _States:
    """The proven offsets of each group, read before and written after."""

    def __init__(
        self, subjects: list[Subject], ledger: FilePath | LedgerTopicName | None, wish: Wish, say: Callable[[str], None]
    ) -> None:
        from inbound.spark.proofs import ProvenError, dates, place_of_proven, read_proven

        self.known: dict[PartitionKey, Proven] = {}
        self._say = say
        self._places: dict[str, FilePath] = {}
        self._before: dict[str, dict[PartitionKey, Proven]] = {}
        if wish.mode == "quick":
            return  # a quick proof neither needs nor gives them
        for subject in subjects:
            if wish.state is not None:
                place: FilePath = wish.state
            elif isinstance(ledger, (Path, RemotePath)):
                place = place_of_proven(ledger, subject.group)
            else:
                place = place_of_proven(state_dir(), subject.group)
            try:
                found = read_proven(place, subject.group)
            except ProvenError as error:
                say(f"{error}; the file is left as it is, and all is judged from the start")
                continue
            self._places[subject.group], self._before[subject.group] = place, found
            if found and not wish.from_start:
                self.known.update(found)
                say(f"group {subject.group}: continuing the proof of {dates(found)} (--from-start judges all again)")

    def keep(self, proof: Proof, topic_ids: Mapping[str, str | None]) -> None:
        """Write the offsets up to which all is proven now."""
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
    from inbound.spark.cluster_state import Subject, topics_of

    channels = known_channels(loaded)
    for name in wish.channels:
        check_channel(name, channels)
    found = subjects_of(
        channel
        for name, channel in channels.items()
        if (not wish.channels or name in wish.channels) and wish.group in (None, channel.group)
    )
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


def _not_provable(args: argparse.Namespace, why: str) -> int:
    """Print why there is no proof. An older proof stays."""
    proof = Proof(args.mode, time.time(), 0.0, (), (why,), f"inbound {inbound.__version__}")
    if args.json:
        sys.stdout.write(to_json(proof))
    note(f"not provable: {why}")
    return int(Verdict.NOT_PROVABLE)


@contextmanager
def _progress(spark: SparkSession) -> Iterator[None]:
    from inbound.spark.session import watched

    bar = ProgressLine("Spark tasks", None)
    said = time.monotonic()

    def tell(done: int, running: int, total: int) -> None:
        nonlocal said
        if sys.stderr.isatty():
            bar.update(done, f"of {total:,}, {running:,} running")
        elif time.monotonic() - said >= PLAIN_EVERY:
            said = time.monotonic()
            note(f"Spark: {done:,} of {total:,} tasks done")

    try:
        with watched(spark, tell):
            yield
    finally:
        bar.close()


COMMAND = Command(
    "validate",
    "prove that nothing was lost or processed twice",
    run,
    "Judge each partition of a group by the ledger of its consumers, the offsets in ZooKeeper and Kafka's log. Exit code 0: "
    "proven, 1: anomalies, 3: not provable (it says what is missing), 4: never claimed (no consumer ever owned some records), 2: "
    "bad configuration.",
    examples=(
        "inbound spark validate",
        "inbound spark validate --channel orders --output proof",
        "inbound spark validate --group orders-svc --quick --json",
    ),
    arguments=(
        *SPARK,
        one_of(
            several("--channel", "only this channel's group; may be given several times", metavar="NAME"),
            argument("--group", metavar="NAME", help="only this group; need not be in the configuration"),
        ),
        several("--topic", "only this topic; may be given several times", metavar="NAME"),
        PARTITIONS,
        one_of(
            argument(
                "--exact",
                dest="mode",
                action="store_const",
                const="exact",
                help="read the offsets that the log has; default",
            ),
            argument(
                "--quick", dest="mode", action="store_const", const="quick", help="compare ranges; do not read the log"
            ),
        ),
        flag("--no-repeats", "a repeat is an anomaly, also where delivery is at least once"),
        flag("--from-start", "judge all offsets again, also those that were proven before"),
        argument(
            "--state",
            type=Path,
            metavar="FILE",
            help="the file that notes the proven offsets of one group; default: beside the ledger",
        ),
        argument(
            "--output", type=Path, metavar="FOLDER", help="write proof.html, proof.json and tables as Parquet there"
        ),
        flag("--json", "print the proof as JSON, and nothing else"),
    ),
    defaults={"mode": "exact"},
)
