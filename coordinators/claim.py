"""What a claim is: its fence, what was found with it, whether an epoch node is still its own, and what may become of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from inbound.coordinators.nodes import BadNodeError, EpochInfo, ResetNote, decode_epoch
from inbound.coordinators.zookeeper import Node
from inbound.errors import TransientError
from inbound.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Fence:
    """What makes a partition ours: the epoch's version after our claim, and the session of the owner node.

    The claim's nonce tells our epoch from one of the same number in a node that somebody has deleted and we made again.
    """

    epoch: int
    session: int
    nonce: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Claim:
    """A successful claim. `offset` is the group's commit; None where there is none yet."""

    fence: Fence
    offset: int | None
    #: Added to the topic after the group had begun: starts at its smallest offset.
    added_later: bool = False
    #: The topic that the offset is about.
    topic_id: str | None = None
    #: The topic was deleted and recreated: this claim, or one before it after which nothing was committed, has set the
    #: offset to 0. `old` is what it was before.
    recreated: bool = False
    old: int | None = None
    former: str | None = None  # the id of the deleted topic
    #: The id that the brokers named, if it cannot be compared with `topic_id`: the offset may be about another topic.
    unclear: str | None = None
    #: The reset that has moved the offset to where it still is: nothing was committed since.
    reset: ResetNote | None = None
    #: What stands in the epoch node now.
    info: EpochInfo | None = field(default=None, compare=False)


class OtherTopicError(TransientError):
    """The group's offset is about another topic of this name than the one that the claimant knows.

    Either the topic was deleted and created anew, or (`former`) the claimant has not heard of that yet. Nothing is
    claimed on such old hearsay: ask the brokers again, and claim with `instead_of`.
    """

    def __init__(self, tp: TopicPartition, *, found: str, told: str | None, former: bool) -> None:
        super().__init__(f"{tp}: the group's offset is about topic {found}, the brokers last named {told}")
        self.found = found
        self.told = told
        self.former = former


class Verdict(Enum):
    """What an evaluation found about a partition that we hold, or wanted."""

    HELD = "held"  # ours, under our epoch
    UNVERIFIED = "unverified"  # neither confirmed nor refuted; look again
    CLOSED = "closed"  # the gate is closed; look again when it opens
    LOST = "lost"  # somebody else's epoch
    BROKEN = "broken"  # our node, but not our epoch: drop it and claim anew
    REFUSED = "refused"  # ZooKeeper refuses a node of it: access rights, say; look again later


def current(fence: Fence, path: str, epoch: Node | None) -> Fence | None:
    """Return `fence` with the version that the epoch node has now, if the epoch is still that of our claim; else None.

    The nonce tells: the number alone comes again in a node that was deleted and made again, and moves on when we write
    our own claim anew (see `docs/decisions/0014-late-requests.md`). An older version with our nonce is an old view.
    """
    if epoch is None:
        return None
    if not fence.nonce:
        return fence if epoch.stat.version == fence.epoch else None
    try:
        info = decode_epoch(path, epoch.data)
    except BadNodeError:
        return None
    if info is None or info.nonce != fence.nonce:
        return None
    return replace(fence, epoch=max(fence.epoch, epoch.stat.version))
