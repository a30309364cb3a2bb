"""The status of a process: its snapshot, and its JSON's reader."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

import inbound
from inbound.controller.reset_offset import ResetCommand
from inbound.controller.reset_offset.targets import in_words
from inbound.coordinators.pauses import Pause
from inbound.coordinators.subscriber_status import SubscriberStatus
from inbound.kafka.base import BrokerFigures
from inbound.ledger.base import LedgerStatus
from inbound.mirror.plan import MirrorStatus
from inbound.partition.meters import MetersStatus
from inbound.runtime.driver import Driver
from inbound.runtime.instruments import HistogramStatus


@dataclass(frozen=True, kw_only=True)
class PartitionOffsets:
    """One partition of one group; None: unknown."""

    channel: str  # that reads it by the configuration; empty: there is none
    group: str
    topic: str
    partition: int
    committed: int | None
    lag: int | None


@dataclass(frozen=True, kw_only=True)
class GroupOffsets:
    """One group."""

    group: str
    members: int  # alive
    unowned: int  # partitions without an owner
    uncommitted: int  # partitions without an offset
    unreadable: int  # partitions whose offset cannot be read
    closed_gates: int  # topics whose gate a reset has closed


@dataclass(frozen=True, kw_only=True)
class OffsetsStatus:
    """The results of the exporter's last look.

    Without ZooKeeper's answer there are no groups and partitions: old numbers are never shown.
    """

    looks_total: int = 0
    looked_at: float | None = None  # Unix time of the end of the last look that ZooKeeper answered
    look_seconds: float | None = None  # how long the last look took
    zookeeper_problem: str | None = None  # why ZooKeeper cannot be asked; None: it answers
    kafka_problem: str | None = None  # why lags are missing; None: all leaders answer
    groups: list[GroupOffsets] = field(default_factory=list)
    partitions: list[PartitionOffsets] = field(default_factory=list)


#: Ended resets in the status, the last ones.
ENDED = 10


@dataclass(frozen=True, kw_only=True)
class ResetDetail:
    """One reset; times in seconds since 1970."""

    name: str
    ref: str  # the reset's subject, in the words of its request
    topic: str | None  # None: not found yet
    group: str | None
    what: str  # `to the earliest offset`
    by: str  # the requester
    state: str  # see `inbound.controller.reset_offset.model.State`
    finished: bool
    created: float
    ended: float | None
    #: `type`, `status`, `reason`, `message` and `time` (RFC 3339) of each condition, in their order.
    conditions: list[dict[str, str]] = field(default_factory=list)


def reset_details(commands: Iterable[ResetCommand]) -> list[ResetDetail]:
    """Return the running resets, then the last `ENDED` ended ones.

    Running resets begin with the oldest, ended ones with the newest.
    """
    known = sorted(commands, key=lambda command: command.created)
    ended = sorted((c for c in known if c.finished), key=lambda command: command.ended or 0.0, reverse=True)
    return [_detail(command) for command in (*(c for c in known if not c.finished), *ended[:ENDED])]


def _detail(command: ResetCommand) -> ResetDetail:
    info = command.info
    return ResetDetail(
        name=command.name,
        ref=str(command.ref),
        topic=info.topic if info is not None else None,
        group=info.group if info is not None else None,
        what=in_words(command.spec),
        by=command.by,
        state=command.state.value,
        finished=command.finished,
        created=command.created,
        ended=command.ended,
        conditions=[asdict(condition) for condition in command.conditions],
    )


@dataclass(frozen=True, kw_only=True)
class PartitionStatus:
    """One held partition."""

    topic: str
    partition: int
    place: str  # see `inbound.partition.place.Place`
    leaving: bool
    epoch: int
    position: int  # next offset to deliver
    committed: int | None
    high_watermark: int | None
    lag: int | None  # uncommitted records in the log; None while the log's end is unknown
    buffered_bytes: int
    records_total: int  # delivered by this process since its claim
    batches_total: int
    commits_total: int
    attempts: int  # failures in a row
    held: str | None  # why it is not read, and what to do about it
    last_error: str | None
    last_batch_at: float | None  # Unix time
    in_doubt: bool  # the session may have expired
    paused: bool = False  # nothing is read: see `ChannelStatus.paused`
    cause: str = "starting"  # its activity, or why it is stalled: see `inbound.observe.explain.facts.Cause`
    cause_since: float | None = None  # Unix time
    #: `cause` and `since` (Unix time) while it is stalled: there are records to read, and its wait is not wanted.
    stalled: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class ResetStatus:
    """A reset of offsets that stops a topic's partitions."""

    name: str
    topic: str
    step: str  # see `inbound.controller.reset_offset.model.State`; empty: unknown
    since: float  # Unix time at which it closed the gate; 0: unknown


@dataclass(frozen=True, kw_only=True)
class ManifestStatus:
    """The outcome of one ResetOffset manifest of the configuration."""

    name: str  # namespace/name
    where: str  # file and line
    reset: str | None = None  # the name of its reset
    state: str = ""  # of that reset: see `inbound.controller.reset_offset.model.State`; `gone`: it was removed
    message: str = ""  # the reason of its wait, or its result
    problem: str | None = None  # why it does nothing
    finished: bool = False


@dataclass(frozen=True, kw_only=True)
class RefusedManifestStatus:
    """An unusable file, object or subscriber of the manifests."""

    kind: str | None  # None: the file, or a document of it, cannot be read
    namespace: str | None
    name: str | None
    subscriber: str | None  # its uid, or its place; None: the whole object
    file: str
    where: str  # file and line
    problem: str  # a line for each
    kept: list[str] = field(default_factory=list)  # channels that go on as they were

    @property
    def subject(self) -> str:
        """Its readable name."""
        subscriber = f", subscriber {self.subscriber}" if self.subscriber is not None else ""
        return f"{self.kind} {self.namespace}/{self.name}{subscriber}" if self.kind and self.name else self.file


@dataclass(frozen=True, kw_only=True)
class ChannelStatus:
    """One channel."""

    name: str
    group: str
    consumer_id: str
    coordinator: str  # kind and parameters, for people
    registered: bool  # its id node exists: `/readyz` asks for that
    topics: dict[str, int]  # name: number of partitions, by the brokers
    members: list[str]  # consumer ids of the group, as last read
    share: int  # partitions it should own
    partitions: list[PartitionStatus]
    abandoned: list[str]  # released partitions whose callback still runs
    records_total: int  # over all partitions ever held by this process
    batches_total: int
    commits_total: int
    commits_waiting: int
    commits_fenced_total: int
    not_sent_total: int = 0  # records that the processor committed and then did not deliver
    processor: dict[str, Any] = field(default_factory=dict)  # the processor's own status
    zk_transactions_total: int
    #: "topic/partition": records delivered by this process, also of partitions that it has released
    consumed: dict[str, int] = field(default_factory=dict)
    kafka_problem: str | None
    ledger_problem: str | None
    provable: bool  # the ledger has everything so far
    #: On the group's shares, for people; see `inbound.coordinators.base.Plan`.
    notices: list[str] = field(default_factory=list)
    #: "topic/partition": why its nodes in ZooKeeper cannot be used, so that it is not claimed, or not checked.
    bad_nodes: dict[str, str] = field(default_factory=dict)
    #: The pauses that stop this member's reads.
    paused: list[Pause] = field(default_factory=list)
    #: The resets that stop its partitions; operations take effect when these are over.
    resets: list[ResetStatus] = field(default_factory=list)
    #: The condition of the channel's subscription; None: there is none.
    subscriber: SubscriberStatus | None = None
    #: The configuration no longer has it, and it leaves its group; the process goes on.
    removed: bool = False
    #: Records per second that the processor takes at most; None: no bound.
    max_read_rate: float | None = None
    paced: bool = False  # `max_read_rate` can be set while it runs
    #: "topic/partition" of partitions that an operator had this member release; it does not claim them for a while.
    left_to_others: list[str] = field(default_factory=list)
    buffer_limit_bytes: int = 0  # of records read ahead, over all partitions
    meters: MetersStatus = field(default_factory=MetersStatus)
    ledger: LedgerStatus | None = None  # None: there is none, or it counts nothing
    mirror: MirrorStatus | None = None  # None: offsets go to ZooKeeper only
    brokers: list[BrokerFigures] = field(default_factory=list)  # the consumer's figures of its requests to each


@dataclass(frozen=True, kw_only=True)
class SessionStatus:
    """The ZooKeeper session."""

    state: str  # see `inbound.controller.kafka_controller.State`
    id: str | None  # hexadecimal
    timeout: float | None  # seconds, negotiated
    certain_for: float  # seconds until it is in doubt; 0: it is
    sessions_total: int
    evaluations_total: int
    problem: str | None = None  # why there is no connection, or why nodes are refused, and what to do
    suspensions_total: int = 0  # lost connections to ZooKeeper


@dataclass(frozen=True, kw_only=True)
class ThreadStatus:
    """One internal thread."""

    name: str
    alive: bool
    last_step_age: float  # seconds since its last step ended; workers in a callback do not count as stuck
    failures: int  # steps that raised: defects of inbound
    in_callback: bool = False

    @classmethod
    def of(cls, driver: Driver, now: float, *, in_callback: bool = False) -> ThreadStatus:
        """Return the state of a driver's thread at `now`. Any thread."""
        return cls(
            name=driver.name,
            alive=driver.thread.is_alive(),
            last_step_age=max(0.0, now - driver.last_step),
            failures=driver.failures,
            in_callback=in_callback,
        )


@dataclass(frozen=True, kw_only=True)
class IngressStatus:
    """The HTTP listener that receives events."""

    url: str
    client: str  # its Kafka client
    away: str | None  # why Kafka takes no events
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
    #: Topics that do not acknowledge although Kafka answers, and why: their events are refused.
    doubted: dict[str, str] = field(default_factory=dict)
    in_flight_requests: int = 0  # complete, and not answered
    request_seconds: HistogramStatus | None = None  # from the last byte of a request to its answer
    headers_left_out_total: int = 0  # that did not go into records: too many, or too large
    produced: dict[str, int] = field(default_factory=dict)  # events that Kafka has acknowledged, by "topic/partition"
    brokers: list[BrokerFigures] = field(default_factory=list)  # the producer's figures of its requests to each


@dataclass(frozen=True, kw_only=True)
class ShippingStatus:
    """The shipping of the ledger's files to a URI."""

    target: str
    files_waiting: int  # ended and not shipped, after the last look
    bytes_waiting: int
    files_total: int  # shipped since the start
    failures_total: int
    problem: str | None  # why files wait; None: none waits


@dataclass(frozen=True, kw_only=True)
class ReloadStatus:
    """The outcome of changes of the configuration while the process runs."""

    digest: str  # of the running configuration: the first 12 hexadecimal digits of a SHA-256 over its files
    applied_total: int = 0
    refused_total: int = 0  # could not be used, as a whole
    rolled_back_total: int = 0  # did not start; the former configuration runs again
    last_outcome: str | None = None  # applied, refused, rolled-back; None: nothing has changed yet
    last_at: float | None = None  # Unix time
    last_steps: list[str] = field(default_factory=list)  # the steps, in words: `orders: edit (workers)`
    problem: str | None = None  # why the current files do not run; a line for each
    under_way: bool = False  # channels are being stopped, or started
    watching: bool = False  # the folders are watched; else they are polled


#: Outcomes of a look at the configuration.
APPLIED, UNCHANGED, REFUSED, ROLLED_BACK = "applied", "unchanged", "refused", "rolled-back"


@dataclass(frozen=True)
class ReloadOutcome:
    """The answer to `POST /reload`: the outcome of one look."""

    outcome: str
    steps: list[str] = field(default_factory=list)
    problem: str | None = None
    digest: str = ""  # of the running configuration


@dataclass(frozen=True, kw_only=True)
class TracingStatus:
    """The spans of this process, and their delivery to the collector."""

    backend: str  # otlp or zipkin
    endpoint: str  # without secrets
    sample_rate: float  # of the traces that begin here
    sent_total: int = 0  # taken by the collector, since these settings apply
    dropped_total: int = 0  # too many waited, the collector refused them, or they ended after other settings came
    waiting: int = 0  # ended, and not sent yet
    problem: str | None = None  # why none can be sent


@dataclass(frozen=True, kw_only=True)
class ResetsStatus:
    """Resets of offsets, of any group, that this process knows."""

    unfinished: int = 0  # known, and not ended; every process counts them
    ended_total: dict[str, int] = field(default_factory=dict)  # by this process: succeeded, ...
    last_seconds: dict[str, float] = field(default_factory=dict)  # from submission to end, of the last one of each
    known: list[ResetDetail] = field(default_factory=list)  # the running ones, and the last ended ones


@dataclass(frozen=True, kw_only=True)
class ProcessStatus:
    """The whole process."""

    version: str
    pid: int
    host: str
    started: str  # ISO 8601
    stopping: bool
    session: SessionStatus | None  # None: it is a member of no group (`inbound ingress`)
    channels: list[ChannelStatus]
    threads: list[ThreadStatus]
    problem: str | None = None  # why it does not answer
    #: The problem of the current configuration files; the process goes on with the former ones.
    config_problem: str | None = None
    ingress: IngressStatus | None = None
    ledger_shipping: ShippingStatus | None = None  # None: the ledger is not behind a URI
    reload: ReloadStatus | None = None  # None: the process does not follow its configuration
    offsets: OffsetsStatus | None = None  # None: the process is no exporter of offsets
    reset_manifests: list[ManifestStatus] = field(default_factory=list)
    refused_manifests: list[RefusedManifestStatus] = field(default_factory=list)
    resets: ResetsStatus | None = None  # None: the process carries none out
    tracing: TracingStatus | None = None  # None: nothing is traced
    #: The figures of the clients that subscriptions share, of their requests to each broker.
    brokers: list[BrokerFigures] = field(default_factory=list)

    @classmethod
    def here(cls, started: str, *, stopping: bool = False) -> ProcessStatus:
        """Return the status of the calling process, without its parts."""
        return cls(
            version=inbound.__version__, pid=os.getpid(), host=socket.gethostname(), started=started, stopping=stopping,
            session=None, channels=[], threads=[],
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def stuck(self, limit: float = 60.0) -> list[str]:
        """Return the problems of internal threads, which make a process unhealthy."""
        problems = [f"thread {t.name} is dead" for t in self.threads if not t.alive]
        return problems + [
            f"thread {t.name} has been stuck for {t.last_step_age:.0f} s"
            for t in self.threads
            if t.alive and not t.in_callback and t.last_step_age > limit
        ]

    def ready(self) -> list[str]:
        """Return why the process is not ready; empty: it is.

        A member of all its groups is ready, even without a partition.
        """
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
                f"offsets: not looked at yet: {self.offsets.zookeeper_problem or 'the first look has not ended'}"
            )
        return missing


def stalled(cause: str, since: float | None) -> dict[str, Any] | None:
    """Return `PartitionStatus.stalled` of a partition; `since` None: it is not stalled."""
    return None if since is None else {"cause": cause, "since": since}


@cache
def _reader() -> TypeAdapter[ProcessStatus]:
    """Return the reader of other processes' status; its making takes a while."""
    return TypeAdapter(ProcessStatus)


def process_status(body: Mapping[str, Any]) -> ProcessStatus:
    """Return the status of another process from its JSON.

    Unknown keys are ignored.

    Raises:
        ValueError: it is no status.
    """
    try:
        return _reader().validate_python(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "status"
        raise ValueError(f"not the status of an inbound process: {where}: {first['msg']}") from None
