"""DispatchProcessor: posts the events of batches, and commits finished ones."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from inbound.errors import PartitionLostError
from inbound.processors.base import BatchEventProcessor, Context, TopicWriter
from inbound.processors.batch import Batch, BatchResponse
from inbound.processors.dispatch.attempts import Attempts
from inbound.processors.dispatch.counters import standing
from inbound.processors.dispatch.delayed_retry import DelayedRetry
from inbound.processors.dispatch.delivery import SubscriberDelivery
from inbound.processors.dispatch.filters import left_out, passes
from inbound.processors.dispatch.jobs import PartitionClaim, Traces
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.transport import Targets, Transport, targets_of
from inbound.processors.dispatch.window import OpenEvent, SendWindow, offsets
from inbound.processors.spans import ConsumerName
from inbound.topic_partition import TopicPartition


class Sender:
    """Sends the open events of all partitions of one subscription."""

    def __init__(
        self, options: DispatchOptions, targets: Targets, transport: Transport, loop: asyncio.AbstractEventLoop,
        log: logging.Logger, progress: Callable[[PartitionClaim], None], open_topic: Callable[[str], TopicWriter],
        group: str, wall: Callable[[], float], traces: Traces,
    ) -> None:  # fmt: skip
        """`progress` is called after each event; `wall` is Unix time."""
        self._loop = loop
        self._progress = progress
        self.attempts = Attempts(options, targets, transport, loop, log, self._finished, open_topic, traces, wall)
        self.delayed = DelayedRetry(self.attempts, group, wall)
        self.delivery = SubscriberDelivery(self.attempts, self.delayed)

    def reconfigure(self, options: DispatchOptions, targets: Targets) -> None:
        """Use these options from now on; send waiting jobs at once."""
        self.attempts.configure(options, targets)
        self.delayed.reconfigure()
        self.attempts.run_all()

    def end(self, claim: PartitionClaim) -> None:
        """Begin nothing more for this claim; requests in flight may end."""
        claim.closing = True
        claim.window.close()
        for timer in (claim.delay, claim.due):
            if timer is not None:
                timer.cancel()
        self.attempts.end(claim)

    # -- what is sent now --------------------------------------------------------------------------------------------

    def pump(self, claim: PartitionClaim) -> None:
        """Send the events that may be sent now."""
        if claim.closing:
            return
        if claim.window.held is not None:
            self.delayed.hold(claim, self.pump)
        if self.attempts.options.batch is not None:
            self._pump_batches(claim)
            return
        window = claim.window
        while (entry := window.take()) is not None:
            self.delivery.begin(claim, [entry])

    def _pump_batches(self, claim: PartitionClaim, *, full: bool = True) -> None:
        batch, window = self.attempts.options.batch, claim.window
        assert batch is not None
        while window.ready:
            if full and batch.max_delay and window.unsent < batch.max_events and window.room_left:
                if claim.delay is None:
                    claim.delay = self._loop.call_later(batch.max_delay, self._delay_over, claim)
                return
            first = window.take()
            assert first is not None
            count, size = 1, self.delivery.size(first)

            def fits(entry: OpenEvent) -> bool:
                nonlocal count, size
                size += self.delivery.size(entry) + 1
                count += 1
                return count <= batch.max_events and size <= batch.max_bytes

            self.delivery.begin(claim, [first, *window.take_more(first, fits)])

    def _delay_over(self, claim: PartitionClaim) -> None:
        claim.delay = None
        if not claim.closing and self.attempts.options.batch is not None:
            self._pump_batches(claim, full=False)

    def _finished(self, claim: PartitionClaim) -> None:
        self._progress(claim)
        self.pump(claim)

    # -- status; any thread ------------------------------------------------------------------------------------------

    def waits(self) -> dict[TopicPartition, tuple[str, str]]:
        """Return the waits of partitions: see `BatchEventProcessor.waits`."""
        return {tp: ("limit", text) for tp, text in self.attempts.limits.waits().items()} | self.troubles()

    @property
    def waiting_dead_letters(self) -> int:
        """The number of events that the dead letter sink refuses."""
        return sum(job.step.kind == "dead-letters" and job.problem is not None for job in dict(self.attempts.failed))

    def troubles(self) -> dict[TopicPartition, tuple[str, str]]:
        """Return the trouble of each partition's first failed event."""
        found: dict[TopicPartition, tuple[int, str, str]] = {}
        for job in [*dict(self.attempts.failed), *dict(self.attempts.stopped)]:
            if job.problem is None:
                continue
            tp, offset = job.claim.tp, job.entries[0].offset
            if tp not in found or offset < found[tp][0]:
                kind = "undecodable" if job.step is job.first and job.undecodable is not None else job.step.kind
                found[tp] = offset, kind, f"offset {offsets(job.entries)}: {job.problem}"
        return {tp: (kind, text) for tp, (_, kind, text) in found.items()}


#: Finished events are committed after so many seconds, or once they are this part of a window. The rest of the window must last
#: until the commit has landed.
COMMIT_WITHIN, COMMIT_PART = 0.1, 0.25
#: The longest wait for requests in flight when a partition is released: its next owner waits. Seconds.
LONGEST_DRAIN = 5.0

MakeTransport = Callable[[asyncio.AbstractEventLoop], Transport]


class DispatchProcessor(BatchEventProcessor):
    """Posts events to the subscriber; commits the finished ones."""

    Options = DispatchOptions
    #: Requests are slower than reading, and a process may have many subscriptions.
    prefetch_bytes = 8 * 2**20
    makes_spans = True
    shares_loop = True

    @classmethod
    def own_topics(cls, options: object) -> tuple[str, ...]:
        return options.retry_topics if isinstance(options, DispatchOptions) else ()

    def __init__(self, make_transport: MakeTransport | None = None) -> None:
        """`make_transport` replaces `transport` in the options."""
        self._make_transport = make_transport
        self._claims: dict[TopicPartition, PartitionClaim] = {}
        self._dirty: dict[PartitionClaim, None] = {}
        self._flush_planned = False
        self._late: asyncio.TimerHandle | None = None
        self.generation: int | None = None

    # -- life --------------------------------------------------------------------------------------------------------

    async def open(self, context: Context) -> None:
        """Read the options' files. Raises ConfigError; the subscriber may be unavailable."""
        options: DispatchOptions = context.options
        self._context = context
        self._passes = passes(options.filters)
        self._loop = asyncio.get_running_loop()
        make = self._make_transport or transport_of(options)
        targets = targets_of(options)
        self._sender = Sender(
            options, targets, make(self._loop), self._loop, context.log, self._progressed, context.open_topic,
            context.group, context.clock.wall, Traces(context.tracing, ConsumerName(context.group, context.consumer_id)),
        )  # fmt: skip

    def reconfigure(self, options: DispatchOptions, generation: int | None = None, *, wait: float = 5.0) -> None:
        """Use `options` from now on; partitions and open events stay.

        Blocks until that is done, `wait` seconds at most. Any thread but the event loop's.

        Raises:
            ConfigError: a file of the options cannot be used; the old options stay.
        """
        targets = targets_of(options)
        done = threading.Event()

        def apply() -> None:
            self._passes = passes(options.filters)
            self._sender.reconfigure(options, targets)
            for claim in self._claims.values():
                claim.window.size, claim.window.wanted = options.window, options.ordering
                self._sender.pump(claim)
            self.generation = generation
            done.set()

        self._loop.call_soon_threadsafe(apply)
        done.wait(wait)

    async def close(self) -> None:
        """Drop requests in flight and close connections; the shared loop goes on."""
        for claim in list(self._claims.values()):
            self._forget(claim)
        if self._late is not None:
            self._late.cancel()
        self._sender.attempts.close()

    # -- batches -----------------------------------------------------------------------------------------------------

    def room(self, partition: TopicPartition, committed: int) -> int:
        claim = self._claims.get(partition)
        if claim is None:
            return self._sender.attempts.options.window
        return claim.window.room(committed)

    async def on_next_batch(self, batch: Batch) -> BatchResponse:
        tp = TopicPartition(batch.topic, batch.partition)
        claim = self._claims.get(tp)
        if claim is not None and (
            claim.batch.claim is not batch.claim or batch.first_offset < claim.window.next_offset
        ):
            self._forget(claim)  # another claim, or an earlier offset: open events are read again
            claim = None
        if claim is None:
            options = self._sender.attempts.options
            claim = PartitionClaim(tp, SendWindow(options.window, options.ordering), batch, batch.first_offset)
            self._claims[tp] = claim
        claim.batch = batch
        self._admit(claim, batch)
        self._sender.pump(claim)
        return BatchResponse.next()

    def _admit(self, claim: PartitionClaim, batch: Batch) -> None:
        topics, records = self._sender.delayed.topics, batch.records
        hold = batch.topic in topics
        if not hold and self._passes is None:
            claim.window.admit(records, batch.next_offset)
            return
        others = {record.offset for record in records if topics.is_others(batch.topic, record)} if hold else set()
        filtered = left_out(self._passes, records) - others if self._passes is not None else set()
        claim.window.admit(records, batch.next_offset, hold=hold, pass_over=others | filtered)
        if others or filtered:
            self._sender.attempts.counters.passed_over += len(others)
            self._sender.attempts.counters.filtered += len(filtered)
            self._progressed(claim)

    async def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> BatchResponse | None:
        """Wait for requests in flight, and commit the finished events.

        The next owner sends the others again.
        """
        claim = self._claims.pop(partition, None)
        if claim is None:
            return None
        self._sender.end(claim)
        if claim.sending:
            claim.idle = self._loop.create_future()
            drain = min(LONGEST_DRAIN, self._context.shutdown_timeout / 2)
            try:
                await asyncio.wait_for(claim.idle, drain)
            except TimeoutError:
                self._context.log.warning(
                    "%s: %d requests had no answer %.0f s after the release of the partition began; the next owner sends their "
                    "events again",
                    partition, claim.sending, drain,
                )  # fmt: skip
        claim.lost = True
        self._dirty.pop(claim, None)
        return BatchResponse.advance(min(claim.window.front, next_offset))

    async def on_exception(self, partition: TopicPartition, error: Exception) -> BatchResponse | None:
        claim = self._claims.get(partition)
        if isinstance(error, PartitionLostError) and claim is not None:
            self._forget(claim)
        return None

    def _forget(self, claim: PartitionClaim) -> None:
        self._sender.end(claim)
        claim.lost = True
        self._dirty.pop(claim, None)
        self._claims.pop(claim.tp, None)

    # -- commits -----------------------------------------------------------------------------------------------------

    def _progressed(self, claim: PartitionClaim) -> None:
        """Commit a finished event, with others of this step of the loop."""
        if claim.closing:
            return
        self._dirty[claim] = None
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Commit all fronts once `COMMIT_PART` of a window is finished, or later.

        Commits that come together share a transaction.
        """
        self._flush_planned = False
        if any(c.window.passed - c.passed >= COMMIT_PART * c.window.size for c in self._dirty):
            self._commit_all()
        elif self._late is None:
            self._late = self._loop.call_later(COMMIT_WITHIN, self._commit_late)

    def _commit_late(self) -> None:
        self._late = None
        self._commit_all()

    def _commit_all(self) -> None:
        for claim in self._dirty:
            front = claim.window.front
            if front > claim.committed:
                claim.committed, claim.passed = front, claim.window.passed
                self._context.advance(claim.batch, front)
        self._dirty.clear()

    # -- status ------------------------------------------------------------------------------------------------------

    def waits(self) -> Mapping[TopicPartition, tuple[str, str]]:
        sent = {
            tp: (
                "window",
                f"{claim.window.open} events are sent and not finished; no more are taken before some of them are",
            )
            for tp, claim in dict(self._claims).items()
            if claim.window.open and not claim.window.room_left
        }
        delayed = {tp: ("delayed", text) for tp, text in self._delayed().items()}
        return {**sent, **delayed, **self._sender.waits()}

    def _delayed(self) -> dict[TopicPartition, str]:
        """Return until when partitions of retry topics wait for due events."""
        found = {}
        for tp, claim in dict(self._claims).items():
            timer, record = claim.due, claim.window.held
            if timer is not None and record is not None and not claim.window.in_flight:
                until = self._context.clock.wall() + timer.when() - self._loop.time()
                when = datetime.fromtimestamp(until, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
                found[tp] = f"offset {record.offset} is sent again at {when}"
        return found

    def status(self) -> Mapping[str, Any]:
        sender, attempts = self._sender, self._sender.attempts
        problems = {str(tp): text for tp, (_, text) in sender.troubles().items()}
        claims = list(dict(self._claims).values())
        return {
            "subscriber": attempts.targets.subscriber.shown,
            "subscriber_problem": sender.delivery.problem,
            "in_flight": sum(claim.sending for claim in claims),
            "open": sum(claim.window.open for claim in claims),
            "waiting_dead_letters": sender.waiting_dead_letters,
            "waiting_for_limits": attempts.limits.waiting,
            "delayed": {str(tp): text for tp, text in self._delayed().items()},
            "standing": standing(problems),
            "partitions": problems,
            **attempts.counters.as_dict(),
        }


def transport_of(options: DispatchOptions) -> MakeTransport:
    """Return the class of the options' transport."""
    if options.transport == "requests":
        from inbound.processors.dispatch.requests_transport import RequestsTransport

        return RequestsTransport
    from inbound.http.client.client import Client

    return Client
