"""An observer of one group: a base class whose methods do nothing.

The judge calls it at every step, the run asks it at the end, and once amid the faults. The project's own tests compare it with
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

    #: The policy for records that fail: "skip", "dead-letter"; empty: they are retried.
    gives_up = ""

    def __init__(self, kafka: FakeKafka) -> None:
        """Make one for each group of a run."""

    def claimed(self, tp: TopicPartition, epoch: int) -> None:
        """A member claims the partition, and records it unless it dies first."""

    def fenced(self, tp: TopicPartition) -> None:
        """A reset has moved the epoch on."""

    def handed(self, tp: TopicPartition, batch: Batch) -> None:
        """A batch is delivered to a processor."""

    def answered(self, tp: TopicPartition, first: int, end: int, epoch: int) -> None:
        """A processor allows commits of everything before `end`.

        Its batch begins at `first`; what its claim was delivered earlier is included.
        """

    def fails_alone(self, tp: TopicPartition, offset: int, epoch: int) -> None:
        """A processor failed on this one record, and `on_exception` had no answer."""

    def dead_lettered(self, tp: TopicPartition, offset: int) -> None:
        """The dead-letter topic has the record."""

    def failure_answered(self, tp: TopicPartition, offset: int) -> None:
        """A processor answers after its failure."""

    def abandons(self, tp: TopicPartition, offset: int) -> None:
        """The owner abandons a failed record, maybe before giving it up."""

    def passes_over(self, tp: TopicPartition, first: int, end: int, epoch: int) -> None:
        """A processor skips these offsets."""

    def passes_over_a_cut(self, tp: TopicPartition, first: int, end: int, epoch: int) -> None:
        """The group continues behind a cut, and leaves these offsets out."""

    def committed(self, tp: TopicPartition, offset: int) -> None:
        """The owner of the partition sets the group's offset."""

    def begins_without_offset(self, tp: TopicPartition, offset: int) -> None:
        """The owner finds no offset of the group, and begins here."""

    def reset(self, tp: TopicPartition, offset: int, epoch: int, cut: int | None = None) -> None:
        """A reset sets the group's offset: later records are wanted again.

        `cut`: where the log was cut, if the group has not gone back for that yet.
        """

    def takes_offset(self, tp: TopicPartition) -> None:
        """An operator takes the group's offset out of its node."""

    def mends_offset(self, tp: TopicPartition) -> None:
        """The operator restores the offset."""

    def set_from_outside(self, tp: TopicPartition, offset: int) -> None:
        """A tool without a ledger sets the group's offset."""

    def cannot_tell(self, tp: TopicPartition) -> None:
        """A log was cut below a position whose leader no node names."""

    def recreated(self, tp: TopicPartition) -> None:
        """The topic is deleted; the group's knowledge is about the deleted one."""

    def begins_recreated(self, tp: TopicPartition, epoch: int) -> None:
        """The group begins at the start of a recreated topic."""

    def wrote(self, entries: Sequence[Recorded]) -> None:
        """A ledger has taken these lines."""

    def refused(self, entries: Sequence[Recorded], *, degrade: bool) -> None:
        """A ledger refused these lines; with `degrade` the process continues without."""

    def compare(
        self, world: Scene, owner: Callable[[TopicPartition], str | None], *, midst: bool = False
    ) -> Iterable[str]:
        """Return where the proof differs from what was seen (`midst`: amid faults)."""
        return ()
