"""Claims of partitions, their jobs (events that go together), and spans."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from inbound.processors.batch import Batch
from inbound.processors.cloudevents_bridge import HttpParts, RecordParts
from inbound.processors.dispatch.transport import Answer, Target
from inbound.processors.dispatch.window import OpenEvent, SendWindow
from inbound.processors.spans import Consumer, Hop, Tracing, Work, headers_with_hop, with_hop
from inbound.topic_partition import TopicPartition


@dataclass(eq=False)
class PartitionClaim:
    """One partition, during one claim of it."""

    tp: TopicPartition
    window: SendWindow
    batch: Batch  # the last one: what commits name the claim by
    committed: int = 0  # up to where: the last commit that was asked for
    passed: int = 0  # how many events the front had passed by then
    sending: int = 0  # requests in flight
    closing: bool = False
    lost: bool = False
    idle: asyncio.Future[None] | None = None  # done when nothing is in flight any more
    delay: asyncio.TimerHandle | None = None  # a request that is not full waits for more events
    due: asyncio.TimerHandle | None = None  # the first held event waits for its time
    jobs: set[Job] = field(default_factory=set)


class JobStep(Protocol):
    """The present step of a job: where its events go."""

    @property
    def kind(self) -> str:
        """What its partition waits for while this fails: see `BatchEventProcessor.waits`."""

    def send(self, job: Job) -> None:
        """Send it, once; called again for each attempt."""

    def answered(self, job: Job, answer: Answer) -> None:
        """Go on as the answer says."""


class Job:
    """Events that are sent together; its steps say where to.

    Its attributes begin as class attributes: there is a job for each event, and setting them all takes longer than posting it.
    """

    step: JobStep  # the present one
    attempt: int = 0  # failures of the present step
    #: The other parts of a request that was split, in their order, each with its failures.
    rest: Sequence[tuple[list[OpenEvent], int]] = ()
    timer: asyncio.TimerHandle | None = None
    passing: bool = False  # it waits because there was no answer
    halves: bool = False  # the subscriber gets it next in halves
    admitted: bool = False  # it counts against the subscription's limits
    problem: str | None = None
    undecodable: str | None = None  # why its one record is no event
    sent_at: float = 0.0  # of the last request to the subscriber, by the loop's clock
    work: Work | None = None  # makes its spans, if any are made
    hop: Hop | None = None  # the span of the request in flight

    def __init__(self, claim: PartitionClaim, entries: list[OpenEvent], first: JobStep) -> None:
        """`first` is its step to the subscriber: every job begins with it, and falls back to it."""
        self.claim = claim
        self.entries = entries
        self.first = self.step = first


@dataclass(frozen=True)
class Traces:
    """Makes the spans of jobs and their requests.

    One event loop's thread; see docs/tracing.md.
    """

    tracing: Tracing
    consumer: Consumer

    def begin(self, job: Job, parts: HttpParts) -> None:
        """Begin a job's span, if it has none yet: this is its first attempt. `parts` is its request."""
        spans = self.tracing.spans
        if job.work is None and spans is not None:
            records = [entry.record for entry in job.entries]
            job.work = spans.work(self.consumer, *job.claim.tp, records, parts.lines)

    def post(self, job: Job, target: Target, parts: HttpParts, receiver: str) -> HttpParts:
        """Begin the span of a request to that kind of receiver. Returns the request that carries it."""
        assert job.work is not None
        job.hop = job.work.post(target, receiver, job.attempt)
        return HttpParts(with_hop(parts.lines, job.hop), parts.body)

    def publish(self, job: Job, topic: str, record: RecordParts) -> RecordParts:
        """Begin the span of a record that is published. Returns the record that carries it."""
        assert job.work is not None
        job.hop = job.work.publish(topic)
        return RecordParts(record.key, record.value, headers_with_hop(record.headers, job.hop))

    def came_back(self, job: Job, answer: Answer) -> None:
        """End the span of the request in flight; of a lost claim, the job's too."""
        if job.hop is not None:
            job.hop.end(answer.status, answer.problem)
            job.hop = None
        if job.claim.lost:
            self.given_up(job)

    def end(self, job: Job) -> None:
        """End the job's span: its events are finished, or go on in parts with their own spans."""
        work, job.work = job.work, None
        if work is not None:
            work.end()

    def given_up(self, job: Job) -> None:
        """End the span of a job that ends here, unless a request of it is still in flight."""
        work = job.work
        if work is not None and job.hop is None:
            job.work = None
            work.failed("given_up", "the partition goes to another member of the group, which sends the event again")
            work.end()
