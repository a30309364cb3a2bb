"""The answers of processors, as the judge understands them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from inbound.clock import Clock
from inbound.processors.batch import Batch, BatchResponse, Verb
from inbound.testing.simulation.judged_partitions import JudgedBatch, JudgedPartition
from inbound.testing.simulation.witness import GroupMember, Witness
from inbound.topic_partition import TopicPartition


@dataclass(eq=False)
class AnswerBook:
    """Records the answers of one group's processors."""

    partitions: Mapping[TopicPartition, JudgedPartition]
    witness: Witness
    clock: Clock
    say: Callable[[str], None]
    #: Batches that are in a callback: the process and the partition.
    awaited: set[tuple[str, TopicPartition]] = field(default_factory=set, init=False)

    def ends(self, given: JudgedBatch, response: object) -> None:
        """A callback has ended with an answer, or failed (None)."""
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
        """A callback without a batch answers for all deliveries since the commit."""
        given = self.partitions[tp].current
        if isinstance(response, BatchResponse) and given is not None and given.consumer == consumer.name:
            self.say(f"{consumer.name} answers for {tp} without a batch: {_told(response)}")
            position = given.position if given.position is not None else given.first
            self._answered(given, response, position, position)

    def finished(self, consumer: GroupMember, batch: Batch, offset: int, by: object) -> None:
        """A processor that answered `next` has finished what is before `offset`."""
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
        """Apply an answer; return whether it is valid."""
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
        """Allow commits of this claim's deliveries before `end`, `next` included."""
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
