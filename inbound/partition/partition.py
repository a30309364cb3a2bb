"""One held partition: its place, its fate, and its state.

Where it is, is a table. A partition is in exactly one place, and only who has it there may touch it; that is what
keeps callbacks of one partition from overlapping, without flags.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from inbound.coordinators.nodes import EpochInfo
from inbound.coordinators.ownership import Fence
from inbound.coordinators.zookeeper import Call
from inbound.errors import IllegalTransitionError, OffsetOutOfRangeError, UnreadableBatchError
from inbound.partition.buffer import RecordBuffer
from inbound.partition.position import Position
from inbound.processors.base import BatchEventProcessor
from inbound.processors.batch import Batch
from inbound.runtime.transitions import Transitions
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
    """An event that moves a partition."""

    START = "start"  # its position is known, and committed
    TAKE = "take"  # a worker took it
    PUT_BACK = "put back"  # the worker is done, nothing to commit
    PLACE = "place"  # the processor has said where to begin; the reader holds that against the log
    SETTLE = "settle"  # the worker is done, and nothing more is delivered before commits have landed
    SETTLED = "settled"  # they have, or were refused
    GIVE_UP = "give up"  # nothing more to do but to delete the owner node
    LEAVE = "leave"  # it is not ours any more
    ABANDON = "abandon"  # its callback did not end in time

    __hash__ = object.__hash__


P, S = Place, Step
TRANSITIONS = Transitions(
    "partition",
    {
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
    },
)


#: From here on no worker, reader or committer moves the partition.
DRAINED = frozenset({Place.LEAVING, Place.ABANDONED, Place.GONE})


class Fate(IntEnum):
    """The fate of a partition; it only ever gets worse."""

    KEEP = 0
    RELEASE = 1  # gracefully: let the batch end, commit, tell the processor, delete the owner node
    DROP = 2  # at once and without commit: it is not ours any more


@dataclass(eq=False)
class Handle:
    """Names a claim for its processor, until the delivered log is cut."""

    partition: Partition


@dataclass(eq=False, slots=True)
class Quiet:
    """The idle spells and pauses that a processor was told of."""

    idle_since: float | None = None  # clock time; None while there is something to read
    idle_told: bool = False  # on_idle was called in this idle spell
    paused_since: float | None = None  # clock time at which the processor was told of a pause; None: it reads


@dataclass(eq=False, slots=True)
class Totals:
    """One claim's totals, and the callback that is under way."""

    records: int = 0
    batches: int = 0
    commits: int = 0
    last_batch_at: float | None = None  # wall time
    batch_since: float | None = None  # clock time at which on_next_batch was called; None between calls
    other_call: tuple[str, float] | None = None  # the same of another callback, with its name

    def in_call(self, name: str) -> bool:
        """Whether that callback is under way, which is not on_next_batch."""
        return self.other_call is not None and self.other_call[0] == name


@dataclass(eq=False, slots=True)
class FailureState:
    """Failures of the processor. The owner of the place writes it, the reader `last_error` too."""

    attempts: int = 0  # failures in a row
    room_attempts: int = 0  # the same of `room`: it is no record that fails there
    failing: tuple[int, int] | None = None  # offsets (first, next) of what failed last
    last_error: str | None = None
    isolate_until: int = 0  # below this offset batches have one record each: we look for the one that fails
    held: str | None = None  # why it is not read, for status; None while it is
    held_cause: str | None = None  # the same as a value of `inbound.observe.explain.facts.Cause`
    dead_letter_problem: str | None = None  # why the record that was given up is not with the dead letters yet
    reverted_to: int | None = None  # where the last revert went, and how often in a row one went there
    reverts: int = 0

    def reverted(self, offset: int) -> None:
        """Take note that reading goes back to `offset`."""
        self.reverts = self.reverts + 1 if offset == self.reverted_to else 1
        self.reverted_to = offset


@dataclass(eq=False, slots=True)
class Stall:
    """Progress of reading. `inbound.channel.streams` writes the first five, the stall detector the others."""

    read_error: str | None = None  # what the brokers said of the last fetch; None: nothing wrong
    log_position: int | None = None  # as the client was asked last: where it reads on, and where what can be read ends
    log_end: int | None = None
    unread_since: float | None = None  # clock time since which records are known that the client had not fetched,
    unread_at: int = 0  # and the position then
    #: As the stall detector saw it last: see `inbound.observe.explain`. Times in seconds since 1970.
    cause: str = "starting"
    cause_since: float | None = None
    since: float | None = None  # it counts as stalled since then; None: it does not


@dataclass(eq=False)
class Partition:
    """A held partition. The owner of its place writes its fields; `fate` and `fence` under the schedule's lock."""

    tp: TopicPartition
    fence: Fence
    position: Position
    added_later: bool = False
    topic_id: str | None = None  # of the topic that it was claimed in
    #: The brokers' topic id, if it cannot be compared with that one: the partition is held.
    unclear: str | None = None
    info: EpochInfo | None = None  # what stands in the epoch node, by our claim
    #: The processor that its callbacks go to, from its first turn on; a newer one takes over between two batches.
    served_by: BatchEventProcessor | None = None
    reopened: bool = False  # it is asked again where it begins, although it is being read already
    changing_processor: bool = False  # that one has had on_stream_termination
    why_lost: str = "another consumer owns it now; records delivered since the last commit are redelivered there"
    place: Place = Place.STARTING
    fate: Fate = Fate.KEEP
    buffer: RecordBuffer = field(default_factory=RecordBuffer)
    batch: Batch | None = None  # the one inside a callback
    commit_problem: str | None = None  # why its commit cannot be written, while those of others can
    settles_within: int = 0  # so many records may be on their way when it goes on from where it settles
    kept_bytes: int = 0  # of batches that wait to be told of their commits: since nothing was on its way last
    last: bool = False  # what is settling are the last commits before the release
    sends_on: bool = False  # it was abandoned: its advanced position is committed all the same, unless that is refused
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
    #: The last delivery is void: the log was cut below it, or the processor failed on it. It is read again, and by
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
        """Forget why it is not read. Called as a callback, by the owner of its place."""
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
        except IllegalTransitionError as error:
            raise IllegalTransitionError(f"{self.tp}: {error}") from None
        if self.place in DRAINED:
            self.drained.succeed(None)

    def due_problem(self) -> OffsetOutOfRangeError | UnreadableBatchError | None:
        """Return the problem to face now; None: there is none yet.

        Records that were read before retention came are delivered first. Records read ahead of a log that was cut are not:
        they are gone, or are read again.
        """
        problem = self._problem_of_now()
        if problem is None or self.failure.held is not None:
            return None
        if isinstance(problem, UnreadableBatchError):
            return None if self.buffer else problem
        return problem if not self.buffer or (problem.is_cut and problem.cut is not None) else None

    def known_cut(self) -> int | None:
        """Return where the log was cut, until that is acted on. None: unknown.

        A commit behind it would be taken for one that was there before.
        """
        problem = self._problem_of_now()
        return problem.cut if isinstance(problem, OffsetOutOfRangeError) and problem.is_cut else None

    def _problem_of_now(self) -> OffsetOutOfRangeError | UnreadableBatchError | None:
        """Return the problem of this position. One from before the last jump is forgotten."""
        if self.problem is not None and self.problem_of != self.buffer.generation:
            self.problem = None
        return self.problem

    @property
    def committed(self) -> int | None:
        """The offset in ZooKeeper, as far as we know."""
        return self.position.committed

    @property
    def noted(self) -> bool:
        """Whether the epoch node names a reset. Offsets before it must not be read for long."""
        info = self.info
        return info is not None and (info.reset is not None or info.recreated is not None)

    @property
    def end(self) -> int | None:
        """The log's end, as fetches said or, where none comes, its leader."""
        ends = [end for end in (self.position.high_watermark, self.stall.log_end) if end is not None]
        return max(ends, default=None)

    @property
    def lag(self) -> int | None:
        """Records in the log without a commit. None: its end is not known."""
        end = self.end
        return (
            None
            if end is None
            else max(0, end - (self.committed if self.committed is not None else self.position.delivered))
        )
