"""The first step of a job: its events go to the subscriber, whose answer says how they go on.

Everything here runs on the thread of one event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from inbound.processors.cloudevents_bridge import Refused, is_event
from inbound.processors.dispatch.attempts import Attempts
from inbound.processors.dispatch.dead_letters import DeadLetters
from inbound.processors.dispatch.delayed_retry import DelayedRetry
from inbound.processors.dispatch.encoding import HttpParts, batch_of
from inbound.processors.dispatch.jobs import Claim, Job
from inbound.processors.dispatch.replies import Replies
from inbound.processors.dispatch.retry import Verdict, asked_for, is_refusal, judge
from inbound.processors.dispatch.transport import Answer
from inbound.processors.dispatch.window import Entry, in_turn


class Delivery:
    """Posts jobs to the subscriber: whole, or in the parts that it takes."""

    kind = "subscriber"

    def __init__(self, attempts: Attempts, delayed: DelayedRetry) -> None:
        self.problem: str | None = None  # why the subscriber does not take anything; None: it does
        self._attempts = attempts
        self._dead_letters = DeadLetters(attempts, delayed)
        self._replies = Replies(attempts, self._dead_letters)
        self._delayed = delayed
        self._halving = _Halving(self)

    def begin(self, claim: Claim, entries: list[Entry]) -> None:
        """Send these events together."""
        self._attempts.take(self._job(claim, entries))

    def _job(self, claim: Claim, entries: list[Entry]) -> Job:
        job = Job(claim, entries, self)
        claim.jobs.add(job)
        return job

    def size(self, entry: Entry) -> int:
        """Return the bytes of an event in a batch; it is encoded once."""
        if entry.payload is None:
            try:
                entry.payload = self._attempts.encoding.in_batch(entry.record)
            except Refused as refused:
                entry.payload = refused
        return len(entry.payload) if isinstance(entry.payload, bytes) else 0

    # -- the step ----------------------------------------------------------------------------------------------------

    def send(self, job: Job) -> None:
        """See `Step`."""
        attempts = self._attempts
        if job.claim.closing:  # it was refused and goes on in parts, or its sink or topic is gone: the next owner's
            attempts.traces.given_up(job)
            return
        if job.undecodable is not None:
            self._dead_letters.undecodable(job)
            return
        if attempts.options.batch is None and len(job.entries) > 1:  # the subscriber has ceased to ask for batches
            self._split(job, [[entry] for entry in job.entries], job.attempt)
            return
        if not attempts.limits.enter(job):
            return
        try:
            parts = self._encoded(job)
        except Refused as refused:
            attempts.limits.leave(job)
            self._set_apart(job, refused)
            return
        if attempts.traces.tracing.spans is not None:
            attempts.traces.begin(job, parts)
        job.sent_at = attempts.loop.time()
        attempts.post(job, attempts.targets.subscriber, parts, "subscriber")

    def answered(self, job: Job, answer: Answer) -> None:
        """See `Step`."""
        attempts = self._attempts
        attempts.counters.answers.add(str(answer.status))
        attempts.counters.request_seconds.observe(attempts.loop.time() - job.sent_at)
        verdict = judge(answer, len(job.entries))
        if verdict is Verdict.TAKEN:
            self._taken(job, answer)
        else:
            job.attempt += 1
            self._troubled(answer)
            self._not_taken(job, answer, verdict)

    def _taken(self, job: Job, answer: Answer) -> None:
        if self.problem is not None:
            self._recovered()
        attempts = self._attempts
        topic, delayed = job.claim.tp.topic, self._delayed.topics
        if topic in delayed:  # the event is older than its record there
            attempts.counters.took(job.entries, partial(delayed.written_at, topic))
        else:
            attempts.counters.took(job.entries)
        job.problem = None
        if attempts.targets.reply is not None and is_event(answer.headers):
            self._replies.begin(job, answer)
        else:
            attempts.finish(job)

    def _not_taken(self, job: Job, answer: Answer, verdict: Verdict) -> None:
        attempts = self._attempts
        subscriber, spec = attempts.targets.subscriber, attempts.options.delivery
        endless = spec.deadLetterSink is None
        refused, used_up, single = is_refusal(answer), job.attempt > spec.retry, len(job.entries) == 1
        delay = self._delayed.next(job) if used_up and single else None
        if refused and not single:
            self._halve(job, 0)
        elif refused and not endless:
            self._dead_letters.event(job, answer)
        elif delay is not None:
            self._delayed.begin(job, delay, answer)
        elif used_up and single and not endless:
            self._dead_letters.event(job, answer)
        elif not single and (used_up or (verdict is Verdict.PARTS and job.attempt > 1)):
            # One of them may be the cause, of broken connections too: each half is tried once more, no sooner than asked for.
            job.step = self._halving
            if wait := asked_for(answer, spec):
                attempts.again(job, answer, subscriber, endless=endless, wait=wait)
            else:
                self._halving.send(job)
        else:
            attempts.again(job, answer, subscriber, endless=endless)

    # -- requests ----------------------------------------------------------------------------------------------------

    def _encoded(self, job: Job) -> HttpParts:
        attempts = self._attempts
        if attempts.options.batch is None and len(job.entries) == 1:
            return attempts.encoding.for_subscriber(job.entries[0].record)
        objects = []
        for entry in job.entries:
            self.size(entry)
            if isinstance(entry.payload, Refused):
                raise entry.payload
            assert isinstance(entry.payload, bytes)
            objects.append(entry.payload)
        return batch_of(objects)

    def _set_apart(self, job: Job, refused: Refused) -> None:
        """One of the records is no event: it goes its own way, those before and after it as they would without it."""
        if len(job.entries) == 1:
            self._attempts.counters.undecodable += 1
            job.undecodable = str(refused)
            self._dead_letters.undecodable(job)
            return
        at = next(n for n, entry in enumerate(job.entries) if entry.payload is refused)
        bad = job.entries[at]
        self._split(job, [part for part in (job.entries[:at], [bad], job.entries[at + 1 :]) if part])

    def halve_again(self, job: Job) -> None:
        """Send a batch in halves, each of which has one more attempt at least."""
        self._halve(job, min(job.attempt, self._attempts.options.delivery.retry))

    def _halve(self, job: Job, attempt: int) -> None:
        middle = len(job.entries) // 2
        self._split(job, [job.entries[:middle], job.entries[middle:]], attempt)

    def _split(self, job: Job, parts: Sequence[list[Entry]], attempt: int = 0) -> None:
        """Go on with these parts of a job, each with so many failures: one after the other, where they share a lane."""
        first, *others = in_turn([*((part, attempt) for part in parts), *job.rest])
        job.problem = None
        if job.work is not None:
            self._attempts.traces.end(job)
        jobs = [job, *(self._job(job.claim, other[0][0]) for other in others)]
        for each, ((entries, failures), *rest) in zip(jobs, (first, *others), strict=True):
            each.entries, each.attempt, each.rest, each.step = entries, failures, rest, self
        for each in jobs:
            self._attempts.take(each)

    # -- the subscriber ----------------------------------------------------------------------------------------------

    def _troubled(self, answer: Answer) -> None:
        self.problem = answer.shown
        self._attempts.log.trouble(f"the subscriber {self._attempts.targets.subscriber.shown}: {answer.shown}")

    def _recovered(self) -> None:
        """The subscriber takes events again: those that wait because it did not answer need not wait longer."""
        self.problem = None
        attempts = self._attempts
        attempts.log.trouble_over(f"the subscriber {attempts.targets.subscriber.shown} takes events")
        for job in [job for job in attempts.resting if job.passing]:
            attempts.run_now(job)


class _Halving:
    """The step of a batch that goes on in halves, when the subscriber wants it again."""

    kind = Delivery.kind

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def send(self, job: Job) -> None:
        self._delivery.halve_again(job)

    def answered(self, job: Job, answer: Answer) -> None:
        raise AssertionError("nothing is sent by this step")
