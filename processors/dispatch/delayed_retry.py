"""An event that is not taken goes to a topic where it waits, and its partition goes on: see `retry_topics.py`.

Everything here runs on the thread of one event loop.
"""

from __future__ import annotations

from collections.abc import Callable

from inbound.config.units import format_duration
from inbound.processors.dispatch.attempts import Attempts
from inbound.processors.dispatch.jobs import Claim, Job
from inbound.processors.dispatch.retry import Verdict, judge
from inbound.processors.dispatch.retry_topics import Delay, RetryTopics
from inbound.processors.dispatch.transport import Answer


class DelayedRetry:
    """Publishes events that are to wait, and holds those that do until they are due."""

    def __init__(self, attempts: Attempts, group: str, wall: Callable[[], float]) -> None:
        """`wall` is the Unix time in seconds."""
        self.attempts = attempts
        self.wall = wall
        self.group = group
        self.topics = RetryTopics(attempts.options, group)

    def reconfigure(self) -> None:
        """The options are others."""
        self.topics = RetryTopics(self.attempts.options, self.group)

    # -- events that are not taken -----------------------------------------------------------------------------------

    def next(self, job: Job) -> Delay | None:
        """Return how the job's one event waits next; None: not at all."""
        return self.topics.next(job.claim.tp.topic, job.entries[0].record)

    def begin(self, job: Job, delay: Delay, answer: Answer) -> None:
        """Have the job's one event wait, because the subscriber answered so."""
        if job.work is not None:
            job.work.failed("delayed", answer.shown)
        self.attempts.log.say("delayed", "%s: the subscriber did not take offset %d (%s); it is sent again after %s, by topic %s",
                              job.claim.tp, job.entries[0].offset, answer.shown, format_duration(delay.seconds),
                              delay.topic)  # fmt: skip
        self.attempts.begin(job, ToRetryTopic(self, delay))

    # -- events that wait --------------------------------------------------------------------------------------------

    def hold(self, claim: Claim, let_go: Callable[[Claim], None]) -> None:
        """Let go of the held events of a claim that are due; `let_go` is called when the next one is."""
        window = claim.window
        while claim.due is None and (record := window.held) is not None:
            wait = self.topics.wait(claim.tp.topic, record, self.wall())
            if wait > 0:
                claim.due = self.attempts.loop.call_later(wait, self._due, claim, let_go)
            else:
                window.let_go()

    def _due(self, claim: Claim, let_go: Callable[[Claim], None]) -> None:
        claim.due = None
        if not claim.closing:
            claim.window.let_go()
            let_go(claim)


class ToRetryTopic:
    """The step of a job whose event is to wait: it is finished here when the topic has it."""

    kind = "retry-topic"

    def __init__(self, delayed: DelayedRetry, delay: Delay) -> None:
        self._delayed = delayed
        self._delay = delay

    def send(self, job: Job) -> None:
        """See `Step`."""
        delayed, attempts, delay = self._delayed, self._delayed.attempts, self._delay
        if delay.topic not in delayed.topics:  # the options have changed meanwhile
            job.step = job.first
            attempts.take(job)
            return
        record = job.entries[0].record
        attempts.publish(job, delay.topic, delayed.topics.message(job.claim.tp, record, delay, delayed.wall()))

    def answered(self, job: Job, answer: Answer) -> None:
        """See `Step`."""
        attempts, topic = self._delayed.attempts, self._delay.topic
        if judge(answer, 1) is Verdict.TAKEN:
            attempts.counters.delayed += 1
            attempts.finish(job)
            return
        job.attempt += 1
        attempts.log.say("retry topic down", "%s: the retry topic %s does not take offset %d: %s; trying again",
                         job.claim.tp, topic, job.entries[0].offset, answer.shown)  # fmt: skip
        attempts.again(job, answer, None, endless=True, what=f"the retry topic {topic} does not take it: ")
