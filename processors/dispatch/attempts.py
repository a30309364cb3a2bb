"""The shared part of all steps of a job: requests, verdicts, backoff.

All but the pure functions runs on the thread of one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from functools import partial

from inbound.config.units import format_duration
from inbound.errors import TransientError
from inbound.processors.base import TopicWriter
from inbound.processors.cloudevents_bridge import HttpParts, RecordParts
from inbound.processors.dispatch.counters import DispatchCounters
from inbound.processors.dispatch.encoding import Encoding
from inbound.processors.dispatch.jobs import Job, JobStep, PartitionClaim, Traces
from inbound.processors.dispatch.limits import RequestLimits
from inbound.processors.dispatch.options import DeliverySpec, DispatchOptions
from inbound.processors.dispatch.transport import Answer, Target, Targets, Transport
from inbound.processors.dispatch.window import offsets
from inbound.runtime.driver import DaemonThreads
from inbound.runtime.repeated import Repeats

#: Statuses that may change at the next attempt, besides 5xx; Knative's list, with 425.
PASSING = frozenset({404, 408, 409, 425, 429})
#: Statuses that no single event of a request causes: the subscriber, or a proxy before it, is busy.
BUSY = frozenset({404, 408, 425, 429, 502, 503, 504})
#: The longest wait of any policy, and of attempts without end. Seconds.
LONGEST_WAIT, LONGEST_ENDLESS_WAIT = 60.0, 5.0
#: The longest Retry-After without `retryAfterMax`. Seconds.
LONGEST_RETRY_AFTER = 300.0
#: Statuses whose Retry-After counts with `retryAfterMax`; Knative's list.
BOUNDED = frozenset({429, 503})


class AnswerVerdict(Enum):
    """The meaning of an answer for the events of a request."""

    TAKEN = "taken"
    AGAIN = "again"  # retry unchanged
    PARTS = "parts"  # retry in halves: one of the events may be the cause
    REFUSED = "refused"  # a retry would not help


def judge(answer: Answer, events: int) -> AnswerVerdict:
    """Return the verdict on the answer to so many events."""
    status = answer.status
    if 200 <= status < 300 and answer.problem is None:
        return AnswerVerdict.TAKEN
    if answer.problem is not None or status in BUSY:
        return AnswerVerdict.AGAIN
    if status >= 500 or status in PASSING:
        return AnswerVerdict.AGAIN if events == 1 else AnswerVerdict.PARTS
    return AnswerVerdict.REFUSED if events == 1 else AnswerVerdict.PARTS


def is_refusal(answer: Answer) -> bool:
    """Return whether the same request would be refused again."""
    return answer.problem is None and answer.status < 500 and answer.status not in PASSING


def wait_before(attempt: int, spec: DeliverySpec, answer: Answer, *, endless: bool) -> float:
    """Return the seconds before the next attempt, after `attempt` failures.

    Linear is `backoffDelay` times the number of failures, exponential doubles it with each; a longer wait that the receiver
    asks for in its last `answer` counts. `endless`: there is no last attempt, so the wait should not grow far.
    """
    factor = attempt if spec.backoffPolicy == "linear" else 2 ** min(attempt - 1, 30)
    wait = min(spec.backoffDelay * factor, max(LONGEST_ENDLESS_WAIT if endless else LONGEST_WAIT, spec.backoffDelay))
    return max(wait, asked_for(answer, spec))


def asked_for(answer: Answer, spec: DeliverySpec) -> float:
    """Return the seconds of the answer's Retry-After, within the bounds."""
    longest = spec.retryAfterMax
    if longest is None:
        longest = LONGEST_RETRY_AFTER
    elif answer.status not in BOUNDED:
        return 0.0
    return min(answer.retry_after or 0.0, longest)


#: Seconds between two logged warnings of one kind.
LOG_INTERVAL = 5.0


class LimitedLog:
    """Limits how often warnings about events are logged. One thread."""

    def __init__(self, log: logging.Logger, now: Callable[[], float]) -> None:
        self.logger = log
        self._now = now  # a clock in seconds
        self._repeats = Repeats[str](LOG_INTERVAL)
        self._in_trouble = False  # and logged

    def say(self, kind: str, message: str, *arguments: object) -> bool:
        """Log a warning, unless its kind was just logged; return whether."""
        left_out = self._repeats.seen(kind, self._now(), message)
        if left_out is None:
            return False
        more = f" (and {left_out} more like it since the last line)" if left_out else ""
        self.logger.warning(message + more, *arguments)
        return True

    def trouble(self, message: str) -> None:
        """Warn once that the receiver is degraded."""
        if not self._in_trouble:
            self._in_trouble = self.say("trouble", "%s", message)

    def trouble_over(self, message: str) -> None:
        """Log that the receiver is healthy again, if its trouble was logged."""
        if self._in_trouble:
            self._in_trouble = False
            self.logger.info("%s", message)


#: Records that one subscription writes to topics at a time, in its own threads: a topic that takes nothing must not stop the
#: writes of other subscriptions.
WRITES = 16


class Attempts:
    """The attempts of one subscription's jobs."""

    def __init__(
        self, options: DispatchOptions, targets: Targets, transport: Transport, loop: asyncio.AbstractEventLoop,
        log: logging.Logger, finished: Callable[[PartitionClaim], None], open_topic: Callable[[str], TopicWriter], traces: Traces,
        wall: Callable[[], float],
    ) -> None:  # fmt: skip
        """`finished` is called after events of a claim; `wall` is Unix time."""
        self.counters = DispatchCounters(wall=wall)
        self._set(options, targets)
        self.loop = loop
        self.log = LimitedLog(log, loop.time)
        self.traces = traces
        self.limits = RequestLimits(loop.time, loop.call_later, self.take)
        self.limits.set(options.limits)
        self.resting: dict[Job, None] = {}  # waiting for their next attempt
        self.failed: dict[Job, None] = {}  # these, and those whose next attempt is in flight
        self.stopped: dict[Job, None] = {}  # waiting for other options
        self._transport = transport
        self._finished = finished
        self._open_topic = open_topic
        self._writers: dict[str, TopicWriter] = {}
        self._threads = DaemonThreads(WRITES)

    def configure(self, options: DispatchOptions, targets: Targets) -> None:
        """Use these options from now on; the caller calls `run_all` next."""
        for target in self.targets:
            if target is not None:
                self._transport.retire(target)
        self._set(options, targets)

    def _set(self, options: DispatchOptions, targets: Targets) -> None:
        self.options, self.targets = options, targets
        self.encoding = Encoding(options, targets.subscriber.headers, self.counters)

    def run_all(self) -> None:
        """Send the resting and the stopped jobs."""
        for job in [*self.resting, *self.stopped]:
            self.stopped.pop(job, None)
            self.run_now(job)
        self.limits.set(self.options.limits)

    # -- steps -------------------------------------------------------------------------------------------------------

    def take(self, job: Job) -> None:
        """Take a job's present step; if that raises, its first one later."""
        try:
            job.step.send(job)
        except Exception as error:
            self._failed(job, error)

    def begin(self, job: Job, step: JobStep) -> None:
        """Begin another step of a job."""
        job.step, job.attempt, job.problem = step, 0, None
        step.send(job)

    def _failed(self, job: Job, error: Exception) -> None:
        self.limits.leave(job)
        answer = Answer(0, problem=f"{type(error).__name__}: {error}")
        self.log.say("step", "%s: offset %s could not be sent: %s",
                     job.claim.tp, offsets(job.entries), answer.problem)  # fmt: skip
        job.attempt, job.step = job.attempt + 1, job.first
        self.again(job, answer, None, endless=True, what="it could not be sent: ")

    # -- requests ----------------------------------------------------------------------------------------------------

    def post(self, job: Job, target: Target, parts: HttpParts, receiver: str) -> None:
        """Send a request for the job's step; `receiver` is for spans."""
        if job.work is not None:
            parts = self.traces.post(job, target, parts, receiver)
        job.claim.sending += 1
        try:
            self._transport.post(target, parts.lines, parts.body, partial(self._came_back, job))
        except BaseException:
            job.claim.sending -= 1
            raise

    def publish(self, job: Job, topic: str, record: RecordParts) -> None:
        """Write a record to a topic for the job's step.

        The answer is 202 when all replicas have the record, or a problem.
        """
        if topic not in self._writers:
            self._writers[topic] = self._open_topic(topic)
        if job.work is not None:
            record = self.traces.publish(job, topic, record)
        future = self.loop.run_in_executor(self._threads, self._writers[topic].send, [record])
        job.claim.sending += 1

        def done(sent: asyncio.Future[None]) -> None:
            try:
                sent.result()
                answer = Answer(202)
            except asyncio.CancelledError:
                return
            except Exception as error:  # of any kind: the partition waits with it as the reason
                told = str(error) if isinstance(error, TransientError) else f"{type(error).__name__}: {error}"
                answer = Answer(0, problem=told)
            self._came_back(job, answer)

        future.add_done_callback(done)

    def _came_back(self, job: Job, answer: Answer) -> None:
        claim = job.claim
        claim.sending -= 1
        if job.work is not None:
            self.traces.came_back(job, answer)
        self.limits.leave(job)
        if not claim.lost:
            try:
                job.step.answered(job, answer)
            except Exception as error:
                self._failed(job, error)
        if not claim.sending and claim.idle is not None and not claim.idle.done():
            claim.idle.set_result(None)

    # -- waits between attempts --------------------------------------------------------------------------------------

    def again(
        self,
        job: Job,
        answer: Answer,
        target: Target | None,
        *,
        endless: bool,
        what: str = "",
        wait: float | None = None,
    ) -> None:
        """Take a job's step again after a wait, unless its claim ends."""
        if wait is None:
            wait = wait_before(job.attempt, self.options.delivery, answer, endless=endless)
        said = f"{target.shown} {answer.shown}" if target is not None else answer.shown
        limit = "" if endless else f" of {self.options.delivery.retry + 1}"
        job.problem = f"{what}{said}; attempt {job.attempt}{limit}, again after {format_duration(round(wait, 3))}"
        if job.claim.closing:
            self.traces.given_up(job)
            return
        job.passing = answer.problem is not None
        self.resting[job] = self.failed[job] = None
        job.timer = self.loop.call_later(wait, self.run_now, job)

    def run_now(self, job: Job) -> None:
        """End a job's wait."""
        self.resting.pop(job, None)
        if job.timer is not None:
            job.timer.cancel()
            job.timer = None
        if not job.claim.closing:
            self.counters.retries += 1
            self.take(job)

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self, job: Job) -> None:
        """Finish the events of a job, and send its next part."""
        claim = job.claim
        if job.work is not None:
            self.traces.end(job)
        for entry in job.entries:
            claim.window.finish(entry)
        job.problem = None
        self.failed.pop(job, None)
        if job.rest:
            (job.entries, job.attempt), *job.rest = job.rest
            job.undecodable, job.step, job.halves = None, job.first, False
            if not claim.closing:
                self.take(job)
        else:
            claim.jobs.discard(job)
        self._finished(claim)

    def end(self, claim: PartitionClaim) -> None:
        """Begin nothing more for this claim; requests in flight may end."""
        self.limits.forget(claim)
        for job in claim.jobs:
            if job.timer is not None:
                job.timer.cancel()
            for jobs in (self.resting, self.failed, self.stopped):
                jobs.pop(job, None)
            if job.work is not None:
                self.traces.given_up(job)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()
        self._threads.shutdown()
