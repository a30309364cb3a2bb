"""Writes commits to the ledger, then to ZooKeeper: one transaction in flight.

One committer serves all channels on a connection. It keeps the newest position of each partition, so the newest one is
always the one that is sent, also again after an ambiguous answer. The first commit of an idle process goes at once, then
there is one round in each `controller.commit_interval`: under load commits are grouped, and ZooKeeper's writes
grow with the members and not with the batches.

A commit that ZooKeeper refuses for its node alone (access rights, a quota, a missing folder) is set apart: it is sent by
itself from then on, ever more rarely, and the commits of other partitions go on without it.

An unanswered commit may execute at any time while the session lives, even after later requests (see
`docs/decisions/0014-late-requests.md`). So the commit that replaces it moves the epoch on, and the old one is refused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from weakref import WeakSet

from inbound.channel.commit import READ_ALL, Pending, Refusal, meaning
from inbound.channel.parts import Parts
from inbound.clock import Clock
from inbound.coordinators.ownership import current
from inbound.coordinators.zookeeper import (
    MAX_TRANSACTION_BYTES,
    MAX_TRANSACTION_OPS,
    Call,
    Node,
    RefusedError,
    Stat,
    ZooKeeper,
)
from inbound.errors import InboundError, TransientError, ZkNodeError
from inbound.ledger.base import Done, Outcome, Settled
from inbound.partition.partition import Fate, Partition, Place
from inbound.processors.base import BatchEventProcessor
from inbound.processors.batch import Batch
from inbound.runtime.backoff import Backoff
from inbound.runtime.driver import Wakeup

#: Seconds until the next try after a failure without a lost connection.
RETRY = 1.0
#: The backoff of a commit that was refused for its own node.
APART_RETRY = Backoff(1.0, 60.0)
#: Seconds to wait for the reconnect after a lost answer.
SOON = 0.05
#: Seconds by which the deadline of a late answer is extended, as long as the connection answers at all.
LATER = 1.0


class Committer:
    """Commits for all channels on one connection: see `inbound.runtime.driver.Part`."""

    def __init__(self, zk: ZooKeeper, clock: Clock, interval: float) -> None:
        """Take `interval`, `controller.commit_interval` in seconds; it may change at runtime."""
        self._zk = zk
        self._clock = clock
        self.interval = interval
        self.wakeup = Wakeup()
        self._lock = threading.Lock()
        self._queue: dict[Partition, Pending] = {}
        self._closed: WeakSet[Parts] = WeakSet()  # channels whose commits are not sent any more
        self._group: list[Pending] = []  # in the transaction that is in flight
        self._call: Call[list[Stat | None]] | None = None
        self._sent_over = 0  # the connection's generation
        self._epochs: list[Call[Node | None]] | None = None  # being read after a second refusal
        self._refusals = 0
        self._alone = False  # the last transaction was one commit set apart
        self._not_before = 0.0
        self._next_round = float("-inf")
        #: The partitions that this round has sent: each once, else a round of more partitions than fit into one
        #: transaction would never end.
        self._in_round: set[Partition] = set()
        self._idle = True  # no commit can be sent: it does not run before it is woken

    def submit(self, pending: Pending) -> None:
        """Queue a partition's commit, in place of an older one. Any thread."""
        pending.since = self._clock.now()
        with self._lock:
            self._put(pending)
            idle, self._idle = self._idle, False
        if idle:  # else it looks when its round is over: to wake it for each commit would cost more than the commit
            self.wakeup.set()

    def _put(self, pending: Pending) -> None:
        """Keep the newer of two commits: they may come out of order.

        1. A processor finishes records later, and that commit is marked; 2. a worker marks and submits the commit of
        its next answer; 3. the first one is submitted. It is the older one.
        """
        waiting = self._queue.get(pending.partition)
        if waiting is None:
            if pending.mark.order > pending.partition.position.landed_order:
                self._queue[pending.partition] = pending
        elif waiting.mark.order < pending.mark.order:
            pending.stand_for(waiting)
            self._queue[pending.partition] = pending
        else:
            waiting.to_tell = pending.to_tell + waiting.to_tell  # it was never sent: it has no other state

    def forget(self, channel: Parts) -> None:
        """Send no more commits of a closed channel. Any thread."""
        with self._lock:
            self._closed.add(channel)
            for partition in [p for p, pending in self._queue.items() if pending.channel is channel]:
                del self._queue[partition]

    def run_once(self) -> float | None:
        now = self._clock.now()
        if self._epochs is not None:
            if not self._arrived(self._epochs, now):
                return min(call.deadline or now for call in self._epochs)
            self._drop_moved()
        elif self._call is not None:
            if self._is_late(self._call, now):
                self._call.deadline = now + LATER
            if not self._arrived([self._call], now):
                return self._call.deadline
            self._answered(self._call)
        if self._call is None and self._epochs is None:
            return self._send(now)
        return self._call.deadline if self._call else now

    def _is_late(self, call: Call[list[Stat | None]], now: float) -> bool:
        """Whether a late answer may yet come over the same connection.

        To treat it as lost would make the next write larger (it moves the epoch on) when the server is overloaded
        already.
        """
        if call.done or call.deadline is None or now < call.deadline:
            return False
        connection = self._zk.connection
        return connection is not None and connection.generation == self._sent_over

    # -- sending -----------------------------------------------------------------------------------------------------

    def _send(self, now: float) -> float | None:
        if now < max(self._not_before, self._next_round):
            return max(self._not_before, self._next_round)
        group, left = self._collect(now)
        if not group and self._in_round:
            self._end_round(now)  # the waiting commits were sent in it already
            return self._next_round
        if not group:
            with self._lock:
                times = [pending.not_before for pending in self._queue.values()]
            return min((time for time in times if time > now), default=None)
        if not self._record(group):
            return now + SOON
        unread = [pending for pending in group if pending.unread]
        if unread:
            self._requeue([pending for pending in group if pending not in unread])
            return self._read_epochs(unread)
        ops = [op for pending in group for op in pending.ops()]
        self._group = group
        self._in_round.update(pending.partition for pending in group)
        if not left and not self._alone:  # else the round goes on
            self._end_round(now)
        for channel in {pending.channel for pending in group}:
            channel.transactions += 1
        connection = self._zk.connection
        self._sent_over = connection.generation if connection is not None else 0
        self._call = self._zk.transaction(ops)
        self._call.when_done(self.wakeup.set)
        return self._call.deadline

    def _end_round(self, now: float) -> None:
        self._in_round.clear()
        self._next_round = now + self.interval

    def _collect(self, now: float) -> tuple[list[Pending], bool]:
        """Take the commits that may be sent now, and discard lost ones.

        Returns them, and whether more could have been sent with them.
        """
        connection = self._zk.connection
        session = connection.session.id if connection and self._zk.certain(connection.session.id) else None
        ready: list[Pending] = []
        discarded: list[Pending] = []
        with self._lock:
            for partition, pending in list(self._queue.items()):
                if partition.fate is Fate.DROP and not partition.sends_on:
                    discarded.append(self._queue.pop(partition))
                elif pending.first and partition.place is not Place.STARTING:
                    # Released before it had begun: no commit may land once its owner node is gone.
                    del self._queue[partition]
                elif pending.mark.order <= partition.position.landed_order:
                    # 1. It was marked; 2. a newer one was sent; 3. it was submitted; 4. the newer one has landed.
                    del self._queue[partition]
                elif (
                    partition.fence.session == session and pending.not_before <= now and partition not in self._in_round
                ):
                    ready.append(pending)
            group = self._choose(ready)
            for pending in group:
                del self._queue[pending.partition]
            self._idle = not group and not self._in_round  # queued commits wait for something else
        for pending in discarded:
            self._discard(pending, refused=False)
        return group, len(group) < len(ready)

    def _choose(self, ready: list[Pending]) -> list[Pending]:
        """Return the commits for one transaction, or one set apart."""
        apart = [pending for pending in ready if pending.failures]
        self._alone = bool(apart) and not (self._alone and len(apart) < len(ready))
        if self._alone:
            return [apart[0]]
        group: list[Pending] = []
        size = 0
        for pending in ready:
            size += pending.size()
            if size > MAX_TRANSACTION_BYTES or 2 * len(group) + 2 > MAX_TRANSACTION_OPS:
                break
            if not pending.failures:
                group.append(pending)
        return group

    def _record(self, group: list[Pending]) -> bool:
        """Write `done` for the group, one fsync per channel. False: send nothing."""
        held = []
        for channel, of_channel in _by_channel(group):
            entries = [
                Done(
                    *p.partition.tp,
                    p.partition.fence.epoch,
                    p.offset if p.of_batch is None else p.of_batch,
                    p.offset,
                    p.offset,
                )
                for p in of_channel
                if not p.recorded
            ]
            if entries and not channel.ledger_notes.done(entries):
                held += of_channel
                continue
            for pending in of_channel:
                pending.recorded = True
        for pending in held:
            pending.not_before = max(pending.not_before, self._clock.now() + RETRY)
            group.remove(pending)
        self._requeue(held)
        return bool(group)

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
            self._send_again(group)
        except InboundError as error:
            # It may have landed. The same offsets are sent again once the session is verified; until then they wait.
            transient = isinstance(error, TransientError)
            for channel, of_channel in _by_channel(group):
                channel.journal.note(
                    "commit-waits",
                    f"a commit of {len(of_channel)} partitions waits: {error}",
                    level=logging.INFO if transient else logging.ERROR,
                    partitions=len(of_channel),
                )
                channel.evaluate()
            for pending in group:
                if call.sent_in is not None:
                    pending.unanswered, pending.unanswered_in = pending.offset, call.sent_in
                pending.unread, pending.epoch = pending.unanswered_in is not None, None
            self._requeue(group)
            self._not_before = self._clock.now() + (SOON if transient else RETRY)
        else:
            self._refusals = 0
            self._settle_landed(group, stats)
            for channel, of_channel in _by_channel(group):
                with channel.schedule.at_once():  # while workers compute, each wait for its lock takes milliseconds
                    for pending in of_channel:
                        self._landed(pending)

    def _refused(self, group: list[Pending], refused: RefusedError) -> None:
        culprit = group[refused.index // 2]
        what = meaning(culprit, refused)
        if what is Refusal.OTHER_WRITE:
            culprit.create = not culprit.create
        elif what is Refusal.READ_EPOCH:
            culprit.unread, culprit.epoch = True, None
        else:
            group.remove(culprit)
        if what is Refusal.APART:
            self._set_apart(culprit, f"{refused}; make the folder of the topic's offsets again")
        elif what is Refusal.LOST:
            self._discard(culprit, refused=True)
            culprit.channel.evaluate()
        self._send_again(group)
        self._refusals += what in (Refusal.READ_EPOCH, Refusal.LOST)
        if self._refusals >= READ_ALL and group:
            with self._lock:
                waiting = [pending for pending in self._queue.values() if not pending.failures]
                for pending in waiting:
                    del self._queue[pending.partition]
            self._read_epochs(waiting)

    def _send_again(self, group: list[Pending]) -> None:
        """Send commits at once: another one of their transaction was refused."""
        self._requeue(group)
        self._in_round.difference_update(pending.partition for pending in group)
        self._next_round = float("-inf")

    def _set_apart(self, pending: Pending, why: str) -> None:
        """Send a commit alone: others in its transaction would not land."""
        partition = pending.partition
        pending.failures += 1
        wait = APART_RETRY.delay(pending.failures)
        pending.not_before = self._clock.now() + wait
        partition.commit_problem = why
        pending.channel.journal.note(
            "commit-waits", f"the commit of offset {pending.offset} waits: {why}; the commits of other partitions go on, this "
            f"one is tried again in {wait:.0f} s", partition.tp, offset=pending.offset, epoch=partition.fence.epoch,
            level=logging.ERROR,
        )  # fmt: skip
        self._requeue([pending])

    def _read_epochs(self, group: list[Pending]) -> float | None:
        """Read the epochs of all these commits, then send or drop them."""
        self._group = group
        self._epochs = [self._zk.get(p.channel.paths.epoch(*p.partition.tp)) for p in group]
        for call in self._epochs:
            call.when_done(self.wakeup.set)
        return min((call.deadline for call in self._epochs if call.deadline is not None), default=None)

    def _drop_moved(self) -> None:
        group, self._group = self._group, []
        calls, self._epochs = self._epochs or [], None
        self._refusals = 0
        kept = []
        for pending, call in zip(group, calls, strict=True):
            channel, partition = pending.channel, pending.partition
            try:
                node = call.result()
            except ZkNodeError as error:
                self._set_apart(pending, str(error))
                continue
            except InboundError:
                kept.append(pending)  # sent again, and judged by that
                continue
            fence = current(partition.fence, channel.paths.epoch(*partition.tp), node)
            if fence is None:
                self._discard(pending, refused=True)
                channel.evaluate()
                continue
            # Our own, from a commit whose answer did not come.
            channel.schedule.raise_epoch(partition, fence.epoch)
            pending.unread = False
            # Requests of a session that has ended are refused: only those of this one can still come.
            pending.epoch = node if pending.unanswered_in == partition.fence.session else None
            kept.append(pending)
        self._send_again(kept)

    def _landed(self, pending: Pending) -> None:
        channel, partition = pending.channel, pending.partition
        partition.commit_problem = None
        if partition.info is not None:
            info = partition.info
            info = info if info.noted_offset == pending.offset else info.without_notes()
            if info.leader_epoch != pending.leader_epoch:
                info = replace(info, leader_epoch=pending.leader_epoch)
            partition.info = info
        channel.mirror.landed(partition, pending.offset)
        channel.commits_landed += 1
        channel.meters.commit_seconds.observe(self._clock.now() - pending.since)
        if not pending.first:
            partition.totals.commits += 1
        told = [partial(on_batch_processed, server, batch) for server, batch in pending.to_tell]
        channel.schedule.landed(partition, pending.mark, told)
        if pending.first:
            channel.schedule.start(partition)

    def _discard(self, pending: Pending, *, refused: bool) -> None:
        """Drop a commit of a lost partition; the new owner redelivers."""
        channel, partition = pending.channel, pending.partition
        with self._lock:
            newer = self._queue.pop(partition, None)
        if refused and partition.fate is not Fate.DROP:
            channel.commits_fenced += 1
            channel.journal.note(
                "fenced", f"lost: the commit of offset {pending.offset} was refused, the epoch moved on; its new owner reads on "
                "from the last commit", partition.tp, offset=pending.offset, epoch=partition.fence.epoch, level=logging.WARNING,
            )  # fmt: skip
        # An unanswered commit may have landed before the epoch moved; no other can have.
        outcomes: dict[int, Outcome] = {p.offset: "fenced" for p in (pending, newer) if p is not None}
        if pending.unanswered is not None:
            outcomes[pending.unanswered] = "unknown"
        epoch = partition.fence.epoch
        channel.ledger_notes.settled([Settled(*partition.tp, epoch, *item) for item in sorted(outcomes.items())])
        channel.schedule.refused(partition)

    def _settle_landed(self, group: list[Pending], stats: list[Stat | None]) -> None:
        """Record landed commits in the ledger, before later lines of their partitions."""
        told: dict[Parts, list[Settled]] = {}
        for pending, moved, stat in zip(group, stats[::2], stats[1::2], strict=True):
            if moved is not None:
                pending.channel.schedule.raise_epoch(pending.partition, moved.version)
            # The next claim comes after the epoch that it was moved to.
            epoch = pending.partition.fence.epoch if moved is None else moved.version
            settled = Settled(*pending.partition.tp, epoch, pending.offset, "landed", stat.mzxid if stat else None)
            told.setdefault(pending.channel, []).append(settled)
        for channel, entries in told.items():
            channel.ledger_notes.settled(entries)

    def _requeue(self, group: list[Pending]) -> None:
        """Put commits back before queued ones; a partition keeps its newer one."""
        with self._lock:
            again = [pending for pending in group if pending.channel not in self._closed]
            waiting, self._queue = self._queue, {pending.partition: pending for pending in again}
            for pending in waiting.values():
                self._put(pending)

    def waiting(self, channel: Parts) -> int:
        """Return how many partitions of a channel have queued commits. Any thread."""
        with self._lock:
            return len({p.partition for p in (*self._queue.values(), *self._group) if p.channel is channel})


def _by_channel(group: Iterable[Pending]) -> list[tuple[Parts, list[Pending]]]:
    found: dict[Parts, list[Pending]] = {}
    for pending in group:
        found.setdefault(pending.channel, []).append(pending)
    return list(found.items())


def on_batch_processed(server: BatchEventProcessor, batch: Batch) -> object:
    """Call a processor's on_batch_processed; log lines have this name."""
    return server.on_batch_processed(batch)
