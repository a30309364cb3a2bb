"""One commit in flight, and what its refusal means."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from inbound.channel.parts import Parts
from inbound.coordinators.nodes import encode_offset
from inbound.coordinators.zookeeper import Check, Create, Node, Op, RefusedError, SetData
from inbound.partition.partition import Partition
from inbound.partition.position import Mark
from inbound.processors.base import BatchEventProcessor
from inbound.processors.batch import Batch


@dataclass(eq=False)
class Pending:
    """The newest commit of a partition, queued or in flight."""

    channel: Parts
    partition: Partition
    mark: Mark
    of_batch: int | None = None  # first offset of the batch answered for last; None: the commit is no batch's own
    first: bool = False  # the first position of a group without a commit: no batch was delivered yet
    recorded: bool = False  # `done` is in the ledger
    create: bool = False  # the offset node is missing
    unanswered: int | None = None  # the offset that was sent without an answer; it may still be in flight
    unanswered_in: int | None = None  # the session that it was sent in
    unread: bool = False  # the epoch node must be read before it is sent again
    epoch: Node | None = None  # the epoch node as read, if the commit has to move it on
    since: float = 0.0  # clock time at which the committer got the oldest commit that it replaces
    leader_epoch: int | None = None  # the leader epoch of the records before `offset`, as far as known
    failures: int = 0  # refusals for its own node; from the first on it is sent alone
    not_before: float = 0.0  # clock time before which it is not sent
    #: The processors to call back when it has landed, in order, each with its batch.
    to_tell: list[tuple[BatchEventProcessor, Batch]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.leader_epoch = self.partition.position.leader_epoch_at(self.offset)

    @property
    def offset(self) -> int:
        return self.mark.offset

    def stand_for(self, older: Pending) -> None:
        """Replace an older commit of the partition, and keep its state."""
        self.first, self.create, self.since = older.first, older.create, older.since
        self.unanswered, self.unanswered_in = older.unanswered, older.unanswered_in
        self.unread, self.epoch = older.unread, older.epoch
        self.failures, self.not_before = older.failures, older.not_before
        self.to_tell = older.to_tell + self.to_tell

    def ops(self) -> list[Op]:
        tp, paths = self.partition.tp, self.channel.paths
        path, data = paths.offset(*tp), encode_offset(self.offset)
        write: Op = Create(path, data) if self.create else SetData(path, data)
        return [self._guard(paths.epoch(*tp)), write]

    def size(self) -> int:
        """Return the commit's approximate bytes in a transaction."""
        info = self.partition.info
        moved = info is not None and info.leader_epoch != self.leader_epoch
        paths = 100 + 2 * len(self.channel.paths.offset(*self.partition.tp))
        return paths + (len(info.encode()) if info and moved else 0)

    def _guard(self, path: str) -> Op:
        """Return the operation that keeps the commit from landing under another's epoch.

        The first commit of records that another leader of the partition has written also moves the epoch on: the node
        then has that with the offset, for the member that reads on there (see `docs/decisions/0051-cut-logs.md`).
        """
        epoch, version, info = self.epoch, self.partition.fence.epoch, self.partition.info
        if info is not None and info.leader_epoch != self.leader_epoch:
            data = replace(info, leader_epoch=self.leader_epoch).encode()
            return SetData(path, data, version if epoch is None else epoch.stat.version)
        return Check(path, version) if epoch is None else SetData(path, epoch.data, epoch.stat.version)


#: Refusals in a row after which all epochs are read.
READ_ALL = 2


class Refusal(Enum):
    """The consequence for the commit that was refused."""

    OTHER_WRITE = "the offset node is there, or is not: it is set, or created, instead"
    APART = "the folder of its offset is missing: it is sent alone, ever more rarely, until an operator makes that folder again"
    READ_EPOCH = (
        "a commit before it went without an answer and may have moved the epoch: that is read before it is sent again"
    )
    LOST = "the epoch has moved on: the partition is another's, and nothing more of it is committed"


def meaning(culprit: Pending, refused: RefusedError) -> Refusal:
    """Return what `refused` means for the commit that it names."""
    is_write = refused.index % 2
    if not is_write:
        return Refusal.READ_EPOCH if culprit.unanswered_in is not None else Refusal.LOST
    if refused.reason == ("NodeExists" if culprit.create else "NoNode"):
        return Refusal.OTHER_WRITE
    return Refusal.APART
