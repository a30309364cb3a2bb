"""The steps of a job: the subscriber, and its reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from inbound.processors.batch import Record
from inbound.processors.cloudevents_bridge import HttpParts, Refused, http_to_records, is_event, record_to_binary
from inbound.processors.dispatch.attempts import AnswerVerdict, Attempts, asked_for, is_refusal, judge
from inbound.processors.dispatch.dead_letters import DeadLetters
from inbound.processors.dispatch.delayed_retry import DelayedRetry
from inbound.processors.dispatch.encoding import as_record, batch_of, error_extensions
from inbound.processors.dispatch.jobs import Job, PartitionClaim
from inbound.processors.dispatch.transport import Answer, Target
from inbound.processors.dispatch.window import OpenEvent, in_turn, offsets


class SubscriberDelivery:
    """Posts jobs to the subscriber, whole or in parts."""

    kind = "subscriber"

    def __init__(self, attempts: Attempts, delayed: DelayedRetry) -> None:
        self.problem: str | None = None  # why the subscriber takes nothing; None: it takes events
        self._attempts = attempts
        self._dead_letters = DeadLetters(attempts, delayed)
        self._replies = Replies(attempts, self._dead_letters)
        self._delayed = delayed

    def begin(self, claim: PartitionClaim, entries: list[OpenEvent]) -> None:
        """Send these events in one job."""
        self._attempts.take(self._job(claim, entries))

    def _job(self, claim: PartitionClaim, entries: list[OpenEvent]) -> Job:
        job = Job(claim, entries, self)
        claim.jobs.add(job)
        return job

    def size(self, entry: OpenEvent) -> int:
        """Return the bytes of an event in a batch, encoded once."""
        if entry.payload is None:
            try:
                entry.payload = self._attempts.encoding.in_batch(entry.record)
            except Refused as refused:
                entry.payload = refused
        return len(entry.payload) if isinstance(entry.payload, bytes) else 0

    # -- the step ----------------------------------------------------------------------------------------------------

    def send(self, job: Job) -> None:
        attempts = self._attempts
        if job.claim.closing:  # after a split, or without its sink or topic: the next owner sends it
            attempts.traces.given_up(job)
            return
        if job.undecodable is not None:
            self._dead_letters.undecodable(job)
            return
        if len(job.entries) > 1:
            if job.halves:  # each with one more attempt at least
                self._halve(job, min(job.attempt, attempts.options.delivery.retry))
                return
            if attempts.options.batch is None:  # the changed options have no batches
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
        attempts = self._attempts
        attempts.counters.answers.add(str(answer.status))
        attempts.counters.request_seconds.observe(attempts.loop.time() - job.sent_at)
        verdict = judge(answer, len(job.entries))
        if verdict is AnswerVerdict.TAKEN:
            self._taken(job, answer)
        else:
            job.attempt += 1
            self.problem = answer.shown
            attempts.log.trouble(f"the subscriber {attempts.targets.subscriber.shown}: {answer.shown}")
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

    def _not_taken(self, job: Job, answer: Answer, verdict: AnswerVerdict) -> None:
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
        elif not single and (used_up or (verdict is AnswerVerdict.PARTS and job.attempt > 1)):
            # One event may be the cause, of broken connections too: each half is retried, after the asked wait.
            job.halves = True
            if wait := asked_for(answer, spec):
                attempts.again(job, answer, subscriber, endless=endless, wait=wait)
            else:
                self.send(job)
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
        """Give a record that is no event its own job."""
        if len(job.entries) == 1:
            self._attempts.counters.undecodable += 1
            job.undecodable = str(refused)
            self._dead_letters.undecodable(job)
            return
        at = next(n for n, entry in enumerate(job.entries) if entry.payload is refused)
        bad = job.entries[at]
        self._split(job, [part for part in (job.entries[:at], [bad], job.entries[at + 1 :]) if part])

    def _halve(self, job: Job, attempt: int) -> None:
        middle = len(job.entries) // 2
        self._split(job, [job.entries[:middle], job.entries[middle:]], attempt)

    def _split(self, job: Job, parts: Sequence[list[OpenEvent]], attempt: int = 0) -> None:
        """Send a job's parts after `attempt` failures, sharers of lanes in turn."""
        first, *others = in_turn([*((part, attempt) for part in parts), *job.rest])
        job.problem = None
        if job.work is not None:
            self._attempts.traces.end(job)
        jobs = [job, *(self._job(job.claim, other[0][0]) for other in others)]
        for each, ((entries, failures), *rest) in zip(jobs, (first, *others), strict=True):
            each.entries, each.attempt, each.rest, each.step, each.halves = entries, failures, rest, self, False
        for each in jobs:
            self._attempts.take(each)

    # -- the subscriber ----------------------------------------------------------------------------------------------

    def _recovered(self) -> None:
        """Send the jobs at once that wait because of missing answers."""
        self.problem = None
        attempts = self._attempts
        attempts.log.trouble_over(f"the subscriber {attempts.targets.subscriber.shown} takes events")
        for job in [job for job in attempts.resting if job.passing]:
            attempts.run_now(job)


@dataclass(frozen=True)
class Replies:
    """Posts the events in answers, then finishes the answered ones."""

    attempts: Attempts
    dead_letters: DeadLetters

    def begin(self, job: Job, answer: Answer) -> None:
        """Post the events of the answer to a job."""
        try:
            if answer.cut:
                raise Refused("it is longer than what is read of an answer")
            replies = [as_record(parts) for parts in http_to_records(answer.headers, answer.body)]
            requests = [record_to_binary(reply) for reply in replies]
        except Refused as refused:
            self.attempts.log.say("reply", "%s: the subscriber's answer to offset %s is no event and is not posted: %s",
                                  job.claim.tp, offsets(job.entries), refused)  # fmt: skip
            self.attempts.finish(job)
            return
        self.next(job, list(zip(replies, requests, strict=True)))

    def next(self, job: Job, left: list[tuple[Record, HttpParts]]) -> None:
        """Post the first of these, or finish the job without one."""
        target = self.attempts.targets.reply
        if not left or target is None:
            self.attempts.finish(job)
        else:
            self.attempts.begin(job, Reply(self, target, left))


@dataclass(eq=False)
class Reply:
    """The step of a job whose reply is posted."""

    replies: Replies
    target: Target  # if the changed options have none
    left: list[tuple[Record, HttpParts]]  # the first is in flight
    kind: ClassVar = "subscriber"

    def send(self, job: Job) -> None:
        attempts = self.replies.attempts
        attempts.post(job, attempts.targets.reply or self.target, self.left[0][1], "reply")

    def answered(self, job: Job, answer: Answer) -> None:
        attempts, (record, parts) = self.replies.attempts, self.left[0]
        if judge(answer, 1) is AnswerVerdict.TAKEN:
            attempts.counters.replied += 1
            self._next(job)
            return
        job.attempt += 1
        endless = attempts.options.delivery.deadLetterSink is None
        if (is_refusal(answer) or job.attempt > attempts.options.delivery.retry) and not endless:
            extra = error_extensions(self.target.shown, answer)
            self.replies.dead_letters.begin(job, record, parts, extra, self._next)
        else:
            attempts.again(job, answer, self.target, endless=endless, what="its reply: ")

    def _next(self, job: Job) -> None:
        job.problem = None
        self.replies.next(job, self.left[1:])
