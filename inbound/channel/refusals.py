"""What a refused transaction of commits means: for the commit that is to blame, and for its neighbours. Pure.

A commit is two operations: what keeps it from landing under another's epoch, and the write of its offset. ZooKeeper names the
first operation that it refuses, and does none of them.

- The neighbours are sent again at once, without the one to blame.
- After two refusals in a row more members may have lost partitions: all epochs are read in one round, and every commit whose
  epoch has moved is dropped.
"""

from __future__ import annotations

from enum import Enum

from inbound.channel.commit import Pending
from inbound.coordinators.zookeeper import RefusedError

#: So many refusals in a row have all epochs read.
READ_ALL = 2


class Refusal(Enum):
    """What becomes of the commit that is to blame."""

    OTHER_WRITE = "the offset node is there, or is not: it is set, or created, instead"
    APART = "the folder of its offset is missing: it is sent alone, ever more rarely, until somebody makes that again"
    READ_EPOCH = (
        "a commit before it went without an answer and may have moved the epoch: that is read before it is sent again"
    )
    LOST = "the epoch has moved on: the partition is another's, and nothing more of it is committed"


def meaning(culprit: Pending, refused: RefusedError) -> Refusal:
    """Return what `refused` means for the commit that it blames."""
    is_write = refused.index % 2
    if not is_write:
        return Refusal.READ_EPOCH if culprit.unanswered_in is not None else Refusal.LOST
    if refused.reason == ("NodeExists" if culprit.create else "NoNode"):
        return Refusal.OTHER_WRITE
    return Refusal.APART
