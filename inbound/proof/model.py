"""Evidence of a proof (spans, events, log) and result (findings, verdict)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from inbound.coordinators.nodes import EpochInfo

#: Offsets from the first up to but without the second.
OffsetRange = tuple[int, int]


class PartitionKey(NamedTuple):
    """The unit of judgement: one partition, as one group reads it."""

    group: str
    topic: str
    partition: int


# -- evidence ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """One run's uninterrupted progress in a partition, as one row.

    Within it, each delivery (`begun`) begins where the one before ended, answers (`done`) and landed commits ascend,
    commits by offset and by mzxid, the epoch is the same, and no event is noted. A line that breaks this begins the
    next span, so nothing is lost that a judge could need. `batches` lines became one row.
    """

    key: PartitionKey
    consumer: str
    run: str
    epoch: int
    seq: int  # of its first line in the run
    last_seq: int
    first: int  # [first, next) was delivered; equal: no delivery, only answers or commits
    next: int
    batches: int
    records: int
    answered: int | None  # highest commit that a `done` line announced
    landed: int | None  # highest commit that landed
    mzxid: int | None  # of the first commit that landed
    last_mzxid: int | None
    wall: float  # of its first and last line, seconds since 1970; for people, never for order
    last_wall: float
    last_first: int | None = None  # where its last delivery began
    answer_of: int | None = None  # where the batch of its last answer began; None: no answer is of a batch
    #: The answered commit, landed or in flight, when its first and when its last batch was delivered; None: of an earlier
    #: release, which delivered nothing before the commit had landed.
    first_commit: int | None = None
    commit: int | None = None


@dataclass(frozen=True, slots=True)
class LedgerEvent:
    """A line that is not steady progress.

    It is a note (`claimed`, `released`, `lost`, `reset`, `revert`, `skip`, `retention`, `truncated`, `withheld`), a
    commit that was `fenced` or is `unknown` (facts: `commit`), or `degraded`: more happened that could not be recorded.
    """

    key: PartitionKey
    consumer: str
    run: str
    epoch: int
    seq: int
    kind: str
    wall: float
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Damage:
    """Missing or unreadable ledger lines; a run's torn last line is harmless."""

    where: str  # file (and line), or run
    what: str  # "lines 4711 to 4800 of the run are missing"
    group: str | None  # None: not known
    run: str | None
    seq: int | None = None  # the last good line before it
    harmless: bool = False
    #: Of earlier releases: something before the line `seq` was not recorded, between lines that are there.
    degraded: bool = False


@dataclass(frozen=True, slots=True)
class LedgerRun:
    """One process run of a consumer, as its ledger tells it."""

    consumer: str
    run: str
    ended: bool  # its last line says `closed`; else it died, or is running


@dataclass(frozen=True, slots=True)
class LogExtent:
    """What Kafka holds of a partition, read (exact mode) or not."""

    start: int  # the log's first offset
    end: int  # one past its last
    #: Ascending, not touching; other offsets have no record: compacted, aborted, or a transaction's marker. None: not read
    #: (quick mode). Offsets below `scanned_from` were not read either: they were proven before.
    present: Sequence[OffsetRange] | None = None
    scanned_from: int = 0


@dataclass(frozen=True, slots=True)
class NotedReset:
    """The offset reset since which nothing was committed, noted or not."""

    command: str
    old: int | None  # None: the group had no commit
    since: int | None  # the last commit before it, and before other resets without a ledger line; None: there was none
    new: int
    claimed: bool = False  # the partition was claimed after it

    @classmethod
    def noted_in(cls, epoch: EpochInfo | None) -> NotedReset | None:
        """Return the reset that an epoch node names."""
        reset = epoch.noted() if epoch is not None else None
        return None if reset is None else cls(reset.command, reset.old, reset.since, reset.new, reset.claimed)


@dataclass(frozen=True, slots=True)
class ZooKeeperState:
    """What ZooKeeper says of a partition now."""

    committed: int | None  # None: the group has no commit, or (`known` is false) it does not count here
    mzxid: int | None  # of the offset node; None: there is none
    epoch: int | None  # version of the epoch node
    owner: str | None  # the consumer that holds it
    known: bool = True  # whether the ledger must lead to its commit
    moved: NotedReset | None = None  # the reset that made the commit, if one did
    #: From here on the log holds other records than the group has committed, say the brokers; 0: they cannot tell. None: it
    #: was not cut, or the group does not know under which leader they were written.
    cut: int | None = None
    topic_id: str | None = None  # of the topic that the commit is about, as the epoch node names it


# -- result --------------------------------------------------------------------------------------------------------------

FindingKind = Literal[
    "lost",  # the commit passed it, the log has it, and no processor got it
    "duplicate",  # redelivered although it had been committed, and without a request
    "repeated",  # redelivered as at-least-once allows: what had not been committed at a crash, fence or failure
    "skipped",  # passed over in the order of deliveries (Jepsen: poll-skip); delivered later, or not committed past yet
    "reordered",  # delivered after higher offsets of the same claim (Jepsen: nonmonotonic)
    "unfenced",  # a commit of an older epoch landed after one of a newer, by mzxid
    "over-window",  # a claim that ended had left more uncommitted than its max_uncommitted_records allows
    "beyond-end",  # committed or delivered past the end of the log
    "lost-to-retention",  # Kafka had deleted it before it was delivered
    "uncommitted",  # answered, but the commit did not land, and the partition has no owner: it will be redelivered
    "unclaimed",  # no consumer of the group ever owned it
    # Committed past on purpose; not among what was delivered and committed.
    "given-up",  # it failed for good, and `on_error` skipped it
    "dead-lettered",  # it failed for good, and `on_error` sent it to the dead-letter topic
    "passed-over",  # the processor skipped it
    "jumped",  # a reset, `on_claim` or `on_truncation` moved the group past it
]
#: Why offsets were committed past without the processing they needed; none is a fault of inbound's.
LeftOutKind = Literal["given-up", "dead-lettered", "passed-over", "jumped"]
LEFT_OUT: tuple[LeftOutKind, ...] = get_args(LeftOutKind)
#: The kinds that make the exit code 1. The others are within the promise, or will be redelivered.
ANOMALIES: frozenset[FindingKind] = frozenset(
    {"lost", "duplicate", "skipped", "reordered", "unfenced", "over-window", "beyond-end", "lost-to-retention"}
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: a range of offsets of one partition, and the cause."""

    kind: FindingKind
    first: int
    next: int
    cause: str  # a sentence: who, when, after what
    offsets: int | None  # how many of the range the log has; None: not known (quick mode)
    times: int = 1  # repeated, duplicate: how often beyond the first
    epochs: tuple[int, ...] = ()
    consumers: tuple[str, ...] = ()
    wall: float | None = None


class Verdict(IntEnum):
    """The result of a proof; also the exit code."""

    PROVEN = 0
    ANOMALIES = 1
    NOT_PROVABLE = 3
    UNCLAIMED = 4  # there are records that no consumer ever owned


#: The first verdict of these that a partition has is the verdict of the proof.
GRAVEST: tuple[Verdict, ...] = (Verdict.ANOMALIES, Verdict.UNCLAIMED, Verdict.NOT_PROVABLE, Verdict.PROVEN)


@dataclass(frozen=True, slots=True)
class ClaimBar:
    """One claim of a partition, for the timeline."""

    consumer: str
    epoch: int
    wall: float
    last_wall: float
    position: int | None  # where it began; None: the group had no offset
    next: int  # one past the last offset it delivered
    landed: int | None
    batches: int
    records: int
    ending: Literal["released", "lost", "fenced", "died", "holds"]


@dataclass(frozen=True, slots=True)
class FormerTopic:
    """What the ledger says of a deleted topic of the same name."""

    epoch: int  # of the claim that began the topic after it
    start: int | None
    committed: int | None  # what stood behind it is not judged
    handed_to: int  # one past the highest offset that was delivered
    wall: float  # when the topic after it was begun


@dataclass(frozen=True, slots=True)
class PartitionProof:
    """The judgement of one partition."""

    key: PartitionKey
    verdict: Verdict
    #: Every offset in [start, proven) of the log was delivered and is committed, or the findings name it.
    start: int | None
    proven: int | None
    committed: int | None
    log_start: int | None
    log_end: int | None
    handed_out: int  # records, repeats included
    in_flight: tuple[OffsetRange, ...]  # begun and not committed by the claim that holds it, or held it last
    findings: tuple[Finding, ...]
    missing: tuple[str, ...]  # what would be needed to prove it; empty: nothing
    claims: tuple[ClaimBar, ...]
    #: Redelivered on request: a revert, a reset, an answer for part of a batch. No findings.
    explained: tuple[OffsetRange, ...] = ()
    #: Of [start, proven) what was committed past on purpose; the findings of `LEFT_OUT` say why.
    left_out: tuple[OffsetRange, ...] = ()
    former: tuple[FormerTopic, ...] = ()

    @property
    def lag(self) -> int | None:
        """Offsets between commit and log end."""
        return None if self.committed is None or self.log_end is None else max(0, self.log_end - self.committed)


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of `spark validate`."""

    mode: Literal["quick", "exact"]
    made: float  # seconds since 1970
    seconds: float
    partitions: tuple[PartitionProof, ...]
    missing: tuple[str, ...] = ()  # evidence of no single partition: a group has no ledger
    writer: str = ""  # release of inbound, of Spark
    continued: bool = False  # began at what an earlier proof had proven

    @property
    def verdict(self) -> Verdict:
        """Return the gravest verdict of all partitions."""
        verdicts = {partition.verdict for partition in self.partitions}
        if self.missing:
            verdicts.add(Verdict.NOT_PROVABLE)
        return min(verdicts, key=GRAVEST.index, default=Verdict.PROVEN)
