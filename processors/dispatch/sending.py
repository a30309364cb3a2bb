"""What becomes of each event: sent, sent again, split, replied to, dead-lettered, until it is finished.

Everything here runs on the thread of one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from inbound.config.units import format_duration
from inbound.errors import TransientError
from inbound.processors.base import TopicWriter
from inbound.processors.batch import Record
from inbound.processors.cloudevents_bridge import (
    RecordParts,
    Refused,
    http_to_records,
    is_event,
    record_to_binary,
    record_with_extensions,
    with_extensions,
)
from inbound.processors.dispatch.counters import Counters
from inbound.processors.dispatch.encoding import (
    ENCODERS,
    HttpParts,
    as_record,
    batch_of,
    error_extensions,
    record_to_json,
    wrapped,
)
from inbound.processors.dispatch.jobs import Claim, Job
from inbound.processors.dispatch.limited_log import LimitedLog
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.retry import Verdict, asked_for, is_refusal, judge, wait_before
from inbound.processors.dispatch.targets import Targets
from inbound.processors.dispatch.traces import Traces
from inbound.processors.dispatch.transport import Answer, Target, Transport
from inbound.processors.dispatch.window import Entry, in_turn, offsets
from inbound.topic_partition import TopicPartition


class Sender:
    """Sends the open events of all partitions of one subscription."""

    def __init__(
        self, options: DispatchOptions, targets: Targets, transport: Transport, loop: asyncio.AbstractEventLoop,
        log: logging.Logger, progress: Callable[[Claim], None], open_topic: Callable[[str], TopicWriter],
        traces: Traces | None = None,
    ) -> None:  # fmt: skip
        """`progress` is called when an event of a claim is finished."""
        self.counters = Counters()
        self.problem: str | None = None  # why the subscriber does not take anything; None: it does
        self._transport = transport
        self._loop = loop
        self._log = LimitedLog(log, loop.time)
        self._progress = progress
        self._open_topic = open_topic
        self._traces = traces or Traces()
        self._writers: dict[str, TopicWriter] = {}
        self._resting: dict[Job, None] = {}  # until their next attempt
        self._failed: dict[Job, None] = {}  # these, and those whose next attempt is under way
        self._stopped: dict[Job, None] = {}
        self._set(options, targets)

    def _set(self, options: DispatchOptions, targets: Targets) -> None:
        self.options, self.targets = options, targets
        self._encode = ENCODERS[options.mode]
        dead_letters = options.delivery.deadLetterSink
        self._dead_letter_topic = dead_letters.topic if dead_letters is not None else None
        self._endless = dead_letters is None

    def reconfigure(self, options: DispatchOptions, targets: Targets) -> None:
        """From now on send by these; what waits for another attempt goes at once, to where it belongs now."""
        for target in self.targets.all():
            self._transport.retire(target)
        self._set(options, targets)
        for job in [*self._resting, *self._stopped]:
            self._stopped.pop(job, None)
            self._run_now(job)

    def problems(self) -> dict[str, str]:
        """Return why partitions stand still, by `topic/partition`. Any thread."""
        return {str(tp): text for tp, (_, text) in self.waits().items()}

    def waits(self) -> dict[TopicPartition, tuple[str, str]]:
        """Return the first event of each partition that waits: a kind (see BatchEventProcessor.waits) and why. Any thread."""
        found: dict[TopicPartition, tuple[int, str, str]] = {}
        for job in [*dict(self._failed), *dict(self._stopped)]:
            if job.problem is None:
                continue
            tp, offset = job.claim.tp, job.entries[0].offset
            if tp not in found or offset < found[tp][0]:
                kind = "dead-letters" if job.dead else "undecodable" if job.undecodable is not None else "subscriber"
                found[tp] = offset, kind, f"offset {offsets(job.entries)}: {job.problem}"
        return {tp: (kind, text) for tp, (_, kind, text) in found.items()}

    @property
    def waiting_dead_letters(self) -> int:
        """How many events the dead letter sink does not take. Any thread."""
        return sum(job.dead and job.problem is not None for job in dict(self._failed))

    # -- the subscriber ----------------------------------------------------------------------------------------------

    def pump(self, claim: Claim) -> None:
        """Send what may be sent now."""
        if claim.closing:
            return
        if self.options.batch is not None:
            self._pump_batches(claim)
            return
        window = claim.window
        while (entry := window.take()) is not None:
            self._deliver(self._job(claim, [entry]))

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
            count, size = 1, self._size(first)

            def fits(entry: Entry) -> bool:
                nonlocal count, size
                size += self._size(entry) + 1
                count += 1
                return count <= batch.max_events and size <= batch.max_bytes

            self._deliver(self._job(claim, [first, *window.take_more(first, fits)]))

    def _delay_over(self, claim: Claim) -> None:
        claim.delay = None
        if not claim.closing and self.options.batch is not None:
            self._pump_batches(claim, full=False)

    def _job(self, claim: Claim, entries: list[Entry]) -> Job:
        job = Job(claim, entries)
        claim.jobs.add(job)
        return job

    def _size(self, entry: Entry) -> int:
        """Return the bytes of an event in a batch; it is encoded once."""
        if entry.payload is None:
            try:
                entry.payload = record_to_json(entry.record)
            except Refused as refused:
                entry.payload = refused
        return len(entry.payload) if isinstance(entry.payload, bytes) else 0

    def _deliver(self, job: Job) -> None:
        """Post a job's events to the subscriber."""
        self._guarded(job, partial(self._deliver_now, job))

    def _guarded(self, job: Job, step: Callable[[], None]) -> None:
        """Take a step with a job, which is delivered later where that raises, say as no thread can be begun."""
        try:
            step()
        except Exception as error:
            answer = Answer(0, problem=f"{type(error).__name__}: {error}")
            self._log.say("step", "%s: offset %s could not be sent: %s",
                      job.claim.tp, offsets(job.entries), answer.problem)  # fmt: skip
            job.attempt, job.dead = job.attempt + 1, False
            self._again(job, answer, None, lambda: self._deliver(job), endless=True, what="it could not be sent: ")

    def _deliver_now(self, job: Job) -> None:
        if job.undecodable is not None:
            self._undecodable(job)
            return
        if self.options.batch is None and len(job.entries) > 1:  # the subscriber has ceased to ask for batches
            self._split(job, [[entry] for entry in job.entries], job.attempt)
            return
        try:
            parts = self._encoded(job)
        except Refused as refused:
            self._set_apart(job, refused)
            return
        if self._traces.tracing.spans is not None:
            self._traces.begin(job, parts)
        job.sent_at = self._loop.time()
        self._post(self.targets.subscriber, parts, job, self._answered)

    def _encoded(self, job: Job) -> HttpParts:
        if self.options.batch is None and len(job.entries) == 1:
            return self._encode(job.entries[0].record)
        objects = []
        for entry in job.entries:
            self._size(entry)
            if isinstance(entry.payload, Refused):
                raise entry.payload
            assert isinstance(entry.payload, bytes)
            objects.append(entry.payload)
        return batch_of(objects)

    def _set_apart(self, job: Job, refused: Refused) -> None:
        """One of the records is no event: it goes its own way, those before and after it as they would without it."""
        if len(job.entries) == 1:
            self.counters.undecodable += 1
            job.undecodable = str(refused)
            self._undecodable(job)
            return
        at = next(n for n, entry in enumerate(job.entries) if entry.payload is refused)
        bad = job.entries[at]
        self._split(job, [part for part in (job.entries[:at], [bad], job.entries[at + 1 :]) if part])

    def _answered(self, job: Job, answer: Answer) -> None:
        self.counters.answers.add(str(answer.status))
        self.counters.request_seconds.observe(self._loop.time() - job.sent_at)
        verdict = judge(answer, len(job.entries))
        if verdict is Verdict.TAKEN:
            self._taken(job, answer)
            return
        job.attempt += 1
        self._troubled(answer)
        refused, used_up = is_refusal(answer), job.attempt > self.options.delivery.retry
        if refused and len(job.entries) > 1:
            self._halve(job, 0)
        elif (refused or used_up) and len(job.entries) == 1 and not self._endless:
            self._dead_letter(job, answer)
        elif len(job.entries) > 1 and (used_up or (verdict is Verdict.PARTS and job.attempt > 1)):
            # One of them may be the cause, of broken connections too: each half is tried once more, no sooner than asked for.
            halve = partial(self._halve, job, min(job.attempt, self.options.delivery.retry))
            if wait := asked_for(answer.retry_after):
                self._again(job, answer, self.targets.subscriber, halve, endless=self._endless, wait=wait)
            else:
                halve()
        else:
            self._again(job, answer, self.targets.subscriber, lambda: self._deliver(job), endless=self._endless)

    def _taken(self, job: Job, answer: Answer) -> None:
        if self.problem is not None:
            self._recovered()
        self.counters.delivered += len(job.entries)
        job.problem = None
        if self.targets.reply is not None and is_event(answer.headers):
            self._reply(job, answer)
        else:
            self._finish(job)

    def _halve(self, job: Job, attempt: int) -> None:
        middle = len(job.entries) // 2
        self._split(job, [job.entries[:middle], job.entries[middle:]], attempt)

    def _split(self, job: Job, parts: list[list[Entry]], attempt: int = 0) -> None:
        """Go on with these parts of a job, each with so many failures: one after the other, where they share a lane."""
        first, *others = in_turn([*((part, attempt) for part in parts), *job.rest])
        job.problem = None
        if job.work is not None:
            self._traces.end(job)
        jobs = [job, *(self._job(job.claim, other[0][0]) for other in others)]
        for each, ((entries, failures), *rest) in zip(jobs, (first, *others), strict=True):
            each.entries, each.attempt, each.rest = entries, failures, rest
        for each in jobs:
            self._deliver(each)

    # -- replies -----------------------------------------------------------------------------------------------------

    def _reply(self, job: Job, answer: Answer) -> None:
        """Post what the subscriber answered to the reply's receiver; the subscriber has taken its events."""
        try:
            if answer.cut:
                raise Refused("it is longer than what is read of an answer")
            replies = [as_record(parts) for parts in http_to_records(answer.headers, answer.body)]
            requests = [record_to_binary(reply) for reply in replies]
        except Refused as refused:
            self._log.say("reply", "%s: the subscriber's answer to offset %s is no event and is not posted: %s",
                      job.claim.tp, offsets(job.entries), refused)  # fmt: skip
            self._finish(job)
            return
        self._next_reply(job, list(zip(replies, requests, strict=True)))

    def _next_reply(self, job: Job, left: list[tuple[Record, HttpParts]]) -> None:
        target = self.targets.reply
        if not left or target is None:
            self._finish(job)
            return
        record, parts = left[0]
        job.attempt = 0

        def answered(job: Job, answer: Answer) -> None:
            if judge(answer, 1) is Verdict.TAKEN:
                self.counters.replied += 1
                job.problem = None
                self._next_reply(job, left[1:])
                return
            job.attempt += 1
            given_up = is_refusal(answer) or job.attempt > self.options.delivery.retry
            if given_up and not self._endless:
                self._post_dead_letter(job, record, parts, error_extensions(target.shown, answer),
                                       lambda: self._next_reply(job, left[1:]))  # fmt: skip
            else:
                self._again(job, answer, target, send, endless=self._endless, what="its reply: ")

        def send() -> None:
            self._post(self.targets.reply or target, parts, job, answered)

        send()

    # -- dead letters ------------------------------------------------------------------------------------------------

    def _dead_letter(self, job: Job, answer: Answer) -> None:
        """Send the job's one event to the dead letter sink, until that takes it."""
        if job.work is not None:
            job.work.failed("dead_lettered", answer.shown)
        job.attempt = 0
        record = job.entries[0].record
        extra = error_extensions(self.targets.subscriber.shown, answer)
        try:
            parts = self._encode(record)
        except Refused:  # the subscriber was sent it in a batch, and what JSON can carry headers may not
            parts = wrapped(*job.claim.tp, record, self.options.mode)
        self._log.say("dead letter", "%s: the subscriber did not take offset %d (%s); it goes to the dead letter sink",
                  job.claim.tp, record.offset, answer.shown)  # fmt: skip
        self._post_dead_letter(job, record, parts, extra, lambda: self._dead_lettered(job))

    def _undecodable(self, job: Job) -> None:
        """Do what the options say about a record that is no event."""
        if self._traces.tracing.spans is not None:
            self._traces.begin_undecodable(job)
        record, reason = job.entries[0].record, job.undecodable or ""
        tp = job.claim.tp
        if not self._endless:
            answer = Answer(0, problem=f"no CloudEvent: {reason}")
            extra = error_extensions(self.targets.subscriber.shown, answer)
            self._log.say("undecodable", "%s: the record at offset %d is no event: %s; it goes to the dead letter sink",
                      tp, record.offset, reason)  # fmt: skip
            parts = wrapped(*tp, record, self.options.mode)
            self._post_dead_letter(job, record, parts, extra, lambda: self._dead_lettered(job))
        elif self.options.on_undecodable == "skip":
            self._log.say("undecodable", "%s: the record at offset %d is no event: %s; it is passed over",
                          tp, record.offset, reason)  # fmt: skip
            self.counters.skipped += 1
            self._finish(job)
        else:
            job.problem = (
                f"the record is no event: {reason}; set delivery.deadLetterSink, or on_undecodable: skip, to go on"
            )
            self._log.error("%s: offset %d: %s", tp, record.offset, job.problem)
            self._stopped[job] = None

    def _post_dead_letter(
        self, job: Job, record: Record, parts: HttpParts, extra: Mapping[str, str], then: Callable[[], None]
    ) -> None:
        job.attempt, job.dead, job.problem = 0, True, None

        def answered(job: Job, answer: Answer) -> None:
            if judge(answer, 1) is Verdict.TAKEN:
                job.dead = False
                then()
                return
            job.attempt += 1
            self.counters.dead_letter_failures += 1
            where = self._dead_letter_name()
            self._log.say("dead letters down", "%s: %s does not take the dead letter of offset %d: %s; trying again",
                      job.claim.tp, where, record.offset, answer.shown)  # fmt: skip
            self._again(job, answer, None, send, endless=True, what=f"{where} does not take its dead letter: ")

        def send() -> None:
            target = self.targets.dead_letters
            if target is not None:
                self._post(target, with_extensions(parts, extra), job, answered)
            elif self._dead_letter_topic is not None:
                self._publish(self._dead_letter_topic, record_with_extensions(record, extra), job, answered)
            else:
                self._deliver(job)  # the sink was taken out of the options meanwhile

        send()

    def _dead_letter_name(self) -> str:
        target = self.targets.dead_letters
        return f"the dead letter sink {target.shown}" if target else f"the dead letter topic {self._dead_letter_topic}"

    def _publish(self, topic: str, record: RecordParts, job: Job, answered: Callable[[Job, Answer], None]) -> None:
        if topic not in self._writers:
            self._writers[topic] = self._open_topic(topic)
        if job.work is not None:
            record = self._traces.publish(job, topic, record)
        future = self._loop.run_in_executor(None, self._writers[topic].send, [record])
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
            self._came_back(job, answer, answered)

        future.add_done_callback(done)

    def _dead_lettered(self, job: Job) -> None:
        self.counters.dead_lettered += 1
        self._finish(job)

    # -- all of them -------------------------------------------------------------------------------------------------

    def _post(self, target: Target, parts: HttpParts, job: Job, answered: Callable[[Job, Answer], None]) -> None:
        if job.work is not None:
            parts = self._traces.post(job, target, parts, "reply" if target is self.targets.reply else "subscriber")
        job.claim.sending += 1
        try:
            self._transport.post(target, parts.lines, parts.body, lambda answer: self._came_back(job, answer, answered))
        except BaseException:
            job.claim.sending -= 1
            raise

    def _came_back(self, job: Job, answer: Answer, answered: Callable[[Job, Answer], None]) -> None:
        claim = job.claim
        claim.sending -= 1
        if job.work is not None:
            self._traces.came_back(job, answer)
        if not claim.lost:
            self._guarded(job, partial(answered, job, answer))
        if not claim.sending and claim.idle is not None and not claim.idle.done():
            claim.idle.set_result(None)

    def _again(
        self, job: Job, answer: Answer, target: Target | None, send: Callable[[], None], *, endless: bool, what: str = "",
        wait: float | None = None,
    ) -> None:  # fmt: skip
        """Do that again after a while, unless the partition is being given up."""
        if wait is None:
            wait = wait_before(job.attempt, self.options.delivery, answer.retry_after, endless=endless)
        said = f"{target.shown} {answer.shown}" if target is not None else answer.shown
        limit = "" if endless else f" of {self.options.delivery.retry + 1}"
        job.problem = f"{what}{said}; attempt {job.attempt}{limit}, again after {format_duration(round(wait, 3))}"
        if job.claim.closing:
            self._traces.given_up(job)
            return
        job.passing, job.again = answer.problem is not None, send
        self._resting[job] = self._failed[job] = None
        job.timer = self._loop.call_later(wait, self._run_now, job)

    def _run_now(self, job: Job) -> None:
        self._resting.pop(job, None)
        if job.timer is not None:
            job.timer.cancel()
            job.timer = None
        if job.claim.closing:
            return
        self.counters.retries += 1
        again, job.again = job.again, None
        self._guarded(job, again or partial(self._deliver_now, job))

    def _finish(self, job: Job) -> None:
        claim, window = job.claim, job.claim.window
        if job.work is not None:
            self._traces.end(job)
        for entry in job.entries:
            window.finish(entry)
        job.problem = None
        self._failed.pop(job, None)
        if job.rest:
            (job.entries, job.attempt), job.undecodable = job.rest.pop(0), None
            if not claim.closing:
                self._deliver(job)
        else:
            claim.jobs.discard(job)
        self._progress(claim)
        self.pump(claim)

    def end(self, claim: Claim) -> None:
        """Begin nothing more for this claim; what is under way ends by itself."""
        claim.closing = True
        claim.window.close()
        if claim.delay is not None:
            claim.delay.cancel()
        for job in claim.jobs:
            if job.timer is not None:
                job.timer.cancel()
            for jobs in (self._resting, self._failed, self._stopped):
                jobs.pop(job, None)
            if job.work is not None:
                self._traces.given_up(job)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def _troubled(self, answer: Answer) -> None:
        self.problem = answer.shown
        self._log.trouble(f"the subscriber {self.targets.subscriber.shown}: {answer.shown}")

    def _recovered(self) -> None:
        """The subscriber takes events again: those that wait because it did not answer need not wait longer."""
        self.problem = None
        self._log.trouble_over(f"the subscriber {self.targets.subscriber.shown} takes events")
        for job in [job for job in self._resting if job.passing]:
            self._run_now(job)
