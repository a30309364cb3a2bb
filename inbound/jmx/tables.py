"""The beans' attributes and operations: one table for each `type`. docs/jmx.md is made of them (`make docs`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from inbound.instruments import HistogramStatus, histogram_status
from inbound.jmx.model import (
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
    Action,
    Attribute,
    Kind,
    Parameter,
    Target,
    bad_argument,
)
from inbound.operations import Operation, Verb
from inbound.status import (
    ChannelStatus,
    IngressStatus,
    PartitionStatus,
    ProcessStatus,
    ReloadStatus,
    SessionStatus,
    ShippingStatus,
)

S = TypeVar("S")

_REASON = Parameter("reason", STRING, "why, for whoever looks at the status")
_SECONDS = Parameter("seconds", DOUBLE, "how long this member leaves it to others")


def _counter(name: str, description: str, read: Callable[[S], Any]) -> Attribute[S]:
    return Attribute(name, LONG, description, read, counter=True)


def _mean(found: HistogramStatus | None) -> float | None:
    return found.sum / found.count if found is not None and found.count else None


def _set_rate(target: Target, value: Any) -> Operation:
    if value is not None and value <= 0:
        raise bad_argument(f"MaxReadRate: {value:g} is not above 0; null is as fast as it goes")
    return Operation(Verb.RATE, target.consumer, per_second=value)


def _release(target: Target, topic: str | None, partition: int, seconds: float | None = None) -> Operation:
    if not topic or partition < 0:
        raise bad_argument("release: a topic and the number of a partition are needed")
    if seconds is not None and seconds <= 0:
        raise bad_argument(f"release: {seconds:g} seconds is not above 0")
    return Operation(Verb.RELEASE, target.consumer, topic=topic, partition=partition, seconds=seconds)


#: The rate stands in two tables: people look for it at the channel, tools at the processor.
_RATE: Attribute[ChannelStatus] = Attribute(
    "MaxReadRate", DOUBLE_OR_NULL,
    "Records per second that the processor takes at most in this process; null: as many as come. It can be written where the "
    "processor paces itself (`simple` does), and holds until the options change or the process ends",
    lambda c: c.max_read_rate, writable=lambda c: c.paced, write=_set_rate,
)  # fmt: skip

RUNTIME: Kind[ProcessStatus] = Kind(
    "Runtime", "This process of inbound",
    (
        Attribute("Version", STRING, "Version of inbound", lambda p: p.version),
        Attribute("Pid", LONG, "Process id", lambda p: p.pid),
        Attribute("Host", STRING, "Name of the machine", lambda p: p.host),
        Attribute("StartTime", STRING, "When the process started, ISO 8601", lambda p: p.started),
        Attribute("Stopping", BOOLEAN, "Whether a stop was asked for", lambda p: p.stopping),
        Attribute("Healthy", BOOLEAN, "Whether every internal thread is well, as /healthz says",
                  lambda p: p.problem is None and not p.stuck()),
        Attribute("Ready", BOOLEAN, "Whether the process is a member of all its groups, as /readyz says",
                  lambda p: not p.ready()),
        Attribute("Problems", STRINGS, "What keeps it from being healthy and ready", lambda p: [*p.stuck(), *p.ready()]),
        Attribute("ConfigProblem", STRING, "What is wrong with the configuration as it is now; null: nothing",
                  lambda p: p.config_problem),
        Attribute("ThreadCount", INT, "Internal threads that are watched", lambda p: len(p.threads)),
        _counter("ThreadFailures", "Steps of internal threads that raised; any is a defect",
                 lambda p: sum(t.failures for t in p.threads)),
        Attribute("Threads", MAPS, "The internal threads, each with its state",
                  lambda p: [{"Name": t.name, "Alive": t.alive, "LastStepAge": t.last_step_age, "InCallback": t.in_callback,
                              "Failures": t.failures} for t in p.threads]),
    ),
)  # fmt: skip

CONTROLLER: Kind[SessionStatus] = Kind(
    "Controller", "The ZooKeeper session of this process, which all its channels share",
    (
        Attribute("State", STRING, "State of the session; `member`: all is well", lambda s: s.state),
        Attribute("SessionId", STRING, "Id of the session, hexadecimal; null: there is none", lambda s: s.id),
        Attribute("SessionTimeout", DOUBLE_OR_NULL, "Seconds after which the servers give the session up", lambda s: s.timeout),
        Attribute("CertainFor", DOUBLE,
                  "Seconds for which the session surely lives on without another answer; 0: what is owned is in doubt",
                  lambda s: s.certain_for),
        Attribute("Problem", STRING, "Why there is no connection, or why nodes are refused; null: nothing is wrong",
                  lambda s: s.problem),
        _counter("SessionsTotal", "Sessions that this process has had; more than 1: one expired",
                 lambda s: s.sessions_total),
        _counter("SuspensionsTotal", "Times that the connection was lost", lambda s: s.suspensions_total),
        _counter("EvaluationsTotal", "Times that the controller looked at who owns what",
                 lambda s: s.evaluations_total),
    ),
)  # fmt: skip

CHANNEL: Kind[ChannelStatus] = Kind(
    "Channel", "One channel: topics of one group, read by this member",
    (
        Attribute("Group", STRING, "The consumer group", lambda c: c.group),
        Attribute("ConsumerId", STRING, "This member's id", lambda c: c.consumer_id),
        Attribute("Coordinator", STRING, "How partitions are shared out, with parameters", lambda c: c.coordinator),
        Attribute("Registered", BOOLEAN, "Whether this process is a member of the group", lambda c: c.registered),
        Attribute("Members", STRINGS, "Consumer ids of the group, as last read", lambda c: c.members),
        Attribute("Topics", MAP, "Topics, and how many partitions each has", lambda c: c.topics),
        Attribute("Share", INT, "Partitions that this member should own", lambda c: c.share),
        Attribute("OwnedPartitions", INT, "Partitions that it owns", lambda c: len(c.partitions)),
        Attribute("Partitions", STRINGS, "The partitions that it owns, as topic/partition",
                  lambda c: [f"{p.topic}/{p.partition}" for p in c.partitions]),
        Attribute("AbandonedPartitions", STRINGS, "Partitions given up whose callback still runs", lambda c: c.abandoned),
        Attribute("LeftToOthers", STRINGS, "Partitions that an operator had it release, and that it leaves to others for a while",
                  lambda c: c.left_to_others),
        Attribute("HeldPartitions", MAP, "Partitions that are not read until somebody acts, and why",
                  lambda c: {f"{p.topic}/{p.partition}": p.held for p in c.partitions if p.held is not None}),
        Attribute("StalledPartitions", MAP, "Partitions that stand still although there is something to read, and why",
                  lambda c: {f"{p.topic}/{p.partition}": p.cause for p in c.partitions if p.stalled is not None}),
        Attribute("Lag", LONG_OR_NULL, "Records in the logs of owned partitions that are not committed; null: not known yet",
                  lambda c: None if any(p.lag is None for p in c.partitions) else sum(p.lag or 0 for p in c.partitions)),
        Attribute("BufferedBytes", LONG, "Bytes of records read ahead", lambda c: sum(p.buffered_bytes for p in c.partitions)),
        Attribute("BufferLimitBytes", LONG, "Bytes of records that may be read ahead", lambda c: c.buffer_limit_bytes),
        Attribute("Paused", BOOLEAN, "Whether this member is paused: it keeps its partitions and reads nothing",
                  lambda c: bool(c.paused)),
        Attribute("Pauses", STRINGS, "Who pauses it, and why", lambda c: [pause.told(c.name) for pause in c.paused]),
        Attribute("Removed", BOOLEAN, "Whether it was taken out of the configuration and leaves its group", lambda c: c.removed),
        Attribute("Notices", STRINGS, "What people should know of the group's shares", lambda c: c.notices),
        Attribute("KafkaProblem", STRING, "Why Kafka does not answer this channel; null: it does", lambda c: c.kafka_problem),
        Attribute("LedgerProblem", STRING, "Why the ledger cannot be written; null: it can", lambda c: c.ledger_problem),
        Attribute("Provable", BOOLEAN, "Whether everything so far is in the ledger", lambda c: c.provable),
        _counter("RecordsTotal", "Records handed to the processor by this process", lambda c: c.records_total),
        _counter("BatchesTotal", "Batches handed to the processor", lambda c: c.batches_total),
        _counter("CommitsTotal", "Commits that landed in ZooKeeper", lambda c: c.commits_total),
        Attribute("CommitsWaiting", INT, "Commits on their way to ZooKeeper", lambda c: c.commits_waiting),
        _counter("CommitsFencedTotal", "Commits refused because another consumer owned the partition by then",
                 lambda c: c.commits_fenced_total),
        _counter("TransactionsTotal", "ZooKeeper transactions that wrote commits", lambda c: c.zk_transactions_total),
        _counter("RebalancesTotal", "Rebalances that moved a partition of this member",
                 lambda c: sum(c.meters.rebalances.values())),
        _RATE,
    ),
    (
        Action("pause", "Let the whole group read nothing until it is resumed; partitions are kept",
               lambda t: Operation(Verb.PAUSE)),
        Action("pause", "The same, and say why", lambda t, reason: Operation(Verb.PAUSE, reason=reason), (_REASON,)),
        Action("resume", "End the operator's pauses of the group", lambda t: Operation(Verb.RESUME)),
        Action("pauseMember", "Let this member alone read nothing until it is resumed",
               lambda t, reason: Operation(Verb.PAUSE, t.consumer, reason), (_REASON,)),
        Action("resumeMember", "End the operator's pause of this member",
               lambda t: Operation(Verb.RESUME, t.consumer)),
        Action("rebalance", "Let every member of the group look at its share now", lambda t: Operation(Verb.REBALANCE)),
        Action("release", "Let this member give a partition up in good order, and leave it to others until the next rebalance",
               _release, (Parameter("topic", STRING, "its topic"), Parameter("partition", INT, "its number"))),
        Action("release", "The same, and say for how long",
               _release, (Parameter("topic", STRING, "its topic"), Parameter("partition", INT, "its number"), _SECONDS)),
    ),
)  # fmt: skip

PARTITION: Kind[PartitionStatus] = Kind(
    "Partition", "One partition that this member owns",
    (
        Attribute("Place", STRING, "Where it is on its way through the channel, such as `scheduled` or `running`",
                  lambda p: p.place),
        Attribute("Leaving", BOOLEAN, "Whether it is being given up", lambda p: p.leaving),
        Attribute("Epoch", LONG, "The fencing token of this claim", lambda p: p.epoch),
        Attribute("Position", LONG, "Next offset to hand to the processor", lambda p: p.position),
        Attribute("Committed", LONG_OR_NULL, "Committed offset: the next one to read after a restart", lambda p: p.committed),
        Attribute("HighWatermark", LONG_OR_NULL, "End of the log, as Kafka said last", lambda p: p.high_watermark),
        Attribute("Lag", LONG_OR_NULL, "Records in the log that are not committed yet", lambda p: p.lag),
        Attribute("BufferedBytes", LONG, "Bytes of records read ahead", lambda p: p.buffered_bytes),
        Attribute("Attempts", INT, "Failures in a row on the same batch", lambda p: p.attempts),
        Attribute("Held", STRING, "Why it is not read, and what to do about it; null: it is read", lambda p: p.held),
        Attribute("LastError", STRING, "The last error of the processor on it", lambda p: p.last_error),
        Attribute("LastBatchAt", DOUBLE_OR_NULL, "When the last batch was handed over, Unix time", lambda p: p.last_batch_at),
        Attribute("Cause", STRING, "What it does, or why it stands still, as `explain` names it", lambda p: p.cause),
        Attribute("CauseSince", DOUBLE_OR_NULL, "Since when, Unix time", lambda p: p.cause_since),
        Attribute("Stalled", BOOLEAN, "Whether it stands still although there is something to read, and nobody wants it so",
                  lambda p: p.stalled is not None),
        Attribute("InDoubt", BOOLEAN, "Whether it may belong to another already: nothing is handed out",
                  lambda p: p.in_doubt),
        Attribute("Paused", BOOLEAN, "Whether nothing is read because of a pause", lambda p: p.paused),
        _counter("RecordsTotal", "Records handed out since this claim", lambda p: p.records_total),
        _counter("BatchesTotal", "Batches handed out since this claim", lambda p: p.batches_total),
        _counter("CommitsTotal", "Commits that landed since this claim", lambda p: p.commits_total),
    ),
    (
        Action("release", "Let this member give it up in good order, and leave it to others until the next rebalance",
               lambda t: _release(t, t.topic, t.partition)),
        Action("release", "The same, and say for how long",
               lambda t, seconds: _release(t, t.topic, t.partition, seconds), (_SECONDS,)),
    ),
)  # fmt: skip

PROCESSOR: Kind[ChannelStatus] = Kind(
    "Processor", "What handles the batches of a channel",
    (
        _RATE,
        _counter("RecordsTotal", "Records handed to it", lambda c: c.records_total),
        _counter("BatchesTotal", "Batches handed to it", lambda c: c.batches_total),
        _counter("NotSentTotal", "Records that were committed and then not taken by a sink (no_duplication)",
                 lambda c: c.not_sent_total),
        _counter("ExceptionsTotal", "Exceptions that it raised", lambda c: sum(c.meters.exceptions.values())),
        Attribute("Exceptions", MAP, "Exceptions that it raised since the start, by class", lambda c: c.meters.exceptions),
        Attribute("Reverts", MAP, "Times since the start that reading went back, by cause", lambda c: c.meters.reverts),
        Attribute("MeanBatchSeconds", DOUBLE_OR_NULL, "Mean time of a batch in on_next_batch since the start",
                  lambda c: _mean(c.meters.batch_seconds)),
        Attribute("MeanCommitSeconds", DOUBLE_OR_NULL, "Mean time of a commit since the start",
                  lambda c: _mean(c.meters.commit_seconds)),
        Attribute("Status", MAP, "What it says of itself", lambda c: c.processor),
    ),
)  # fmt: skip


def _said(name: str, default: Any = 0) -> Any:
    return lambda c: c.processor.get(name, default)


def _said_mean(name: str) -> Callable[[ChannelStatus], float | None]:
    return lambda c: _mean(histogram_status(c.processor.get(name)))


DISPATCHER: Kind[ChannelStatus] = Kind(
    "Dispatcher", "What sends the events of a channel to its subscriber over HTTP",
    (
        Attribute("Subscriber", STRING, "Who gets the events, without secrets of the URL", _said("subscriber", None)),
        Attribute("SubscriberProblem", STRING, "Why the subscriber takes nothing; null: it does",
                  _said("subscriber_problem", None)),
        Attribute("InFlight", INT, "Requests under way", _said("in_flight")),
        Attribute("Open", INT, "Events handed out that are not finished, or stand behind one that is not", _said("open")),
        Attribute("WaitingDeadLetters", INT, "Events that the dead letter sink does not take", _said("waiting_dead_letters")),
        Attribute("StandingPartitions", MAP, "Partitions that wait for an event that is not taken, and why",
                  _said("partitions", {})),
        _counter("DeliveredTotal", "Events that the subscriber took", _said("delivered_total")),
        _counter("DeadLetteredTotal", "Events that the dead letter sink took", _said("dead_lettered_total")),
        _counter("DelayedTotal", "Events that a retry topic took", _said("delayed_total")),
        _counter("FilteredTotal", "Events that the subscription's filters left out", _said("filtered_total")),
        _counter("SkippedTotal", "Records passed over because they are no CloudEvents", _said("skipped_total")),
        _counter("UndecodableTotal", "Records that are no CloudEvents", _said("undecodable_total")),
        _counter("RepliedTotal", "Events of answers that the reply's receiver took", _said("replied_total")),
        _counter("RetriesTotal", "Requests that were sent again", _said("retries_total")),
        Attribute("Answers", MAP, "Requests since the start by the status of the answer; 0: there was no whole answer",
                  _said("answers", {})),
        Attribute("MeanRequestSeconds", DOUBLE_OR_NULL, "Mean time of a request to the subscriber since the start",
                  _said_mean("request_seconds")),
        Attribute("MeanEventSeconds", DOUBLE_OR_NULL,
                  "Mean time since the start from an event's record, by its timestamp, until the subscriber took it",
                  _said_mean("event_seconds")),
    ),
)  # fmt: skip

INGRESS: Kind[IngressStatus] = Kind(
    "Ingress", "The HTTP listener that takes events in",
    (
        Attribute("Url", STRING, "Where it listens", lambda i: i.url),
        Attribute("Client", STRING, "What it writes to Kafka with", lambda i: i.client),
        Attribute("KafkaProblem", STRING, "Why Kafka cannot be written to; null: it can", lambda i: i.away),
        Attribute("Topics", INT, "Topics that exist, as last read", lambda i: i.topics),
        Attribute("Connections", INT, "Clients that are connected", lambda i: i.connections),
        Attribute("InFlightEvents", INT, "Events on their way to Kafka", lambda i: i.in_flight_events),
        Attribute("InFlightRequests", INT, "Requests that have come whole and are not answered yet",
                  lambda i: i.in_flight_requests),
        Attribute("InFlightBytes", LONG, "Bytes of bodies that are not answered yet", lambda i: i.in_flight_bytes),
        Attribute("MeanRequestSeconds", DOUBLE_OR_NULL, "Mean time from the last byte of a request to its answer since the start",
                  lambda i: _mean(i.request_seconds)),
        Attribute("Draining", BOOLEAN, "Whether it stops, and takes nothing new", lambda i: i.draining),
        _counter("AcceptedEventsTotal", "Events that Kafka has, and whose request was answered with 202",
                 lambda i: i.accepted_events_total),
        _counter("WrittenEventsTotal", "Events that Kafka has acknowledged", lambda i: i.written_events_total),
        _counter("FailedEventsTotal", "Events that Kafka did not acknowledge", lambda i: i.failed_events_total),
        _counter("ReceivedBytesTotal", "Bytes of requests' bodies", lambda i: i.received_bytes_total),
        _counter("HeadersLeftOutTotal", "Headers of requests that should have gone on into records, and had no room",
                 lambda i: i.headers_left_out_total),
        _counter("RefusedConnectionsTotal", "Connections closed because there were too many",
                 lambda i: i.connections_refused_total),
        Attribute("Answers", MAP, "Requests since the start by the status of their answer", lambda i: i.answers),
    ),
)  # fmt: skip

LEDGER: Kind[ChannelStatus] = Kind(
    "Ledger", "What records what is done with the batches of a channel",
    (
        Attribute("Problem", STRING, "Why it cannot be written; null: it can", lambda c: c.ledger_problem),
        Attribute("Provable", BOOLEAN, "Whether everything so far is in it", lambda c: c.provable),
        _counter("EntriesTotal", "Entries written", lambda c: c.ledger.entries_total if c.ledger else 0),
        _counter("BytesTotal", "Bytes written", lambda c: c.ledger.bytes_total if c.ledger else 0),
        _counter("FailuresTotal", "Entries that could not be written at a try",
                 lambda c: c.ledger.failures_total if c.ledger else 0),
        Attribute("MeanSyncSeconds", DOUBLE_OR_NULL, "Mean time since the start until what must survive a power cut does",
                  lambda c: _mean(c.ledger.sync_seconds) if c.ledger else None),
    ),
)  # fmt: skip

CONFIGURATION: Kind[ReloadStatus] = Kind(
    "Configuration", "The configuration that runs, and what became of changes of it",
    (
        Attribute("Digest", STRING, "Stands for the files that what runs was read from", lambda r: r.digest),
        Attribute("Problem", STRING, "Why the files as they are now are not what runs; null: they are", lambda r: r.problem),
        Attribute("UnderWay", BOOLEAN, "Whether a change is being applied", lambda r: r.under_way),
        Attribute("Watching", BOOLEAN, "Whether the folders are watched; else they are looked at now and then only",
                  lambda r: r.watching),
        Attribute("LastOutcome", STRING, "What became of the last change: applied, refused, rolled-back", lambda r: r.last_outcome),
        Attribute("LastAt", DOUBLE_OR_NULL, "When that was, Unix time", lambda r: r.last_at),
        Attribute("LastSteps", STRINGS, "What was done", lambda r: r.last_steps),
        _counter("AppliedTotal", "Changes that were applied", lambda r: r.applied_total),
        _counter("RefusedTotal", "Changes that could not be used", lambda r: r.refused_total),
        _counter("RolledBackTotal", "Changes that did not start, so that what ran before runs again",
                 lambda r: r.rolled_back_total),
    ),
)  # fmt: skip

SHIPPING: Kind[ShippingStatus] = Kind(
    "LedgerShipping", "The ledger's files on their way to a URI",
    (
        Attribute("Target", STRING, "Where they go", lambda s: s.target),
        Attribute("FilesWaiting", INT, "Files that are ended and not shipped", lambda s: s.files_waiting),
        Attribute("BytesWaiting", LONG, "Bytes of these", lambda s: s.bytes_waiting),
        Attribute("Problem", STRING, "Why files wait; null: they don't", lambda s: s.problem),
        _counter("FilesTotal", "Files that were shipped", lambda s: s.files_total),
        _counter("FailuresTotal", "Files that could not be shipped at a try", lambda s: s.failures_total),
    ),
)  # fmt: skip

#: Every type of bean, with the keys of its names besides `type`.
KINDS: tuple[tuple[Kind[Any], tuple[str, ...]], ...] = (
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
