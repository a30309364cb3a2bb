"""One partition that this consumer holds: where it is, what is to become of it, and what is known of it.

Where it is, is a table. A partition is in exactly one place, and only who has it there may touch it; that is what
keeps callbacks of one partition from overlapping, without flags.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from inbound.channel.buffer import RecordBuffer
from inbound.channel.failure_state import FailureState
from inbound.channel.position import Position
from inbound.channel.stall import Stall
from inbound.coordinators.claim import Fence
from inbound.coordinators.nodes import EpochInfo
from inbound.coordinators.zookeeper import Call
from inbound.errors import IllegalTransitionError, OffsetOutOfRangeError, UnreadableBatchError
from inbound.processors.base import BatchEventProcessor
from inbound.processors.batch import Batch
from inbound.topic_partition import TopicPartition


class Place(Enum):
    """Where a partition is, and so who may touch it."""

    STARTING = "starting"  # the reader resolves its position, the committer may be writing the first one
    SCHEDULED = "scheduled"  # in the heap: due at a time, or when records come
    RUNNING = "running"  # with one worker, or one turn of the event loop
    SETTLING = "settling"  # waits for commits that are on their way
    LEAVING = "leaving"  # with the controller, which deletes the owner node
    ABANDONED = "abandoned"  # given up while its callback still runs; not claimed again before that has ended
    GONE = "gone"

    __hash__ = object.__hash__  # by identity, without a step of the interpreter: looked up several times for each batch


class Step(Enum):
    """What moves a partition."""

    START = "start"  # its position is known, and committed
    TAKE = "take"  # a worker took it
    PUT_BACK = "put back"  # the worker is done, nothing to commit
    PLACE = "place"  # the processor has said where to begin; the reader holds that against the log
    SETTLE = "settle"  # the worker is done, and nothing more is handed out before commits have landed
    SETTLED = "settled"  # they have, or were refused
    GIVE_UP = "give up"  # nothing more to do but to delete the owner node
    LEAVE = "leave"  # it is not ours any more
    ABANDON = "abandon"  # its callback did not end in time

    __hash__ = object.__hash__


P, S = Place, Step
TRANSITIONS: Mapping[tuple[Place, Step], Place] = {
    (P.STARTING, S.START): P.SCHEDULED,
    (P.STARTING, S.GIVE_UP): P.LEAVING,  # asked to release before the first batch: no callback has seen it
    (P.STARTING, S.LEAVE): P.GONE,
    (P.SCHEDULED, S.TAKE): P.RUNNING,
    (P.RUNNING, S.PUT_BACK): P.SCHEDULED,
    (P.RUNNING, S.PLACE): P.STARTING,  # on_claim has answered
    (P.RUNNING, S.SETTLE): P.SETTLING,
    (P.RUNNING, S.GIVE_UP): P.LEAVING,  # on_stream_termination is done, with nothing to commit
    (P.RUNNING, S.LEAVE): P.GONE,  # PartitionLost was told
    (P.RUNNING, S.ABANDON): P.ABANDONED,
    (P.SETTLING, S.SETTLED): P.SCHEDULED,
    (P.SETTLING, S.GIVE_UP): P.LEAVING,  # the last commit, asked for by on_stream_termination, is through
    (P.SETTLING, S.ABANDON): P.GONE,  # ZooKeeper did not answer until the end of the shutdown
    (P.SCHEDULED, S.ABANDON): P.GONE,
    (P.STARTING, S.ABANDON): P.GONE,
    (P.LEAVING, S.LEAVE): P.GONE,
    (P.LEAVING, S.ABANDON): P.GONE,
    (P.ABANDONED, S.LEAVE): P.GONE,  # the callback has ended after all; its answer is discarded
}


#: From here on no worker, reader or committer moves the partition.
DRAINED = frozenset({Place.LEAVING, Place.ABANDONED, Place.GONE})


class Fate(IntEnum):
    """What is to become of a partition; it only ever gets worse."""

    KEEP = 0
    RELEASE = 1  # in good order: let the batch end, commit, tell the processor, delete the owner node
    DROP = 2  # at once and without commit: it is not ours any more


@dataclass(eq=False)
class Handle:
    """By what a processor names a claim, as long as the log that it was handed records of is not cut."""

    partition: Partition


@dataclass(eq=False, slots=True)
class Quiet:
    """What a processor was told of spells without records, and of pauses."""

    idle_since: float | None = None  # clock time; None while there is something to read
    idle_told: bool = False  # on_idle was called in this idle spell
    paused_since: float | None = None  # clock time at which the processor was told of a pause; None: it reads


@dataclass(eq=False, slots=True)
class Totals:
    """What one claim amounted to, and the callback that it is in."""

    records: int = 0
    batches: int = 0
    commits: int = 0
    last_batch_at: float | None = None  # wall time
    batch_since: float | None = None  # clock time at which on_next_batch was called; None between calls
    other_call: tuple[str, float] | None = None  # the same of another callback, with its name

    def in_call(self, name: str) -> bool:
        """Whether that callback is under way, which is not on_next_batch."""
        return self.other_call is not None and self.other_call[0] == name


@dataclass(eq=False)
class Partition:
    """A held partition. Fields are written by whoever has it in its place, `fate` and `fence` under the schedule's lock."""

    tp: TopicPartition
    fence: Fence
    position: Position
    added_later: bool = False
    topic_id: str | None = None  # of the topic that it was claimed in
    #: What the brokers call that topic, if it cannot be told whether it is the same: the partition is held.
    unclear: str | None = None
    info: EpochInfo | None = None  # what stands in the epoch node, by our claim
    #: The processor that its callbacks go to, from its first turn on; a newer one takes over between two batches.
    served_by: BatchEventProcessor | None = None
    reopened: bool = False  # it is asked again where it begins, although it is being read already
    handing_over: bool = False  # that one was told that the partition goes
    why_lost: str = "another consumer owns it now; what it was handed since the last commit is read again there"
    place: Place = Place.STARTING
    fate: Fate = Fate.KEEP
    buffer: RecordBuffer = field(default_factory=RecordBuffer)
    batch: Batch | None = None  # the one inside a callback
    commit_problem: str | None = None  # why its commit cannot be written, while those of others can
    settles_within: int = 0  # so many records may be on their way when it goes on from where it settles
    kept_bytes: int = 0  # of batches that wait to be told of their commits: since nothing was on its way last
    last: bool = False  # what is settling are the last commits before the release
    sends_on: bool = False  # it was abandoned: what it had advanced is committed all the same, unless that is refused
    failure: FailureState = field(default_factory=FailureState)
    quiet: Quiet = field(default_factory=Quiet)
    stall: Stall = field(default_factory=Stall)
    totals: Totals = field(default_factory=Totals)
    callbacks: deque[Callable[[], object]] = field(default_factory=deque)  # to run on a worker, before the next batch
    problem: OffsetOutOfRangeError | UnreadableBatchError | None = None  # found by the reader; for the worker to act on
    problem_of: int = (
        0  # the buffer's generation then: 1. the reader finds it; 2. a worker jumps; 3. the reader sets it
    )
    no_room: bool = False  # the processor said so when it was asked last
    #: What was handed out last counts no more: the log was cut below it, or the processor failed on it. It is read again, and by
    #: that the processor learns of it.
    taken_back: bool = False
    max_bytes: int | None = None  # asked for by the last response, for the next read only
    due: float = 0.0
    rest_until: float = 0.0  # asked for by the last response or a back-off: records do not make it due before
    ticket: int = 0  # tells the heap's current entry from outdated ones
    drained: Call[None] = field(default_factory=lambda: Call("drain"))  # done once its place is one of `DRAINED`
    handle: Handle = field(init=False)  # replaced, under the schedule's lock, when the log was cut

    def __post_init__(self) -> None:
        self.handle = Handle(self)

    def try_again(self) -> None:
        """Forget why it is not read. By whoever has it, as a callback."""
        failure = self.failure
        if failure.held is not None:
            self.rest_until = 0.0  # a hold may be a rest without an end
        failure.held = failure.held_cause = None
        failure.attempts = 0
        if isinstance(self.problem, UnreadableBatchError):
            self.problem.faced = True  # also one that is not yet: it may be read with other settings

    def move(self, step: Step) -> None:
        """Go where the table says.

        Raises:
            IllegalTransitionError: the table has no such step from here; nothing is changed.
        """
        try:
            self.place = TRANSITIONS[self.place, step]
        except KeyError:
            raise IllegalTransitionError(f"{self.tp}: no step {step.value!r} from {self.place.value!r}") from None
        if self.place in DRAINED:
            self.drained.succeed(None)

    @property
    def committed(self) -> int | None:
        """What stands in ZooKeeper, as far as we know."""
        return self.position.committed

    @property
    def noted(self) -> bool:
        """Whether the epoch node tells of a reset until the first commit: what it has moved must not be read for long."""
        info = self.info
        return info is not None and (info.reset is not None or info.recreated is not None)

    @property
    def end(self) -> int | None:
        """Where the log ends, as fetches said or, where none comes, the leader when it was asked."""
        ends = [end for end in (self.position.high_watermark, self.stall.log_end) if end is not None]
        return max(ends, default=None)

    @property
    def lag(self) -> int | None:
        """Records in the log that are not committed yet; None while the log's end is not known."""
        end = self.end
        return (
            None
            if end is None
            else max(0, end - (self.committed if self.committed is not None else self.position.delivered))
        )
