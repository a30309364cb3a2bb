"""What a running process says of itself: one snapshot, from which `/status`, `/metrics` and `inbound status` are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from inbound.coordinators.pauses import Pause
from inbound.coordinators.subscriber_status import SubscriberStatus
from inbound.driver import Driver
from inbound.instruments import HistogramStatus
from inbound.kafka.broker_figures import BrokerFigures
from inbound.kafka.mirror_base import MirrorStatus
from inbound.ledger.base import LedgerStatus
from inbound.meters import MetersStatus
from inbound.offsets.status import OffsetsStatus
from inbound.reset_details import ResetDetail


@dataclass(frozen=True, kw_only=True)
class PartitionStatus:
    """One held partition."""

    topic: str
    partition: int
    place: str  # see `inbound.channel.partition.Place`
    leaving: bool
    epoch: int
    position: int  # next offset to hand out
    committed: int | None
    high_watermark: int | None
    lag: int | None  # records in the log that are not committed yet; None while the log's end is not known
    buffered_bytes: int
    records_total: int  # handed out by this process since it claimed the partition
    batches_total: int
    commits_total: int
    attempts: int  # failures in a row
    held: str | None  # why it is not read, and what to do about it
    last_error: str | None
    last_batch_at: float | None  # Unix time
    in_doubt: bool  # owned as far as we know, but the session may have expired
    paused: bool = False  # nothing is read: see `ChannelStatus.paused`
    cause: str = "starting"  # what it does, or why it stands still: see `inbound.explain.cause.Cause`
    cause_since: float | None = None  # Unix time
    #: `cause` and `since` (Unix time) while it stands still although there is something to read, and nobody wants it so.
    stalled: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class ResetStatus:
    """A reset of offsets because of which a topic's partitions stand still."""

    name: str
    topic: str
    step: str  # how far it has come: see `inbound.controller.reset_offset.states.State`; empty: not known
    since: float  # Unix time at which it closed the gate; 0: not known


@dataclass(frozen=True, kw_only=True)
class ManifestStatus:
    """What became of one ResetOffset manifest of the configuration."""

    name: str  # namespace/name
    where: str  # file and line
    reset: str | None = None  # the name of its reset
    state: str = (
        ""  # as that says: see `inbound.controller.reset_offset.states.State`; `gone`: it has been cleared away
    )
    message: str = ""  # what it waits for, or how it has ended
    problem: str | None = None  # why it does nothing
    finished: bool = False


@dataclass(frozen=True, kw_only=True)
class RefusedManifestStatus:
    """What of the manifests cannot be used: a file, an object, or one subscriber. Everything else goes on."""

    kind: str | None  # None: the file, or a document of it, cannot be read
    namespace: str | None
    name: str | None
    subscriber: str | None  # its uid, or where it stands; None: the whole object
    file: str
    where: str  # file and line
    problem: str  # a line for each
    kept: list[str] = field(default_factory=list)  # channels that go on as they were

    @property
    def subject(self) -> str:
        """What it is, for people."""
        subscriber = f", subscriber {self.subscriber}" if self.subscriber is not None else ""
        return f"{self.kind} {self.namespace}/{self.name}{subscriber}" if self.kind and self.name else self.file


@dataclass(frozen=True, kw_only=True)
class ChannelStatus:
    """One channel."""

    name: str
    group: str
    consumer_id: str
    coordinator: str  # kind and parameters, for people
    registered: bool  # our id node stands: what `/readyz` asks
    topics: dict[str, int]  # name: number of partitions, as the brokers say
    members: list[str]  # consumer ids of the group, as last read
    share: int  # partitions we should own
    partitions: list[PartitionStatus]
    abandoned: list[str]  # partitions given up whose callback still runs
    records_total: int  # over all partitions ever held by this process
    batches_total: int
    commits_total: int
    commits_waiting: int
    commits_fenced_total: int
    not_sent_total: int = 0  # records that the processor committed and then did not deliver
    processor: dict[str, Any] = field(default_factory=dict)  # what the processor says of itself
    zk_transactions_total: int
    #: "topic/partition": records handed out by this process, also of partitions that it holds no more
    consumed: dict[str, int] = field(default_factory=dict)
    kafka_problem: str | None
    ledger_problem: str | None
    provable: bool  # everything so far is in the ledger
    #: What people should know of the group's shares; see `inbound.coordinators.base.Plan`.
    notices: list[str] = field(default_factory=list)
    #: "topic/partition": why its nodes in ZooKeeper cannot be used, so that it is not claimed, or not checked.
    bad_nodes: dict[str, str] = field(default_factory=dict)
    #: The pauses because of which this member reads nothing; it goes on when none is left.
    paused: list[Pause] = field(default_factory=list)
    #: The resets that keep its partitions from being read; what operators ask for meanwhile takes effect when they are over.
    resets: list[ResetStatus] = field(default_factory=list)
    #: The condition of the subscription that the channel serves; None: it serves none.
    subscriber: SubscriberStatus | None = None
    #: It was taken out of the configuration, and leaves its group; the process goes on.
    removed: bool = False
    #: Records per second that the processor takes at most; None: no bound. And whether it can be set while it runs.
    max_read_rate: float | None = None
    paced: bool = False
    #: "topic/partition" of what an operator had this member release, and what it does not take again for a while.
    left_to_others: list[str] = field(default_factory=list)
    buffer_limit_bytes: int = 0  # of records read ahead, over all partitions
    meters: MetersStatus = field(default_factory=MetersStatus)
    ledger: LedgerStatus | None = None  # None: there is none that counts what it writes
    mirror: MirrorStatus | None = None  # None: offsets go to ZooKeeper only
    brokers: list[BrokerFigures] = field(default_factory=list)  # what the consumer measures of its requests to each


@dataclass(frozen=True, kw_only=True)
class SessionStatus:
    """The ZooKeeper session."""

    state: str  # see `inbound.controller.session.State`
    id: str | None  # hexadecimal
    timeout: float | None  # seconds, negotiated
    certain_for: float  # seconds until it counts as in doubt; 0 when it does
    sessions_total: int
    evaluations_total: int
    problem: str | None = None  # why there is no connection, or why nodes are refused, and what to do
    suspensions_total: int = 0  # times that the connection to ZooKeeper was lost


@dataclass(frozen=True, kw_only=True)
class ThreadStatus:
    """One internal thread."""

    name: str
    alive: bool
    last_step_age: float  # seconds since it last came back; workers inside a callback do not count as stuck
    failures: int  # steps that raised: defects of inbound
    in_callback: bool = False

    @classmethod
    def of(cls, driver: Driver, now: float, *, in_callback: bool = False) -> ThreadStatus:
        """Return the state of a driver's thread at clock time `now`. Any thread."""
        return cls(
            name=driver.name,
            alive=driver.thread.is_alive(),
            last_step_age=max(0.0, now - driver.last_step),
            failures=driver.failures,
            in_callback=in_callback,
        )


@dataclass(frozen=True, kw_only=True)
class IngressStatus:
    """The HTTP listener that takes events in."""

    url: str
    client: str  # what it writes with
    away: str | None  # why Kafka cannot be written to
    topics: int  # that exist, as last read
    connections: int
    connections_refused_total: int
    answers: dict[str, int]  # requests by the status of their answer
    accepted_events_total: int  # acknowledged by Kafka, and their request answered with 202
    written_events_total: int  # acknowledged by Kafka
    failed_events_total: int  # not acknowledged; answered with an error
    received_bytes_total: int  # of requests' bodies
    in_flight_bytes: int
    in_flight_events: int
    draining: bool
    #: Topics that do not acknowledge, although Kafka answers, and what was said of it: their events are refused.
    doubted: dict[str, str] = field(default_factory=dict)
    in_flight_requests: int = 0  # complete, and not answered
    request_seconds: HistogramStatus | None = None  # from the last byte of a request to its answer
    headers_left_out_total: int = 0  # that should have gone on into records, and were too many or too large
    produced: dict[str, int] = field(default_factory=dict)  # events that Kafka has acknowledged, by "topic/partition"
    brokers: list[BrokerFigures] = field(default_factory=list)  # what the producer measures of its requests to each


@dataclass(frozen=True, kw_only=True)
class ShippingStatus:
    """The ledger's files on their way to a URI."""

    target: str
    files_waiting: int  # ended and not shipped, after the last look
    bytes_waiting: int
    files_total: int  # shipped since the start
    failures_total: int
    problem: str | None  # why files wait; None: they don't


@dataclass(frozen=True, kw_only=True)
class ReloadStatus:
    """What became of changes of the configuration while the process runs."""

    digest: str  # of what runs: the first 12 hexadecimal digits of a SHA-256 over the files that it was read from
    applied_total: int = 0
    refused_total: int = 0  # cannot be used; nothing of it was
    rolled_back_total: int = 0  # could be read but did not start; what ran before runs again
    last_outcome: str | None = None  # applied, refused, rolled-back; None: nothing has changed yet
    last_at: float | None = None  # Unix time
    last_steps: list[str] = field(default_factory=list)  # what was done, in words: `orders: edit (workers)`
    problem: str | None = None  # why the files as they are now are not what runs; a line for each
    under_way: bool = False  # steps are being taken: channels leave, or come
    watching: bool = False  # the folders are watched; else they are looked at now and then only


@dataclass(frozen=True, kw_only=True)
class TracingStatus:
    """What becomes of the spans that this process makes."""

    backend: str  # otlp or zipkin
    endpoint: str  # without what may be secret in it
    sample_rate: float  # of the traces that begin here
    sent_total: int = 0  # taken by the collector, since these settings count
    dropped_total: int = 0  # too many waited, the collector refused them, or they ended after other settings came
    waiting: int = 0  # ended, and not sent yet
    problem: str | None = None  # why none can be sent


@dataclass(frozen=True, kw_only=True)
class ResetsStatus:
    """Resets of offsets, of whatever group, as far as this process has to do with them."""

    unfinished: int = 0  # known, and not ended; every process counts them
    ended_total: dict[str, int] = field(default_factory=dict)  # led to their end by this process: succeeded, ...
    last_seconds: dict[str, float] = field(default_factory=dict)  # from submission to end, of the last one of each
    known: list[ResetDetail] = field(default_factory=list)  # those under way, and the last ones that have ended


@dataclass(frozen=True, kw_only=True)
class ProcessStatus:
    """The whole process."""

    version: str
    pid: int
    host: str
    started: str  # ISO 8601
    stopping: bool
    session: SessionStatus | None  # None: it has no part in any group (`inbound ingress`)
    channels: list[ChannelStatus]
    threads: list[ThreadStatus]
    problem: str | None = None  # why nothing more is known of it: it does not answer
    #: What is wrong with the configuration as it is now; the process goes on with what it knew before.
    config_problem: str | None = None
    ingress: IngressStatus | None = None
    ledger_shipping: ShippingStatus | None = None  # None: the ledger is not behind a URI
    reload: ReloadStatus | None = None  # None: the process does not follow its configuration
    offsets: OffsetsStatus | None = None  # None: the process is no exporter of offsets
    #: The ResetOffset manifests of the configuration.
    reset_manifests: list[ManifestStatus] = field(default_factory=list)
    #: What of its other manifests cannot be used.
    refused_manifests: list[RefusedManifestStatus] = field(default_factory=list)
    resets: ResetsStatus | None = None  # None: the process carries none out
    tracing: TracingStatus | None = None  # None: nothing is traced
    #: What the clients by which subscriptions read together measure of their requests to each broker.
    brokers: list[BrokerFigures] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return asdict(self)

    def stuck(self, limit: float = 60.0) -> list[str]:
        """Return what is wrong with internal threads: the only thing that makes a process unhealthy."""
        problems = [f"thread {t.name} is dead" for t in self.threads if not t.alive]
        return problems + [
            f"thread {t.name} has been stuck for {t.last_step_age:.0f} s"
            for t in self.threads
            if t.alive and not t.in_callback and t.last_step_age > limit
        ]

    def ready(self) -> list[str]:
        """Return why the process is not ready; empty when it is a member of all its groups, even with 0 partitions."""
        if self.problem is not None:
            return [self.problem]
        if self.stopping:
            return ["stopping"]
        missing = [
            f"channel {c.name}: not yet a member of group {c.group}"
            for c in self.channels
            if not (c.registered or c.removed)
        ]
        if self.ingress is not None and self.ingress.away is not None:
            missing.append(f"ingress: Kafka is away: {self.ingress.away}")
        if self.offsets is not None and self.offsets.looked_at is None:
            missing.append(
                f"offsets: not looked at yet: {self.offsets.zookeeper_problem or 'the first look is under way'}"
            )
        return missing


def stalled(cause: str, since: float | None) -> dict[str, Any] | None:
    """Return what `PartitionStatus.stalled` says of a partition that has stood still since then; None: it does not."""
    return None if since is None else {"cause": cause, "since": since}


@cache
def _reader() -> TypeAdapter[ProcessStatus]:
    """Return what reads the status of other processes; made when it is first needed, for that takes a while."""
    return TypeAdapter(ProcessStatus)


def process_status(body: Mapping[str, Any]) -> ProcessStatus:
    """Return the status that another process gave as JSON; keys that this version does not know are left out.

    Raises:
        ValueError: it is no status.
    """
    try:
        return _reader().validate_python(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "status"
        raise ValueError(f"not the status of an inbound process: {where}: {first['msg']}") from None
