"""The partitions of one channel: their places, and which is due next."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from inbound.clock import Clock
from inbound.coordinators.ownership import Fence
from inbound.partition.leader import NEVER as NEVER
from inbound.partition.leader import NO_EFFORT, Lead, Leading
from inbound.partition.partition import Handle, Partition
from inbound.partition.place import Fate, Place, Step
from inbound.partition.position import Mark
from inbound.topic_partition import TopicPartition

#: Outdated entries are removed when the heap has so many more than two for each partition.
OUTDATED = 64


class Schedule:
    """Holds every partition in exactly one place. Any thread.

    One lock guards places, fates, fences and the heap; it is held for the length of a few statements, never over I/O or
    a callback.
    """

    def __init__(
        self, clock: Clock, wake_worker: Callable[[], None], workers: int, on_abandoned_end: Callable[[], None]
    ) -> None:
        """Take `on_abandoned_end`, called under the lock when an abandoned callback ends.

        Its partition can be claimed again.
        """
        self._clock = clock
        self._leading = Leading(wake_worker, workers)
        self._lock = threading.RLock()
        self._heap: list[tuple[float, int, Partition]] = []
        self._tickets = itertools.count(1)
        self._partitions: dict[TopicPartition, Partition] = {}
        #: Partitions whose callbacks outlived their claim; the next claim waits for these.
        self._abandoned: dict[TopicPartition, Partition] = {}
        #: Processors not notified of the end of a claim: it was given up while no callback ran.
        self._untold: dict[TopicPartition, object] = {}
        self._on_abandoned_end = on_abandoned_end
        self._dropped: set[TopicPartition] = set()
        self._paused = False
        #: The processor of all partitions; one that an older processor serves comes to a worker at once.
        self._server: object = None

    # -- the controller's side -----------------------------------------------------------------------------------------

    def adopt(self, partition: Partition) -> None:
        """Add a partition that was just claimed."""
        with self._lock:
            if partition.tp in self._partitions:
                raise RuntimeError(f"{partition.tp} is held already")
            self._partitions[partition.tp] = partition

    def held(self) -> list[Partition]:
        """Return all partitions that are not gone."""
        with self._lock:
            return list(self._partitions.values())

    @property
    def count(self) -> int:
        """How many partitions are not gone. Any thread."""
        return len(self._partitions)

    def get(self, tp: TopicPartition) -> Partition | None:
        with self._lock:
            return self._partitions.get(tp)

    def may_claim(self, tp: TopicPartition) -> bool:
        """Whether no call of this process still works on `tp`."""
        with self._lock:
            return tp not in self._partitions and tp not in self._abandoned

    def take_dropped(self) -> set[TopicPartition]:
        """Return, and forget, partitions that were dropped without a release."""
        with self._lock:
            dropped, self._dropped = self._dropped, set()
            return dropped

    def abandoned(self) -> list[Partition]:
        """Return the abandoned partitions whose callback still runs."""
        with self._lock:
            return list(self._abandoned.values())

    def doom(self, partition: Partition, fate: Fate) -> None:
        """Worsen a partition's fate, and have it acted on."""
        with self._lock:
            if fate <= partition.fate or partition.place in (Place.GONE, Place.ABANDONED):
                return
            partition.fate = fate
            if fate is Fate.DROP and partition.batch is not None:
                partition.batch.lost.set()
            if partition.place is Place.STARTING and fate is Fate.RELEASE:
                partition.move(Step.GIVE_UP)
            elif partition.place is Place.STARTING or (partition.place is Place.LEAVING and fate is Fate.DROP):
                self._end(partition)
            elif partition.place is Place.SCHEDULED:
                self._push(partition, self._clock.now())

    def leave(self, partition: Partition) -> None:
        """Forget a partition that is not ours: no call works on it."""
        with self._lock:
            if partition.place is not Place.GONE:
                self._end(partition)

    def abandon(self, partition: Partition) -> None:
        """Give a partition up while its callback runs: the answer is discarded."""
        with self._lock:
            if partition.place in (Place.GONE, Place.ABANDONED):
                return
            running = partition.place is Place.RUNNING
            # In a turn the processor is notified when on_next_batch ends; other callbacks, and turns without a ledger, just end.
            told = partition.last or (running and partition.totals.in_call("on_stream_termination"))
            if partition.place in (Place.SCHEDULED, Place.SETTLING, Place.RUNNING) and not told:
                self._untold[partition.tp] = partition.served_by
            partition.sends_on = partition.fate is not Fate.DROP
            if partition.batch is not None:
                partition.batch.lost.set()
            partition.fate = Fate.DROP
            partition.move(Step.ABANDON)
            self._forget(partition)
            if running:
                self._abandoned[partition.tp] = partition

    def take_untold(self, tp: TopicPartition) -> object:
        """Return, and forget, a processor that missed an abandoned claim."""
        if not self._untold:
            return None
        with self._lock:
            return self._untold.pop(tp, None)

    def refence(self, partition: Partition, fence: Fence) -> None:
        """Set a new session, or a higher epoch version. It never falls."""
        with self._lock:
            partition.fence = replace(fence, epoch=max(fence.epoch, partition.fence.epoch))
            if partition.place is Place.SCHEDULED:
                self._push(partition, min(partition.due, self._clock.now()) if partition.buffer else partition.due)

    def raise_epoch(self, partition: Partition, version: int) -> None:
        """Set a higher version of our epoch; the session stays."""
        with self._lock:
            if version > partition.fence.epoch:
                self.refence(partition, replace(partition.fence, epoch=version))

    def doubt(self) -> None:
        """Tell every running batch that its ownership is in doubt."""
        with self._lock:
            for partition in self._partitions.values():
                if partition.place is Place.RUNNING and partition.batch is not None:
                    partition.batch.lost.set()

    @property
    def paused(self) -> bool:
        """Whether the channel is paused: partitions are kept, and nothing is delivered."""
        return self._paused

    def set_paused(self, paused: bool) -> None:
        """Pause or resume; each partition comes to a worker once, to notify."""
        with self._lock:
            if paused == self._paused:
                return
            self._paused = paused
            for partition in self._partitions.values():
                if partition.place is Place.SCHEDULED:
                    self._push(partition, partition.due)

    def serve_with(self, server: object) -> None:
        """Have partitions of other processors than `server` come to a worker."""
        with self._lock:
            self._server = server
            for partition in self._partitions.values():
                if partition.place is Place.SCHEDULED:
                    self._push(partition, partition.due)

    def served_by(self, server: object) -> bool:
        with self._lock:
            return any(p.served_by is server for p in (*self._partitions.values(), *self._abandoned.values()))

    # -- the workers' side ---------------------------------------------------------------------------------------------

    def take(self, worker: object) -> Partition | Lead | float:
        """Return a worker's next step.

        A due partition, now running with it; `Lead`: it polls, and calls `end_lead`; or the clock time at which it asks
        again (`NEVER`: when it is woken).
        """
        with self._lock:
            now, heap = self._clock.now(), self._heap
            while heap and not self._is_current(heap[0]):
                heapq.heappop(heap)
            instead = self._leading.next_of(worker, now, heap[0][0] if heap else NEVER)
            if instead is not None:
                return instead
            _, _, partition = heapq.heappop(heap)
            partition.move(Step.TAKE)
            self._leading.took(now, bool(heap))
            return partition

    def end_turn(
        self, worker: object, callback: tuple[float, float] = NO_EFFORT, turn: tuple[float, float] = NO_EFFORT, *,
        failed: bool = False,
    ) -> None:  # fmt: skip
        """Note that `worker` has ended a turn: CPU seconds, and seconds passed.

        `failed`: it has raised, and does not come back for a while.
        """
        with self._lock:
            self._leading.end_turn(worker)
            if failed:
                self._leading.misses_one(self._clock.now())
            self._leading.observe(callback, turn)

    def end_lead(self, at: float) -> None:
        """Note that the leader has polled. `at`: the next poll's clock time."""
        with self._lock:
            self._leading.end_lead(at)

    def fail_lead(self) -> None:
        """Note that the leader has raised, and pauses."""
        with self._lock:
            now = self._clock.now()
            self._leading.end_lead(now)
            self._leading.misses_one(now)

    @property
    def full(self) -> bool:
        """Whether no more callbacks may run at a time. Any thread."""
        return self._leading.full

    def set_workers(self, count: int) -> None:
        """Allow so many turns at a time from now on."""
        with self._lock:
            self._leading.most = count

    def retire(self, worker: object) -> None:
        """Forget a worker whose thread has ended."""
        with self._lock:
            self._leading.comes(worker)

    def read_soon(self) -> None:
        """Have the client polled soon: for a command, room or news."""
        with self._lock:
            self._leading.read_soon(self._clock.now())

    def read_apart(self, wake: Callable[[], None]) -> None:
        """Have no worker poll; `wake` wakes the thread that does. Call first."""
        self._leading.read_apart(wake)

    def put_back(self, partition: Partition, due: float) -> None:
        """Schedule a partition for a time; an abandoned one goes instead."""
        with self._lock:
            if self._is_over(partition):
                return
            partition.move(Step.PUT_BACK)
            self._push(partition, due)

    def await_records(self, partition: Partition, due: float) -> None:
        """Schedule a partition without records for `due`, or for when some come.

        1. The worker finds the buffer empty; 2. the reader fills it and hurries the partition, which has no effect on a
        running one; 3. the worker puts it back. So the buffer is looked at once more here, under the lock.
        """
        with self._lock:
            if partition.buffer or partition.problem is not None or partition.callbacks:
                due = min(due, self._clock.now())
            self.put_back(partition, due)

    def await_commit(self, partition: Partition, seen: int) -> None:
        """Schedule a partition without room for the next landed commit.

        `seen` is the order of the last commit when the processor was asked. 1. The processor says that there is no
        room; 2. a commit lands, which does not make a running partition due; 3. the worker puts it back.
        """
        with self._lock:
            self.put_back(partition, NEVER if partition.position.landed_order == seen else self._clock.now())

    def advance(self, partition: Partition, offset: int) -> Mark | None:
        """Note that the worker commits `offset`. Returns the mark; None: abandoned.

        1. A commit is submitted; 2. the worker passes the partition on. The other way round, another worker could
        submit the next one before.
        """
        with self._lock:
            if partition.place in (Place.ABANDONED, Place.GONE):
                return None
            return partition.position.advance(offset)

    def settle(self, partition: Partition, *, within: int = 0, last: bool = False) -> None:
        """Wait until at most `within` records are in flight; `last`: for good."""
        with self._lock:
            if self._is_over(partition):
                return
            partition.last, partition.settles_within = last, within
            partition.move(Step.SETTLE)
            self._look_at_settling(partition, self._clock.now())

    def to_reader(self, partition: Partition) -> bool:
        """Move a partition to the reader for its start; False: no start."""
        with self._lock:
            if partition.fate is not Fate.KEEP:
                self.put_back(partition, self._clock.now())
                return False
            if self._is_over(partition):
                return False
            partition.move(Step.PLACE)
            return True

    def give_up(self, partition: Partition) -> None:
        """Pass a drained partition to the controller for its owner node's deletion."""
        with self._lock:
            if self._is_over(partition):
                return
            partition.move(Step.GIVE_UP)

    def void_handle(self, partition: Partition) -> None:
        """Ignore later answers for the batches delivered so far.

        The log was cut, or another processor has taken over and reads on from the commit.
        """
        with self._lock:
            partition.handle, partition.position.finished = Handle(partition), None

    def finish(self, handle: Handle, offset: int) -> Mark | None:
        """Note that the records before `offset` may be committed.

        Nothing happens for a claim that is over, or a log that was cut. Returns the mark to submit if that can be done
        at once; else the partition comes to a worker for it as soon as it can.
        """
        partition = handle.partition
        with self._lock:
            if self._partitions.get(partition.tp) is not partition or partition.handle is not handle:
                return None
            if offset > max(partition.position.delivered, partition.batch.next_offset if partition.batch else 0):
                return None  # never delivered: kept, it would count for finished records
            if partition.place is Place.SCHEDULED and self._may_commit(partition, offset):
                return partition.position.advance(offset)
            partition.position.finished = max(offset, partition.position.finished or 0)
            if partition.place is Place.SCHEDULED:
                self._push(partition, partition.due)
            return None

    def _may_commit(self, partition: Partition, offset: int) -> bool:
        return (
            partition.fate is Fate.KEEP
            and partition.position.finished is None
            and partition.position.deferred is None
            and partition.problem is None
            and not partition.callbacks
            and (partition.quiet.paused_since is not None) == self._paused
            and (partition.position.advanced or 0) < offset <= partition.position.delivered
        )

    def take_finished(self, partition: Partition) -> int | None:
        with self._lock:
            offset, partition.position.finished = partition.position.finished, None
            return offset

    # -- the reader's and the committer's side -------------------------------------------------------------------------

    def start(self, partition: Partition) -> None:
        """Begin to deliver a partition: its position is known and committed."""
        with self._lock:
            if partition.place is Place.STARTING:
                partition.move(Step.START)
                self._push(partition, self._clock.now())

    def at_once(self) -> AbstractContextManager[Any]:
        """Return the lock, to hold for a few statements without I/O."""
        return self._lock

    def landed(self, partition: Partition, mark: Mark, callbacks: Iterable[Callable[[], object]]) -> None:
        """Note a landed commit. The callbacks run before the next batch."""
        with self._lock:
            # First: a worker that sees, without the lock, that the partition has settled sees these.
            partition.callbacks.extend(callbacks)
            partition.position.land(mark)
            self._look_at_settling(partition, self._clock.now())
            if partition.callbacks or partition.buffer:  # for these, or for the room that there is now
                self.hurry([partition])

    def refused(self, partition: Partition) -> None:
        """Drop a partition whose commit will not land: it is not ours."""
        with self._lock:
            self.doom(partition, Fate.DROP)
            partition.position.withdraw()
            self._look_at_settling(partition, self._clock.now())

    def feed(self, partitions: Collection[Partition]) -> None:
        """Make these partitions due: their records have come. By the polling thread."""
        with self._lock:
            self._leading.begin_feeding()
            self.hurry(partitions)
            self._leading.end_feeding(len(partitions))

    def hurry(self, partitions: Iterable[Partition]) -> None:
        """Make partitions due now that wait for records."""
        with self._lock:
            now = self._clock.now()
            for partition in partitions:
                if partition.place is Place.SCHEDULED and partition.due > now and partition.due >= partition.rest_until:
                    self._push(partition, max(now, partition.rest_until))

    def hurry_all(self) -> None:
        """Make scheduled partitions due after their backoff: a general change."""
        self.hurry(self.held())

    # -- inside ------------------------------------------------------------------------------------------------------

    def _look_at_settling(self, partition: Partition, now: float) -> None:
        if partition.place is not Place.SETTLING or not partition.position.is_open(partition.settles_within):
            return
        if partition.last and partition.fate is Fate.RELEASE:
            partition.move(Step.GIVE_UP)
        else:
            partition.move(Step.SETTLED)
            self._push(partition, now)

    def _push(self, partition: Partition, due: float) -> None:
        now = self._clock.now()
        if due > now and (
            partition.fate is not Fate.KEEP
            # Checked here, and not once when the channel is paused: a partition that is with a worker or the committer
            # is notified when it comes back.
            or (partition.quiet.paused_since is not None) != self._paused
            or partition.position.finished is not None
            or partition.callbacks
            or self._is_outdated(partition)
        ):
            due = now
        if partition.position.commit_due < due:  # also while it waits for the end of a pause, a backoff, or records
            due = partition.position.commit_due
        partition.due = due
        partition.ticket = next(self._tickets)
        if due < NEVER:
            heapq.heappush(self._heap, (due, partition.ticket, partition))
            if len(self._heap) > 2 * len(self._partitions) + OUTDATED:
                # Hurried before they were due: each idle spell leaves one that is due after `idle_time`.
                self._heap = [entry for entry in self._heap if self._is_current(entry)]
                heapq.heapify(self._heap)
            self._leading.becomes_due(now, due)

    def _is_current(self, entry: tuple[float, int, Partition]) -> bool:
        _, ticket, partition = entry
        return ticket == partition.ticket and partition.place is Place.SCHEDULED

    def _is_outdated(self, partition: Partition) -> bool:
        return self._server is not None and partition.served_by is not None and partition.served_by is not self._server

    def _end(self, partition: Partition) -> None:
        abandoned = partition.place is Place.ABANDONED
        partition.move(Step.LEAVE)
        if abandoned:
            self._abandoned.pop(partition.tp, None)
            self._on_abandoned_end()
            return
        self._forget(partition)
        if partition.fate is Fate.DROP:
            self._dropped.add(partition.tp)

    def _forget(self, partition: Partition) -> None:
        if self._partitions.get(partition.tp) is partition:  # else it has been claimed again
            del self._partitions[partition.tp]

    def _is_over(self, partition: Partition) -> bool:
        """Note that a callback ended. Returns whether its partition was abandoned."""
        partition.batch = None
        if partition.place is Place.ABANDONED:
            self._end(partition)
        return partition.place is Place.GONE
