"""The facts that explain a partition at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Cause(Enum):
    """A cause; `/status`, metrics and logs show its value."""

    # all is well
    HEALTHY = "healthy"  # it moves, and is near the end of the log
    CATCHING_UP = "catching-up"  # it moves, and there is much to read
    IDLE = "idle"  # there is nothing to read
    STARTING = "starting"  # claimed a moment ago
    RELEASING = "releasing"
    # an operator, or the processor, wants it so
    PAUSED = "paused"
    WAITING = "waiting"  # the processor's answer asked for a delay
    RATE = "max-read-rate"
    SUBSCRIBER_LIMIT = "subscriber-limit"  # its requests wait for their turn
    DELAYED_RETRY = "delayed-retry"  # the next event of a retry topic is not due yet
    RESET = "reset"  # a reset has closed the gate
    # the processor
    SLOW_PROCESSOR = "slow-processor"
    REVERT_LOOP = "revert-loop"
    PROCESSOR_FAILS = "processor-fails"
    POISON_EVENT = "poison-event"
    SUBSCRIBER_DOWN = "subscriber-down"
    SUBSCRIBER_SLOW = "subscriber-slow"
    DEAD_LETTERS = "dead-letters"
    # the servers
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
    BUFFER_FULL = "buffer-full"  # other partitions' buffers take all the room
    WORKERS_BUSY = "workers-busy"
    LEDGER = "ledger"
    INTERNAL = "internal"
    # its owner
    LOST = "lost"  # another consumer has claimed it; it is being dropped
    ABANDONED = "abandoned"  # released, and its callback still runs
    OWNER_SILENT = "owner-silent"  # its owner does not answer
    BEING_CLAIMED = "being-claimed"  # without an owner; a member is about to claim it
    NONE_ALLOWED = "nobody-allowed"  # no coordinator of the group may take it
    BAD_NODE = "bad-node"  # ZooKeeper refuses a node of it, or it holds nonsense
    NO_MEMBER = "no-member"  # the group has no consumer
    NO_PARTITION = "no-partition"  # there is no such partition


#: Nothing is wrong, or the state is wanted: no stall.
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
    """The cause, in words for a tired person."""

    cause: Cause
    text: str  # one sentence, without the partition
    todo: str = ""  # what to do; empty: nothing
    lasting: float | None = None  # seconds that it has been so, where the facts say it
    evidence: tuple[str, ...] = ()


def duration(seconds: float) -> str:
    """Return a readable duration, such as `3 min 20 s`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    if seconds < 172800:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{int(seconds // 86400)} d"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """A partition that this process holds.

    Times are in seconds.
    """

    topic: str
    place: str = "scheduled"  # see `inbound.partition.place.Place`
    fate: str = "keep"  # keep, release or drop
    position: int = 0  # next offset to deliver
    committed: int | None = None
    end: int | None = None  # of the readable records, as far as is known
    buffered: int = 0  # records read ahead
    advanced_for: float = 0.0  # since a commit landed, or records were delivered for the first time
    still_for: float = 0.0  # since that, since it was idle, or since a wanted wait
    rate: float = 0.0  # records a second, of late
    held_for: float = 0.0  # since the claim
    settling_for: float | None = None  # since its commit is in flight
    uncommitted: int = 0  # records that were answered for, and whose commit is in flight
    commit_problem: str | None = None  # why ZooKeeper refuses it
    callback_for: float | None = None  # since on_next_batch was called with the batch in hand, or another callback
    callback: str = "on_next_batch"
    batch: tuple[int, int] | None = None  # its offsets: first, next
    stack: str | None = None  # where its thread or coroutine is
    rest_for: float = 0.0  # until the next read, by the processor's answer or a backoff
    attempts: int = 0  # failures in a row
    failing: tuple[int, int] | None = None  # offsets of the failing records: first, next
    last_error: str | None = None
    held: str | None = None  # why nothing is read before an operator acts
    held_cause: str | None = None
    dead_letter_problem: str | None = None
    read_error: str | None = None  # the brokers' error for the last fetch
    refused: bool = False  # `read_error` is a matter of rights
    out_of_range: str | None = None
    no_room: bool = False  # the processor's `room` says 0
    reverts: int = 0  # in a row, to `reverted_to`
    reverted_to: int | None = None
    waits: tuple[str, str] | None = None  # see BatchEventProcessor.waits
    reader_paused: bool = False
    led: bool = True  # its leader answers
    unread: int = 0  # records up to the end that the client did not fetch at two looks in a row

    @property
    def lag(self) -> int | None:
        """The number of uncommitted records; None while the end is unknown."""
        if self.end is None:
            return None
        return max(0, self.end - (self.position if self.committed is None else self.committed))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelFacts:
    """The channel that holds it."""

    name: str = "channel"
    pauses: tuple[str, ...] = ()  # who paused, since when, and how it ends
    #: Resets that have closed a gate: topic, name, step (empty: not known), and seconds since then (None: not known).
    resets: tuple[tuple[str, str, str, float | None], ...] = ()
    kafka_problem: str | None = None
    kafka_refused: bool = False  # the brokers refuse our credentials
    ledger_problem: str | None = None
    degrade: bool = False  # it goes on without its ledger
    topic_exists: bool = True
    workers: int = 1
    event_loop: bool = False  # instead of workers: all callbacks share it
    busy: tuple[tuple[str, float], ...] = ()  # partitions in callbacks, the longest first, with seconds
    prefetch: tuple[int, int] = (0, 0)  # bytes read ahead in all, and their limit
    fullest: tuple[tuple[str, int], ...] = ()  # the partitions with the largest buffers, and bytes
    silent: tuple[str, ...] = ()  # internal threads that are dead or stuck, with where they are
    commits_waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """The ZooKeeper session."""

    connected: bool = True
    certain: bool = True  # of this partition's owner node
    away_for: float | None = None
    known_pauses: bool = True  # the pauses were read on this connection
