"""What a running process says of itself: one snapshot, from which `/status`, `/metrics` and `inbound status` are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from inbound.coordinators.pauses import Pause

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PartitionStatus:
    """One held partition."""

    topic: str
    partition: int
    place: str  # see `inbound.partition.Place`
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
    zk_transactions_total: int
    #: "topic/partition": records handed out by this process, also of partitions that it holds no more
    consumed: dict[str, int] = field(default_factory=dict)
    kafka_problem: str | None
    ledger_problem: str | None
    provable: bool  # everything so far is in the ledger
    #: What people should know of the group's shares; see `inbound.coordinators.base.Plan`.
    notices: list[str] = field(default_factory=list)
    #: The pauses because of which this member reads nothing; it goes on when none is left.
    paused: list[Pause] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class SessionStatus:
    """The ZooKeeper session."""

    state: str  # see `inbound.controller.session.State`
    id: str | None  # hexadecimal
    timeout: float | None  # seconds, negotiated
    certain_for: float  # seconds until it counts as in doubt; 0 when it does
    sessions_total: int
    evaluations_total: int


@dataclass(frozen=True, kw_only=True)
class ThreadStatus:
    """One internal thread."""

    name: str
    alive: bool
    last_step_age: float  # seconds since it last came back; workers inside a callback do not count as stuck
    failures: int  # steps that raised: defects of inbound
    in_callback: bool = False


@dataclass(frozen=True, kw_only=True)
class ProcessStatus:
    """The whole process."""

    version: str
    pid: int
    host: str
    started: str  # ISO 8601
    stopping: bool
    session: SessionStatus
    channels: list[ChannelStatus]
    threads: list[ThreadStatus]
    problem: str | None = None  # why nothing more is known of it: it does not answer

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
        return [f"channel {c.name}: not yet a member of group {c.group}" for c in self.channels if not c.registered]


def process_status(body: Mapping[str, Any]) -> ProcessStatus:
    """Return the status that another process gave as JSON; keys that this version does not know are left out.

    Raises:
        ValueError: it is no status.
    """
    try:
        channels = [
            _known(
                ChannelStatus,
                {
                    **channel,
                    "partitions": [_known(PartitionStatus, p) for p in channel["partitions"]],
                    "paused": [_known(Pause, pause) for pause in channel.get("paused", ())],
                },
            )
            for channel in body["channels"]
        ]
        session = _known(SessionStatus, body["session"])
        threads = [_known(ThreadStatus, thread) for thread in body["threads"]]
        return _known(ProcessStatus, {**body, "session": session, "channels": channels, "threads": threads})
    except (KeyError, TypeError) as error:
        raise ValueError(f"not the status of an inbound process: {error!r}") from None


def _known(cls: type[T], values: Mapping[str, Any]) -> T:
    names = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in values.items() if name in names})
