"""The spans of what a sender does: one for each job, and below it one for each of its requests. See docs/tracing.md.

Everything here runs on the thread of one event loop, and only for jobs that were begun while spans were made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from inbound.processors.cloudevents_bridge import HttpParts, RecordParts
from inbound.processors.dispatch.jobs import Job
from inbound.processors.dispatch.transport import Answer, Target
from inbound.processors.spans import NO_TRACING, Consumer, Tracing, headers_with_hop, with_hop

_NOBODY: Final = Consumer("", "")


@dataclass(frozen=True)
class Traces:
    """Makes them, as long as `tracing` says so."""

    tracing: Tracing = NO_TRACING
    consumer: Consumer = _NOBODY

    def begin(self, job: Job, parts: HttpParts) -> None:
        """Begin a job's span, if it has none yet: this is its first attempt. `parts` is its request."""
        spans = self.tracing.spans
        if job.work is None and spans is not None:
            records = [entry.record for entry in job.entries]
            job.work = spans.work(self.consumer, *job.claim.tp, records, parts.lines)

    def begin_undecodable(self, job: Job) -> None:
        """Begin the span of a job whose one record is no event."""
        self.begin(job, HttpParts([], b""))
        if job.work is not None:
            job.work.failed("undecodable", job.undecodable or "")

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
        """End the span of the request that was under way; of a claim that is lost, the job's too."""
        if job.hop is not None:
            job.hop.end(answer.status, answer.problem)
            job.hop = None
        if job.claim.lost:
            self.given_up(job)

    def end(self, job: Job) -> None:
        """End the job's span: its events are finished, or go on in parts that have spans of their own."""
        work, job.work = job.work, None
        if work is not None:
            work.end()

    def given_up(self, job: Job) -> None:
        """End the span of a job that goes no further here, unless a request of it is still under way."""
        work = job.work
        if work is not None and job.hop is None:
            job.work = None
            work.failed("given_up", "the partition goes to another member of the group, which sends the event again")
            work.end()
