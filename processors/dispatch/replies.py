"""What becomes of events in the subscriber's answers: each is posted to the reply's receiver.

Everything here runs on the thread of one event loop.
"""

from __future__ import annotations

from inbound.processors.batch import Record
from inbound.processors.cloudevents_bridge import HttpParts, Refused, http_to_records, record_to_binary
from inbound.processors.dispatch.attempts import Attempts
from inbound.processors.dispatch.dead_letters import DeadLetters
from inbound.processors.dispatch.encoding import as_record, error_extensions
from inbound.processors.dispatch.jobs import Job
from inbound.processors.dispatch.retry import Verdict, is_refusal, judge
from inbound.processors.dispatch.transport import Answer, Target
from inbound.processors.dispatch.window import offsets


class Replies:
    """Posts replies; the events that they answer are finished when the last one is."""

    def __init__(self, attempts: Attempts, dead_letters: DeadLetters) -> None:
        self.attempts = attempts
        self.dead_letters = dead_letters

    def begin(self, job: Job, answer: Answer) -> None:
        """Post what the subscriber answered; it has taken the job's events."""
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
        """Post the first of these, or finish the job where none is left."""
        target = self.attempts.targets.reply
        if not left or target is None:
            self.attempts.finish(job)
        else:
            self.attempts.begin(job, Reply(self, target, left))


class Reply:
    """The step of a job whose reply is posted."""

    kind = "subscriber"

    def __init__(self, replies: Replies, target: Target, left: list[tuple[Record, HttpParts]]) -> None:
        self._replies = replies
        self._target = target  # as long as the options name one at all
        self._left = left  # the first is under way

    def send(self, job: Job) -> None:
        """See `Step`."""
        attempts = self._replies.attempts
        attempts.post(job, attempts.targets.reply or self._target, self._left[0][1], "reply")

    def answered(self, job: Job, answer: Answer) -> None:
        """See `Step`."""
        attempts, (record, parts) = self._replies.attempts, self._left[0]
        if judge(answer, 1) is Verdict.TAKEN:
            attempts.counters.replied += 1
            self._next(job)
            return
        job.attempt += 1
        endless = attempts.options.delivery.deadLetterSink is None
        if (is_refusal(answer) or job.attempt > attempts.options.delivery.retry) and not endless:
            extra = error_extensions(self._target.shown, answer)
            self._replies.dead_letters.begin(job, record, parts, extra, self._next)
        else:
            attempts.again(job, answer, self._target, endless=endless, what="its reply: ")

    def _next(self, job: Job) -> None:
        job.problem = None
        self._replies.next(job, self._left[1:])
