"""Metrics of partitions: at most eight gauges and counters for each, of which the ancestor's gauge is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from inbound.explain.cause import Cause
from inbound.metrics.definition import Section, counter, gauge
from inbound.offsets.status import PartitionOffsets
from inbound.status import PartitionStatus, ProcessStatus

#: What a partition is in, the most serious first.
STATES = ("in_doubt", "held", "leaving", "paused", "failing", "delayed", "ok")


def state_of(partition: PartitionStatus) -> str:
    """Return the state that a partition is in."""
    if partition.in_doubt:
        return "in_doubt"
    if partition.held is not None:
        return "held"
    if partition.leaving:
        return "leaving"
    if partition.paused:
        return "paused"
    if partition.attempts:
        return "failing"
    return "delayed" if partition.cause == Cause.DELAYED_RETRY.value else "ok"


Found = Iterator[tuple[tuple[str, ...], PartitionStatus]]
Counted = Iterator[tuple[tuple[str, ...], int]]


def _held(process: ProcessStatus, others: Sequence[ProcessStatus]) -> Found:
    for channel in process.channels:
        for p in channel.partitions:
            yield (channel.name, channel.group, p.topic, str(p.partition)), p


def _offsets(
    process: ProcessStatus, others: Sequence[ProcessStatus]
) -> Iterator[tuple[tuple[str, ...], PartitionStatus | PartitionOffsets]]:
    yield from _held(process, others)
    if process.offsets is not None:
        for p in process.offsets.partitions:
            yield (p.channel, p.group, p.topic, str(p.partition)), p


def _ever_held(process: ProcessStatus, others: Sequence[ProcessStatus]) -> Counted:
    """A partition just claimed is there with 0, so that its rate is known."""
    for channel in process.channels:
        records = {f"{p.topic}/{p.partition}": 0 for p in channel.partitions} | channel.consumed
        for key, count in records.items():
            topic, _, partition = key.rpartition("/")
            yield (channel.name, channel.group, topic, partition), count


def _as_the_ancestor(process: ProcessStatus, others: Sequence[ProcessStatus]) -> Counted:
    """Its `consumer` was the Kafka client of a subscription; here it is the consumer id, with the channel if need be."""
    users = Counter(channel.consumer_id for other in others for channel in other.channels)
    for channel in process.channels:
        consumer = channel.consumer_id if users[channel.consumer_id] == 1 else f"{channel.consumer_id}#{channel.name}"
        for p in channel.partitions:
            yield (consumer, str(p.partition), p.topic), channel.consumed.get(f"{p.topic}/{p.partition}", 0)


LABELS = ("channel", "group", "topic", "partition")

PARTITIONS = Section(
    "Partitions",
    "For each partition that the process owns.",
    LABELS,
    _held,
    (
        gauge(
            "inbound_partition_state",
            "1 for the state that the partition is in, and no series for the others: "
            "ok; failing: its batch has failed and is tried again; delayed: what is next in a retry topic is not due yet; "
            "paused; leaving: it is being given up; "
            "held: it is not read until somebody acts; in_doubt: it may belong to another already, nothing is handed out",
            lambda p: {state_of(p): 1},
            "state",
            1,
        ),
        gauge(
            "inbound_partition_stalled",
            "1 for a partition that stands still although there is something to read, with the cause as "
            "`inbound explain` tells it; no series while it moves, or rests because somebody wants it so",
            lambda p: {p.stalled["cause"]: 1} if p.stalled else None,
            "cause",
            1,
        ),
        gauge("inbound_partition_position", "Next offset to hand to the processor", lambda p: p.position),
        gauge("inbound_partition_buffered_bytes", "Bytes of records read ahead", lambda p: p.buffered_bytes),
    ),
)

OFFSETS = Section(
    "Offsets",
    "For each partition that the process owns; of `inbound offsets show --metrics`, for each partition of the groups that it "
    "looks at, also where nobody owns it. Scrape both and each is there twice: tell them apart by their job.",
    LABELS,
    _offsets,
    (
        gauge(
            "inbound_partition_lag",
            "Records in the log that are not committed yet",
            lambda p: p.lag,
        ),
        gauge(
            "inbound_partition_committed_offset",
            "Committed offset: the next one to read after a restart; the end of the log is this plus the lag",
            lambda p: p.committed,
        ),
    ),
)

RECORDS = Section(
    "Records",
    "For each partition that the process owns or has owned.",
    LABELS,
    _ever_held,
    (
        counter(
            "inbound_partition_records_total", "Records handed to the processor by this process", lambda count: count
        ),
    ),
)

ANCESTOR = Section(
    "For dashboards of Knative's eventing-kafka",
    "The gauge of its dispatcher, under its name and labels, for each partition that the process owns, from 0 on. There "
    "`consumer` was the name of a subscription's Kafka client (`rdkafka#consumer-1`); here it is the consumer id, or "
    "`<consumer id>#<channel>` where several channels were given the same id. It has no label `pid`.",
    ("consumer", "partition", "topic"),
    _as_the_ancestor,
    (gauge("eventing_kafka_consumed_msg_count", "Consumed Message Count", lambda count: count),),
    has_pid=False,
)
