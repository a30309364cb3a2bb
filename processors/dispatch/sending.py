"""Which events of a subscription are sent now, alone or together; what becomes of each is said by its job's steps.

An event's way: `Sender.pump` takes it from its partition's window -> a job (`jobs.py`) -> to the subscriber (`delivery.py`) ->
perhaps its reply (`replies.py`), a topic where it waits (`delayed_retry.py`), the dead letter sink (`dead_letters.py`) ->
`Attempts.finish`. Every request goes by `attempts.py`, those to the subscriber by `limits.py` too.

Everything here runs on the thread of one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from inbound.processors.base import TopicWriter
from inbound.processors.dispatch.attempts import Attempts
from inbound.processors.dispatch.counters import Counters
from inbound.processors.dispatch.delayed_retry import DelayedRetry
from inbound.processors.dispatch.delivery import Delivery
from inbound.processors.dispatch.jobs import Claim, Job
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.targets import Targets
from inbound.processors.dispatch.traces import Traces
from inbound.processors.dispatch.transport import Transport
from inbound.processors.dispatch.window import Entry, offsets
from inbound.topic_partition import TopicPartition


class Sender:
    """Sends the open events of all partitions of one subscription."""

    def __init__(
        self, options: DispatchOptions, targets: Targets, transport: Transport, loop: asyncio.AbstractEventLoop,
        log: logging.Logger, progress: Callable[[Claim], None], open_topic: Callable[[str], TopicWriter],
        group: str, wall: Callable[[], float], traces: Traces | None = None,
    ) -> None:  # fmt: skip
        """`progress` is called when an event of a claim is finished; `wall` is the Unix time in seconds."""
        self._loop = loop
        self._progress = progress
        self._attempts = Attempts(
            options, targets, transport, loop, log, self._finished, open_topic, traces or Traces()
        )  # fmt: skip
        self.delayed = DelayedRetry(self._attempts, group, wall)
        self._delivery = Delivery(self._attempts, self.delayed)

    @property
    def options(self) -> DispatchOptions:
        return self._attempts.options

    @property
    def targets(self) -> Targets:
        return self._attempts.targets

    @property
    def counters(self) -> Counters:
        return self._attempts.counters

    @property
    def problem(self) -> str | None:
        """Why the subscriber does not take anything; None: it does."""
        return self._delivery.problem

    def reconfigure(self, options: DispatchOptions, targets: Targets) -> None:
        """From now on send by these; what waits for another attempt goes at once, to where it belongs now."""
        self._attempts.configure(options, targets)
        self.delayed.reconfigure()
        self._attempts.run_all()

    def end(self, claim: Claim) -> None:
        """Begin nothing more for this claim; what is under way ends by itself."""
        claim.closing = True
        claim.window.close()
        for timer in (claim.delay, claim.due):
            if timer is not None:
                timer.cancel()
        self._attempts.end(claim)

    def close(self) -> None:
        """Close the connections."""
        self._attempts.close()

    # -- what is sent now --------------------------------------------------------------------------------------------

    def pump(self, claim: Claim) -> None:
        """Send what may be sent now."""
        if claim.closing:
            return
        if claim.window.held is not None:
            self.delayed.hold(claim, self.pump)
        if self.options.batch is not None:
            self._pump_batches(claim)
            return
        window = claim.window
        while (entry := window.take()) is not None:
            self._delivery.begin(claim, [entry])

    def _pump_batches(self, claim: Claim, *, full: bool = True) -> None:
        batch, window = self.options.batch, claim.window
        assert batch is not None
        while window.ready:
            if full and batch.max_delay and window.unsent < batch.max_events and window.room_left:
                if claim.delay is None:
                    claim.delay = self._loop.call_later(batch.max_delay, self._delay_over, claim)
                return
            first = window.take()
            assert first is not None
            count, size = 1, self._delivery.size(first)

            def fits(entry: Entry) -> bool:
                nonlocal count, size
                size += self._delivery.size(entry) + 1
                count += 1
                return count <= batch.max_events and size <= batch.max_bytes

            self._delivery.begin(claim, [first, *window.take_more(first, fits)])

    def _delay_over(self, claim: Claim) -> None:
        claim.delay = None
        if not claim.closing and self.options.batch is not None:
            self._pump_batches(claim, full=False)

    def _finished(self, claim: Claim) -> None:
        self._progress(claim)
        self.pump(claim)

    # -- status; any thread ------------------------------------------------------------------------------------------

    def waits(self) -> dict[TopicPartition, tuple[str, str]]:
        """Return what partitions wait for: a kind (see BatchEventProcessor.waits) and why."""
        return {tp: ("limit", text) for tp, text in self._attempts.limits.waits().items()} | self._troubles()

    def problems(self) -> dict[str, str]:
        """Return why partitions stand still, by `topic/partition`."""
        return {str(tp): text for tp, (_, text) in self._troubles().items()}

    @property
    def waiting_dead_letters(self) -> int:
        """How many events the dead letter sink does not take."""
        return sum(job.step.kind == "dead-letters" and job.problem is not None for job in dict(self._attempts.failed))

    @property
    def waiting_for_limits(self) -> int:
        """How many requests wait for the subscription's limits."""
        return self._attempts.limits.waiting

    def _troubles(self) -> dict[TopicPartition, tuple[str, str]]:
        """Return the first event of each partition that is not taken."""
        found: dict[TopicPartition, tuple[int, str, str]] = {}
        for job in [*dict(self._attempts.failed), *dict(self._attempts.stopped)]:
            if job.problem is None:
                continue
            tp, offset = job.claim.tp, job.entries[0].offset
            if tp not in found or offset < found[tp][0]:
                found[tp] = offset, _kind(job), f"offset {offsets(job.entries)}: {job.problem}"
        return {tp: (kind, text) for tp, (_, kind, text) in found.items()}


def _kind(job: Job) -> str:
    return "undecodable" if job.step is job.first and job.undecodable is not None else job.step.kind
