"""One turn of a partition: its callbacks and at most one batch, from being taken to being passed on.

What is due is decided here, and done but for batches, which `inbound.channel.delivery` delivers.

Written as coroutines, once for both kinds of processors. Where callbacks are plain functions nothing in a turn ever
waits, and a worker's thread runs it from beginning to end (`inbound.channel.worker`). Where they are coroutines, an event loop
has many turns under way at once (`inbound.channel.async_worker`). Between two awaits nobody else touches the partition: it is
running, and this turn has it.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable

from inbound.channel.books import Books
from inbound.channel.callbacks import Callbacks
from inbound.channel.delivery import Delivery
from inbound.channel.failure_policy import FailurePolicy, loop_is_gone
from inbound.channel.leader import NO_EFFORT
from inbound.channel.out_of_range import OutOfRange, Problem, due_problem
from inbound.channel.outcome import Outcomes, server_of
from inbound.channel.partition import Fate, Partition, Place
from inbound.channel.reader import Reader
from inbound.channel.schedule import NEVER, Schedule
from inbound.channel.service import Service
from inbound.channel.settings import Settings
from inbound.clock import Clock
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.errors import BadResponseError, PartitionLostError
from inbound.meters import Meters
from inbound.pausing import Pausing
from inbound.processors.batch import is_offset


class Turns:
    """Serves partitions. Knows nothing of a single turn, so any number of them may be under way."""

    def __init__(
        self, *, settings: Settings, clock: Clock, zk: ZooKeeper, meters: Meters, books: Books, service: Service,
        schedule: Schedule, pausing: Pausing, evaluate: Callable[[], None], reader: Reader, failures: FailurePolicy,
        callbacks: Callbacks, outcomes: Outcomes, delivery: Delivery, out_of_range: OutOfRange,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._clock = clock
        self._zk = zk
        self._meters = meters
        self._books = books
        self._service = service
        self._schedule = schedule
        self._pausing = pausing
        self._evaluate = evaluate
        self._reader = reader
        self._failures = failures
        self._callbacks = callbacks
        self._outcomes = outcomes
        self._delivery = delivery
        self._out_of_range = out_of_range
        self._asynchronous = service.asynchronous
        self._gives_starts = service.gives_starts
        self._has_room = service.has_room

    async def serve(self, partition: Partition) -> tuple[float, float]:
        """Serve a partition that was taken, for one turn, and pass it on.

        Returns:
            CPU seconds of this thread, and seconds passed, inside on_next_batch.
        """
        room: int | None = None
        landed = partition.position.landed_order
        if partition.served_by is None:
            partition.served_by = self._service.processor
        if partition.fate is Fate.DROP:
            if not partition.position.settled:  # each commit is refused, or has landed: that is told before
                self._schedule.settle(partition)
                return NO_EFFORT
            await self._tell_lost(partition)
            return NO_EFFORT
        if partition.callbacks:
            await self._callbacks.run_waiting(partition)
        if partition.position.finished is not None:
            self._delivery.note_finished(partition)
        if partition.fate is Fate.RELEASE:
            if partition.position.settled:
                await self._terminate(partition)
            else:
                self._schedule.settle(partition)
        elif partition.served_by is not self._service.processor and not await self._hand_over(partition):
            pass  # it comes back when what the one before wants committed is
        elif partition.unclear is not None:
            if partition.failure.held is None:
                self._failures.hold_unclear(partition, partition.unclear)
                self._meters.holds.add("topic")
            self._schedule.put_back(partition, NEVER)
        elif partition.position.deferred is not None and partition.position.commit_due <= self._clock.now():
            self._commit_deferred(partition)
        elif (self._schedule.paused or partition.quiet.paused_since is not None) and await self._is_paused(partition):
            self._schedule.put_back(partition, NEVER)
        elif (problem := due_problem(partition)) is not None:
            await self._face_problem(partition, problem)
        elif partition.failure.held is not None:
            self._schedule.put_back(partition, NEVER)
        elif not (self._zk.certain(partition.fence.session) and self._pausing.allows()):
            self._delivery.wait_for_certainty(partition)
        elif self._clock.now() < partition.rest_until:
            self._schedule.put_back(partition, partition.rest_until)
        elif self._gives_starts and not partition.position.placed:
            await self._place(partition)
        elif partition.buffer and not partition.position.is_open(limit := self._outcomes.limit(partition)):
            self._schedule.settle(partition, within=limit)
        elif self._has_room and partition.buffer and (room := self._delivery.room(partition)) == 0:
            if partition.rest_until > self._clock.now():  # it failed
                self._schedule.put_back(partition, partition.rest_until)
            else:
                self._schedule.await_commit(partition, landed)  # news of the reader make it due, too
        elif (cut := self._delivery.cut(partition, room)) is not None:
            return await self._delivery.deliver(partition, cut)
        else:
            await self._idle(partition)
        return NO_EFFORT

    def rescue(self, partition: Partition) -> None:
        """Pass a partition on whose turn has raised, or was cancelled: it must not vanish with the turn."""
        if partition.place is Place.RUNNING:
            partition.failure.last_error = "internal error, see the log"
            partition.buffer.jump()  # what had been taken out of it is read again
            partition.taken_back = True
            self._reader.jump(partition)
        if partition.place in (Place.RUNNING, Place.ABANDONED):
            self._schedule.put_back(partition, self._clock.now() + 1.0)

    async def _hand_over(self, partition: Partition) -> bool:
        """Let the channel's processor of now serve the partition. Returns False if the turn has passed it on for that.

        The one before hears what it would hear at a release, and what it does not have committed then is read again.
        """
        if not partition.position.settled:
            self._schedule.settle(partition)
            return False
        if not partition.handing_over and self._has_begun(partition):
            commit = await self._last_commit(partition)
            partition.handing_over = True
            if partition.place is Place.ABANDONED or partition.fate is not Fate.KEEP:
                if commit is not None:
                    partition.position.defer_commit(commit, self._clock.now())
                self._schedule.put_back(partition, self._clock.now())
                return False
            if commit is not None:
                self._outcomes.commit(partition, commit)
                self._schedule.settle(partition)
                return False
        partition.handing_over = False
        partition.served_by = self._service.processor
        self._begin_anew(partition)
        return True

    def _begin_anew(self, partition: Partition) -> None:
        """Forget what the processor before had to do with a partition, and read on from the commit."""
        partition.position.placed = False
        partition.failure.attempts, partition.failure.isolate_until, partition.rest_until = 0, 0, 0.0
        partition.failure.held = partition.failure.held_cause = partition.failure.last_error = None
        partition.quiet.idle_since, partition.quiet.idle_told = None, False
        partition.quiet.paused_since = None  # the new one is told, too
        partition.position.take_deferred()
        self._schedule.void_handle(partition)  # what the one before finishes from now on is read again
        if partition.committed is not None and partition.position.delivered != partition.committed:
            self._books.note(
                "revert", partition.tp, partition.fence.epoch, from_=partition.position.delivered, to=partition.committed,
                reason="successor",
            )  # fmt: skip
        if self._gives_starts:  # it is asked next, and says where to begin
            partition.reopened = True
            partition.buffer.jump()
            partition.problem = None
        elif partition.committed is not None and partition.position.delivered != partition.committed:
            partition.position.delivered = partition.committed
            partition.position.go_back(partition.position.delivered)
            partition.buffer.jump()
            partition.problem = None
            self._reader.jump(partition)

    def _commit_deferred(self, partition: Partition) -> None:
        """Commit what `next` with `commit_within` left uncommitted: its time has come."""
        offset = partition.position.take_deferred()
        if offset is not None:
            self._outcomes.commit(partition, offset)
        self._schedule.put_back(partition, self._clock.now())

    async def _place(self, partition: Partition) -> None:
        """Ask the processor where this claim begins. The reader holds its answer against the log, and goes on there."""
        partition.totals.other_call = "on_claim", self._clock.now()
        try:
            answer: object = server_of(partition).on_claim(partition.tp, partition.committed)
            if self._asynchronous and isawaitable(answer):
                answer = await answer
            if answer is not None and not is_offset(answer):
                raise BadResponseError(
                    f"{partition.tp}: on_claim returned {answer!r}; return the offset to read first, an integer of at "
                    "least 0, or None to go on at the group's commit"
                )
        except BaseException as error:
            if loop_is_gone(error, self._asynchronous):
                raise
            self._meters.failed(error)
            partition.rest_until = self._failures.claim_failed(partition, error)
            if partition.failure.held is not None:
                self._meters.holds.add("on_claim")
            self._schedule.put_back(partition, partition.rest_until)
            return
        finally:
            partition.totals.other_call = None
        partition.failure.attempts, partition.failure.last_error = 0, None
        if self._schedule.to_reader(partition):
            partition.position.given_start, partition.position.placed = answer, True
            self._reader.open(partition)

    async def _is_paused(self, partition: Partition) -> bool:
        """Whether the channel is paused; the processor is told once when that begins and once when it ends."""
        paused, since, now = self._schedule.paused, partition.quiet.paused_since, self._clock.now()
        if paused and since is None:
            partition.quiet.paused_since = now
            await self._callbacks.guard(partition, "on_pause", lambda: server_of(partition).on_pause(partition.tp))
        elif not paused and since is not None:
            partition.quiet.paused_since = None
            if partition.quiet.idle_since is not None:
                partition.quiet.idle_since += now - since  # nobody waited for records meanwhile
            await self._callbacks.guard(partition, "on_resume", lambda: server_of(partition).on_resume(partition.tp))
        return paused

    async def _idle(self, partition: Partition) -> None:
        now = self._clock.now()
        if partition.quiet.idle_since is None:
            partition.quiet.idle_since = now
        if partition.quiet.idle_told or not self._has_begun(partition):
            self._schedule.await_records(partition, NEVER)
            return
        due = partition.quiet.idle_since + self._settings.now.idle_time
        if now < due:
            self._schedule.await_records(partition, due)
            return
        partition.quiet.idle_told = True
        outcome = await self._callbacks.answer(partition, "on_idle", lambda: server_of(partition).on_idle(partition.tp))
        if outcome is None:
            self._schedule.await_records(partition, NEVER)
        else:
            self._outcomes.apply(partition, outcome, None, None)

    async def _terminate(self, partition: Partition) -> None:
        """Tell the processor that the partition goes, commit what it says, and pass it on for release."""
        if not self._has_begun(partition):
            self._schedule.give_up(partition)
            return
        # Who was told that it goes, to another processor, is not told again.
        commit = partition.position.take_deferred() if partition.handing_over else await self._last_commit(partition)
        if commit is None:
            self._schedule.give_up(partition)
        else:
            self._outcomes.commit(partition, commit)
            self._schedule.settle(partition, last=True)

    def _has_begun(self, partition: Partition) -> bool:
        """Whether a batch can have been handed out: not before the log has been found to hold what on_claim gave.

        Before, the position is where nothing leads to: an answer about it would commit what nobody was handed.
        """
        return not self._gives_starts or (partition.position.placed and partition.position.given_start is None)

    async def _last_commit(self, partition: Partition) -> int | None:
        """Tell the processor that the partition goes. Returns what is to be committed now; None: nothing.

        1. The turn finds no callback that waits; 2. the last commit lands; 3. the turn finds that all has settled. The
        processor is told of that commit first.
        """
        await self._callbacks.run_waiting(partition)
        outcome = await self._callbacks.answer(
            partition,
            "on_stream_termination",
            lambda: server_of(partition).on_stream_termination(partition.tp, partition.position.delivered),
        )
        commit = partition.position.take_deferred()
        if outcome is None:
            return commit
        self._outcomes.note(partition, outcome)
        return outcome.commit

    async def _tell_lost(self, partition: Partition) -> None:
        await self._callbacks.run_waiting(partition)  # a commit that landed before is told all the same
        error = PartitionLostError(*partition.tp, f"lost: {partition.why_lost}")
        await self._callbacks.guard(
            partition, "on_exception", lambda: server_of(partition).on_exception(partition.tp, error)
        )
        self._books.note("lost", partition.tp, partition.fence.epoch)
        self._schedule.leave(partition)
        self._evaluate()

    async def _face_problem(self, partition: Partition, error: Problem) -> None:
        # An offset in its answer is ignored: the log decides.
        await self._callbacks.guard(
            partition, "on_exception", lambda: server_of(partition).on_exception(partition.tp, error)
        )
        self._out_of_range.face(partition, error)
