"""Decides which offsets go to the Kafka group, and when. Pure.

The newest offset of each partition goes, one request at a time. Times are of the channel's clock, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from inbound.runtime.backoff import Backoff
from inbound.topic_partition import TopicPartition


class Kind(Enum):
    """Why offsets were not taken."""

    LIVE_GROUP = "live-group"  # the Kafka group has members: its offsets are theirs
    DENIED = "denied"  # an ACL
    COORDINATOR = "coordinator"  # the group's coordinator is about to be elected, or loads
    UNREACHABLE = "unreachable"  # no broker answers, or lets us in
    NO_TOPIC = "no-topic"  # the topic or partition is not there any more
    OTHER = "other"


#: Kafka's error codes; both clients say them. Other codes are OTHER, and UNREACHABLE where a client found it itself.
KINDS: Mapping[int, Kind] = {
    22: Kind.LIVE_GROUP,  # ILLEGAL_GENERATION
    23: Kind.LIVE_GROUP,  # INCONSISTENT_GROUP_PROTOCOL
    25: Kind.LIVE_GROUP,  # UNKNOWN_MEMBER_ID: the usual answer
    27: Kind.LIVE_GROUP,  # REBALANCE_IN_PROGRESS
    68: Kind.LIVE_GROUP,  # NON_EMPTY_GROUP
    82: Kind.LIVE_GROUP,  # FENCED_INSTANCE_ID
    113: Kind.LIVE_GROUP,  # STALE_MEMBER_EPOCH
    29: Kind.DENIED,  # TOPIC_AUTHORIZATION_FAILED
    30: Kind.DENIED,  # GROUP_AUTHORIZATION_FAILED
    31: Kind.DENIED,  # CLUSTER_AUTHORIZATION_FAILED
    7: Kind.UNREACHABLE,  # REQUEST_TIMED_OUT
    14: Kind.COORDINATOR,  # COORDINATOR_LOAD_IN_PROGRESS
    15: Kind.COORDINATOR,  # COORDINATOR_NOT_AVAILABLE
    16: Kind.COORDINATOR,  # NOT_COORDINATOR
    3: Kind.NO_TOPIC,  # UNKNOWN_TOPIC_OR_PARTITION
    17: Kind.NO_TOPIC,  # INVALID_TOPIC_EXCEPTION
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one partition's offset was not taken."""

    kind: Kind
    said: str


#: The partitions whose offsets were not taken; those of the request that are not in it were.
Answer = Mapping[TopicPartition, Refusal]


#: Returns what came of a request; None while it is not answered. By the thread that sent it.
Asked = Callable[[], Answer | None]


class MirrorClient(Protocol):
    """A client of the brokers for one Kafka group; for one thread."""

    def send(self, offsets: Mapping[TopicPartition, int], wake: Callable[[], None]) -> Asked:
        """Write offsets, and return at once. `wake` is called when the answer is there, in any thread."""

    def close(self) -> None:
        """Close the connections; what has not been answered may never be."""


#: Makes the client for a Kafka group. Raises BrokerUnavailableError: no broker answers, or lets us in. May wait for it.
Connect = Callable[[str], MirrorClient]


#: The kinds of failure, all there from 0 on.
FAILURES = tuple(kind.value for kind in Kind)


@dataclass(frozen=True, kw_only=True)
class MirrorStatus:
    """The progress of a channel's mirror."""

    group: str
    state: str  # `mirroring`; `refused`: the group has members; `failing`
    problem: str | None = None  # why it is not mirroring
    waiting: int = 0  # partitions with an offset that Kafka does not have yet
    offsets_total: int = 0  # that Kafka took
    failures: dict[str, int] = field(default_factory=dict)  # requests that failed, in whole or in part, by kind
    last_success_age: float | None = None  # seconds since Kafka took offsets last; None: it never did


def refusal_of(code: int, said: str) -> Refusal:
    """Return the refusal that a Kafka error code means. Below 0 it is a client's own."""
    return Refusal(Kind.UNREACHABLE if code < 0 else KINDS.get(code, Kind.OTHER), said)


#: Commits that land within so long go together. People and lag exporters look no more often.
EVERY = 1.0
#: So many partitions go in one request: with the longest names 600 KB, of the 1 MiB that Kafka's own topic takes.
MOST = 1000
#: How long an answer is waited for, and what is not held any more is still sent. Later its new owner has sent a newer one.
ANSWER_WAIT, RELEASED_KEPT = 10.0, 10.0
#: So long after the last claim, or the last failure, all is sent once more: until then a request of the owner before,
#: or an earlier one of ours that was not answered, can still arrive and set an offset back.
ONCE_MORE = RELEASED_KEPT + ANSWER_WAIT + 1.0
#: All offsets are sent so often: Kafka forgets those that were not committed for `offsets.retention.minutes`, 7 days.
DAY = 86_400.0
#: The wait after a failure; and, in seconds, after a live group was found.
RETRY, LIVE_GROUP_AGAIN = Backoff(1.0, 60.0), 600.0


@dataclass(frozen=True, slots=True)
class Held:
    """The offsets that the channel holds now, as far as certain."""

    commits: Mapping[TopicPartition, int]
    doubtful: Set[TopicPartition]  # held in a session that may have ended: maybe another has claimed them
    #: Not held any more, and not released either: another has claimed them, or a reset has moved them.
    lost: Set[TopicPartition] = frozenset()


def wait_after(kind: Kind, failures: int) -> float:
    """Return the seconds until the next try after `failures` in a row."""
    if kind is Kind.LIVE_GROUP:
        return LIVE_GROUP_AGAIN
    return RETRY.delay(failures)


class MirrorPlan:
    """Holds what is to be sent. Not locked: its user holds the lock.

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
        #: The part of it that was logged last.
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
        """Send everything once more some time after the last claim."""
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
        """Return the offsets of the request that is made now."""
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
                del self._new[tp]  # its new owner mirrors it
            elif (ours or released) and tp not in self._refused and len(self._sent) < MOST:
                self._sent[tp] = (offset, noted)
                self._forgotten.discard(tp)
                del self._new[tp]
        if not (self._new or self._sent):
            self.failures, self.problem = 0, None  # what was refused is others' by now
        # Partitions in doubt are looked at again; those that did not fit go as soon as this is answered.
        full = len(self._sent) >= MOST
        self._paced_until = now if full else now + EVERY
        return {tp: offset for tp, (offset, _) in self._sent.items()}

    def failed(self, refusal: Refusal, now: float) -> None:
        """Note that the request under way has failed, or is given up."""
        self.answered(dict.fromkeys(self._sent, refusal), now)

    def try_again(self, now: float) -> None:
        """Do not wait for earlier problems: brokers are reached in another way."""
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
