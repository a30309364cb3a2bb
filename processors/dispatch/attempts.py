"""What all steps of a job share: requests and their answers, waiting for the next attempt, and the end.

Everything here runs on the thread of one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from inbound.config.units import format_duration
from inbound.daemon_threads import DaemonThreads
from inbound.errors import TransientError
from inbound.processors.base import TopicWriter
from inbound.processors.cloudevents_bridge import RecordParts
from inbound.processors.dispatch.counters import Counters
from inbound.processors.dispatch.encoding import Encoding, HttpParts
from inbound.processors.dispatch.jobs import Claim, Job, Step
from inbound.processors.dispatch.limited_log import LimitedLog
from inbound.processors.dispatch.limits import Limits
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.retry import wait_before
from inbound.processors.dispatch.targets import Targets
from inbound.processors.dispatch.traces import Traces
from inbound.processors.dispatch.transport import Answer, Target, Transport
from inbound.processors.dispatch.window import offsets

#: Records that one subscription writes to topics at a time. Its own threads: the loop is shared, and a topic that takes nothing
#: must not keep those of other subscriptions from theirs.
WRITES = 16


class Attempts:
    """Of the jobs of one subscription."""

    def __init__(
        self, options: DispatchOptions, targets: Targets, transport: Transport, loop: asyncio.AbstractEventLoop,
        log: logging.Logger, finished: Callable[[Claim], None], open_topic: Callable[[str], TopicWriter], traces: Traces,
    ) -> None:  # fmt: skip
        """`finished` is called when events of a claim are."""
        self.counters = Counters()
        self._set(options, targets)
        self.loop = loop
        self.log = LimitedLog(log, loop.time)
        self.traces = traces
        self.limits = Limits(loop.time, loop.call_later, self.take)
        self.limits.set(options.limits)
        self.resting: dict[Job, None] = {}  # until their next attempt
        self.failed: dict[Job, None] = {}  # these, and those whose next attempt is under way
        self.stopped: dict[Job, None] = {}
        self._transport = transport
        self._finished = finished
        self._open_topic = open_topic
        self._writers: dict[str, TopicWriter] = {}
        self._threads = DaemonThreads(WRITES)

    def configure(self, options: DispatchOptions, targets: Targets) -> None:
        """From now on send by these; before `run_all`."""
        for target in self.targets.all():
            self._transport.retire(target)
        self._set(options, targets)

    def _set(self, options: DispatchOptions, targets: Targets) -> None:
        self.options, self.targets = options, targets
        self.encoding = Encoding(options, targets.subscriber.headers, self.counters)

    def run_all(self) -> None:
        """What waits for another attempt, or for other options, waits no longer."""
        for job in [*self.resting, *self.stopped]:
            self.stopped.pop(job, None)
            self.run_now(job)
        self.limits.set(self.options.limits)

    # -- steps -------------------------------------------------------------------------------------------------------

    def take(self, job: Job) -> None:
        """Take a job's present step, or its first one later where that raises, say as no thread can be begun."""
        try:
            job.step.send(job)
        except Exception as error:
            self._failed(job, error)

    def begin(self, job: Job, step: Step) -> None:
        """Go on with a job by another step."""
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
        """Send a request; its answer goes to the job's step. `receiver` is how spans name it."""
        if job.work is not None:
            parts = self.traces.post(job, target, parts, receiver)
        job.claim.sending += 1
        try:
            self._transport.post(target, parts.lines, parts.body, partial(self._came_back, job))
        except BaseException:
            job.claim.sending -= 1
            raise

    def publish(self, job: Job, topic: str, record: RecordParts) -> None:
        """Write a record to a topic; its step is answered 202 when all replicas have it, else with the problem."""
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
            except Exception as error:  # whatever it is: the partition waits, and says so
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

    # -- waiting for the next one ------------------------------------------------------------------------------------

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
        """Take a job's step again after a while, unless the partition is being given up."""
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
        """Wait no longer."""
        self.resting.pop(job, None)
        if job.timer is not None:
            job.timer.cancel()
            job.timer = None
        if not job.claim.closing:
            self.counters.retries += 1
            self.take(job)

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self, job: Job) -> None:
        """Close the events of a job, and go on with the other parts of its request, if it was taken apart."""
        claim = job.claim
        if job.work is not None:
            self.traces.end(job)
        for entry in job.entries:
            claim.window.finish(entry)
        job.problem = None
        self.failed.pop(job, None)
        if job.rest:
            (job.entries, job.attempt), *job.rest = job.rest
            job.undecodable, job.step = None, job.first
            if not claim.closing:
                self.take(job)
        else:
            claim.jobs.discard(job)
        self._finished(claim)

    def end(self, claim: Claim) -> None:
        """Begin nothing more for this claim; what is under way ends by itself."""
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
