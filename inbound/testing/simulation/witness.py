"""An observer of one group: a base class whose methods do nothing.

The judge calls it at every step, the run asks it at the end, and once amid the faults. The project's own tests compare with it
what `inbound spark validate` proves from the ledgers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from inbound.ledger.memory import Recorded
from inbound.processors.batch import Batch
from inbound.testing.kafka import FakeKafka
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from inbound.testing.simulation.channels import Further, Seat
    from inbound.testing.world import Consumer, World

#: One group, with its nodes, its topics and its processes by name.
Scene: TypeAlias = "World | Further"
#: A process, as one of its groups knows it.
GroupMember: TypeAlias = "Consumer | Seat"


class Witness:
    """Sees every delivery, answer, commit and ledger line of one group."""

    #: What becomes of records that fail: "skip", "dead-letter"; empty: they are retried.
    gives_up = ""

    def __init__(self, kafka: FakeKafka) -> None:
        """Make one for each group of a run."""

    def claimed(self, tp: TopicPartition, epoch: int) -> None:
        """A member has claimed the partition; its ledger will say so, unless the process dies before."""

    def fenced(self, tp: TopicPartition) -> None:
        """A reset has moved the epoch on."""

    def handed(self, tp: TopicPartition, batch: Batch) -> None:
        """A batch is delivered to a processor."""

    def answered(self, tp: TopicPartition, first: int, end: int, epoch: int) -> None:
        """A processor that was delivered records from `first` on lets everything before `end` be committed.

        That includes what its claim was delivered earlier.
        """

    def fails_alone(self, tp: TopicPartition, offset: int, epoch: int) -> None:
        """A processor failed on this one record, and `on_exception` had no answer."""

    def dead_lettered(self, tp: TopicPartition, offset: int) -> None:
        """The dead-letter topic has the record."""

    def failure_answered(self, tp: TopicPartition, offset: int) -> None:
        """A processor answers after its failure."""

    def abandons(self, tp: TopicPartition, offset: int) -> None:
        """The owner lets go of a record that failed, maybe before it could give the record up."""

    def passes_over(self, tp: TopicPartition, first: int, end: int, epoch: int) -> None:
        """A processor skips these offsets."""

    def passes_over_a_cut(self, tp: TopicPartition, first: int, end: int, epoch: int) -> None:
        """The group goes on behind a cut, as configured, and leaves these offsets out."""

    def committed(self, tp: TopicPartition, offset: int) -> None:
        """The owner of the partition sets the group's offset."""

    def begins_without_offset(self, tp: TopicPartition, offset: int) -> None:
        """The owner of the partition found no offset of the group, and begins here."""

    def reset(self, tp: TopicPartition, offset: int, epoch: int, cut: int | None = None) -> None:
        """A reset sets the group's offset: what lies beyond is wanted, delivered before or not.

        `cut`: where the log was cut, if the group has not gone back for that yet.
        """

    def takes_offset(self, tp: TopicPartition) -> None:
        """An operator takes the group's offset out of its node."""

    def mends_offset(self, tp: TopicPartition) -> None:
        """The operator puts it back."""

    def set_from_outside(self, tp: TopicPartition, offset: int) -> None:
        """A tool without a ledger sets the group's offset."""

    def cannot_tell(self, tp: TopicPartition) -> None:
        """A log was cut below a position, and no node says which leader wrote the records before it."""

    def recreated(self, tp: TopicPartition) -> None:
        """The topic is deleted; what the group knows is about the deleted one."""

    def begins_recreated(self, tp: TopicPartition, epoch: int) -> None:
        """The group begins at the start of a recreated topic."""

    def wrote(self, entries: Sequence[Recorded]) -> None:
        """A ledger has taken these lines."""

    def refused(self, entries: Sequence[Recorded], *, degrade: bool) -> None:
        """A ledger has not taken these lines; with `degrade` the process goes on without."""

    def compare(
        self, world: Scene, owner: Callable[[TopicPartition], str | None], *, midst: bool = False
    ) -> Iterable[str]:
        """Return where the proof differs from what was seen; `midst`: faults are still going on."""
        return ()
