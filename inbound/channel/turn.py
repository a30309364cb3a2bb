"""One turn of a partition: its callbacks, and at most one batch.

This file decides what is due, and does it; `inbound.channel.delivery` delivers batches.

Turns are coroutines, written once for both kinds of processors. Where callbacks are plain functions no turn ever waits,
and a worker's thread runs it from beginning to end (`inbound.channel.worker`). Where they are coroutines, an event loop
runs many turns at once (`inbound.channel.async_worker`). Between two awaits nothing else touches the partition: it is
running, and this turn has it.
"""

from __future__ import annotations

from inbound.channel.delivery import Delivery
from inbound.channel.failure_policy import DeadLetters, FailurePolicy
from inbound.channel.out_of_range import OutOfRange
from inbound.channel.outcome import Outcomes, server_of
from inbound.channel.parts import Parts
from inbound.channel.processor_session import ProcessorSession
from inbound.channel.reader import Reader
from inbound.errors import PartitionLostError
from inbound.partition.leader import NO_EFFORT
from inbound.partition.partition import Fate, Partition, Place
from inbound.partition.schedule import NEVER


class Turns:
    """Serves partitions. It has no state of one turn: many may run."""

    def __init__(self, parts: Parts, reader: Reader, dead_letters: DeadLetters | None) -> None:
        self._parts = parts
        self._clock = parts.clock
        self._schedule = parts.schedule
        self._reader = reader
        self._session = ProcessorSession(asynchronous=parts.service.asynchronous)
        self._failures = FailurePolicy(
            settings=parts.settings, clock=parts.clock, session=self._session, service=parts.service,
            ledger_notes=parts.ledger_notes, journal=parts.journal, dead_letters=dead_letters,
        )  # fmt: skip
        self._outcomes = Outcomes(parts, reader)
        self._delivery = Delivery(parts, reader, self._session, self._failures, self._outcomes)
        self._out_of_range = OutOfRange(parts, reader, self._failures)

    async def serve(self, partition: Partition) -> tuple[float, float]:
        """Serve a partition for one turn, and pass it on.

        Returns:
            CPU seconds of this thread, and seconds passed, inside on_next_batch.
        """
        room: int | None = None
        landed = partition.position.landed_order
        if partition.served_by is None:
            partition.served_by = self._parts.service.processor
        if partition.fate is Fate.DROP:
            if not partition.position.settled:  # each commit is refused, or has landed: the processor learns that first
                self._schedule.settle(partition)
                return NO_EFFORT
            await self._tell_lost(partition)
            return NO_EFFORT
        if partition.callbacks:
            await self._delivery.run_waiting(partition)
        if partition.position.finished is not None:
            self._delivery.note_finished(partition)
        if partition.fate is Fate.RELEASE:
            if partition.position.settled:
                await self._terminate(partition)
            else:
                self._schedule.settle(partition)
        elif partition.served_by is not self._parts.service.processor and not await self._change_processor(partition):
            pass  # it comes back when the last processor's commits have landed
        elif partition.unclear is not None:
            if partition.failure.held is None:
                self._failures.hold_unclear(partition, partition.unclear)
                self._parts.meters.holds.add("topic")
            self._schedule.put_back(partition, NEVER)
        elif partition.position.deferred is not None and partition.position.commit_due <= self._clock.now():
            self._commit_deferred(partition)
        elif (self._schedule.paused or partition.quiet.paused_since is not None) and await self._is_paused(partition):
            self._schedule.put_back(partition, NEVER)
        elif (problem := partition.due_problem()) is not None:
            await self._delivery.tell(partition, problem)  # an offset in the answer is ignored: the log decides
            self._out_of_range.face(partition, problem)
        elif partition.failure.held is not None:
            self._schedule.put_back(partition, NEVER)
        elif not (self._parts.zk.certain(partition.fence.session) and self._parts.pause_state.allows()):
            self._delivery.wait_for_certainty(partition)
        elif self._clock.now() < partition.rest_until:
            self._schedule.put_back(partition, partition.rest_until)
        elif self._parts.service.gives_starts and not partition.position.placed:
            await self._place(partition)
        elif partition.buffer and not partition.position.is_open(limit := self._outcomes.limit(partition)):
            self._schedule.settle(partition, within=limit)
        elif self._parts.service.has_room and partition.buffer and (room := self._delivery.room(partition)) == 0:
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
        """Pass on a partition whose turn has raised or was cancelled."""
        if partition.place is Place.RUNNING:
            partition.failure.last_error = "internal error, see the log"
            partition.buffer.jump()  # records taken out of it are read again
            partition.taken_back = True
            self._reader.jump(partition)
        if partition.place in (Place.RUNNING, Place.ABANDONED):
            self._schedule.put_back(partition, self._clock.now() + 1.0)

    async def _change_processor(self, partition: Partition) -> bool:
        """Let the channel's current processor serve the partition.

        Returns False if the turn has passed the partition on for that. The old processor gets the callbacks of a
        release; records that it has not committed by then are redelivered.
        """
        if not partition.position.settled:
            self._schedule.settle(partition)
            return False
        if not partition.changing_processor and self._has_begun(partition):
            commit = await self._last_commit(partition)
            partition.changing_processor = True
            if partition.place is Place.ABANDONED or partition.fate is not Fate.KEEP:
                if commit is not None:
                    partition.position.defer_commit(commit, self._clock.now())
                self._schedule.put_back(partition, self._clock.now())
                return False
            if commit is not None:
                self._outcomes.commit(partition, commit)
                self._schedule.settle(partition)
                return False
        partition.changing_processor = False
        partition.served_by = self._parts.service.processor
        self._begin_again(partition)
        return True

    def _begin_again(self, partition: Partition) -> None:
        """Forget the previous processor's state, and read on from the commit."""
        partition.position.placed = False
        partition.failure.attempts, partition.failure.isolate_until, partition.rest_until = 0, 0, 0.0
        partition.failure.held = partition.failure.held_cause = partition.failure.last_error = None
        partition.quiet.idle_since, partition.quiet.idle_told = None, False
        partition.quiet.paused_since = None  # the new one gets on_pause, too
        partition.position.take_deferred()
        self._schedule.void_handle(partition)  # records that the last one finishes from now on are redelivered
        if partition.committed is not None and partition.position.delivered != partition.committed:
            self._parts.ledger_notes.note(
                "revert", partition.tp, partition.fence.epoch, from_=partition.position.delivered, to=partition.committed,
                reason="successor",
            )  # fmt: skip
        if self._parts.service.gives_starts:  # it is asked next, and says where to begin
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
        """Commit records that `next` with `commit_within` left uncommitted until now."""
        offset = partition.position.take_deferred()
        if offset is not None:
            self._outcomes.commit(partition, offset)
        self._schedule.put_back(partition, self._clock.now())

    async def _place(self, partition: Partition) -> None:
        """Ask the processor for this claim's start; the reader checks it."""
        partition.totals.other_call = "on_claim", self._clock.now()
        try:
            start = await self._session.on_claim(server_of(partition), partition.tp, partition.committed)
        except BaseException as error:
            if self._session.loop_is_gone(error):
                raise
            self._parts.meters.failed(error)
            partition.rest_until = self._failures.claim_failed(partition, error)
            if partition.failure.held is not None:
                self._parts.meters.holds.add("on_claim")
            self._schedule.put_back(partition, partition.rest_until)
            return
        finally:
            partition.totals.other_call = None
        partition.failure.attempts, partition.failure.last_error = 0, None
        if self._schedule.to_reader(partition):
            partition.position.given_start, partition.position.placed = start, True
            self._reader.open(partition)

    async def _is_paused(self, partition: Partition) -> bool:
        """Whether the channel is paused. Calls on_pause and on_resume on changes."""
        paused, since, now = self._schedule.paused, partition.quiet.paused_since, self._clock.now()
        if paused and since is None:
            partition.quiet.paused_since = now
            await self._delivery.guard(partition, "on_pause", lambda: server_of(partition).on_pause(partition.tp))
        elif not paused and since is not None:
            partition.quiet.paused_since = None
            if partition.quiet.idle_since is not None:
                partition.quiet.idle_since += now - since  # the pause does not count as idle time
            await self._delivery.guard(partition, "on_resume", lambda: server_of(partition).on_resume(partition.tp))
        return paused

    async def _idle(self, partition: Partition) -> None:
        now = self._clock.now()
        if partition.quiet.idle_since is None:
            partition.quiet.idle_since = now
        if partition.quiet.idle_told or not self._has_begun(partition):
            self._schedule.await_records(partition, NEVER)
            return
        due = partition.quiet.idle_since + self._parts.settings.now.idle_time
        if now < due:
            self._schedule.await_records(partition, due)
            return
        partition.quiet.idle_told = True
        outcome = await self._delivery.answer(partition, "on_idle", lambda: server_of(partition).on_idle(partition.tp))
        if outcome is None:
            self._schedule.await_records(partition, NEVER)
        else:
            self._outcomes.apply(partition, outcome, None, None)

    async def _terminate(self, partition: Partition) -> None:
        """Call on_stream_termination, commit its answer, and pass the partition on."""
        if not self._has_begun(partition):
            self._schedule.give_up(partition)
            return
        # A processor that was notified, as another one takes over, is not notified again.
        commit = (
            partition.position.take_deferred() if partition.changing_processor else await self._last_commit(partition)
        )
        if commit is None:
            self._schedule.give_up(partition)
        else:
            self._outcomes.commit(partition, commit)
            self._schedule.settle(partition, last=True)

    def _has_begun(self, partition: Partition) -> bool:
        """Whether a batch can have been delivered: on_claim's offset is valid.

        Before, the position leads nowhere: an answer about it would commit records that were never delivered.
        """
        return not self._parts.service.gives_starts or (
            partition.position.placed and partition.position.given_start is None
        )

    async def _last_commit(self, partition: Partition) -> int | None:
        """Call on_stream_termination. Returns the offset to commit; None: none.

        1. The turn finds no callback that waits; 2. the last commit lands; 3. the turn finds that all has settled. The
        processor gets on_batch_processed of that commit first.
        """
        await self._delivery.run_waiting(partition)
        outcome = await self._delivery.answer(
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
        await self._delivery.run_waiting(partition)  # on_batch_processed of a commit that landed before
        error = PartitionLostError(*partition.tp, f"lost: {partition.why_lost}")
        await self._delivery.tell(partition, error)
        self._parts.ledger_notes.note("lost", partition.tp, partition.fence.epoch)
        self._schedule.leave(partition)
        self._parts.evaluate()
