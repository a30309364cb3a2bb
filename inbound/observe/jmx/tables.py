"""The tables list the attributes and operations of each type of bean.

docs/jmx.md is generated from them (`make docs`). An attribute with the value of a metric takes its description, too (`_as`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from inbound.group.operations import Operation, OperationKind
from inbound.observe.jmx.model import (
    BOOLEAN,
    DOUBLE,
    DOUBLE_OR_NULL,
    INT,
    LONG,
    LONG_OR_NULL,
    MAP,
    MAPS,
    STRING,
    STRINGS,
    Attribute,
    BeanOperation,
    BeanTarget,
    BeanType,
    Parameter,
    bad_argument,
)
from inbound.observe.metrics import SECTIONS
from inbound.observe.status.status import (
    ChannelStatus,
    IngressStatus,
    PartitionStatus,
    ProcessStatus,
    ReloadStatus,
    SessionStatus,
    ShippingStatus,
)
from inbound.runtime.instruments import HistogramStatus

S = TypeVar("S")
_METRICS = {metric.name: metric for section in SECTIONS for metric in section.metrics}

_REASON = Parameter("reason", STRING, "why, for readers of the status")
_SECONDS = Parameter("seconds", DOUBLE, "how long this member leaves it to others")


def _counter(name: str, description: str, read: Callable[[S], Any]) -> Attribute[S]:
    return Attribute(name, LONG, description, read, counter=True)


def _as(name: str, java: str, metric: str, of: Callable[[S], Any] = lambda part: part) -> Attribute[S]:
    """Return the attribute of a metric; `of` returns the metric's subject."""
    found = _METRICS[metric]
    return Attribute(name, java, found.help, lambda part: found.read(of(part)), counter=found.kind == "counter")


def _mean(name: str, text: str, metric: str, of: Callable[[S], Any] = lambda part: part) -> Attribute[S]:
    """Return the attribute with a histogram's mean."""
    read = _METRICS[metric].read

    def mean(part: S) -> float | None:
        found = read(of(part))
        return found.sum / found.count if isinstance(found, HistogramStatus) and found.count else None

    return Attribute(name, DOUBLE_OR_NULL, f"Mean time {text} since the start", mean)


def _set_rate(target: BeanTarget, value: Any) -> Operation:
    if value is not None and value <= 0:
        raise bad_argument(f"MaxReadRate: {value:g} is not above 0; null is as fast as it goes")
    return Operation(OperationKind.RATE, target.consumer, per_second=value)


def _release(target: BeanTarget, topic: str | None, partition: int, seconds: float | None = None) -> Operation:
    if not topic or partition < 0:
        raise bad_argument("release: a topic and the number of a partition are needed")
    if seconds is not None and seconds <= 0:
        raise bad_argument(f"release: {seconds:g} seconds is not above 0")
    return Operation(OperationKind.RELEASE, target.consumer, topic=topic, partition=partition, seconds=seconds)


#: In two tables: people look for the rate at the channel, tools at the processor.
_RATE: Attribute[ChannelStatus] = Attribute(
    "MaxReadRate", DOUBLE_OR_NULL,
    "Records per second that the processor takes at most in this process; null: as many as come. It can be written where the "
    "processor paces itself (`simple` does), and holds until the options change or the process ends",
    lambda c: c.max_read_rate, writable=lambda c: c.paced, write=_set_rate,
)  # fmt: skip

RUNTIME: BeanType[ProcessStatus] = BeanType(
    "Runtime", "This process of inbound",
    (
        Attribute("Version", STRING, "Version of inbound", lambda p: p.version),
        Attribute("Pid", LONG, "Process id", lambda p: p.pid),
        Attribute("Host", STRING, "Name of the machine", lambda p: p.host),
        Attribute("StartTime", STRING, "When the process started, ISO 8601", lambda p: p.started),
        Attribute("Stopping", BOOLEAN, "Whether a stop was asked for", lambda p: p.stopping),
        Attribute("Healthy", BOOLEAN, "Whether every internal thread is healthy, as /healthz says",
                  lambda p: p.problem is None and not p.stuck()),
        Attribute("Ready", BOOLEAN, "Whether the process is a member of all its groups, as /readyz says",
                  lambda p: not p.ready()),
        Attribute("Problems", STRINGS, "Why it is not healthy, or not ready", lambda p: [*p.stuck(), *p.ready()]),
        Attribute("ConfigProblem", STRING, "The problem of the current configuration files; null: none",
                  lambda p: p.config_problem),
        Attribute("ThreadCount", INT, "Internal threads that are watched", lambda p: len(p.threads)),
        _counter("ThreadFailures", "Steps of internal threads that raised; any is a defect",
                 lambda p: sum(t.failures for t in p.threads)),
        Attribute("Threads", MAPS, "The internal threads, each with its state",
                  lambda p: [{"Name": t.name, "Alive": t.alive, "LastStepAge": t.last_step_age, "InCallback": t.in_callback,
                              "Failures": t.failures} for t in p.threads]),
    ),
)  # fmt: skip

CONTROLLER: BeanType[SessionStatus] = BeanType(
    "Controller", "The ZooKeeper session of this process, which all its channels share",
    (
        Attribute("State", STRING, "State of the session; `member`: healthy", lambda s: s.state),
        Attribute("SessionId", STRING, "Id of the session, hexadecimal; null: there is none", lambda s: s.id),
        Attribute("SessionTimeout", DOUBLE_OR_NULL, "Seconds after which the servers give the session up", lambda s: s.timeout),
        _as("CertainFor", DOUBLE, "inbound_zookeeper_session_certain_seconds"),
        Attribute("Problem", STRING, "Why there is no connection, or why nodes are refused; null: nothing is wrong",
                  lambda s: s.problem),
        _as("SessionsTotal", LONG, "inbound_zookeeper_sessions_total"),
        _as("SuspensionsTotal", LONG, "inbound_zookeeper_suspensions_total"),
        _as("EvaluationsTotal", LONG, "inbound_evaluations_total"),
    ),
)  # fmt: skip

CHANNEL: BeanType[ChannelStatus] = BeanType(
    "Channel", "One channel: topics of one group, read by this member",
    (
        Attribute("Group", STRING, "The consumer group", lambda c: c.group),
        Attribute("ConsumerId", STRING, "This member's id", lambda c: c.consumer_id),
        Attribute("Coordinator", STRING, "How partitions are assigned, with parameters", lambda c: c.coordinator),
        Attribute("Registered", BOOLEAN, "Whether this process is a member of the group", lambda c: c.registered),
        Attribute("Members", STRINGS, "Consumer ids of the group, as last read", lambda c: c.members),
        Attribute("Topics", MAP, "Topics, and how many partitions each has", lambda c: c.topics),
        _as("Share", INT, "inbound_group_share"),
        Attribute("OwnedPartitions", INT, "Partitions that it owns", lambda c: len(c.partitions)),
        Attribute("Partitions", STRINGS, "The partitions that it owns, as topic/partition",
                  lambda c: [f"{p.topic}/{p.partition}" for p in c.partitions]),
        Attribute("AbandonedPartitions", STRINGS, "Partitions given up whose callback still runs", lambda c: c.abandoned),
        Attribute("LeftToOthers", STRINGS, "Partitions that an operator had it release, and that it leaves to others for a while",
                  lambda c: c.left_to_others),
        Attribute("HeldPartitions", MAP, "Partitions that are not read until an operator acts, and why",
                  lambda c: {f"{p.topic}/{p.partition}": p.held for p in c.partitions if p.held is not None}),
        Attribute("StalledPartitions", MAP, "Partitions that are stalled, and why",
                  lambda c: {f"{p.topic}/{p.partition}": p.cause for p in c.partitions if p.stalled is not None}),
        Attribute("Lag", LONG_OR_NULL, "Records in the logs of owned partitions that are not committed; null: not known yet",
                  lambda c: None if any(p.lag is None for p in c.partitions) else sum(p.lag or 0 for p in c.partitions)),
        _as("BufferedBytes", LONG, "inbound_channel_buffered_bytes"),
        _as("BufferLimitBytes", LONG, "inbound_channel_buffer_limit_bytes"),
        Attribute("Paused", BOOLEAN, "Whether this member is paused: it keeps its partitions and reads nothing",
                  lambda c: bool(c.paused)),
        Attribute("Pauses", STRINGS, "Who pauses it, and why", lambda c: [pause.told(c.name) for pause in c.paused]),
        Attribute("Removed", BOOLEAN, "Whether it was taken out of the configuration and leaves its group", lambda c: c.removed),
        Attribute("Notices", STRINGS, "Notices on the group's shares", lambda c: c.notices),
        Attribute("KafkaProblem", STRING, "Why Kafka does not answer this channel; null: it does", lambda c: c.kafka_problem),
        Attribute("LedgerProblem", STRING, "Why the ledger cannot be written; null: it can", lambda c: c.ledger_problem),
        Attribute("Provable", BOOLEAN, "Whether everything so far is in the ledger", lambda c: c.provable),
        _counter("RecordsTotal", "Records delivered to the processor by this process", lambda c: c.records_total),
        _as("BatchesTotal", LONG, "inbound_batches_total"),
        _as("CommitsTotal", LONG, "inbound_commits_total"),
        _as("CommitsWaiting", INT, "inbound_commits_waiting"),
        _as("CommitsFencedTotal", LONG, "inbound_commits_fenced_total"),
        _as("TransactionsTotal", LONG, "inbound_zookeeper_transactions_total"),
        _counter("RebalancesTotal", "Rebalances that moved a partition of this member",
                 lambda c: sum(c.meters.rebalances.values())),
        _RATE,
    ),
    (
        BeanOperation("pause", "Let the whole group read nothing until it is resumed; partitions are kept",
               lambda t: Operation(OperationKind.PAUSE)),
        BeanOperation("pause", "The same, and say why",
               lambda t, reason: Operation(OperationKind.PAUSE, reason=reason), (_REASON,)),
        BeanOperation("resume", "End the operator's pauses of the group", lambda t: Operation(OperationKind.RESUME)),
        BeanOperation("pauseMember", "Let this member alone read nothing until it is resumed",
               lambda t, reason: Operation(OperationKind.PAUSE, t.consumer, reason), (_REASON,)),
        BeanOperation("resumeMember", "End the operator's pause of this member",
               lambda t: Operation(OperationKind.RESUME, t.consumer)),
        BeanOperation("rebalance", "Let every member of the group look at its share now",
               lambda t: Operation(OperationKind.REBALANCE)),
        BeanOperation("release", "Let this member release a partition gracefully, and leave it to others until the next rebalance",
               _release, (Parameter("topic", STRING, "its topic"), Parameter("partition", INT, "its number"))),
        BeanOperation("release", "The same, and say for how long",
               _release, (Parameter("topic", STRING, "its topic"), Parameter("partition", INT, "its number"), _SECONDS)),
    ),
)  # fmt: skip

PARTITION: BeanType[PartitionStatus] = BeanType(
    "Partition", "One partition that this member owns",
    (
        Attribute("Place", STRING, "Its step in the channel, such as `scheduled` or `running`",
                  lambda p: p.place),
        Attribute("Leaving", BOOLEAN, "Whether it is being released", lambda p: p.leaving),
        Attribute("Epoch", LONG, "The fencing token of this claim", lambda p: p.epoch),
        _as("Position", LONG, "inbound_partition_position"),
        _as("Committed", LONG_OR_NULL, "inbound_partition_committed_offset"),
        Attribute("HighWatermark", LONG_OR_NULL, "End of the log, as Kafka said last", lambda p: p.high_watermark),
        _as("Lag", LONG_OR_NULL, "inbound_partition_lag"),
        _as("BufferedBytes", LONG, "inbound_partition_buffered_bytes"),
        Attribute("Attempts", INT, "Failures in a row on the same batch", lambda p: p.attempts),
        Attribute("Held", STRING, "Why it is not read, and what to do about it; null: it is read", lambda p: p.held),
        Attribute("LastError", STRING, "The last error of the processor on it", lambda p: p.last_error),
        Attribute("LastBatchAt", DOUBLE_OR_NULL, "When the last batch was delivered, Unix time", lambda p: p.last_batch_at),
        Attribute("Cause", STRING, "Its activity, or why it is stalled, as `explain` names it", lambda p: p.cause),
        Attribute("CauseSince", DOUBLE_OR_NULL, "Since when, Unix time", lambda p: p.cause_since),
        Attribute("Stalled", BOOLEAN, "Whether it is stalled: there is something to read, and its rest is not wanted",
                  lambda p: p.stalled is not None),
        Attribute("InDoubt", BOOLEAN, "Whether it may have another owner already: nothing is delivered",
                  lambda p: p.in_doubt),
        Attribute("Paused", BOOLEAN, "Whether nothing is read because of a pause", lambda p: p.paused),
        _counter("RecordsTotal", "Records delivered since this claim", lambda p: p.records_total),
        _counter("BatchesTotal", "Batches delivered since this claim", lambda p: p.batches_total),
        _counter("CommitsTotal", "Commits that landed since this claim", lambda p: p.commits_total),
    ),
    (
        BeanOperation("release", "Let this member release it gracefully, and leave it to others until the next rebalance",
               lambda t: _release(t, t.topic, t.partition)),
        BeanOperation("release", "The same, and say for how long",
               lambda t, seconds: _release(t, t.topic, t.partition, seconds), (_SECONDS,)),
    ),
)  # fmt: skip

PROCESSOR: BeanType[ChannelStatus] = BeanType(
    "Processor", "The processor of the batches of a channel",
    (
        _RATE,
        _counter("RecordsTotal", "Records delivered to it", lambda c: c.records_total),
        _as("BatchesTotal", LONG, "inbound_batches_total"),
        _as("NotSentTotal", LONG, "inbound_not_sent_total"),
        _counter("ExceptionsTotal", "Exceptions that it raised", lambda c: sum(c.meters.exceptions.values())),
        Attribute("Exceptions", MAP, "Exceptions that it raised since the start, by class", lambda c: c.meters.exceptions),
        Attribute("Reverts", MAP, "Reverts since the start, by cause", lambda c: c.meters.reverts),
        _mean("MeanBatchSeconds", "of a batch in on_next_batch", "inbound_batch_duration_seconds"),
        _mean("MeanCommitSeconds", "of a commit", "inbound_commit_duration_seconds"),
        Attribute("Status", MAP, "Its own status", lambda c: c.processor),
    ),
)  # fmt: skip


DISPATCHER: BeanType[Mapping[str, Any]] = BeanType(
    "Dispatcher", "Sends the events of a channel to its subscriber over HTTP",
    (
        Attribute("Subscriber", STRING, "URL of the subscriber, without secrets", lambda said: said.get("subscriber")),
        Attribute("SubscriberProblem", STRING, "Why the subscriber takes nothing; null: it does",
                  lambda said: said.get("subscriber_problem")),
        _as("InFlight", INT, "inbound_dispatch_in_flight"),
        _as("Open", INT, "inbound_dispatch_open"),
        _as("WaitingDeadLetters", INT, "inbound_dispatch_waiting_dead_letters"),
        Attribute("StandingPartitions", MAP, "Partitions that wait for an event that is not taken, and why",
                  lambda said: said.get("partitions", {})),
        _as("DeliveredTotal", LONG, "inbound_dispatch_delivered_total"),
        _as("DeadLetteredTotal", LONG, "inbound_dispatch_dead_lettered_total"),
        _as("DelayedTotal", LONG, "inbound_dispatch_delayed_total"),
        _as("FilteredTotal", LONG, "inbound_dispatch_filtered_total"),
        _as("SkippedTotal", LONG, "inbound_dispatch_skipped_total"),
        _as("UndecodableTotal", LONG, "inbound_dispatch_undecodable_total"),
        _as("RepliedTotal", LONG, "inbound_dispatch_replied_total"),
        _as("RetriesTotal", LONG, "inbound_dispatch_retries_total"),
        Attribute("Answers", MAP, "Requests since the start by the status of the answer; 0: there was no whole answer",
                  lambda said: said.get("answers", {})),
        _mean("MeanRequestSeconds", "of a request to the subscriber", "inbound_dispatch_request_duration_seconds"),
        _mean("MeanEventSeconds", "from an event's record, by its timestamp, until the subscriber took it,",
              "inbound_dispatch_event_duration_seconds"),
    ),
)  # fmt: skip

INGRESS: BeanType[IngressStatus] = BeanType(
    "Ingress", "The HTTP listener that receives events",
    (
        Attribute("Url", STRING, "Where it listens", lambda i: i.url),
        Attribute("Client", STRING, "Its Kafka client", lambda i: i.client),
        Attribute("KafkaProblem", STRING, "Why Kafka cannot be written to; null: it can", lambda i: i.away),
        Attribute("Topics", INT, "Topics that exist, as last read", lambda i: i.topics),
        _as("Connections", INT, "inbound_ingress_connections"),
        _as("InFlightEvents", INT, "inbound_ingress_in_flight_events"),
        _as("InFlightRequests", INT, "inbound_ingress_in_flight_requests"),
        _as("InFlightBytes", LONG, "inbound_ingress_in_flight_bytes"),
        _mean("MeanRequestSeconds", "from the last byte of a request to its answer", "inbound_ingress_request_duration_seconds"),
        Attribute("Draining", BOOLEAN, "Whether it is stopping, and takes nothing new", lambda i: i.draining),
        _as("AcceptedEventsTotal", LONG, "inbound_ingress_accepted_events_total"),
        _as("WrittenEventsTotal", LONG, "inbound_ingress_written_events_total"),
        _as("FailedEventsTotal", LONG, "inbound_ingress_failed_events_total"),
        _as("ReceivedBytesTotal", LONG, "inbound_ingress_received_bytes_total"),
        _as("HeadersLeftOutTotal", LONG, "inbound_ingress_headers_left_out_total"),
        _as("RefusedConnectionsTotal", LONG, "inbound_ingress_refused_connections_total"),
        Attribute("Answers", MAP, "Requests since the start by the status of their answer", lambda i: i.answers),
    ),
)  # fmt: skip

LEDGER: BeanType[ChannelStatus] = BeanType(
    "Ledger", "The ledger of the batches of a channel",
    (
        Attribute("Problem", STRING, "Why it cannot be written; null: it can", lambda c: c.ledger_problem),
        Attribute("Provable", BOOLEAN, "Whether everything so far is in it", lambda c: c.provable),
        _as("EntriesTotal", LONG, "inbound_ledger_entries_total", lambda c: c.ledger),
        _as("BytesTotal", LONG, "inbound_ledger_written_bytes_total", lambda c: c.ledger),
        _as("FailuresTotal", LONG, "inbound_ledger_failures_total", lambda c: c.ledger),
        _mean("MeanSyncSeconds", "until entries survive a power cut,", "inbound_ledger_sync_duration_seconds", lambda c: c.ledger),
    ),
)  # fmt: skip

CONFIGURATION: BeanType[ReloadStatus] = BeanType(
    "Configuration", "The running configuration, and the outcome of its changes",
    (
        Attribute("Digest", STRING, "Digest of the files that the running configuration was read from", lambda r: r.digest),
        Attribute("Problem", STRING, "Why the current files are not what runs; null: they are", lambda r: r.problem),
        Attribute("UnderWay", BOOLEAN, "Whether a change is being applied", lambda r: r.under_way),
        Attribute("Watching", BOOLEAN, "Whether the folders are watched; else they are polled",
                  lambda r: r.watching),
        Attribute("LastOutcome", STRING, "Outcome of the last change: applied, refused, rolled-back", lambda r: r.last_outcome),
        Attribute("LastAt", DOUBLE_OR_NULL, "Unix time of the last change", lambda r: r.last_at),
        Attribute("LastSteps", STRINGS, "What was done", lambda r: r.last_steps),
        _counter("AppliedTotal", "Changes that were applied", lambda r: r.applied_total),
        _counter("RefusedTotal", "Changes that were refused", lambda r: r.refused_total),
        _counter("RolledBackTotal", "Changes that did not start, and were rolled back",
                 lambda r: r.rolled_back_total),
    ),
)  # fmt: skip

SHIPPING: BeanType[ShippingStatus] = BeanType(
    "LedgerShipping", "The ledger's files on their way to a URI",
    (
        Attribute("Target", STRING, "Where they go", lambda s: s.target),
        _as("FilesWaiting", INT, "inbound_ledger_spool_files"),
        _as("BytesWaiting", LONG, "inbound_ledger_spool_bytes"),
        Attribute("Problem", STRING, "Why files wait; null: they don't", lambda s: s.problem),
        _as("FilesTotal", LONG, "inbound_ledger_shipped_files_total"),
        _as("FailuresTotal", LONG, "inbound_ledger_shipping_failures_total"),
    ),
)  # fmt: skip

#: Every type of bean, with the keys of its names besides `type`.
KINDS: tuple[tuple[BeanType[Any], tuple[str, ...]], ...] = (
    (RUNTIME, ()),
    (CONTROLLER, ()),
    (CHANNEL, ("name",)),
    (PARTITION, ("channel", "topic", "partition")),
    (PROCESSOR, ("channel",)),
    (DISPATCHER, ("channel",)),
    (LEDGER, ("channel",)),
    (CONFIGURATION, ()),
    (INGRESS, ()),
    (SHIPPING, ()),
)
