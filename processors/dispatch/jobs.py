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
from inbound.processors.spans import ConsumerName, Hop, Tracing, Work, headers_with_hop, with_hop
from inbound.topic_partition import TopicPartition


@dataclass(eq=False)
class PartitionClaim:
    """One claim of a partition."""

    tp: TopicPartition
    window: SendWindow
    batch: Batch  # the last one: commits name the claim by it
    committed: int = 0  # the offset of the last requested commit
    passed: int = 0  # how many events the front had passed by then
    sending: int = 0  # requests in flight
    closing: bool = False
    lost: bool = False
    idle: asyncio.Future[None] | None = None  # done when nothing is in flight
    delay: asyncio.TimerHandle | None = None  # until a request that is not full is sent
    due: asyncio.TimerHandle | None = None  # until the first held event is due
    jobs: set[Job] = field(default_factory=set)


class JobStep(Protocol):
    """The present step of a job, with its receiver."""

    @property
    def kind(self) -> str:
        """The kind of wait while this fails: see `BatchEventProcessor.waits`."""

    def send(self, job: Job) -> None:
        """Send the job once; called again for each attempt."""

    def answered(self, job: Job, answer: Answer) -> None:
        """Continue by the answer."""


class Job:
    """Events that are sent together, step by step.

    Defaults are class attributes: there is a job for each event, and setting all of them takes longer than posting it.
    """

    step: JobStep  # the present one
    attempt: int = 0  # failures of the present step
    #: The other parts of a split request, in order, each with its failures.
    rest: Sequence[tuple[list[OpenEvent], int]] = ()
    timer: asyncio.TimerHandle | None = None
    passing: bool = False  # it waits because there was no answer
    halves: bool = False  # the next attempt is in halves
    admitted: bool = False  # it counts against the subscription's limits
    problem: str | None = None
    undecodable: str | None = None  # why its one record is no event
    sent_at: float = 0.0  # the loop's time of the last request to the subscriber
    work: Work | None = None  # makes its spans, if tracing is on
    hop: Hop | None = None  # the span of the request in flight

    def __init__(self, claim: PartitionClaim, entries: list[OpenEvent], first: JobStep) -> None:
        """`first` is the step to the subscriber; a job may return there."""
        self.claim = claim
        self.entries = entries
        self.first = self.step = first


@dataclass(frozen=True)
class Traces:
    """Makes the spans of jobs and their requests: see docs/tracing.md."""

    tracing: Tracing
    consumer: ConsumerName

    def begin(self, job: Job, parts: HttpParts) -> None:
        """Begin a job's span at the first attempt, with request `parts`."""
        spans = self.tracing.spans
        if job.work is None and spans is not None:
            records = [entry.record for entry in job.entries]
            job.work = spans.work(self.consumer, *job.claim.tp, records, parts.lines)

    def post(self, job: Job, target: Target, parts: HttpParts, receiver: str) -> HttpParts:
        """Begin the span of a request; return the request with its trace."""
        assert job.work is not None
        job.hop = job.work.post(target, receiver, job.attempt)
        return HttpParts(with_hop(parts.lines, job.hop), parts.body)

    def publish(self, job: Job, topic: str, record: RecordParts) -> RecordParts:
        """Begin the span of a published record; return it with its trace."""
        assert job.work is not None
        job.hop = job.work.publish(topic)
        return RecordParts(record.key, record.value, headers_with_hop(record.headers, job.hop))

    def came_back(self, job: Job, answer: Answer) -> None:
        """End the request's span; of a lost claim, the job's too."""
        if job.hop is not None:
            job.hop.end(answer.status, answer.problem)
            job.hop = None
        if job.claim.lost:
            self.given_up(job)

    def end(self, job: Job) -> None:
        """End a job's span: its events are finished, or split."""
        work, job.work = job.work, None
        if work is not None:
            work.end()

    def given_up(self, job: Job) -> None:
        """End the span of a dropped job without a request in flight."""
        work = job.work
        if work is not None and job.hop is None:
            job.work = None
            work.failed("given_up", "the partition goes to another member of the group, which sends the event again")
            work.end()
