"""What the judge knows of batches, partitions and offset nodes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from inbound.coordinators.nodes import ResetNote
from inbound.kafka.base import LogRange
from inbound.testing.simulation.reset_judge import ByReset
from inbound.topic_partition import TopicPartition


@dataclass(eq=False)
class JudgedBatch:
    """One delivered batch."""

    consumer: str  # the process, not its consumer id
    tp: TopicPartition
    epoch: int
    first: int
    next: int
    records: int
    first_record: int  # its offset
    began: float
    to: object  # the processor; another instance may take over under the same claim, from the commit on
    #: The position after the answer; None before it.
    position: int | None = None
    #: Positions that are possible, too, where a deferred commit may have been sent by then.
    otherwise: tuple[int, ...] = ()
    #: Everything before this was answered with advance, or is to be committed soon (`commit_within`).
    advanced: int = 0
    #: Given up during its callback, or before its commit could be written: a reset waits no longer.
    abandoned: bool = False
    failed_alone: bool = False  # on one record, which `on_error` may give up
    #: Delivered by a zombie that could not know: the servers had expired its session.
    unaware: bool = False
    tenure: int = 0
    ended: float = float("inf")


@dataclass(eq=False)
class JudgedPartition:
    """What the judge knows of one partition."""

    commit: int | None = None
    epoch: int = 0
    holder: str | None = None  # the process whose claim made the epoch; None: it was moved from outside
    owner: str | None = None  # the process whose session has the owner node
    current: JudgedBatch | None = None  # of the current epoch
    handed: dict[int, JudgedBatch] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    given_back: set[int] = field(default_factory=set)  # delivered, then reverted or passed over
    #: Offsets that processors skipped without a delivery, and when the batch that led there was delivered.
    passed_over: dict[int, float] = field(default_factory=dict)
    answered: tuple[int, int] = (0, 0)  # the claim, and up to where it may commit
    advanced: tuple[int, int] = (0, 0)  # the claim, and where its last `advance` led to: it is committed, or in flight
    #: The claim, and its deferred commits, each with the time from which it may have been sent.
    later: tuple[int, dict[int, float]] = (0, {})
    tenure: int = 0  # counts claims. The epoch can also be moved on by its own holder, with a commit
    claims: list[int] = field(default_factory=list)  # the epoch with which each began
    #: Epochs made from outside, after which earlier deliveries may be repeated.
    outside: list[int] = field(default_factory=list)
    resets: list[ByReset] = field(default_factory=list)
    moved_at: float = -1.0  # by a reset
    #: The process that chose where its claim begins, and the offset, until the group's offset follows.
    placed: tuple[str, int] | None = None
    asked: tuple[str, int] | None = None  # the process that chose last where its claim begins, and the claim
    untold: ResetNote | None = None  # the last move, until `on_reset` is called for it
    topic_id: str | None = None  # of the offset, as the epoch node says
    topic_changed_at: int = -1  # the transaction that changed it last: it may set the offset to 0
    of_deleted_topic: bool = False  # and no member has begun the new one yet
    disowned: bool = False  # an operator deleted the owner node
    read_at: float = -1.0  # when it was last delivered to its owner
    may_start_late: bool = False  # `latest`: no offset was ever committed, and the partition is no late addition

    def wants_from(self, offset: int) -> None:
        """Require records from `offset` on to be processed again before commits."""
        self.done = {at for at in self.done if at < offset}

    def in_claim(self, noted: tuple[int, int]) -> int:
        """Return an offset noted by the current claim; else 0."""
        return noted[1] if noted[0] == self.tenure else 0

    def is_of_claim(self, consumer: str, epoch: int) -> bool:
        """Return whether an epoch belongs to the last claim, of that process."""
        # The claim's own commits may have moved the epoch on.
        return self.holder == consumer and bool(self.claims) and self.claims[-1] <= epoch <= self.epoch

    def abandons(self, given: JudgedBatch) -> bool:
        """A claim abandons a batch; return whether it was unanswered or uncommitted."""
        commit = self.commit or 0
        # Also of the batches before it, in the commit window. A record that failed alone may be about to be dead-lettered.
        if given.position is not None and self.answered <= (given.tenure, commit) and not given.failed_alone:
            return False
        given.abandoned = True
        for offset, before in self.handed.items():  # uncommitted batches are redelivered with it
            before.abandoned |= before.tenure == given.tenure and offset >= commit
        return True

    def leaves(self, tenure: int, offset: int, due: float) -> None:
        """Records before `offset` may be committed from `due` on."""
        if self.later[0] != tenure:
            self.later = tenure, {}
        self.later[1][offset] = min(due, *self.later[1].values()) if self.later[1] else due

    def sent(self, given: JudgedBatch, now: float) -> list[int]:
        """Return the newest commit sent, then those that may have been."""
        surely = max([self.commit or 0, *(offset for t, offset in [self.advanced] if t == given.tenure)])
        known = self.commit is not None or self.advanced[0] == given.tenure
        tenure, later = self.later
        maybe = [o for o, due in later.items() if tenure == given.tenure and due <= now and o > surely]
        return sorted([surely, *maybe] if known else [given.first])

    def goes_back(self, given: JudgedBatch, cuts: Collection[int], there: Collection[int]) -> bool:
        """Return whether a batch begins where reading resumes after a known cut.

        `there`: the offsets in the log. Reading resumes at the commit, as it landed or was sent. Of what is answered for after
        the cut was found, only what is before the cut is sent, so that no more is in flight then. Retention may have deleted
        records there; but nothing is passed that was not answered for.
        """
        commit, sent = self.commit or 0, self.sent(given, given.began)
        backs = [commit, *sent, *(cut for cut in cuts if commit <= cut <= sent[-1])]
        passed = [offset for offset in there if commit <= offset < given.first]
        known = any(b <= given.first and all(at < b and at in self.done for at in passed) for b in backs)
        if known and given.first in cuts:
            self.advanced = self.advanced[0], min(self.advanced[1], given.first)
        return known

    def flying(self, tenure: int) -> int:
        """Return how many delivered records of a claim await their commit."""
        claim, advanced = self.advanced
        between = range(self.commit or 0, advanced if claim == tenure else 0)
        given = [(offset, self.handed[offset]) for offset in between if offset in self.handed]
        return sum(one.tenure == tenure and offset not in self.given_back for offset, one in given)


@dataclass
class _Node:
    lost: bool = False  # an operator took its offset
    found_by: int = -1  # the claim that found no offset
    may_find: int = -1  # a claim that may have read it before or after


class OffsetNodes:
    """Offset nodes that operators changed; `tenure` is a claim's number."""

    def __init__(self, *, latest: bool) -> None:
        self._latest = latest
        self._nodes: dict[TopicPartition, _Node] = {}
        self._mended: set[TopicPartition] = set()

    def take(self, tp: TopicPartition, tenure: int | None) -> None:
        """An operator empties, deletes or garbles the node."""
        node = self._nodes.setdefault(tp, _Node())
        node.lost = True
        if tenure is not None:  # a claim that may not have read the node yet
            node.may_find = tenure

    def mend(self, tp: TopicPartition) -> None:
        """An operator restores the offset."""
        self._mended.add(tp)
        self._nodes.setdefault(tp, _Node()).lost = False

    def is_by_hand(self, tp: TopicPartition) -> bool:
        """Return whether an operator made a change of the node."""
        node = self._nodes.get(tp)
        if tp in self._mended:
            self._mended.remove(tp)
            return True
        return node is not None and node.lost

    def claimed(self, tp: TopicPartition, tenure: int) -> bool:
        """A member claims the partition; return whether it finds no offset."""
        node = self._nodes.get(tp)
        if node is None or not node.lost:
            return False
        node.found_by = tenure
        return True

    def written(self, tp: TopicPartition) -> None:
        """A member, a reset or a tool has written an offset."""
        self._nodes.pop(tp, None)

    def is_uncommitted(self, tp: TopicPartition, tenure: int) -> bool:
        """Return whether a claim without an offset has committed nothing yet."""
        node = self._nodes.get(tp)
        return node is not None and node.lost and node.found_by == tenure

    def starts_over(self, tp: TopicPartition, tenure: int, new: int, limits: LogRange | None) -> bool:
        """Return whether a claim's first commit is a new group's position."""
        node = self._nodes.get(tp)
        if node is None or tenure not in (node.found_by, node.may_find):
            return False
        return limits is None or new <= (limits.end if self._latest else limits.start)
