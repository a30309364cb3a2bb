"""What the judge remembers: batches, partitions, their offset nodes, and the processors' answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from inbound.clock import Clock
from inbound.coordinators.nodes import ResetNote
from inbound.kafka.base import LogRange
from inbound.processors.batch import Batch, BatchResponse, Verb
from inbound.testing.simulation.reset_judge import ByReset
from inbound.testing.simulation.witness import GroupMember, Witness
from inbound.topic_partition import TopicPartition


@dataclass(eq=False)
class JudgedBatch:
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
    #: Delivered by a zombie that could not know: its session had been ended by force.
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
    last: JudgedBatch | None = None  # by anyone
    current: JudgedBatch | None = None  # of the current epoch
    handed: dict[int, JudgedBatch] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    given_back: set[int] = field(default_factory=set)  # delivered, and asked for again since, or passed over then
    #: What processors have passed over without being handed it, and when they were handed the batch that led there.
    passed_over: dict[int, float] = field(default_factory=dict)
    answered: tuple[int, int] = (0, 0)  # the claim, and up to where it may commit
    advanced: tuple[int, int] = (0, 0)  # the claim, and where its last `advance` led to: it is committed, or in flight
    #: The claim, and its offsets left for later, each with the time from which it may have been sent.
    later: tuple[int, dict[int, float]] = (0, {})
    tenure: int = 0  # counts claims. The epoch can also be moved on by its own holder, with a commit
    claims: list[int] = field(default_factory=list)  # the epoch with which each began
    #: Epochs that were made from outside: earlier deliveries may come again after.
    outside: list[int] = field(default_factory=list)
    resets: list[ByReset] = field(default_factory=list)
    moved_at: float = -1.0  # by a reset
    #: A process says where its claim begins, and the group's offset is not there yet.
    placed: tuple[str, int] | None = None
    asked: tuple[str, int] | None = None  # whose processor was asked last where its claim begins, and which claim
    untold: ResetNote | None = None  # of the last move: `on_reset` was not called for it yet
    topic_id: str | None = None  # in the epoch node: the topic that the offset is about
    topic_changed_at: int = -1  # the transaction that changed it last: it may set the offset to 0
    of_deleted_topic: bool = False  # and no member has begun the new one yet
    disowned: bool = False  # an operator deleted the owner node
    read_at: float = -1.0  # when it was last delivered to its owner
    may_start_late: bool = False  # `latest`: no offset was ever committed, and the partition is no late addition

    def wants_from(self, offset: int) -> None:
        """Records from this offset on must be processed once more before a commit passes them."""
        self.done = {at for at in self.done if at < offset}

    def in_claim(self, noted: tuple[int, int]) -> int:
        """Return an offset that is noted with its claim, if that is the current one; else 0."""
        return noted[1] if noted[0] == self.tenure else 0

    def is_of_claim(self, consumer: str, epoch: int) -> bool:
        """Whether that epoch is the last claim's, of that process; its own commits may have moved it on."""
        return self.holder == consumer and bool(self.claims) and self.claims[-1] <= epoch <= self.epoch

    def abandons(self, given: JudgedBatch) -> bool:
        """A claim that was handed that batch last lets go. Returns whether something of it was in hand, or not committed."""
        commit = self.commit or 0
        # Also of the batches before it, in the commit window. A record that failed alone may be about to be dead-lettered.
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

    def sent(self, given: JudgedBatch, now: float) -> list[int]:
        """Return what a revert of that batch may go back to: the newest commit that was sent, and what may have been."""
        surely = max([self.commit or 0, *(offset for t, offset in [self.advanced] if t == given.tenure)])
        known = self.commit is not None or self.advanced[0] == given.tenure
        tenure, later = self.later
        maybe = [o for o, due in later.items() if tenure == given.tenure and due <= now and o > surely]
        return sorted([surely, *maybe] if known else [given.first])

    def goes_back(self, given: JudgedBatch, cuts: Collection[int], there: Collection[int]) -> bool:
        """Whether that batch begins where reading goes on after a cut that is known; `there`: the offsets that the log has.

        That is at the commit, as it landed or was sent. Of what is answered for after the cut was found, only what is before the
        cut is sent, so that no more is in flight then. Retention may have deleted what stood there; but nothing is passed that
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


@dataclass
class _Node:
    """One partition's."""

    lost: bool = False  # it holds no offset, since an operator changed it
    found_by: int = -1  # the claim that came to it then,
    may_find: int = -1  # and one that may have read it before or after


class OffsetNodes:
    """Told by the judge. `tenure` is the number of a claim."""

    def __init__(self, *, latest: bool) -> None:
        self._latest = latest
        self._nodes: dict[TopicPartition, _Node] = {}
        self._mended: set[TopicPartition] = set()

    def take(self, tp: TopicPartition, tenure: int | None) -> None:
        """An operator empties, deletes or garbles the node; `tenure` may not have read it yet, None if it has."""
        node = self._nodes.setdefault(tp, _Node())
        node.lost = True
        if tenure is not None:
            node.may_find = tenure

    def mend(self, tp: TopicPartition) -> None:
        """An operator puts the offset back."""
        self._mended.add(tp)
        self._nodes.setdefault(tp, _Node()).lost = False

    def is_by_hand(self, tp: TopicPartition) -> bool:
        """Whether a change that no member has made is one of these."""
        node = self._nodes.get(tp)
        if tp in self._mended:
            self._mended.remove(tp)
            return True
        return node is not None and node.lost

    def claimed(self, tp: TopicPartition, tenure: int) -> bool:
        """A member claims the partition. Returns whether it finds no offset."""
        node = self._nodes.get(tp)
        if node is None or not node.lost:
            return False
        node.found_by = tenure
        return True

    def written(self, tp: TopicPartition) -> None:
        """A member, a reset or a tool has written an offset into it."""
        self._nodes.pop(tp, None)

    def is_uncommitted(self, tp: TopicPartition, tenure: int) -> bool:
        """Whether a claim that found no offset has not committed its first position yet."""
        node = self._nodes.get(tp)
        return node is not None and node.lost and node.found_by == tenure

    def starts_over(self, tp: TopicPartition, tenure: int, new: int, limits: LogRange | None) -> bool:
        """Whether the first commit of a claim is the position of a group without an offset."""
        node = self._nodes.get(tp)
        if node is None or tenure not in (node.found_by, node.may_find):
            return False
        return limits is None or new <= (limits.end if self._latest else limits.start)


@dataclass(eq=False)
class AnswerBook:
    """Takes in the answers of one group's processors."""

    partitions: Mapping[TopicPartition, JudgedPartition]
    witness: Witness
    clock: Clock
    say: Callable[[str], None]
    #: Batches that are in a callback: the process and the partition.
    awaited: set[tuple[str, TopicPartition]] = field(default_factory=set, init=False)

    def ends(self, given: JudgedBatch, response: object) -> None:
        """The callback has ended: with an answer, or None if it failed."""
        given.ended = self.clock.now()
        self.awaited.discard((given.consumer, given.tp))
        given.position = given.first
        self.partitions[given.tp].given_back |= set(range(given.first, given.next))  # unless it is answered for
        self.say(f"{given.consumer} answers for {given.tp} {given.first}..{given.next - 1}: {_told(response)}")
        taken = isinstance(response, BatchResponse) and self._answered(given, response, given.first, given.next)
        given.failed_alone = not taken and given.records == 1 and not given.abandoned
        if given.failed_alone:
            self.witness.fails_alone(given.tp, given.first_record, given.epoch)

    def without_a_batch(self, consumer: GroupMember, tp: TopicPartition, response: object) -> None:
        """A callback without a batch answers: all deliveries since the commit count as the batch."""
        given = self.partitions[tp].current
        if isinstance(response, BatchResponse) and given is not None and given.consumer == consumer.name:
            self.say(f"{consumer.name} answers for {tp} without a batch: {_told(response)}")
            position = given.position if given.position is not None else given.first
            self._answered(given, response, position, position)

    def finished(self, consumer: GroupMember, batch: Batch, offset: int, by: object) -> None:
        """A processor that has answered `next` has finished what is before `offset`."""
        tp = TopicPartition(batch.topic, batch.partition)
        given = self.partitions[tp].current
        if given is not None and (given.consumer, given.to) == (consumer.name, by):
            self._done(given, offset)
            known = self.partitions[tp]
            known.leaves(given.tenure, offset, self.clock.now())

    def after_a_failure(self, consumer: GroupMember, tp: TopicPartition, response: object) -> None:
        """`on_exception` says what to do about the batch that failed."""
        given = self.partitions[tp].current
        if isinstance(response, BatchResponse) and given is not None and given.consumer == consumer.name:
            self.say(f"{consumer.name} answers for {tp} after the failure: {_told(response)}")
            if self._answered(given, response, given.first, given.next) and given.failed_alone:
                self.witness.failure_answered(tp, given.first_record)

    def _answered(self, given: JudgedBatch, response: BatchResponse, first: int, end: int) -> bool:
        """Take an answer in. Returns whether it is one that can be used."""
        known = self.partitions[given.tp]
        if given.abandoned:
            return False
        sent = known.sent(given, self.clock.now())
        floor = sent[0]
        target = response.offset
        if response.verb is Verb.REVERT:
            if target is not None and target > end:
                return False
            given.position = min(floor, first) if target is None else target
            given.otherwise = tuple(min(offset, first) for offset in sent[1:]) if target is None else ()
        else:
            advance = response.verb is Verb.ADVANCE
            if advance and target is not None and (target < floor or (target > end and not response.skip)):
                return False
            given.position = end if target is None else target
            if given.position > end:
                self.witness.passes_over(given.tp, end, given.position, given.epoch)
                known.done.update(range(end, given.position))
                known.passed_over.update(dict.fromkeys(range(end, given.position), given.began))
            if advance or response.commit_within is not None:
                self._done(given, given.position)
            if response.commit_within is not None and not advance:
                known.leaves(given.tenure, given.position, self.clock.now() + response.commit_within)
            if advance and given.tenure == known.tenure and given.position >= floor:
                known.advanced = given.tenure, given.position
        known.given_back -= set(range(first, min(given.position, end)))
        known.given_back |= {offset for offset in known.handed if offset >= given.position}
        if given.tenure != known.tenure:
            return True  # another has it now, and may have processed it
        for offset in range(given.position, end):  # it is redelivered; no commit that is not sent yet passes it before
            if offset >= sent[-1]:
                known.done.discard(offset)
            if offset in known.handed:
                known.handed[offset].advanced = min(known.handed[offset].advanced, given.position)
        return True

    def _done(self, given: JudgedBatch, end: int) -> None:
        """Deliveries of this claim before `end` may be committed, also those answered with `next`."""
        known = self.partitions[given.tp]
        given.advanced = end
        self.witness.answered(given.tp, given.first, end, given.epoch)
        known.answered = max(known.answered, (given.tenure, end))
        for offset in range(known.commit or 0, end):
            before = known.handed.get(offset)
            if before is not None and (before.tenure, before.consumer, before.to) == (
                given.tenure,
                given.consumer,
                given.to,
            ):
                before.advanced = max(before.advanced, end)
                if given.began >= known.moved_at:  # else its commit is void, and the next owner processes it
                    known.done.add(offset)


def _told(response: object) -> str:
    if not isinstance(response, BatchResponse):
        return "it fails"
    more = [f"{name} {value}" for name in ("offset", "commit_within", "wait") if (value := getattr(response, name))]
    return ", ".join([response.verb.value, *more])
