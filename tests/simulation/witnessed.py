"""What the witness remembers of one partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inbound.processors.batch import Record
from inbound.proof.intervals import contains, difference, intersection, union
from inbound.proof.model import Finding, LeftOutKind, OffsetRange


@dataclass(frozen=True)
class LeftOutRange:
    """Offsets that need not be delivered, and why."""

    first: int
    next: int
    kind: LeftOutKind
    epoch: int  # under which that was said


@dataclass(frozen=True)
class Unaccountable:
    """Something happened that no ledger could tell; what is below `low` is known all the same."""

    what: str
    low: int
    unwritten: bool = False  # in a ledger: it may have been done with what is below, too
    open: bool = False  # and no ledger says yet where it went on


@dataclass(eq=False)
class SeenPartition:
    """One partition, since its topic was created."""

    at: int | None = None  # the group's offset; None: it never had one
    began: bool = False  # a consumer has begun to read it
    since: int = 0  # the epoch under which the group began this topic
    #: Where it was, and what was passed, before a tool has set it, as long as no consumer has seen that.
    inside: tuple[int | None, list[OffsetRange]] | None = None
    #: What commits have gone past: each record of it was delivered, or a member said why not.
    passed: list[OffsetRange] = field(default_factory=list)
    handed: dict[int, Record] = field(default_factory=dict)
    #: Of that, what a processor has answered for, or what was committed before it was delivered.
    answered: dict[int, Record] = field(default_factory=dict)
    times: Counter[int] = field(default_factory=Counter)  # how often an offset was delivered
    left_out: list[LeftOutRange] = field(default_factory=list)
    #: What claims that found no offset of the group have begun behind: deliveries of it were never committed.
    began_past: list[OffsetRange] = field(default_factory=list)
    newest: dict[int, int] = field(default_factory=dict)  # offset: the newest epoch under which it was delivered
    failed: set[int] = field(default_factory=set)  # what failed alone then
    given_up: set[int] = field(default_factory=set)  # of these, what is not tried again
    #: What was given up and committed past when a reset or a cut had it read again, and was not delivered again.
    given_up_before: set[int] = field(default_factory=set)
    #: What a reset has jumped, or its owner abandoned, just then: whether it had time to give it up cannot be seen from outside.
    undecided: set[int] = field(default_factory=set)
    deleted: dict[int, Record] = field(default_factory=dict)  # by retention
    cuts: list[int] = field(default_factory=list)  # where the log was cut
    cut_off: dict[int, list[Record]] = field(default_factory=dict)  # what stood at an offset before that
    untold_cut: int | None = None  # the lowest of these below what the group had read, of which no ledger says anything
    noticed: int = 0  # so many of them had happened when a ledger last said so
    unnoticed: bool = False  # it was cut, and no member had to notice: the proof may say anything
    offset_taken: bool = False  # an operator has taken the group's offset out of its node
    offset_was_taken: bool = False  # ever
    perhaps_jumped: list[OffsetRange] = field(default_factory=list)  # by a reset of a group without members
    #: Where resets have moved it from, one after the other, and the last one to, without a claim between that a ledger tells of.
    moved_from: list[int] = field(default_factory=list)
    moved_to: int | None = None
    #: What one of these had put before the group again, and a later one has jumped: see `is_reset`.
    taken_back: list[OffsetRange] = field(default_factory=list)
    counts_from: int = 0  # deliveries under an older epoch are to be repeated
    unaccountable: list[Unaccountable] = field(default_factory=list)
    claimed: bool = False  # by a consumer of the group
    claim: int = 0  # the epoch that the last claim made
    noted: bool = True  # no ledger lacks the last claim
    handed_to: int = 0  # one past the highest offset delivered
    recorded: int = 0  # the last commit that a ledger knows
    recorded_under: dict[int, int] = field(default_factory=dict)  # the same of each epoch
    unsure: bool = False  # who has claimed it goes on where its ledger fails, and has not said that it let go of it
    silent: int = 0  # claims since a ledger has told of one
    announced: bool = False  # a commit, by a ledger
    #: What cannot be told of before the last claim that a ledger tells of, if that finds no offset of the group.
    doubts: list[str] = field(default_factory=list)
    told: int | None = None  # where a reset has moved the next claim, as its ledger says
    #: Of deleted topics: what was committed, and delivered; None: no ledger can tell.
    former: list[tuple[int | None, int] | None] = field(default_factory=list)
    told_of_recreation: bool = True  # a ledger says that the topic was recreated, or need not
    gone: bool = False  # its topic is deleted, and the group has not begun another one

    def moves_to(self, offset: int) -> None:
        """The group's offset is set, by whom the ledgers name."""
        self.at, self.inside, self.offset_taken = offset, None, False

    def counts_to(self, cut: int) -> None:
        """A ledger says that the log was cut there: what ledgers know of commits beyond is about records that are gone, and
        a process that could not write its own may have gone on with the new ones since.
        """
        self.recorded_under = {epoch: min(commit, cut) for epoch, commit in self.recorded_under.items()}
        self.unaccountable = [replace(one, low=min(one.low, cut)) for one in self.unaccountable]

    def of_either_topic(self) -> list[Unaccountable]:
        """Return what was not written, and no ledger has gone on since, when the topic is recreated.

        1. A claim is not noted; 2. it finds that the topic is gone; 3. the next one begins the new topic. The ledger says what
        it lacks before that, and not of which topic it was: a claim that begins a topic and dies leaves that to the next one.
        """
        return [Unaccountable(one.what, 0) for one in self.unaccountable if one.unwritten and one.open]

    def wants_from(self, offset: int) -> None:
        """What lies behind this is to be delivered, left out before or not."""
        self.left_out = cut_off(self.left_out, offset)
        self.given_up = {at for at in self.given_up if at < offset}
        self.failed = {at for at in self.failed if at < offset}
        self.undecided = {at for at in self.undecided if at < offset}
        self.taken_back = [(low, min(high, offset)) for low, high in self.taken_back if low < offset]

    def is_reset(self, offset: int) -> None:
        """A reset moves it to `offset`.

        Of resets without a claim between them the ledgers know where the first one found the group, and from where to where the
        last one moved it. What one between them wanted again, below both, and one after that jumped, is to them as before all.
        """
        if self.at is None:
            return
        self.moved_from = [*(self.moved_from if self.at == self.moved_to else []), self.at]
        low, known = min(self.moved_from), min(self.moved_from[0], self.at, offset)
        if low < known:
            self.taken_back = union([*self.taken_back, (low, known)])
        self.moved_to = offset

    def delivered(self, offset: int, epoch: int) -> None:
        """A record is delivered: what was said of its offset before counts no more."""
        counted = [left for left in self.left_out if left.epoch > epoch or not left.first <= offset < left.next]
        if len(counted) < len(self.left_out):
            at = [(offset, offset + 1)]
            self.left_out = counted + [
                replace(left, first=low, next=high)
                for left in self.left_out
                if left not in counted
                for low, high in difference([(left.first, left.next)], at)
            ]

    def lacking(
        self, records: Iterable[Record], passed: Sequence[OffsetRange], known: Mapping[int, Record]
    ) -> list[int]:
        """Return the offsets of those of `records` that are passed and not known, and not left out."""
        wanted = difference(passed, union((left.first, left.next) for left in self.left_out))
        return sorted(r.offset for r in records if contains(wanted, r.offset) and known.get(r.offset) is not r)

    def explains(self, finding: Finding) -> bool:
        """Whether what was passed over was passed over because a claim found no offset of the group."""
        passed = (finding.first, finding.next)
        return finding.kind == "skipped" and intersection([passed], self.began_past) == [passed]


def cut_off(left_out: Iterable[LeftOutRange], end: int) -> list[LeftOutRange]:
    """Return what lies before an offset."""
    return [replace(left, next=min(left.next, end)) for left in left_out if left.first < end]
