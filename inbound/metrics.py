"""Metrics for Prometheus, made from the status snapshot at each scrape; nothing is counted on the way of the records.

docs/metrics.md lists them for people. Names carry base units; counters end in `_total` and start again with the
process, never with a partition that leaves and returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from inbound.controller.session import State
from inbound.status import ChannelStatus, PartitionStatus, ProcessStatus

#: Asked once per request: the status of this process, or a list where one port serves several (`run --processes`).
Snapshot = Callable[[], ProcessStatus | Sequence[ProcessStatus]]

Labels = dict[str, str]
Value = float | None


def make_registry(snapshot: Snapshot) -> CollectorRegistry:
    """Return a registry of its own with our metrics and those of the Python process."""
    registry = CollectorRegistry()
    registry.register(InboundCollector(snapshot))
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry, accept: str | None) -> tuple[bytes, str]:
    """Return all metrics and their content type: OpenMetrics if `accept` asks for it, else Prometheus text.

    Raises whatever the snapshot raises.
    """
    encode, content_type = choose_encoder(accept or "")
    return encode(registry), content_type


class InboundCollector(Collector):
    """Turns a snapshot into metrics. Any thread.

    Where one port serves several processes every series but the ancestor's gauge has the further label `pid`: a
    process that dies and comes back starts its counters again, and a sum over processes would then go back.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        found = self._snapshot()
        if isinstance(found, ProcessStatus):
            processes: list[tuple[Labels, ProcessStatus]] = [({}, found)]
        else:
            processes = [({"pid": str(process.pid)}, process) for process in found]
        yield from _of_processes(processes)
        yield from _of_channels([(extra, channel) for extra, process in processes for channel in process.channels])
        yield _consumed([process for _, process in processes])


def _of_processes(processes: Sequence[tuple[Labels, ProcessStatus]]) -> Iterator[Metric]:
    yield _gauge(
        "inbound_build_info",
        "Always 1; the label says which version of inbound runs",
        ((extra | {"version": process.version}, 1) for extra, process in processes),
    )
    yield _gauge(
        "inbound_zookeeper_session_state",
        "1 for the state that the ZooKeeper session is in, 0 for the others",
        (
            (extra | {"state": state.value}, process.session.state == state.value)
            for extra, process in processes
            for state in State
        ),
    )
    yield _gauge(
        "inbound_zookeeper_session_certain_seconds",
        "Seconds for which the ZooKeeper session surely lives on without another answer; 0: what is owned is in doubt",
        ((extra, process.session.certain_for) for extra, process in processes),
    )
    yield _counter(
        "inbound_zookeeper_sessions_total",
        "ZooKeeper sessions that this process has had; more than 1: one expired",
        ((extra, process.session.sessions_total) for extra, process in processes),
    )
    yield _counter(
        "inbound_evaluations_total",
        "Times that the controller looked at who owns what",
        ((extra, process.session.evaluations_total) for extra, process in processes),
    )
    threads = [(extra | {"thread": thread.name}, thread) for extra, process in processes for thread in process.threads]
    yield _gauge(
        "inbound_thread_alive",
        "1 while the internal thread runs; 0 is a defect",
        ((labels, thread.alive) for labels, thread in threads),
    )
    yield _counter(
        "inbound_thread_failures_total",
        "Steps of the internal thread that raised; any is a defect",
        ((labels, thread.failures) for labels, thread in threads),
    )


def _of_channels(found: Sequence[tuple[Labels, ChannelStatus]]) -> Iterator[Metric]:
    channels = [(extra | {"channel": channel.name, "group": channel.group}, channel) for extra, channel in found]
    short = [(extra | {"channel": channel.name}, channel) for extra, channel in found]

    def gauge(name: str, help_text: str, value: Callable[[ChannelStatus], float]) -> Metric:
        return _gauge(name, help_text, ((labels, value(channel)) for labels, channel in channels))

    def counter(name: str, help_text: str, value: Callable[[ChannelStatus], float]) -> Metric:
        return _counter(name, help_text, ((labels, value(channel)) for labels, channel in short))

    yield gauge("inbound_group_members", "Members of the group, as last read", lambda c: len(c.members))
    yield gauge("inbound_group_share", "Partitions that this member should own", lambda c: c.share)
    yield gauge("inbound_channel_registered", "1 while this process is a member of the group", lambda c: c.registered)
    yield gauge(
        "inbound_channel_paused",
        "1 while this member is paused: it keeps its partitions and reads nothing",
        lambda c: bool(c.paused),
    )
    yield gauge(
        "inbound_channel_abandoned_partitions",
        "Partitions given up whose callback still runs; they are not taken again before it ends",
        lambda c: len(c.abandoned),
    )
    yield gauge(
        "inbound_channel_kafka_available",
        "0 while Kafka does not answer this channel",
        lambda c: c.kafka_problem is None,
    )
    yield gauge("inbound_ledger_available", "0 while the ledger cannot be written", lambda c: c.ledger_problem is None)
    yield gauge(
        "inbound_ledger_provable", "1 while everything so far is in the ledger; 0 for good after", lambda c: c.provable
    )
    yield gauge("inbound_commits_waiting", "Commits on their way to ZooKeeper", lambda c: c.commits_waiting)
    yield counter("inbound_batches_total", "Batches handed to the processor", lambda c: c.batches_total)
    yield counter("inbound_commits_total", "Commits that landed in ZooKeeper", lambda c: c.commits_total)
    yield counter(
        "inbound_commits_fenced_total",
        "Commits refused because another consumer owned the partition by then",
        lambda c: c.commits_fenced_total,
    )
    yield counter(
        "inbound_zookeeper_transactions_total",
        "Transactions that wrote commits; several commits share one",
        lambda c: c.zk_transactions_total,
    )
    yield _counter(
        "inbound_records_total",
        "Records handed to the processor by this process",
        (
            (labels | dict(zip(("topic", "partition"), key.rsplit("/", 1), strict=True)), count)
            for labels, channel in short
            for key, count in _consumed_of(channel).items()
        ),
    )
    yield from _of_partitions(
        [
            (labels | {"topic": partition.topic, "partition": str(partition.partition)}, partition)
            for labels, channel in channels
            for partition in channel.partitions
        ]
    )


_PARTITION_GAUGES: Sequence[tuple[str, str, Callable[[PartitionStatus], Value]]] = (
    ("owned", "1 for each partition that this process owns", lambda p: 1),
    ("position", "Next offset to hand to the processor", lambda p: p.position),
    ("committed_offset", "Committed offset: the next one to read after a restart", lambda p: p.committed),
    ("high_watermark", "End of the partition's log, as Kafka said last", lambda p: p.high_watermark),
    ("lag", "Records in the log that are not committed yet", lambda p: p.lag),
    ("buffered_bytes", "Bytes of records read ahead", lambda p: p.buffered_bytes),
    ("held", "1 if the partition is not read until somebody acts; /status says why", lambda p: p.held is not None),
    ("in_doubt", "1 while the partition may belong to another already: nothing is handed out", lambda p: p.in_doubt),
    ("attempts", "Failures in a row on the same batch", lambda p: p.attempts),
)


def _of_partitions(partitions: Sequence[tuple[Labels, PartitionStatus]]) -> Iterator[Metric]:
    for name, help_text, value in _PARTITION_GAUGES:
        yield _gauge(f"inbound_partition_{name}", help_text, ((labels, value(p)) for labels, p in partitions))


def _consumed(processes: Sequence[ProcessStatus]) -> Metric:
    """The gauge of Knative's eventing-kafka dispatcher, under its name and labels: its dashboards go on working.

    There `consumer` was the name of the Kafka client, one for each subscription; here it is the consumer id, and with
    it the channel where several channels of a process were given the same one.
    """
    users = Counter(channel.consumer_id for process in processes for channel in process.channels)
    return _gauge(
        "eventing_kafka_consumed_msg_count",
        "Consumed Message Count",
        (
            (
                {
                    "consumer": channel.consumer_id
                    if users[channel.consumer_id] == 1
                    else f"{channel.consumer_id}#{channel.name}",
                    "partition": str(partition.partition),
                    "topic": partition.topic,
                },
                channel.consumed.get(f"{partition.topic}/{partition.partition}", 0),
            )
            for process in processes
            for channel in process.channels
            for partition in channel.partitions
        ),
    )


def _consumed_of(channel: ChannelStatus) -> dict[str, int]:
    """Return the records per `topic/partition`; a partition just claimed is there with 0, so that its rate is known."""
    return {f"{p.topic}/{p.partition}": 0 for p in channel.partitions} | channel.consumed


def _gauge(name: str, help_text: str, samples: Iterable[tuple[Labels, Value]]) -> Metric:
    return _metric(name, help_text, "gauge", name, samples)


def _counter(name: str, help_text: str, samples: Iterable[tuple[Labels, Value]]) -> Metric:
    return _metric(name.removesuffix("_total"), help_text, "counter", name, samples)


def _metric(family: str, help_text: str, kind: str, name: str, samples: Iterable[tuple[Labels, Value]]) -> Metric:
    """Make one metric; a value of None has no series. Labels are shared between metrics: 1,000 partitions have 10,000."""
    metric = Metric(family, help_text, kind)
    for labels, value in samples:
        if value is not None:
            metric.add_sample(name, labels, float(value))
    return metric
