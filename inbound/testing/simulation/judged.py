"""What the judge remembers of batches and partitions."""

from __future__ import annotations

from dataclasses import dataclass, field

from inbound.coordinators.nodes import ResetNote
from inbound.testing.simulation.reset_judge import ByReset
from inbound.topic_partition import TopicPartition


@dataclass(eq=False)
class HandOut:
    """One batch in a callback."""

    consumer: str  # the process, not its consumer id
    tp: TopicPartition
    epoch: int
    first: int
    next: int
    records: int
    first_record: int  # its offset
    began: float
    to: object  # the processor: another one of its class may take over under the same claim, from the commit on
    #: Where the answer left the position; None while there is none.
    position: int | None = None
    #: Everything before this was answered with advance, or is to be committed soon (`commit_within`).
    advanced: int = 0
    #: Given up while its callback ran, or its commit could not be written: a reset waits no longer than that.
    abandoned: bool = False
    failed_alone: bool = False  # on one record, which `on_error` may give up
    #: Handed out by a zombie that could not know: its session had been ended by force.
    unaware: bool = False
    tenure: int = 0
    ended: float = float("inf")


@dataclass(eq=False)
class JudgedPartition:
    """What the judge knows of one partition."""

    commit: int | None = None
    epoch: int = 0
    holder: str | None = None  # the process whose claim made the epoch; None: it was moved from outside
    owner: str | None = None  # the process whose session has the owner node
    last: HandOut | None = None  # by anyone
    current: HandOut | None = None  # of the current epoch
    handed: dict[int, HandOut] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    #: What processors have passed over without being handed it, and when they were handed the batch that led there.
    passed_over: dict[int, float] = field(default_factory=dict)
    answered: tuple[int, int] = (0, 0)  # the claim, and up to where it may commit
    tenure: int = 0  # counts claims. The epoch can also be moved on by its own holder, with a commit
    claims: list[int] = field(default_factory=list)  # the epoch with which each began
    #: Epochs that were made from outside: what was handed out before may come again after.
    outside: list[int] = field(default_factory=list)
    resets: list[ByReset] = field(default_factory=list)
    moved_at: float = -1.0  # by a reset
    #: A process says where its claim begins, and the group's offset is not there yet.
    placed: tuple[str, int] | None = None
    asked: tuple[str, int] | None = None  # whose processor was asked last where its claim begins, and which claim
    untold: ResetNote | None = None  # of the last move: no processor has heard of it yet
    topic_id: str | None = None  # in the epoch node: the topic that the offset is about
    topic_changed_at: int = -1  # the transaction that changed it last: it may set the offset to 0
    of_deleted_topic: bool = False  # and nobody has begun the new one yet
    disowned: bool = False  # somebody deleted the owner node by hand
    read_at: float = -1.0  # when it was last handed out to its owner
    may_start_late: bool = False  # `latest`: no offset was ever committed, and the partition is no late addition
