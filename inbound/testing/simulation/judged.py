"""What the judge remembers of batches and partitions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from inbound.coordinators.nodes import BadNodeError, ResetNote, decode_epoch
from inbound.testing.simulation.reset_judge import ByReset
from inbound.testing.zookeeper_tree import Commit
from inbound.topic_partition import TopicPartition


@dataclass(eq=False)
class HandOut:
    """One batch in a callback."""

    consumer: str  # the process, not its consumer id
    tp: TopicPartition
    epoch: int
    first: int
    next: int
    records: int
    first_record: int  # its offset
    began: float
    to: object  # the processor: another one of its class may take over under the same claim, from the commit on
    #: Where the answer left the position; None while there is none.
    position: int | None = None
    #: Or one of these, where a commit that was left for later may have been sent by then.
    otherwise: tuple[int, ...] = ()
    #: Everything before this was answered with advance, or is to be committed soon (`commit_within`).
    advanced: int = 0
    #: Given up while its callback ran, or its commit could not be written: a reset waits no longer than that.
    abandoned: bool = False
    failed_alone: bool = False  # on one record, which `on_error` may give up
    #: Handed out by a zombie that could not know: its session had been ended by force.
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
    last: HandOut | None = None  # by anyone
    current: HandOut | None = None  # of the current epoch
    handed: dict[int, HandOut] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    given_back: set[int] = field(default_factory=set)  # handed out, and asked for again since, or passed over then
    #: What processors have passed over without being handed it, and when they were handed the batch that led there.
    passed_over: dict[int, float] = field(default_factory=dict)
    answered: tuple[int, int] = (0, 0)  # the claim, and up to where it may commit
    advanced: tuple[int, int] = (0, 0)  # the claim, and where its last `advance` led to: it is committed, or on its way
    #: The claim, and what it has left for later, each with when that may have been sent.
    later: tuple[int, dict[int, float]] = (0, {})
    tenure: int = 0  # counts claims. The epoch can also be moved on by its own holder, with a commit
    claims: list[int] = field(default_factory=list)  # the epoch with which each began
    #: Epochs that were made from outside: what was handed out before may come again after.
    outside: list[int] = field(default_factory=list)
    resets: list[ByReset] = field(default_factory=list)
    moved_at: float = -1.0  # by a reset
    #: A process says where its claim begins, and the group's offset is not there yet.
    placed: tuple[str, int] | None = None
    asked: tuple[str, int] | None = None  # whose processor was asked last where its claim begins, and which claim
    untold: ResetNote | None = None  # of the last move: no processor has heard of it yet
    topic_id: str | None = None  # in the epoch node: the topic that the offset is about
    topic_changed_at: int = -1  # the transaction that changed it last: it may set the offset to 0
    of_deleted_topic: bool = False  # and nobody has begun the new one yet
    disowned: bool = False  # somebody deleted the owner node by hand
    read_at: float = -1.0  # when it was last handed out to its owner
    may_start_late: bool = False  # `latest`: no offset was ever committed, and the partition is no late addition

    def is_of_claim(self, consumer: str, epoch: int) -> bool:
        """Whether that epoch is the last claim's, of that process; its own commits may have moved it on."""
        return self.holder == consumer and bool(self.claims) and self.claims[-1] <= epoch <= self.epoch

    def abandons(self, given: HandOut) -> bool:
        """A claim that was handed that batch last lets go. Returns whether something of it was in hand, or not committed."""
        commit = self.commit or 0
        # Also of the batches before it, in the commit window. What failed alone may be on its way to the dead letters.
        if given.position is not None and self.answered <= (given.tenure, commit) and not given.failed_alone:
            return False
        given.abandoned = True
        for offset, before in self.handed.items():  # what waits for its commit comes again with it
            before.abandoned |= before.tenure == given.tenure and offset >= commit
        return True

    def leaves(self, tenure: int, offset: int, due: float) -> None:
        """What is before `offset` may be committed from a time on."""
        if self.later[0] != tenure:
            self.later = tenure, {}
        self.later[1][offset] = min(due, *self.later[1].values()) if self.later[1] else due

    def sent(self, given: HandOut, now: float) -> list[int]:
        """Return what a revert of that batch may go back to: the newest commit that was sent, and what may have been."""
        surely = max([self.commit or 0, *(offset for t, offset in [self.advanced] if t == given.tenure)])
        known = self.commit is not None or self.advanced[0] == given.tenure
        tenure, later = self.later
        maybe = [o for o, due in later.items() if tenure == given.tenure and due <= now and o > surely]
        return sorted([surely, *maybe] if known else [given.first])

    def goes_back(self, given: HandOut, cuts: Collection[int], there: Collection[int]) -> bool:
        """Whether that batch begins where reading goes on after a cut that is known; `there`: the offsets that the log has.

        That is at the commit, as it landed or was sent. Of what is answered for after the cut was found, only what is before the
        cut is sent, so that no more is on its way then. Retention may have deleted what stood there; but nothing is passed that
        was not answered for.
        """
        commit, sent = self.commit or 0, self.sent(given, given.began)
        backs = [commit, *sent, *(cut for cut in cuts if commit <= cut <= sent[-1])]
        passed = [offset for offset in there if commit <= offset < given.first]
        known = any(b <= given.first and all(at < b and at in self.done for at in passed) for b in backs)
        if known and given.first in cuts:
            self.advanced = self.advanced[0], min(self.advanced[1], given.first)
        return known

    def flying(self, tenure: int) -> int:
        """Return how many records a claim was handed that are advanced over, and not committed."""
        claim, advanced = self.advanced
        between = range(self.commit or 0, advanced if claim == tenure else 0)
        given = [(offset, self.handed[offset]) for offset in between if offset in self.handed]
        return sum(one.tenure == tenure and offset not in self.given_back for offset, one in given)


def topic_id_in(path: str, data: bytes) -> str | None:
    """Return the id that an epoch node names; None: none, or the node cannot be read."""
    try:
        info = decode_epoch(path, data)
    except BadNodeError:
        return None
    return info.topic_id if info is not None else None


def names_no_leader(path: str, commit: Commit) -> bool:
    """Whether an epoch node says, once that transaction is done, that nobody knows who wrote what is before the offset."""
    node = commit.after.get(path)
    try:
        info = decode_epoch(path, node.data) if node is not None else None
    except BadNodeError:
        return False
    return info is not None and info.leader_epoch is None
