"""The causes that a partition's state can have, and what an explanation is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Cause(Enum):
    """A cause; the values are what `/status`, metrics and logs say."""

    # all is well
    HEALTHY = "healthy"  # it moves, and is near the end of the log
    CATCHING_UP = "catching-up"  # it moves, and there is much to read
    IDLE = "idle"  # there is nothing to read
    STARTING = "starting"  # claimed a moment ago
    RELEASING = "releasing"  # it is being given up
    # somebody wants it so
    PAUSED = "paused"
    WAITING = "waiting"  # the processor's answer asked for a rest
    RATE = "max-read-rate"
    SUBSCRIBER_LIMIT = "subscriber-limit"  # its requests wait for their turn
    DELAYED_RETRY = "delayed-retry"  # what is next in a retry topic is not due yet
    RESET = "reset"  # a reset has closed the gate
    # what the processor does
    SLOW_PROCESSOR = "slow-processor"
    REVERT_LOOP = "revert-loop"
    PROCESSOR_FAILS = "processor-fails"
    POISON_EVENT = "poison-event"
    SUBSCRIBER_DOWN = "subscriber-down"
    SUBSCRIBER_SLOW = "subscriber-slow"
    DEAD_LETTERS = "dead-letters"
    # what the servers do
    SESSION_SUSPENDED = "session-suspended"
    IN_DOUBT = "in-doubt"
    COMMIT_WAITS = "commit-waits"
    BROKER_AWAY = "broker-away"
    NOT_ALLOWED = "not-allowed"  # authentication or authorization failed
    TOPIC_MISSING = "topic-missing"
    OUT_OF_RANGE = "out-of-range"
    READ_FAILS = "read-fails"
    # inside
    NOT_FETCHING = "not-fetching"  # assigned, and the client does not fetch
    BUFFER_FULL = "buffer-full"  # what others have read ahead takes all the room
    WORKERS_BUSY = "workers-busy"
    LEDGER = "ledger"
    INTERNAL = "internal"
    # who has it
    LOST = "lost"  # another consumer has claimed it; it is being dropped
    ABANDONED = "abandoned"  # given up, and its callback still runs
    OWNER_SILENT = "owner-silent"  # it has an owner that does not answer
    BEING_CLAIMED = "being-claimed"  # nobody has it; a member will take it any moment
    NOBODY_ALLOWED = "nobody-allowed"  # no coordinator of the group may take it
    BAD_NODE = "bad-node"  # ZooKeeper refuses a node of it, or it holds nonsense
    NO_MEMBER = "no-member"  # the group has no consumer
    NO_PARTITION = "no-partition"  # there is no such partition


#: Nothing is wrong, or somebody wants it so: no stall is told of.
BENIGN = frozenset(
    {
        Cause.HEALTHY,
        Cause.CATCHING_UP,
        Cause.IDLE,
        Cause.STARTING,
        Cause.RELEASING,
        Cause.PAUSED,
        Cause.WAITING,
        Cause.RATE,
        Cause.SUBSCRIBER_LIMIT,
        Cause.DELAYED_RETRY,
        Cause.RESET,
        Cause.BEING_CLAIMED,
    }
)
#: It moves.
MOVING = frozenset({Cause.HEALTHY, Cause.CATCHING_UP})


@dataclass(frozen=True, slots=True)
class Explanation:
    """The cause, and what to say of it to a tired person."""

    cause: Cause
    text: str  # one sentence, without the partition
    todo: str = ""  # what to do; empty: nothing
    lasting: float | None = None  # for how long it has been so, in seconds, where the facts say it
    evidence: tuple[str, ...] = ()  # what it was seen by


def duration(seconds: float) -> str:
    """Return a time span for people: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`, `3 d`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return (
        f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
        if seconds < 172800
        else f"{int(seconds // 86400)} d"
    )
