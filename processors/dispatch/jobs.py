"""What a sender has in hand: claims of partitions, and of each the events on their way together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from inbound.processors.batch import Batch
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
    jobs: set[Job] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class Job:
    """Some events on their way, together: to the subscriber, then to the reply's receiver or the dead letter sink."""

    claim: Claim
    entries: list[Entry]
    attempt: int = 0  # failures of the present step
    #: The other parts of a request that was taken apart, in their order, each with its failures.
    rest: list[tuple[list[Entry], int]] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None
    again: Callable[[], None] | None = None  # what the timer will do
    passing: bool = False  # it waits because there was no answer
    dead: bool = False  # it is with the dead letter sink
    problem: str | None = None
    undecodable: str | None = None  # why its one record is no event
    sent_at: float = 0.0  # of the last request to the subscriber, by the loop's clock
    work: Work | None = None  # what its spans are made by, if any are
    hop: Hop | None = None  # the span of the request that is under way
