"""What a sender has in hand: claims of partitions, and of each the events on their way together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from inbound.processors.batch import Batch
from inbound.processors.dispatch.transport import Answer
from inbound.processors.dispatch.window import Entry, Window
from inbound.processors.spans import Hop, Work
from inbound.topic_partition import TopicPartition


@dataclass(eq=False)
class Claim:
    """One partition, from one claim of it."""

    tp: TopicPartition
    window: Window
    batch: Batch  # the last one: what commits name the claim by
    committed: int = 0  # what was last asked to be committed, or is
    passed: int = 0  # how many events the front had passed by then
    sending: int = 0  # requests under way
    closing: bool = False
    lost: bool = False
    idle: asyncio.Future[None] | None = None  # done when nothing is under way any more
    delay: asyncio.TimerHandle | None = None  # a request that is not full waits for more events
    due: asyncio.TimerHandle | None = None  # the first held event waits for its time
    jobs: set[Job] = field(default_factory=set)


class Step(Protocol):
    """What is being done with a job: where its events are sent now, and what an answer to that means."""

    @property
    def kind(self) -> str:
        """What a partition waits for while this is not taken: see `BatchEventProcessor.waits`."""

    def send(self, job: Job) -> None:
        """Send it, once; called again for each attempt."""

    def answered(self, job: Job, answer: Answer) -> None:
        """Go on with what came of it."""


class Job:
    """Some events on their way, together; its steps say where to.

    Its attributes begin as the class has them: there is a job for each event, and setting them all takes longer than posting it.
    """

    step: Step  # the present one
    attempt: int = 0  # failures of the present step
    #: The other parts of a request that was taken apart, in their order, each with its failures.
    rest: Sequence[tuple[list[Entry], int]] = ()
    timer: asyncio.TimerHandle | None = None
    passing: bool = False  # it waits because there was no answer
    admitted: bool = False  # it counts against the subscription's limits
    problem: str | None = None
    undecodable: str | None = None  # why its one record is no event
    sent_at: float = 0.0  # of the last request to the subscriber, by the loop's clock
    work: Work | None = None  # what its spans are made by, if any are
    hop: Hop | None = None  # the span of the request that is under way

    def __init__(self, claim: Claim, entries: list[Entry], first: Step) -> None:
        """`first` is its step to the subscriber: what every job begins with, and what it falls back to."""
        self.claim = claim
        self.entries = entries
        self.first = self.step = first
