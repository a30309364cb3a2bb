"""Delayed retry: an event waits in a topic; its partition goes on.

Each delay has its own topic, whose records all wait equally long: the first of a partition is always due first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import ClassVar, NamedTuple

from inbound.config.units import format_duration
from inbound.processors.batch import Record
from inbound.processors.cloudevents_bridge import RecordParts, record_with_headers
from inbound.processors.dead_letters import Origin, number_in, origin_in
from inbound.processors.dispatch.attempts import AnswerVerdict, Attempts, judge
from inbound.processors.dispatch.jobs import Job, PartitionClaim
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.transport import Answer
from inbound.topic_partition import TopicPartition

#: Headers of a waiting record. They are no part of its event: the subscriber does not see them.
PREFIX = "inbound-retry-"
#: The group that it waits for; the number of the delay, from 1; the end of the wait, Unix time in milliseconds.
GROUP, DELAY, DUE = f"{PREFIX}group", f"{PREFIX}delay", f"{PREFIX}due"
TOPIC, PARTITION, OFFSET = f"{PREFIX}topic", f"{PREFIX}partition", f"{PREFIX}offset"  # the event's first place
TIME = f"{PREFIX}time"  # the timestamp of its record there, Unix time in milliseconds


class Delay(NamedTuple):
    """A delay and its topic."""

    number: int  # from 1
    seconds: float
    topic: str


class RetryTopics:
    """The retry topics of a subscription, and their records' headers. Pure."""

    def __init__(self, options: DispatchOptions, group: str) -> None:
        """There are none without `delayed_retry`; other groups may share them."""
        delayed = options.delayed_retry
        pairs = [] if delayed is None else zip(delayed.delays, delayed.topics, strict=True)
        self._delays = [Delay(number, *pair) for number, pair in enumerate(pairs, 1)]
        self._by_topic = {delay.topic: delay for delay in reversed(self._delays)}
        self._group = group
        self._repeats_last = options.delivery.deadLetterSink is None

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    def next(self, topic: str, record: Record) -> Delay | None:
        """Return the next delay of a refused record; None: no more.

        Without a dead letter sink the last delay repeats without end: nothing is given up.
        """
        if not self._delays:
            return None
        delay = self._by_topic.get(topic)
        had = 0 if delay is None else number_in(headers_of(record), DELAY) or delay.number
        if had < len(self._delays):
            return self._delays[had]
        return self._delays[-1] if self._repeats_last else None

    def message(self, tp: TopicPartition, record: Record, delay: Delay, wall: float) -> RecordParts:
        """Return `record` of `tp` as it waits from the Unix time `wall`."""
        origin, written_at = self.origin(tp, record), self.written_at(tp.topic, record)
        said = {
            GROUP: self._group,
            DELAY: str(delay.number),
            DUE: str(ceil((wall + delay.seconds) * 1000)),
            TOPIC: origin.topic,
            PARTITION: str(origin.partition),
            OFFSET: str(origin.offset),
        }
        return record_with_headers(record, PREFIX, said if written_at < 0 else {**said, TIME: str(written_at)})

    def origin(self, tp: TopicPartition, record: Record) -> Origin:
        """Return the place where a record's event was read first."""
        if tp.topic in self._by_topic:
            found = origin_in(headers_of(record), TOPIC, PARTITION, OFFSET)
            if found is not None:
                return found
        return Origin(*tp, record.offset)

    def written_at(self, topic: str, record: Record) -> int:
        """Return when a record's event was first written: ms, -1 unknown."""
        if topic not in self._by_topic:
            return record.timestamp
        time = number_in(headers_of(record), TIME)
        return -1 if time is None else time

    def is_others(self, topic: str, record: Record) -> bool:
        """Return whether a record of `topic` waits for another subscription."""
        return topic in self._by_topic and headers_of(record).get(GROUP, self._group) != self._group

    def wait(self, topic: str, record: Record, wall: float) -> float:
        """Return the seconds that a record still waits at `wall`.

        Never longer than the topic's delay: clocks of different machines, or of a machine before and after it is set, differ.
        """
        delay, due = self._by_topic.get(topic), number_in(headers_of(record), DUE)
        return 0.0 if delay is None or due is None else min(max(0.0, due / 1000 - wall), delay.seconds)


def headers_of(record: Record) -> Mapping[str, str]:
    """Return the headers of a waiting record."""
    return {
        name: raw.decode(errors="replace")
        for name, raw in record.headers
        if raw is not None and name.startswith(PREFIX)
    }


class DelayedRetry:
    """Publishes events that are to wait, and holds records until due."""

    def __init__(self, attempts: Attempts, group: str, wall: Callable[[], float]) -> None:
        """`wall` is the Unix time in seconds."""
        self.attempts = attempts
        self.wall = wall
        self.group = group
        self.topics = RetryTopics(attempts.options, group)

    def reconfigure(self) -> None:
        """Use the changed options of `attempts`."""
        self.topics = RetryTopics(self.attempts.options, self.group)

    # -- events that are not taken -----------------------------------------------------------------------------------

    def next(self, job: Job) -> Delay | None:
        """Return the next delay of the job's one event; or None."""
        return self.topics.next(job.claim.tp.topic, job.entries[0].record)

    def begin(self, job: Job, delay: Delay, answer: Answer) -> None:
        """Let the job's one event wait after this answer."""
        if job.work is not None:
            job.work.failed("delayed", answer.shown)
        self.attempts.log.say("delayed", "%s: the subscriber did not take offset %d (%s); it is sent again after %s, by topic %s",
                              job.claim.tp, job.entries[0].offset, answer.shown, format_duration(delay.seconds),
                              delay.topic)  # fmt: skip
        self.attempts.begin(job, ToRetryTopic(self, delay))

    # -- events that wait --------------------------------------------------------------------------------------------

    def hold(self, claim: PartitionClaim, let_go: Callable[[PartitionClaim], None]) -> None:
        """Release the claim's due events; `let_go` is called at the next one."""
        window = claim.window
        while claim.due is None and (record := window.held) is not None:
            wait = self.topics.wait(claim.tp.topic, record, self.wall())
            if wait > 0:
                claim.due = self.attempts.loop.call_later(wait, self._due, claim, let_go)
            else:
                window.let_go()

    def _due(self, claim: PartitionClaim, let_go: Callable[[PartitionClaim], None]) -> None:
        claim.due = None
        if not claim.closing:
            claim.window.let_go()
            let_go(claim)


@dataclass(eq=False)
class ToRetryTopic:
    """The step of a job whose event waits in a topic."""

    delayed: DelayedRetry
    delay: Delay
    kind: ClassVar = "retry-topic"

    def send(self, job: Job) -> None:
        delayed, attempts, delay = self.delayed, self.delayed.attempts, self.delay
        if delay.topic not in delayed.topics:  # the changed options name another topic
            job.step = job.first
            attempts.take(job)
            return
        record = job.entries[0].record
        attempts.publish(job, delay.topic, delayed.topics.message(job.claim.tp, record, delay, delayed.wall()))

    def answered(self, job: Job, answer: Answer) -> None:
        attempts, topic = self.delayed.attempts, self.delay.topic
        if judge(answer, 1) is AnswerVerdict.TAKEN:
            attempts.counters.delayed += 1
            attempts.finish(job)
            return
        job.attempt += 1
        attempts.log.say("retry topic down", "%s: the retry topic %s does not take offset %d: %s; trying again",
                         job.claim.tp, topic, job.entries[0].offset, answer.shown)  # fmt: skip
        attempts.again(job, answer, None, endless=True, what=f"the retry topic {topic} does not take it: ")
