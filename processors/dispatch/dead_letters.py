"""Sends events to the dead letter sink until the sink takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from inbound.processors.batch import Record
from inbound.processors.cloudevents_bridge import HttpParts, RecordParts, Refused, with_extensions
from inbound.processors.dispatch.attempts import AnswerVerdict, Attempts, judge
from inbound.processors.dispatch.delayed_retry import DelayedRetry
from inbound.processors.dispatch.encoding import dead_letter, error_extensions, wrapped
from inbound.processors.dispatch.jobs import Job
from inbound.processors.dispatch.transport import Answer


@dataclass(frozen=True)
class DeadLetters:
    """Sends events to the dead letter sink; decides about undecodable records."""

    attempts: Attempts
    delayed: DelayedRetry  # knows an event's place before it waited

    def event(self, job: Job, answer: Answer) -> None:
        """Give up the job's one event after this answer."""
        attempts = self.attempts
        if job.work is not None:
            job.work.failed("dead_lettered", answer.shown)
        record = job.entries[0].record
        extra = error_extensions(attempts.targets.subscriber.shown, answer)
        try:
            parts = attempts.encoding.as_it_is(record)
        except Refused:  # it was sent in a batch: JSON can carry what headers cannot
            parts = self._wrapped(job)
        attempts.log.say("dead letter", "%s: the subscriber did not take offset %d (%s); it goes to the dead letter sink",
                         job.claim.tp, record.offset, answer.shown)  # fmt: skip
        self.begin(job, record, parts, extra, self._counted)

    def undecodable(self, job: Job) -> None:
        """Treat a record that is no event by the options."""
        attempts = self.attempts
        if attempts.traces.tracing.spans is not None:
            attempts.traces.begin(job, HttpParts([], b""))
            if job.work is not None:
                job.work.failed("undecodable", job.undecodable or "")
        record, reason, tp = job.entries[0].record, job.undecodable or "", job.claim.tp
        if attempts.options.delivery.deadLetterSink is not None:
            answer = Answer(0, problem=f"no CloudEvent: {reason}")
            extra = error_extensions(attempts.targets.subscriber.shown, answer)
            attempts.log.say("undecodable", "%s: the record at offset %d is no event: %s; it goes to the dead letter sink",
                             tp, record.offset, reason)  # fmt: skip
            self.begin(job, record, self._wrapped(job), extra, self._counted)
        elif attempts.options.on_undecodable == "skip":
            attempts.log.say("undecodable", "%s: the record at offset %d is no event: %s; it is passed over",
                             tp, record.offset, reason)  # fmt: skip
            attempts.counters.skipped += 1
            attempts.finish(job)
        else:
            job.problem = (
                f"the record is no event: {reason}; set delivery.deadLetterSink, or on_undecodable: skip, to go on"
            )
            attempts.log.logger.error("%s: offset %d: %s", tp, record.offset, job.problem)
            attempts.stopped[job] = None

    def begin(
        self, job: Job, record: Record, parts: HttpParts, extra: Mapping[str, str], then: Callable[[Job], None]
    ) -> None:
        """Send `record` to the sink, with the extensions `extra`.

        A URL gets `parts` instead. `then` is called when the sink has it.
        """
        self.attempts.begin(job, DeadLetter(self, record, parts, extra, then))

    def published(self, job: Job, record: Record, extra: Mapping[str, str]) -> RecordParts:
        """Return the job's one event, or its reply, for a topic."""
        read = job.entries[0].record
        origin = self.delayed.topics.origin(job.claim.tp, read)
        return dead_letter(record, extra, self.delayed.group, origin, reply=record is not read)

    def _wrapped(self, job: Job) -> HttpParts:
        record = job.entries[0].record
        return wrapped(*self.delayed.topics.origin(job.claim.tp, record), record, self.attempts.options.mode)

    def _counted(self, job: Job) -> None:
        self.attempts.counters.dead_lettered += 1
        self.attempts.finish(job)


@dataclass(eq=False)
class DeadLetter:
    """The step of a job whose event or reply is given up."""

    letters: DeadLetters
    record: Record
    parts: HttpParts
    extra: Mapping[str, str]
    then: Callable[[Job], None]
    kind: ClassVar = "dead-letters"

    def send(self, job: Job) -> None:
        attempts = self.letters.attempts
        target, sink = attempts.targets.dead_letters, attempts.options.delivery.deadLetterSink
        if target is not None:
            attempts.post(job, target, with_extensions(self.parts, self.extra), "dead-letter")
        elif sink is not None and sink.topic is not None:
            attempts.publish(job, sink.topic, self.letters.published(job, self.record, self.extra))
        else:  # the changed options have no sink
            job.step = job.first
            attempts.take(job)

    def answered(self, job: Job, answer: Answer) -> None:
        attempts = self.letters.attempts
        if judge(answer, 1) is AnswerVerdict.TAKEN:
            self.then(job)
            return
        job.attempt += 1
        attempts.counters.dead_letter_failures += 1
        target, sink = attempts.targets.dead_letters, attempts.options.delivery.deadLetterSink
        where = f"the dead letter sink {target.shown}" if target else f"the dead letter topic {sink and sink.topic}"
        attempts.log.say("dead letters down", "%s: %s does not take the dead letter of offset %d: %s; trying again",
                         job.claim.tp, where, self.record.offset, answer.shown)  # fmt: skip
        attempts.again(job, answer, None, endless=True, what=f"{where} does not take its dead letter: ")
