"""Decides which offsets go to the Kafka group, and when. Pure.

It sends the newest offset of each partition, one request at a time. Times are of the channel's clock, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from inbound.runtime.backoff import Backoff
from inbound.topic_partition import TopicPartition


class Kind(Enum):
    """Why Kafka did not accept offsets."""

    LIVE_GROUP = "live-group"  # the Kafka group has members: its offsets are theirs
    DENIED = "denied"  # an ACL
    COORDINATOR = "coordinator"  # the group's coordinator is being elected, or loads
    UNREACHABLE = "unreachable"  # no broker answers or accepts us
    NO_TOPIC = "no-topic"  # the topic or partition does not exist any more
    OTHER = "other"


#: Kafka's error codes, as both clients report them. Other codes are OTHER; a client's own, below 0, are UNREACHABLE.
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
class RefusedOffset:
    """Why Kafka did not accept one partition's offset."""

    kind: Kind
    said: str


#: The refused partitions of a request; Kafka accepted the others.
Answer = Mapping[TopicPartition, RefusedOffset]


#: Returns the answer to a request; None before it arrives. For the thread that sent it.
Asked = Callable[[], Answer | None]


class MirrorClient(Protocol):
    """A client for the offsets of one Kafka group. For one thread."""

    def send(self, offsets: Mapping[TopicPartition, int], wake: Callable[[], None]) -> Asked:
        """Write offsets without waiting; the answer calls `wake`, on any thread."""

    def close(self) -> None:
        """Close the connections; open requests may never be answered."""


#: Makes the client for a Kafka group. Raises BrokerUnavailableError: no broker answers or accepts us. May wait for a broker.
Connect = Callable[[str], MirrorClient]


#: The kinds of failure, each counted from 0.
FAILURES = tuple(kind.value for kind in Kind)


@dataclass(frozen=True, kw_only=True)
class MirrorStatus:
    """The progress of a channel's mirror."""

    group: str
    state: str  # `mirroring`; `refused`: the group has members; `failing`
    problem: str | None = None  # why it is not mirroring
    waiting: int = 0  # partitions with an offset that Kafka does not have yet
    offsets_total: int = 0  # that Kafka accepted
    failures: dict[str, int] = field(default_factory=dict)  # requests that failed, in whole or in part, by kind
    last_success_age: float | None = None  # seconds since Kafka accepted offsets; None: never


def refusal_of(code: int, said: str) -> RefusedOffset:
    """Return the refusal for an error code; clients have negative ones."""
    return RefusedOffset(Kind.UNREACHABLE if code < 0 else KINDS.get(code, Kind.OTHER), said)


#: Commits that land within this time go together: people and lag exporters look no more often.
EVERY = 1.0
#: The most partitions of a request: with the longest names 600 KB, of the 1 MiB that Kafka's own topic accepts.
MOST = 1000
#: The time limit for an answer; and for sending offsets of released partitions: after it the new owner has sent newer ones.
ANSWER_WAIT, RELEASED_KEPT = 10.0, 10.0
#: This time after the last claim or failure, all offsets are sent once more: until then a request of the previous owner, or an
#: earlier unanswered one of ours, can still arrive and set an offset back.
ONCE_MORE = RELEASED_KEPT + ANSWER_WAIT + 1.0
#: The interval of sending all offsets: Kafka drops those without a commit for `offsets.retention.minutes`, 7 days.
DAY = 86_400.0
#: The backoff after a failure, and the wait after a live group.
RETRY, LIVE_GROUP_AGAIN = Backoff(1.0, 60.0), 600.0


@dataclass(frozen=True, slots=True)
class Held:
    """The committed offsets of the channel's partitions."""

    commits: Mapping[TopicPartition, int]
    doubtful: Set[TopicPartition]  # the session may have expired: another member may have claimed them
    #: Lost without a release: another member has claimed them, or a reset has moved them.
    lost: Set[TopicPartition] = frozenset()


def wait_after(kind: Kind, failures: int) -> float:
    """Return the seconds until the next try after `failures` in a row."""
    return LIVE_GROUP_AGAIN if kind is Kind.LIVE_GROUP else RETRY.delay(failures)


class MirrorPlan:
    """Holds the offsets to send. Its user holds a lock.

    The last noted offset counts, even if it is lower: a reset sets a group back.
    """

    def __init__(self, now: float) -> None:
        """The first request has the offsets of all partitions."""
        self._new: dict[TopicPartition, tuple[int, float]] = {}  # the offset, and the time of its note
        self._sent: dict[TopicPartition, tuple[int, float]] = {}  # in the pending request
        self._forgotten: set[TopicPartition] = set()  # those of it that are not sent again
        self._refused: set[TopicPartition] = set()  # they wait for `_refused_until`; Kafka accepted others
        self._refused_until = 0.0
        self._not_before = now
        self._paced_until = now
        self._once_more: float | None = now
        self._daily = now + DAY
        self.failures = 0  # in a row
        #: Why the last request failed, in whole or in part; None: it did not.
        self.problem: RefusedOffset | None = None
        self.told: Kind | None = None  # the kind of the last logged problem

    @property
    def waiting(self) -> int:
        """The number of partitions whose offset Kafka does not have yet."""
        return len(self._new) + sum(tp not in self._new for tp in self._sent)

    def note(self, tp: TopicPartition, offset: int, now: float) -> bool:
        """Note an offset; return whether it is the only new one.

        If so, `due` may have changed.
        """
        first = not self._new
        self._new[tp] = (offset, now)
        return first

    def forget(self, tp: TopicPartition) -> None:
        """Drop a partition whose new owner may have sent a newer offset."""
        self._new.pop(tp, None)
        self._forgotten.add(tp)

    def claimed(self, now: float) -> None:
        """Send everything once more some time after the last claim."""
        self._once_more = now + ONCE_MORE

    def due(self, *, hurry: bool = False) -> float:
        """Return when to call `take`; earlier if `hurry`, without collecting commits."""
        start = self._not_before if hurry else max(self._not_before, self._paced_until)
        times = [max(start, at) for at in (self._daily, self._once_more) if at is not None]
        if any(tp not in self._refused for tp in self._new):
            times.append(start)
        elif self._new:
            times.append(max(start, self._refused_until))
        return min(times)

    def take(self, held: Held, now: float) -> dict[TopicPartition, int]:
        """Return the offsets of the next request."""
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
            self.failures, self.problem = 0, None  # the refused partitions have other owners now
        # Doubtful partitions are checked again; those that did not fit go as soon as this request is answered.
        full = len(self._sent) >= MOST
        self._paced_until = now if full else now + EVERY
        return {tp: offset for tp, (offset, _) in self._sent.items()}

    def failed(self, refusal: RefusedOffset, now: float) -> None:
        """Note that the pending request has failed or timed out."""
        self.answered(dict.fromkeys(self._sent, refusal), now)

    def try_again(self, now: float) -> None:
        """Retry at once: the settings have changed."""
        self._not_before = min(self._not_before, now)
        self._refused.clear()

    def answered(self, answer: Answer, now: float) -> int:
        """Note the request's answer; return how many offsets Kafka accepted."""
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
