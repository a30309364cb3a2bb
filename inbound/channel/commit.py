"""One commit on its way, and a channel as the committer knows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from inbound.channel.books import Books
from inbound.channel.partition import Partition
from inbound.channel.schedule import Schedule
from inbound.channel.window import Mark
from inbound.coordinators.nodes import encode_offset
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import Check, Create, Node, Op, SetData
from inbound.journal import Journal
from inbound.meters import Meters
from inbound.mirroring import Mirror
from inbound.processors.base import BatchEventProcessor
from inbound.processors.batch import Batch


@dataclass(eq=False, kw_only=True)
class ChannelCommits:
    """Where one channel's commits go and are told of, and what they have come to. For the committer, which serves many."""

    paths: GroupPaths
    books: Books
    schedule: Schedule
    mirror: Mirror
    meters: Meters
    journal: Journal
    #: Ask the controller to look at the channel's partitions again.
    evaluate: Callable[[], None]
    #: Written by the committer, read by any thread.
    landed: int = 0
    fenced: int = 0
    transactions: int = 0  # that carried one of them


@dataclass(eq=False)
class Pending:
    """The newest commit of a partition, on its way."""

    channel: ChannelCommits
    partition: Partition
    mark: Mark
    of_batch: int | None = None  # where the batch began that was answered for last; None: the commit is no batch's own
    first: bool = False  # the first position of a group without a commit: no batch was handed out yet
    recorded: bool = False  # `done` is in the ledger
    create: bool = False  # the offset node is missing
    unanswered: int | None = (
        None  # the offset that was sent before without an answer, in that session: maybe it is still
    )
    unanswered_in: int | None = None  # on its way
    unread: bool = False  # the epoch node must be read before it is sent again
    epoch: Node | None = None  # the epoch node as read, where the commit is to move it on
    since: float = 0.0  # clock time at which the committer got the oldest of what it stands for
    leader_epoch: int | None = None  # under which leader what is before `offset` was written, as far as is known
    failures: int = 0  # how often it was refused for its own node; from the first on it is sent alone,
    not_before: float = 0.0  # and not before this clock time
    #: To be told when it has landed, in order: who was handed a batch, and the batch.
    to_tell: list[tuple[BatchEventProcessor, Batch]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.leader_epoch = self.partition.position.leader_epoch_at(self.offset)

    @property
    def offset(self) -> int:
        return self.mark.offset

    def stand_for(self, older: Pending) -> None:
        """Take the place of one that was asked for before: what is known of the partition's nodes stays known."""
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
        """Return about how many bytes it takes in a transaction."""
        info = self.partition.info
        moved = info is not None and info.leader_epoch != self.leader_epoch
        paths = 100 + 2 * len(self.channel.paths.offset(*self.partition.tp))
        return paths + (len(info.encode()) if info and moved else 0)

    def _guard(self, path: str) -> Op:
        """Return what keeps the commit from landing under another's epoch: a check, or what moves our own epoch on.

        The epoch is moved on with the first commit of what another leader of the partition has written, too: the node says
        so with the offset, for whoever reads on there (see `docs/decisions/0051-cut-logs.md`).
        """
        epoch, version, info = self.epoch, self.partition.fence.epoch, self.partition.info
        if info is not None and info.leader_epoch != self.leader_epoch:
            data = replace(info, leader_epoch=self.leader_epoch).encode()
            return SetData(path, data, version if epoch is None else epoch.stat.version)
        return Check(path, version) if epoch is None else SetData(path, epoch.data, epoch.stat.version)
