"""`spark validate`: gathers ledger, ZooKeeper and log, and judges each partition."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from inbound.coordinators.nodes import same_topic
from inbound.errors import LedgerError, SparkError
from inbound.kafka.base import LogRange, TopicMeta
from inbound.ledger.places import FilePath, RemotePath
from inbound.proof.judge import judge
from inbound.proof.model import (
    GRAVEST,
    LedgerEvent,
    LedgerRun,
    LogExtent,
    PartitionKey,
    PartitionProof,
    Proof,
    Span,
    Verdict,
    ZooKeeperState,
)
from inbound.proof.spans import RunStory
from inbound.spark.cluster_state import AskZooKeeper, Coordinated, Group, KafkaLogs, Subject, read_group
from inbound.spark.ledger_source import LedgerCut, LedgerMovedError
from inbound.spark.ledger_topic import LedgerTopicName, TopicCut, read_topic
from inbound.spark.log_source import Bits, present_offsets
from inbound.spark.proofs import Proven
from inbound.spark.session import cause
from inbound.spark.stories import read_ledger
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Attempts to gather the evidence while files of the ledger, or beginnings of logs, are deleted.
ATTEMPTS = 5

#: Words of Spark's Kafka source when the beginning of a log was deleted during the read.
_MOVED = ("DATA_LOSS", "data may have been lost", "OffsetOutOfRange")


class LogMovedError(SparkError):
    """The log's beginning was deleted during the read: start again."""


@dataclass(frozen=True, slots=True)
class ProofRequest:
    """The groups to prove, and the sources of the evidence."""

    subjects: Sequence[Subject]
    mode: Literal["quick", "exact"]
    kafka: Mapping[str, Any]  # properties for this process
    spark_kafka: Mapping[str, Any]  # the same for Spark's executors, which have none of this machine's files
    ledger: FilePath | LedgerTopicName | None  # None: no ledger is kept
    shared_ledger: bool = True  # executors see the same files
    partitions: frozenset[int] | None = None  # None: all
    since: Mapping[PartitionKey, Proven] = field(default_factory=lambda: MappingProxyType({}))
    writer: str = ""


@dataclass(frozen=True, slots=True)
class _Scene:
    """A group's evidence before the ledger is read, at one moment."""

    subject: Subject
    group: Group
    topics: Mapping[str, TopicMeta]
    partitions: tuple[TopicPartition, ...]
    cut: LedgerCut | TopicCut | None
    limits: Mapping[TopicPartition, LogRange]
    cuts: Mapping[TopicPartition, int]  # of logs that were cut below the commit
    missing: tuple[str, ...]

    def key(self, tp: TopicPartition) -> PartitionKey:
        return PartitionKey(self.subject.group, tp.topic, tp.partition)


def validate(
    question: ProofRequest,
    ask: AskZooKeeper[Group],
    session: Callable[[], SparkSession],
    wall: Callable[[], float] = time.time,
    tell: Callable[[str], None] = lambda line: None,
) -> tuple[Proof, dict[str, str | None]]:
    """Gather and judge; return the proof, and the ids of its topics.

    Args:
        question: The groups to prove.
        ask: Asks ZooKeeper.
        session: Gives the Spark session; only called where one is needed.
        wall: The time, for people.
        tell: Takes lines of progress.

    Raises:
        InboundError: a source is unavailable, or cannot be read. The message names it.
    """
    began = time.monotonic()
    made = wall()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            partitions, missing, topic_ids = _gathered_and_judged(question, ask, session, tell)
            break
        except (LedgerMovedError, LogMovedError) as error:
            if attempt == ATTEMPTS:
                raise
            tell(f"{error} (attempt {attempt} of {ATTEMPTS})")
    keys = {one.key for one in partitions}
    proof = Proof(
        question.mode, made, time.monotonic() - began, tuple(partitions), tuple(missing), question.writer,
        continued=any(key in keys for key in question.since),
    )  # fmt: skip
    return proof, topic_ids


def _gathered_and_judged(
    question: ProofRequest, ask: AskZooKeeper[Group], session: Callable[[], SparkSession], tell: Callable[[str], None]
) -> tuple[list[PartitionProof], list[str], dict[str, str | None]]:
    proofs: list[PartitionProof] = []
    topic_ids: dict[str, str | None] = {}
    missing: list[str] = []
    for committed in (True, False):
        subjects = [subject for subject in question.subjects if subject.read_committed is committed]
        if not subjects:
            continue
        with KafkaLogs(question.kafka, read_committed=committed) as brokers:
            scenes = [_scene(question, subject, brokers, ask, tell) for subject in subjects]
        with ThreadPoolExecutor(1, "log") as threads, ExitStack() as stack:
            scan = None
            if question.mode == "exact":
                spark = session()
                stack.callback(spark.sparkContext.cancelAllJobs)
                scan = threads.submit(_scanned, spark, question, scenes, committed)
            for scene in scenes:
                proofs += _judged(question, scene, scan, session)
                missing += scene.missing
                topic_ids.update({name: meta.topic_id for name, meta in scene.topics.items()})
            stack.pop_all()
    return proofs, missing, topic_ids


def _scene(
    question: ProofRequest, subject: Subject, brokers: KafkaLogs, ask: AskZooKeeper[Group], tell: Callable[[str], None]
) -> _Scene:
    """Gather a group's evidence in the order that `inbound.spark.cluster_state` explains."""
    topics = brokers.topics(subject.topics, subject.pattern)
    if subject.pattern is not None and isinstance(question.ledger, LedgerTopicName):
        topics.pop(question.ledger.topic, None)  # no channel reads it
    missing = [
        f"topic {topic}: Kafka has no such topic; it was deleted, or its name is another"
        for topic in sorted(set(subject.topics) - topics.keys())
    ]
    if subject.pattern is not None and not topics:
        missing.append(f"topics_pattern {subject.pattern}: no topic of that kind is in Kafka")
    wanted = question.partitions
    partitions = tuple(
        TopicPartition(topic, number)
        for topic, meta in sorted(topics.items())
        for number in range(meta.partitions)
        if wanted is None or number in wanted
    )
    if wanted is not None and topics and (beyond := wanted - {tp.partition for tp in partitions}):
        missing.append(f"partitions {', '.join(map(str, sorted(beyond)))}: no topic of group {subject.group} has them")
    group = ask(lambda zk: read_group(zk, subject.group, partitions))
    if not group.exists:
        missing.append(f"group {subject.group}: ZooKeeper knows no such group; check its name, and zookeeper.chroot")
    cut: LedgerCut | TopicCut | None = None
    if question.ledger is None:
        missing.append(f"group {subject.group}: it keeps no ledger (ledger.type is none), so nothing can be proven")
    else:
        try:
            if isinstance(question.ledger, LedgerTopicName):
                cut = TopicCut.now(question.ledger, subject.group, brokers)
            else:
                cut = LedgerCut.now(question.ledger, subject.group)
        except LedgerError as error:
            missing.append(str(error))
    if cut is not None:
        if cut.empty:
            missing.append(
                f"group {subject.group}: {cut.place} has no ledger of it; check ledger.path, and the group's name"
            )
        for file in cut.foreign if isinstance(cut, LedgerCut) else ():
            tell(f"{file.path}: is no file of a ledger, and was not read")
    limits = brokers.limits(partitions)
    cuts = brokers.cuts({tp: one.read_to for tp, one in group.partitions.items() if one.read_to is not None})
    return _Scene(subject, group, topics, partitions, cut, limits, cuts, tuple(missing))


def _scanned(
    spark: SparkSession, question: ProofRequest, scenes: Sequence[_Scene], read_committed: bool
) -> dict[TopicPartition, Bits]:
    ranges: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    for scene in scenes:
        for tp, limits in scene.limits.items():
            first, end = _begin(question, scene, tp), limits.end
            before = ranges[tp.topic].get(tp.partition, (first, end))
            ranges[tp.topic][tp.partition] = (min(first, before[0]), max(end, before[1]))
    try:
        return present_offsets(spark, question.spark_kafka, ranges, read_committed=read_committed)
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        said = cause(error)
        if any(sign in said for sign in _MOVED):
            raise LogMovedError(f"spark: a log's beginning was deleted while it was read: {said}") from error
        raise SparkError(
            f"spark: the log could not be read: {said}. Check that executors reach the brokers."
        ) from error


def _begin(question: ProofRequest, scene: _Scene, tp: TopicPartition) -> int:
    limits = scene.limits[tp]
    return min(limits.end, max(limits.start, _since(question, scene, tp) or 0))


def _since(question: ProofRequest, scene: _Scene, tp: TopicPartition) -> int | None:
    """Return where an earlier proof of the same topic ended, if any."""
    since = question.since.get(scene.key(tp))
    if since is None or since.topic_id != scene.topics[tp.topic].topic_id:
        return None
    return since.offset


def _judged(
    question: ProofRequest,
    scene: _Scene,
    scan: Future[dict[TopicPartition, Bits]] | None,
    session: Callable[[], SparkSession],
) -> Iterable[PartitionProof]:
    begins = {scene.key(tp): _begin(question, scene, tp) for tp in scene.partitions} if scan is not None else {}
    breaks = {key: begin for key, begin in begins.items() if begin}
    ends = {scene.key(tp): limits.end for tp, limits in scene.limits.items()}
    stories: list[RunStory] = []
    if isinstance(scene.cut, TopicCut):
        with KafkaLogs(question.kafka) as brokers:
            later = TopicCut.now(scene.cut.place, scene.cut.group, brokers)
        stories = read_topic(scene.cut, later, session(), question.spark_kafka, ends, breaks)
    elif scene.cut is not None:
        stories = read_ledger(scene.cut, session if question.shared_ledger else None, ends, breaks)
    bits = scan.result() if scan is not None else None
    runs = [story.run for story in stories]
    damage = [one for story in stories for one in story.damage]
    spans, events = defaultdict(list), defaultdict(list)
    for story in stories:
        for span in story.spans:
            spans[span.key].append(span)
        for event in story.events:
            events[event.key].append(event)
    for tp in scene.partitions:
        key = scene.key(tp)
        coordinated = scene.group.partitions.get(tp)
        extent = _extent(question, scene, tp, bits)
        former = _of_former_topic(scene, tp, coordinated)
        unread = _unread(coordinated)
        coordination = None if former or unread else _coordination(scene, tp, coordinated)
        if (
            coordination is not None
            and isinstance(question.ledger, RemotePath)
            and _goes_on(runs, spans[key], events[key])
        ):
            # Its last lines are not shipped yet: the commit is for the next proof.
            coordination = replace(coordination, known=False)
        proof = judge(
            key, runs, spans[key], events[key], damage, None if former else extent,
            coordination, since=_since(question, scene, tp),
        )  # fmt: skip
        if lack := former or unread:
            proof = replace(
                proof,
                verdict=min(proof.verdict, Verdict.NOT_PROVABLE, key=GRAVEST.index),
                missing=(*proof.missing, lack),
            )
        yield _at_most_once(proof) if scene.subject.at_most_once else proof


def _coordination(scene: _Scene, tp: TopicPartition, coordinated: Coordinated | None) -> ZooKeeperState | None:
    """Return ZooKeeper's state of a partition; None: the group does not exist."""
    if coordinated is not None:
        return replace(coordinated.coordination, cut=scene.cuts.get(tp))
    return ZooKeeperState(None, None, None, None) if scene.group.exists else None


def _goes_on(runs: Iterable[LedgerRun], spans: Iterable[Span], events: Iterable[LedgerEvent]) -> bool:
    """Return whether the partition's last run may still be running."""
    items: list[Span | LedgerEvent] = [*spans, *events]
    newest = max(items, key=lambda item: (item.epoch, item.seq), default=None)
    return newest is not None and any(run.run == newest.run and not run.ended for run in runs)


def _extent(
    question: ProofRequest, scene: _Scene, tp: TopicPartition, bits: Mapping[TopicPartition, Bits] | None
) -> LogExtent:
    limits = scene.limits[tp]
    if bits is None:
        return LogExtent(limits.start, limits.end)
    present = bits[tp].ranges() if tp in bits else ()
    return LogExtent(limits.start, limits.end, present, _begin(question, scene, tp))


def _unread(coordinated: Coordinated | None) -> str | None:
    if coordinated is None or coordinated.problem is None:
        return None
    return f"what ZooKeeper knows of it cannot be used: {coordinated.problem}; then validate again"


def _of_former_topic(scene: _Scene, tp: TopicPartition, coordinated: Coordinated | None) -> str | None:
    """Return a sentence if the group's offset is about another topic."""
    now = scene.topics[tp.topic].topic_id
    known = coordinated.coordination.topic_id if coordinated is not None else None
    if known is None or now is None or same_topic(known, now):
        return None
    if same_topic(known, now) is None:
        return (
            f"the group's offset is about topic {known}, the topic's id is {now}: whether that is one topic "
            "cannot be told; set the offset with `inbound offsets reset`, and validate again"
        )
    return (
        f"the topic was deleted and made again (its id is {now}, the group's offset is about {known}); "
        "start a consumer of the group, which begins with the new one, and validate again"
    )


def _at_most_once(proof: PartitionProof) -> PartitionProof:
    """Rename repeats to duplicates: at most once was promised."""
    if not any(finding.kind == "repeated" for finding in proof.findings):
        return proof
    findings = tuple(
        replace(finding, kind="duplicate", cause=f"{finding.cause}; at most once was promised")
        if finding.kind == "repeated"
        else finding
        for finding in proof.findings
    )
    return replace(proof, verdict=Verdict.ANOMALIES, findings=findings)
