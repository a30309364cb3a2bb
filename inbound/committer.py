"""Writes commits: ledger first, then ZooKeeper, many partitions in one transaction, one transaction in flight.

A partition has at most one commit here at a time (it is not handed out again before), so the newest position issued is
always the one that is sent, also again after an ambiguous answer.

A commit that ZooKeeper refuses for its node alone (access rights, a quota, a missing folder) is set apart: it is sent by
itself from then on, ever more rarely, and the commits of other partitions go on without it.

What went without an answer may execute at any time while the session lives, even after later requests (see
`docs/decisions/0014-late-requests.md`). So the commit that is sent instead moves the epoch on, from which the old one
is refused.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass, replace

from inbound.coordinators.claim import Fence, current
from inbound.coordinators.nodes import encode_offset
from inbound.coordinators.zookeeper import (
    MAX_TRANSACTION_BYTES,
    MAX_TRANSACTION_OPS,
    Call,
    Check,
    Create,
    Node,
    Op,
    RefusedError,
    SetData,
    Stat,
)
from inbound.errors import InboundError, LedgerError, TransientError, ZkNodeError
from inbound.ledger.base import Done, Outcome, Settled
from inbound.partition import Fate, Partition, Place
from inbound.parts import Parts
from inbound.processors.batch import Batch
from inbound.settle import retry_wait

#: How long to wait before trying again what failed without a connection being lost.
RETRY = 1.0
#: How long to wait after a lost answer; the reconnect is what it really waits for.
SOON = 0.05


@dataclass(eq=False)
class Pending:
    """One commit on its way."""

    partition: Partition
    fence: Fence  # the one that the batch was handed out under
    offset: int
    batch: Batch | None = None
    first: bool = False  # the first position of a group without a commit: no batch was handed out yet
    recorded: bool = False  # `done` is in the ledger
    create: bool = False  # the offset node is missing
    unanswered_in: int | None = None  # sent before in this session, without an answer: maybe it is still on its way
    unread: bool = False  # the epoch node must be read before it is sent again
    epoch: Node | None = None  # the epoch node as read, where the commit is to move it on
    since: float = 0.0  # clock time at which the committer got it
    leader_epoch: int | None = None  # under which leader what is before `offset` was written, as far as is known
    failures: int = 0  # how often it was refused for its own node; from the first on it is sent alone,
    not_before: float = 0.0  # and not before this clock time

    def ops(self, parts: Parts) -> list[Op]:
        tp = self.partition.tp
        path, data = parts.paths.offset(*tp), encode_offset(self.offset)
        write: Op = Create(path, data) if self.create else SetData(path, data)
        return [self._guard(parts.paths.epoch(*tp)), write]

    def size(self, parts: Parts) -> int:
        """Return about how many bytes it takes in a transaction."""
        info = self.partition.info
        moved = info is not None and info.leader_epoch != self.leader_epoch
        return 100 + 2 * len(parts.paths.offset(*self.partition.tp)) + (len(info.encode()) if info and moved else 0)

    def _guard(self, path: str) -> Op:
        """Return what keeps the commit from landing under another's epoch: a check, or what moves our own epoch on.

        The epoch is moved on with the first commit of what another leader of the partition has written, too: the node says
        so with the offset, for whoever reads on there (see `docs/decisions/0051-cut-logs.md`).
        """
        epoch, version, info = self.epoch, self.partition.fence.epoch, self.partition.info
        if info is not None and info.leader_epoch != self.leader_epoch:
            data = replace(info, leader_epoch=self.leader_epoch).encode()
            return SetData(path, data, version if epoch is None else epoch.stat.version)
        return Check(path, version) if epoch is None else SetData(path, epoch.data, epoch.stat.version)


class Committer:
    """The committing part of one channel: see `inbound.driver.Part`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._queue: deque[Pending] = deque()
        self._group: list[Pending] = []  # in the transaction that is in flight
        self._call: Call[list[Stat | None]] | None = None
        self._epochs: list[Call[Node | None]] | None = None  # being read after a second refusal
        self._refusals = 0
        self._alone = False  # what was sent last was set apart
        self._not_before = 0.0
        self.transactions = 0
        self.commits = 0
        self.fenced = 0

    def submit(self, pending: Pending) -> None:
        """Take over a partition's commit. Any thread."""
        pending.since = self._parts.clock.now()
        pending.leader_epoch = pending.partition.leader_epoch_at(pending.offset)
        with self._lock:
            self._queue.append(pending)
        self._parts.committer_wakeup.set()

    @property
    def waiting(self) -> int:
        """How many commits have not landed yet."""
        return len(self._queue) + len(self._group)

    def run_once(self) -> float | None:
        now = self._parts.clock.now()
        if self._epochs is not None:
            if not self._arrived(self._epochs, now):
                return min(call.deadline or now for call in self._epochs)
            self._drop_moved()
        elif self._call is not None:
            if not self._arrived([self._call], now):
                return self._call.deadline
            self._answered(self._call)
        if self._call is None and self._epochs is None:
            return self._send(now)
        return self._call.deadline if self._call else now

    # -- sending -----------------------------------------------------------------------------------------------------

    def _send(self, now: float) -> float | None:
        if now < self._not_before:
            return self._not_before
        group = self._collect(now)
        if not group or not self._record(group):
            with self._lock:
                times = [self._not_before, *(pending.not_before for pending in self._queue)]
            return min((time for time in times if time > now), default=None)
        unread = [pending for pending in group if pending.unread]
        if unread:
            self._requeue([pending for pending in group if pending not in unread])
            return self._read_epochs(unread)
        ops = [op for pending in group for op in pending.ops(self._parts)]
        self._group = group
        self.transactions += 1
        self._call = self._parts.zk.transaction(ops)
        self._call.when_done(self._parts.committer_wakeup.set)
        return self._call.deadline

    def _collect(self, now: float) -> list[Pending]:
        """Take from the queue what may be sent now; what is in doubt stays, what is lost is discarded."""
        parts = self._parts
        connection = parts.zk.connection
        session = connection.session.id if connection and parts.zk.certain(connection.session.id) else None
        ready: list[Pending] = []
        discarded: list[Pending] = []
        with self._lock:
            kept: deque[Pending] = deque()
            for pending in self._queue:
                partition = pending.partition
                if partition.fate is Fate.DROP:
                    discarded.append(pending)
                elif pending.first and partition.place is not Place.STARTING:
                    continue  # given up before it had begun: nothing of it may land once its owner node is gone
                else:
                    kept.append(pending)
                    if partition.fence.session == session and pending.not_before <= now:
                        ready.append(pending)
            group = self._choose(ready)
            self._queue = deque(pending for pending in kept if pending not in group)
        for pending in discarded:
            self._discard(pending, refused=False)
        return list(group)

    def _choose(self, ready: list[Pending]) -> dict[Pending, None]:
        """Return as many as fit into one transaction, in order; or one that is set apart, if it is its turn."""
        apart = [pending for pending in ready if pending.failures]
        self._alone = bool(apart) and not (self._alone and len(apart) < len(ready))
        if self._alone:
            return {apart[0]: None}
        group: dict[Pending, None] = {}
        size = 0
        for pending in ready:
            size += pending.size(self._parts)
            if size > MAX_TRANSACTION_BYTES or 2 * len(group) + 2 > MAX_TRANSACTION_OPS:
                break
            if not pending.failures:
                group[pending] = None
        return group

    def _record(self, group: list[Pending]) -> bool:
        """Write `done` for the group, with one fsync. False: nothing may be sent now."""
        parts = self._parts
        entries = [
            Done(*p.partition.tp, p.fence.epoch, p.batch.first_offset if p.batch else p.offset, p.offset, p.offset)
            for p in group
            if not p.recorded
        ]
        try:
            if entries:
                parts.ledger.done(entries)
        except LedgerError as error:
            self._ledger_failed(error)
            if not parts.degrade:
                self._requeue(group)
                self._not_before = parts.clock.now() + RETRY
                return False
            for pending in group:
                if not pending.recorded:
                    parts.unrecorded(pending.partition.tp, pending.fence.epoch)
        else:
            parts.recorded()
        for pending in group:
            pending.recorded = True
        return True

    # -- answers -----------------------------------------------------------------------------------------------------

    def _arrived(self, calls: list[Call[Node | None]] | list[Call[list[Stat | None]]], now: float) -> bool:
        for call in calls:
            if not call.done:
                if call.deadline is None or now < call.deadline:
                    return False
                call.fail(TransientError(f"{call.what}: no answer in time"))
        return True

    def _answered(self, call: Call[list[Stat | None]]) -> None:
        group, self._group, self._call = self._group, [], None
        try:
            stats = call.result()
        except RefusedError as refused:
            self._refused(group, refused)
        except ZkNodeError as error:
            self._set_apart(group.pop(error.index // 2), str(error))
            self._requeue(group)
        except InboundError as error:
            # It may have landed. The same offsets are sent again once the session is verified; until then they wait.
            transient = isinstance(error, TransientError)
            level = logging.INFO if transient else logging.ERROR
            self._parts.journal.note(
                "commit-waits",
                f"a commit of {len(group)} partitions waits: {error}",
                level=level,
                partitions=len(group),
            )
            for pending in group:
                pending.unanswered_in = call.sent_in or pending.unanswered_in
                pending.unread, pending.epoch = pending.unanswered_in is not None, None
            self._requeue(group)
            self._not_before = self._parts.clock.now() + (SOON if transient else RETRY)
            self._parts.evaluate()
        else:
            self._refusals = 0
            self._renewed(group, stats)
            self._settle_in_ledger(group, "landed", stats)  # before the next `begun` of these partitions
            for pending in group:
                self._landed(pending)

    def _renewed(self, group: list[Pending], stats: list[Stat | None]) -> None:
        """Take note of the epochs that were moved with commits."""
        for index, pending in enumerate(group):
            stat = stats[2 * index]
            if stat is not None:
                self._parts.schedule.raise_epoch(pending.partition, stat.version)

    def _refused(self, group: list[Pending], refused: RefusedError) -> None:
        culprit = group[refused.index // 2]
        if refused.index % 2:
            if refused.reason == ("NodeExists" if culprit.create else "NoNode"):
                culprit.create = not culprit.create  # somebody deleted, or made, the offset node
            else:
                group.remove(culprit)
                self._set_apart(culprit, f"{refused}; make the folder of the topic's offsets again")
            self._requeue(group)
            return
        self._refusals += 1
        if culprit.unanswered_in is not None:
            culprit.unread, culprit.epoch = True, None  # the one before has landed, or what was read was an old view
        else:
            self._discard(culprit, refused=True)
            group.remove(culprit)
            self._parts.evaluate()
        self._requeue(group)
        if self._refusals >= 2 and group:
            with self._lock:
                waiting = [pending for pending in self._queue if not pending.failures]
                self._queue = deque(pending for pending in self._queue if pending.failures)
            self._read_epochs(waiting)

    def _set_apart(self, pending: Pending, why: str) -> None:
        """Send this one by itself from now on: it would keep the others of its transaction from landing each time."""
        parts, partition = self._parts, pending.partition
        pending.failures += 1
        wait = retry_wait(pending.failures)
        pending.not_before = parts.clock.now() + wait
        partition.commit_problem = why
        parts.journal.note(
            "commit-waits", f"the commit of offset {pending.offset} waits: {why}; the commits of other partitions go on, this "
            f"one is tried again in {wait:.0f} s", partition.tp, offset=pending.offset, epoch=pending.fence.epoch,
            level=logging.ERROR,
        )  # fmt: skip
        with self._lock:
            self._queue.append(pending)

    def _read_epochs(self, group: list[Pending]) -> float | None:
        """Find out about all of these in one round; they are sent, or dropped, when the answers are there."""
        zk, paths = self._parts.zk, self._parts.paths
        self._group = group
        self._epochs = [zk.get(paths.epoch(*pending.partition.tp)) for pending in group]
        for call in self._epochs:
            call.when_done(self._parts.committer_wakeup.set)
        return min((call.deadline for call in self._epochs if call.deadline is not None), default=None)

    def _drop_moved(self) -> None:
        group, self._group = self._group, []
        calls, self._epochs = self._epochs or [], None
        self._refusals = 0
        kept = []
        for pending, call in zip(group, calls, strict=True):
            partition = pending.partition
            try:
                node = call.result()
            except ZkNodeError as error:
                self._set_apart(pending, str(error))
                continue
            except InboundError:
                kept.append(pending)  # sent again, and judged by that
                continue
            fence = current(partition.fence, self._parts.paths.epoch(*partition.tp), node)
            if fence is None:
                self._discard(pending, refused=True)
                self._parts.evaluate()
                continue
            # Our own, from a commit whose answer did not come.
            self._parts.schedule.raise_epoch(partition, fence.epoch)
            pending.unread = False
            # Requests of a session that has ended are refused: only those of this one can still come.
            pending.epoch = node if pending.unanswered_in == partition.fence.session else None
            kept.append(pending)
        self._requeue(kept)

    def _landed(self, pending: Pending) -> None:
        parts, partition = self._parts, pending.partition
        partition.committed, partition.commit_problem = pending.offset, None
        if partition.info is not None:
            info = partition.info
            info = info if info.noted_offset == pending.offset else info.without_notes()
            partition.info = replace(info, leader_epoch=pending.leader_epoch)
        partition.reverts, partition.reverted_to = 0, None
        parts.mirror.landed(partition, pending.offset)
        self.commits += 1
        parts.meters.commit_seconds.observe(parts.clock.now() - pending.since)
        if pending.first:
            parts.schedule.start(partition)
            return
        partition.commits_total += 1
        if pending.batch is not None:
            batch = pending.batch
            processor = partition.served_by or parts.processor
            partition.callbacks.append(lambda: processor.on_batch_processed(batch))
        parts.schedule.settled(partition, parts.clock.now())  # its callback first; then it rests

    def _discard(self, pending: Pending, *, refused: bool) -> None:
        """The partition is not ours any more: its commit is dropped, its records are another's to read."""
        parts, partition = self._parts, pending.partition
        if refused and partition.place is Place.SETTLING:
            self.fenced += 1
            parts.journal.note(
                "fenced", f"lost: the commit of offset {pending.offset} was refused, the epoch moved on; its new owner reads on "
                "from the last commit", partition.tp, offset=pending.offset, epoch=pending.fence.epoch, level=logging.WARNING,
            )  # fmt: skip
        parts.schedule.doom(partition, Fate.DROP)
        parts.schedule.settled(partition, parts.clock.now())
        # A commit that was sent and not answered may have landed before the epoch moved; no other can have.
        self._settle_in_ledger([pending], "fenced" if pending.unanswered_in is None else "unknown", None)

    def _settle_in_ledger(self, group: list[Pending], outcome: Outcome, stats: list[Stat | None] | None) -> None:
        entries = []
        for index, pending in enumerate(group):
            moved, stat = stats[2 * index : 2 * index + 2] if stats else (None, None)
            epoch = pending.fence.epoch if moved is None else moved.version  # whoever claims next comes after that one
            entries.append(Settled(*pending.partition.tp, epoch, pending.offset, outcome, stat.mzxid if stat else None))
        try:
            self._parts.ledger.settled(entries)
        except LedgerError as error:
            self._ledger_failed(error)  # the commit stands; the ledger lacks the word, and says so by its absence

    def _ledger_failed(self, error: LedgerError) -> None:
        parts = self._parts
        parts.ledger_trouble(error, "going on" if parts.degrade else "commits wait for it")

    def _requeue(self, group: list[Pending]) -> None:
        with self._lock:
            self._queue.extendleft(reversed(group))
