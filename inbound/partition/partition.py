"""One held partition: its claim, its state, its progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from inbound.coordinators.nodes import EpochInfo
from inbound.coordinators.ownership import Fence
from inbound.coordinators.zookeeper import Call
from inbound.errors import IllegalTransitionError, OffsetOutOfRangeError, UnreadableBatchError
from inbound.partition.buffer import RecordBuffer
from inbound.partition.place import DRAINED, TRANSITIONS, Step
from inbound.partition.place import Fate as Fate
from inbound.partition.place import Place as Place
from inbound.partition.position import Position
from inbound.partition.state import FailureState, Quiet, Stall, Totals
from inbound.processors.base import BatchEventProcessor
from inbound.processors.batch import Batch
from inbound.topic_partition import TopicPartition


@dataclass(eq=False)
class Handle:
    """Names a claim for its processor, until the delivered log is cut."""

    partition: Partition


@dataclass(eq=False)
class Partition:
    """A held partition.

    The owner of its place writes its fields; `fate` and `fence` are written under the schedule's lock.
    """

    tp: TopicPartition
    fence: Fence
    position: Position
    added_later: bool = False
    topic_id: str | None = None  # of the topic that it was claimed in
    unclear: str | None = None  # the brokers' topic id, not comparable with that one: the partition is held
    info: EpochInfo | None = None  # the epoch node's content, by our claim
    #: The processor of its callbacks, from its first turn on; a newer one takes over between two batches.
    served_by: BatchEventProcessor | None = None
    reopened: bool = False  # its start is asked for again, although it is being read already
    changing_processor: bool = False  # `served_by` has had on_stream_termination
    why_lost: str = "another consumer owns it now; records delivered since the last commit are redelivered there"
    place: Place = Place.STARTING
    fate: Fate = Fate.KEEP
    buffer: RecordBuffer = field(default_factory=RecordBuffer)
    batch: Batch | None = None  # the one inside a callback
    commit_problem: str | None = None  # why its commit cannot be written, while those of others can
    settles_within: int = 0  # so many records may be in flight when it leaves SETTLING
    kept_bytes: int = 0  # of batches that wait for on_batch_processed, since no commit was in flight
    last: bool = False  # it settles the last commits before the release
    sends_on: bool = False  # it was abandoned, and its advanced position is committed all the same, unless refused
    failure: FailureState = field(default_factory=FailureState)
    quiet: Quiet = field(default_factory=Quiet)
    stall: Stall = field(default_factory=Stall)
    totals: Totals = field(default_factory=Totals)
    callbacks: deque[Callable[[], object]] = field(default_factory=deque)  # to run on a worker, before the next batch
    problem: OffsetOutOfRangeError | UnreadableBatchError | None = None  # found by the reader; for the worker to act on
    #: The buffer's generation of `problem`: 1. the reader finds it; 2. a worker jumps; 3. the reader sets it.
    problem_of: int = 0
    no_room: bool = False  # the processor's last answer
    #: The last delivery is void: the log was cut below it, or the processor failed on it. The redelivery shows the
    #: processor that.
    taken_back: bool = False
    max_bytes: int | None = None  # asked for by the last response, for the next read only
    due: float = 0.0
    rest_until: float = 0.0  # asked for by the last response or a backoff: records do not make it due before
    ticket: int = 0  # distinguishes the heap's current entry from outdated ones
    drained: Call[None] = field(default_factory=lambda: Call("drain"))  # done once its place is one of `DRAINED`
    handle: Handle = field(init=False)  # replaced, under the schedule's lock, when the log was cut

    def __post_init__(self) -> None:
        self.handle = Handle(self)

    def try_again(self) -> None:
        """Forget why a partition is held. Called back by its place's owner."""
        failure = self.failure
        if failure.held is not None:
            self.rest_until = 0.0  # a hold may be a backoff without an end
        failure.held = failure.held_cause = None
        failure.attempts = 0
        if isinstance(self.problem, UnreadableBatchError):
            self.problem.faced = True  # also a new problem: other settings may help

    def move(self, step: Step) -> None:
        """Take a step of the table of places.

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
        """Return the problem to handle now; None: there is none yet.

        Records that were read before retention deleted the next ones are delivered first. Records read ahead of a cut
        are not: they are gone, or are read again.
        """
        problem = self._problem_of_now()
        if problem is None or self.failure.held is not None:
            return None
        if isinstance(problem, UnreadableBatchError):
            return None if self.buffer else problem
        return problem if not self.buffer or (problem.is_cut and problem.cut is not None) else None

    def known_cut(self) -> int | None:
        """Return where the log was cut, until that is handled. None: unknown.

        A commit behind it would be taken for one that was there before.
        """
        problem = self._problem_of_now()
        return problem.cut if isinstance(problem, OffsetOutOfRangeError) and problem.is_cut else None

    def _problem_of_now(self) -> OffsetOutOfRangeError | UnreadableBatchError | None:
        if self.problem is not None and self.problem_of != self.buffer.generation:
            self.problem = None
        return self.problem

    @property
    def committed(self) -> int | None:
        """The offset in ZooKeeper, as far as we know."""
        return self.position.committed

    @property
    def noted(self) -> bool:
        """Whether the epoch node names a reset.

        Then no commit may be in flight beside a delivery: older offsets must not be readable for long.
        """
        info = self.info
        return info is not None and (info.reset is not None or info.recreated is not None)

    @property
    def end(self) -> int | None:
        """The log's end, as fetches or, without fetches, its leader gave it."""
        ends = [end for end in (self.position.high_watermark, self.stall.log_end) if end is not None]
        return max(ends, default=None)

    @property
    def lag(self) -> int | None:
        """The number of uncommitted records in the log; None: end unknown."""
        end = self.end
        if end is None:
            return None
        return max(0, end - (self.committed if self.committed is not None else self.position.delivered))
