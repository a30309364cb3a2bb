"""DispatchProcessor: takes batches in, lets their events go out one by one, and has the finished ones committed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from inbound.errors import PartitionLostError
from inbound.processors.base import BatchEventProcessor, Context
from inbound.processors.batch import Batch, BatchResponse
from inbound.processors.dispatch.counters import standing
from inbound.processors.dispatch.filters import left_out, passes
from inbound.processors.dispatch.jobs import Claim
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.sending import Sender
from inbound.processors.dispatch.targets import targets_of
from inbound.processors.dispatch.traces import Traces
from inbound.processors.dispatch.transport import Transport
from inbound.processors.dispatch.window import Window
from inbound.processors.spans import Consumer
from inbound.topic_partition import TopicPartition

#: What is finished is committed so much later at the latest, in seconds; sooner when that part of a window is. The rest of
#: the window must last until the commit has landed.
COMMIT_WITHIN, COMMIT_PART = 0.1, 0.25
#: How long a partition that is given up waits for the requests that are under way; others want to go on with it. Seconds.
LONGEST_DRAIN = 5.0

MakeTransport = Callable[[asyncio.AbstractEventLoop], Transport]


class DispatchProcessor(BatchEventProcessor):
    """Posts each event to the subscriber, with as many under way as the options allow; commits what is finished."""

    Options = DispatchOptions
    #: Requests are slow beside reading, and a process may have many subscriptions.
    prefetch_bytes = 8 * 2**20
    makes_spans = True
    shares_loop = True

    @classmethod
    def own_topics(cls, options: object) -> tuple[str, ...]:
        """See `BatchEventProcessor.own_topics`."""
        return options.retry_topics if isinstance(options, DispatchOptions) else ()

    def __init__(self, make_transport: MakeTransport | None = None) -> None:
        """`make_transport` takes the place of what `transport` in the options says."""
        self._make_transport = make_transport
        self._claims: dict[TopicPartition, Claim] = {}
        self._dirty: dict[Claim, None] = {}
        self._flush_planned = False
        self._late: asyncio.TimerHandle | None = None
        self.generation: int | None = None

    # -- life --------------------------------------------------------------------------------------------------------

    async def open(self, context: Context) -> None:
        """Read the files that the options name. Raises ConfigError; the subscriber need not be there yet."""
        options: DispatchOptions = context.options
        self._context = context
        self._passes = passes(options.filters)
        self._loop = asyncio.get_running_loop()
        make = self._make_transport or transport_of(options)
        targets = targets_of(options)
        self._sender = Sender(
            options, targets, make(self._loop), self._loop, context.log, self._progressed, context.open_topic,
            context.group, context.clock.wall, Traces(context.tracing, Consumer(context.group, context.consumer_id)),
        )  # fmt: skip
        self._sender.counters.wall = context.clock.wall

    def reconfigure(self, options: DispatchOptions, generation: int | None = None, *, wait: float = 5.0) -> None:
        """Go by `options` from now on; partitions and what is open stay. Any thread but the event loop's.

        Waits until that is done, so many seconds at most.

        Raises:
            ConfigError: a file that they name cannot be used; the old ones go on.
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
        """Give up what is under way, and close all connections."""
        for claim in list(self._claims.values()):  # given up without a word: the loop goes on, for others
            self._forget(claim)
        if self._late is not None:
            self._late.cancel()
        self._sender.close()

    # -- batches -----------------------------------------------------------------------------------------------------

    def room(self, partition: TopicPartition, committed: int) -> int:
        claim = self._claims.get(partition)
        if claim is None:
            return self._sender.options.window
        return claim.window.room(committed)

    async def on_next_batch(self, batch: Batch) -> BatchResponse:
        tp = TopicPartition(batch.topic, batch.partition)
        claim = self._claims.get(tp)
        if claim is not None and (
            claim.batch.claim is not batch.claim or batch.first_offset < claim.window.next_offset
        ):
            self._forget(claim)  # claimed anew, or reading was moved back: what is open will be read again
            claim = None
        if claim is None:
            options = self._sender.options
            claim = Claim(tp, Window(options.window, options.ordering), batch, batch.first_offset)
            self._claims[tp] = claim
        claim.batch = batch
        self._admit(claim, batch)
        self._sender.pump(claim)
        return BatchResponse.next()

    def _admit(self, claim: Claim, batch: Batch) -> None:
        topics, records = self._sender.delayed.topics, batch.records
        hold = batch.topic in topics
        if not hold and self._passes is None:
            claim.window.admit(records, batch.next_offset)
            return
        others = {record.offset for record in records if topics.is_others(batch.topic, record)} if hold else set()
        filtered = left_out(self._passes, records) - others if self._passes is not None else set()
        claim.window.admit(records, batch.next_offset, hold=hold, pass_over=others | filtered)
        if others or filtered:
            self._sender.counters.passed_over += len(others)
            self._sender.counters.filtered += len(filtered)
            self._progressed(claim)

    async def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> BatchResponse | None:
        """Wait for what is under way, and commit what is finished; what waits to be sent again is the next owner's."""
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
                    "%s: %d requests had no answer %.0f s after the partition was to be given up; their events are sent "
                    "again by the next owner",
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

    def _forget(self, claim: Claim) -> None:
        self._sender.end(claim)
        claim.lost = True
        self._dirty.pop(claim, None)
        self._claims.pop(claim.tp, None)

    # -- commits -----------------------------------------------------------------------------------------------------

    def _progressed(self, claim: Claim) -> None:
        """An event is finished; the rest of those that end in the same step are waited for."""
        if claim.closing:
            return
        self._dirty[claim] = None
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Have the fronts committed when a good part of a window stands behind one; else a little later.

        All of them then: commits that come together share a transaction.
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
        """Return until when partitions of retry topics wait of which nothing is under way."""
        found = {}
        for tp, claim in dict(self._claims).items():
            timer, record = claim.due, claim.window.held
            if timer is not None and record is not None and not claim.window.in_flight:
                until = self._context.clock.wall() + timer.when() - self._loop.time()
                when = datetime.fromtimestamp(until, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
                found[tp] = f"offset {record.offset} is sent again at {when}"
        return found

    def status(self) -> Mapping[str, Any]:
        sender = self._sender
        problems = sender.problems()
        claims = list(dict(self._claims).values())
        return {
            "subscriber": sender.targets.subscriber.shown,
            "subscriber_problem": sender.problem,
            "in_flight": sum(claim.sending for claim in claims),
            "open": sum(claim.window.open for claim in claims),
            "waiting_dead_letters": sender.waiting_dead_letters,
            "waiting_for_limits": sender.waiting_for_limits,
            "delayed": {str(tp): text for tp, text in self._delayed().items()},
            "standing": standing(problems),
            "partitions": problems,
            **sender.counters.as_dict(),
        }


def transport_of(options: DispatchOptions) -> MakeTransport:
    """Return what makes the transport that the options ask for."""
    if options.transport == "requests":
        from inbound.processors.dispatch.requests_transport import RequestsTransport

        return RequestsTransport
    from inbound.http1.client import Client

    return Client
