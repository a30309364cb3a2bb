"""Which offsets go to the Kafka group next, and when: the newest of each partition, one request at a time. Pure.

Times are of the channel's clock, in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from inbound.kafka.mirror_base import Answer, Kind, Refusal
from inbound.topic_partition import TopicPartition

#: What lands within so long goes together. People and lag exporters look no more often.
EVERY = 1.0
#: So many partitions go in one request: with the longest names 600 KB, of the 1 MiB that Kafka's own topic takes.
MOST = 1000
#: How long an answer is waited for, and what is not held any more is still sent. Later its new owner has sent a newer one.
ANSWER_WAIT, RELEASED_KEPT = 10.0, 10.0
#: So long after the last claim, or the last failure, all is sent once more: until then a request of the owner before,
#: or an earlier one of ours that was not answered, can still arrive and set an offset back.
ONCE_MORE = RELEASED_KEPT + ANSWER_WAIT + 1.0
#: All is sent so often: Kafka forgets offsets that nobody has committed for `offsets.retention.minutes`, 7 days.
DAY = 86_400.0
#: The longest wait after a failure, from 1 s on doubling; and that after a live group was found.
LONGEST_RETRY, LIVE_GROUP_AGAIN = 60.0, 600.0


@dataclass(frozen=True, slots=True)
class Held:
    """What the channel holds at this moment, as far as that is certain."""

    commits: Mapping[TopicPartition, int]
    doubtful: Set[TopicPartition]  # held in a session that may have ended: maybe another has claimed them
    #: Not held any more, and not released either: another has claimed them, or a reset has moved them.
    lost: Set[TopicPartition] = frozenset()


def wait_after(kind: Kind, failures: int) -> float:
    """Return the seconds until the next try after `failures` in a row, the last one of this kind."""
    if kind is Kind.LIVE_GROUP:
        return LIVE_GROUP_AGAIN
    return min(LONGEST_RETRY, 2.0 ** min(failures - 1, 6))


class MirrorPlan:
    """Holds what is to be sent. Not locked: whoever has it sees to that.

    Offsets go where they were noted last, down too: a reset sets a group back.
    """

    def __init__(self, now: float) -> None:
        """Everything that is held is sent first."""
        self._new: dict[TopicPartition, tuple[int, float]] = {}  # offset, and when it was noted
        self._sent: dict[TopicPartition, tuple[int, float]] = {}  # in the request that is under way
        self._forgotten: set[TopicPartition] = set()  # of these, what is not sent again
        self._refused: set[TopicPartition] = set()  # while others were taken: they wait for `_refused_until`
        self._refused_until = 0.0
        self._not_before = now
        self._paced_until = now
        self._once_more: float | None = now
        self._daily = now + DAY
        self.failures = 0  # in a row
        #: Why the last request failed, in whole or in part; None: it did not.
        self.problem: Refusal | None = None
        #: What of it people were told; by who tells them.
        self.told: Kind | None = None

    @property
    def waiting(self) -> int:
        """How many partitions have an offset that Kafka does not have yet."""
        return len(self._new) + sum(tp not in self._new for tp in self._sent)

    def note(self, tp: TopicPartition, offset: int, now: float) -> bool:
        """An offset landed in ZooKeeper, or was read there. Returns whether nothing was waiting before: look at `due`."""
        first = not self._new
        self._new[tp] = (offset, now)
        return first

    def forget(self, tp: TopicPartition) -> None:
        """Another member may own the partition, and have sent a newer offset."""
        self._new.pop(tp, None)
        self._forgotten.add(tp)

    def claimed(self, now: float) -> None:
        """Partitions were claimed: some time after the last claim all is sent once more."""
        self._once_more = now + ONCE_MORE

    def due(self, *, hurry: bool = False) -> float:
        """Return when to call `take`, if nothing is noted before. `hurry`: without collecting for a while."""
        start = self._not_before if hurry else max(self._not_before, self._paced_until)
        rounds = [self._daily, *([] if self._once_more is None else [self._once_more])]
        times = [max(start, at) for at in rounds]
        if any(tp not in self._refused for tp in self._new):
            times.append(start)
        elif self._new:
            times.append(max(start, self._refused_until))
        return min(times)

    def take(self, held: Held, now: float) -> dict[TopicPartition, int]:
        """Return what goes in the request that is made now; nothing, if there is nothing to be sent."""
        if now >= self._daily or (self._once_more is not None and now >= self._once_more):
            self._daily, self._once_more = now + DAY, None
            for tp, offset in held.commits.items():
                self._new.setdefault(tp, (offset, now))
        if now >= self._refused_until:
            self._refused.clear()
        for tp, (offset, noted) in list(self._new.items()):
            ours = tp in held.commits
            released = not ours and tp not in held.doubtful
            if released and (tp in held.lost or now - noted > RELEASED_KEPT):
                del self._new[tp]  # its new owner sends what it has
            elif (ours or released) and tp not in self._refused and len(self._sent) < MOST:
                self._sent[tp] = (offset, noted)
                self._forgotten.discard(tp)
                del self._new[tp]
        if not (self._new or self._sent):
            self.failures, self.problem = 0, None  # what was refused is others' by now
        # What is in doubt is looked at again; what did not fit goes as soon as this is answered.
        full = len(self._sent) >= MOST
        self._paced_until = now if full else now + EVERY
        return {tp: offset for tp, (offset, _) in self._sent.items()}

    def failed(self, refusal: Refusal, now: float) -> None:
        """The request that is under way has failed as a whole, or is given up."""
        self.answered(dict.fromkeys(self._sent, refusal), now)

    def try_again(self, now: float) -> None:
        """Brokers are reached in another way from now on: do not wait for what was wrong before."""
        self._not_before = min(self._not_before, now)
        self._refused.clear()

    def answered(self, answer: Answer, now: float) -> int:
        """The request was answered. Returns how many offsets were taken."""
        sent, self._sent = self._sent, {}
        refused = {tp: refusal for tp, refusal in answer.items() if tp in sent}
        taken = len(sent) - len(refused)
        for tp in refused.keys() - self._forgotten:
            self._new.setdefault(tp, sent[tp])
        if refused:
            self.failures += 1
            self.problem = next(iter(refused.values()))
            self._once_more = now + ONCE_MORE
            again = now + max(wait_after(refusal.kind, self.failures) for refusal in refused.values())
            if taken:
                self._refused, self._refused_until = self._refused | refused.keys(), again
            else:
                self._not_before = again
        elif not self._refused:
            self.failures, self.problem = 0, None
        return taken
