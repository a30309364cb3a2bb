"""Metrics of partitions, of groups' offsets, and of Kafka clients.

Each partition has at most eight series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from inbound.kafka.base import FAILURES, STATISTICS, BrokerFigures
from inbound.observe.explain.facts import Cause
from inbound.observe.metrics.definition import Metric, MetricGroup, of_process
from inbound.observe.status.status import GroupOffsets, OffsetsStatus, PartitionOffsets, PartitionStatus, ProcessStatus

#: The states of a partition, the most serious first.
STATES = ("in_doubt", "held", "leaving", "paused", "failing", "delayed", "ok")


def state_of(partition: PartitionStatus) -> str:
    is_so = (
        partition.in_doubt,
        partition.held is not None,
        partition.leaving,
        partition.paused,
        partition.attempts > 0,
        partition.cause == Cause.DELAYED_RETRY.value,
        True,
    )
    return STATES[is_so.index(True)]


Found = Iterator[tuple[tuple[str, ...], PartitionStatus]]
Counted = Iterator[tuple[tuple[str, ...], int]]


def _held(process: ProcessStatus, others: Sequence[ProcessStatus]) -> Found:
    return (
        ((channel.name, channel.group, p.topic, str(p.partition)), p)
        for channel in process.channels
        for p in channel.partitions
    )


def _offsets(
    process: ProcessStatus, others: Sequence[ProcessStatus]
) -> Iterator[tuple[tuple[str, ...], PartitionStatus | PartitionOffsets]]:
    exported = process.offsets.partitions if process.offsets is not None else ()
    return chain(_held(process, others), (((p.channel, p.group, p.topic, str(p.partition)), p) for p in exported))


def _ever_held(process: ProcessStatus, others: Sequence[ProcessStatus]) -> Counted:
    """Yield each partition's records; a new claim begins with 0."""
    for channel in process.channels:
        for key, count in ({f"{p.topic}/{p.partition}": 0 for p in channel.partitions} | channel.consumed).items():
            topic, _, partition = key.rpartition("/")
            yield (channel.name, channel.group, topic, partition), count


def _as_the_ancestor(process: ProcessStatus, others: Sequence[ProcessStatus]) -> Counted:
    """Yield ANCESTOR's subjects.

    Its `consumer` label was a subscription's Kafka client; here it is the consumer id, with the channel if two share it.
    """
    users = Counter(channel.consumer_id for other in others for channel in other.channels)
    for channel in process.channels:
        consumer = channel.consumer_id if users[channel.consumer_id] == 1 else f"{channel.consumer_id}#{channel.name}"
        for p in channel.partitions:
            yield (consumer, str(p.partition), p.topic), channel.consumed.get(f"{p.topic}/{p.partition}", 0)


LABELS = ("channel", "group", "topic", "partition")

PARTITIONS = MetricGroup(
    "Partitions",
    "For each partition that the process owns.",
    LABELS,
    _held,
    (
        Metric(
            "inbound_partition_state",
            "1 for the state that the partition is in, and no series for the others: "
            "ok; failing: its batch has failed and is retried; delayed: the next event of a retry topic is not due yet; "
            "paused; leaving: it is being released; "
            "held: it is not read until an operator acts; in_doubt: it may have another owner already, nothing is delivered",
            lambda p: {state_of(p): 1},
            "state",
            1,
        ),
        Metric(
            "inbound_partition_stalled",
            "1 for a stalled partition that has something to read, with the cause as "
            "`inbound explain` names it; no series while it moves, or its rest is wanted",
            lambda p: {p.stalled["cause"]: 1} if p.stalled else None,
            "cause",
            1,
        ),
        Metric("inbound_partition_position", "Next offset to deliver to the processor", lambda p: p.position),
        Metric("inbound_partition_buffered_bytes", "Bytes of records read ahead", lambda p: p.buffered_bytes),
    ),
)

OFFSETS = MetricGroup(
    "Offsets",
    "For each partition that the process owns; of `inbound offsets show --metrics`, for each partition of the groups that it "
    "looks at, also without an owner. Scrape both and each is there twice: tell them apart by their job.",
    LABELS,
    _offsets,
    (
        Metric(
            "inbound_partition_lag",
            "Records in the log that are not committed yet",
            lambda p: p.lag,
        ),
        Metric(
            "inbound_partition_committed_offset",
            "Committed offset: the next one to read after a restart; the end of the log is this plus the lag",
            lambda p: p.committed,
        ),
    ),
)

RECORDS = MetricGroup(
    "Records",
    "For each partition that the process owns or has owned.",
    LABELS,
    _ever_held,
    (
        Metric(
            "inbound_partition_records_total", "Records delivered to the processor by this process", lambda count: count
        ),
    ),
)

ANCESTOR = MetricGroup(
    "For dashboards of Knative's eventing-kafka",
    "The gauge of its dispatcher, under its name and labels, for each partition that the process owns, from 0 on. There "
    "`consumer` was the name of a subscription's Kafka client (`rdkafka#consumer-1`); here it is the consumer id, or "
    "`<consumer id>#<channel>` where several channels were given the same id. It has no label `pid`.",
    ("consumer", "partition", "topic"),
    _as_the_ancestor,
    (Metric("eventing_kafka_consumed_msg_count", "Consumed Message Count", lambda count: count),),
    has_pid=False,
)


def _groups(process: ProcessStatus, others: Sequence[ProcessStatus]) -> Iterator[tuple[tuple[str, ...], GroupOffsets]]:
    return (((group.group,), group) for group in (process.offsets.groups if process.offsets is not None else ()))


GROUPS = MetricGroup(
    "Groups, as `inbound offsets show --metrics` sees them",
    "For each group that it looks at; none while ZooKeeper does not answer.",
    ("group",),
    _groups,
    (
        Metric("inbound_offsets_members", "Members that are alive", lambda g: g.members),
        Metric("inbound_offsets_unowned_partitions", "Partitions without an owner", lambda g: g.unowned),
        Metric("inbound_offsets_uncommitted_partitions", "Partitions without an offset", lambda g: g.uncommitted),
        Metric(
            "inbound_offsets_unreadable_partitions",
            "Partitions whose offset's node holds something else",
            lambda g: g.unreadable,
        ),
        Metric("inbound_offsets_closed_gates", "Topics whose gate a reset has closed", lambda g: g.closed_gates),
    ),
)

EXPORTERS: MetricGroup[OffsetsStatus] = MetricGroup(
    "`inbound offsets show --metrics` itself",
    "For its process.",
    (),
    of_process(lambda process: process.offsets),
    (
        Metric(
            "inbound_offsets_zookeeper_available",
            "0 while ZooKeeper does not answer: then there is no series of groups and partitions",
            lambda o: o.zookeeper_problem is None,
        ),
        Metric(
            "inbound_offsets_kafka_available",
            "0 while a leader does not answer: then the lag of its partitions has no series",
            lambda o: o.kafka_problem is None,
        ),
        Metric(
            "inbound_offsets_last_look_timestamp_seconds",
            "Unix time of the last look that ZooKeeper answered; all that is shown is of then",
            lambda o: o.looked_at,
        ),
        Metric("inbound_offsets_look_duration_seconds", "How long the last look took", lambda o: o.look_seconds),
        Metric("inbound_offsets_looks_total", "Looks, answered or not", lambda o: o.looks_total),
    ),
)


BROKER_LABELS = ("client", "channel", "group", "broker")
#: The ancestor's word for each statistic that it and librdkafka have.
_PERCENTILES = {"mean": "mean", "p50": "50%", "p75": "75%", "p95": "95%", "p99": "99%", "max": "max"}


def _brokers(
    process: ProcessStatus, others: Sequence[ProcessStatus]
) -> Iterator[tuple[tuple[str, ...], BrokerFigures]]:
    clients = [
        *(("consumer", channel.name, channel.group, channel.brokers) for channel in process.channels),
        ("consumer", "", "", process.brokers),
        ("producer", "", "", process.ingress.brokers if process.ingress is not None else []),
    ]
    return (((*client, str(one.broker)), one) for *client, brokers in clients for one in brokers)


BROKERS: MetricGroup[BrokerFigures] = MetricGroup(
    "Brokers, as Kafka clients see them",
    "For each broker that a channel's consumer (`client` is `consumer`), or the ingress's producer (`producer`, without "
    "channel and group), sends requests to: what the client library measures, over the last 15 s with confluent-kafka and "
    "over 30 to 60 s with kafka-python. kafka-python has of times only `mean` and `max`, and neither requests in flight nor "
    "failures. Consumers by which the subscriptions of a process read together have no channel and group; several of them "
    "are told as one, with the largest of their percentiles.",
    BROKER_LABELS,
    _brokers,
    (
        Metric("inbound_kafka_requests_per_second", "Requests to the broker", lambda b: b.requests_per_second),
        Metric("inbound_kafka_sent_bytes_per_second", "Bytes sent to the broker", lambda b: b.sent_bytes_per_second),
        Metric(
            "inbound_kafka_received_bytes_per_second",
            "Bytes received from the broker, compressed as they are",
            lambda b: b.received_bytes_per_second,
        ),
        Metric(
            "inbound_kafka_request_duration_seconds",
            "Time from a request to its answer: mean, p50, p75, p95, p99, max. While nothing comes, a fetch waits at the broker "
            "for fetch.max.wait.ms, and with kafka-python for 2 s",
            lambda b: b.request_seconds,
            "statistic",
            len(STATISTICS),
        ),
        Metric(
            "inbound_kafka_throttle_duration_seconds",
            "Time by which a quota of the broker delayed answers: mean, p50, p75, p95, p99, max",
            lambda b: b.throttle_seconds,
            "statistic",
            len(STATISTICS),
        ),
        Metric("inbound_kafka_requests_in_flight", "Requests that wait for the broker's answer", lambda b: b.in_flight),
        Metric(
            "inbound_kafka_failures_total",
            "Connections that ended (disconnect), also those that were idle; requests that could not be sent (send), had no answer "
            "in time (timeout), or one that could not be read (receive)",
            lambda b: b.failures,
            "kind",
            len(FAILURES),
        ),
    ),
)

ANCESTOR_LATENCY: MetricGroup[BrokerFigures] = MetricGroup(
    "For alerts of Knative's eventing-kafka",
    "The gauge of its Kafka clients' latency, under its name and with its `percentile`. There it was of all brokers together; here "
    "it is of each, with our labels. kafka-python knows `mean` and `max` only.",
    BROKER_LABELS,
    _brokers,
    (
        Metric(
            "eventing_kafka_request_latency_in_ms",
            "Distribution of the request latency in ms",
            lambda b: {_PERCENTILES[name]: 1000 * seconds for name, seconds in b.request_seconds.items()},
            "percentile",
            len(_PERCENTILES),
        ),
    ),
)
