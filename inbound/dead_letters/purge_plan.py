"""Up to where each partition of a dead letter topic can be deleted, and what is in the way. Pure.

Kafka deletes the beginning of a partition, and nothing else: what is chosen must stand before all that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from inbound.dead_letters.letter import Letter


@dataclass
class Cut:
    """What is deleted of one partition."""

    start: int  # where its log begins
    end: int  # before this offset everything is deleted
    letters: int = 0  # that are deleted
    #: Letters that are not chosen and stand before a chosen one: they would be deleted with it.
    others: int = 0
    first_other: int | None = None  # the offset of the first letter that is not chosen
    behind: int = 0  # chosen ones behind the first other one: they stay

    @property
    def blocked(self) -> bool:
        """Whether chosen letters stand behind others."""
        return self.behind > 0


@dataclass
class PurgePlan:
    """What is deleted, by partition."""

    cuts: dict[int, Cut] = field(default_factory=dict)

    @property
    def letters(self) -> int:
        """How many letters are deleted."""
        return sum(cut.letters for cut in self.cuts.values())

    @property
    def blocked(self) -> dict[int, Cut]:
        """The partitions in which chosen letters stand behind others."""
        return {partition: cut for partition, cut in self.cuts.items() if cut.blocked}

    def offsets(self) -> dict[int, int]:
        """Return before which offset each partition is deleted; those of which nothing is are missing."""
        return {partition: cut.end for partition, cut in self.cuts.items() if cut.end > cut.start}


def plan_purge(starts: dict[int, int], letters: Iterable[Letter], chooses: Callable[[Letter], bool]) -> PurgePlan:
    """Return up to where the partitions can be deleted; `letters` come by partition and offset, all from the start.

    Of each partition: from its start up to its first letter that is not chosen.
    """
    plan = PurgePlan({partition: Cut(start, start) for partition, start in starts.items()})
    waiting: dict[int, int] = {}  # letters that are not chosen, so far, by partition
    for letter in letters:
        cut = plan.cuts[letter.partition]
        if not chooses(letter):
            waiting[letter.partition] = waiting.get(letter.partition, 0) + 1
            if cut.first_other is None:
                cut.first_other = letter.offset
        elif cut.first_other is None:
            cut.letters += 1
            cut.end = letter.offset + 1
        else:
            cut.behind += 1
            cut.others = waiting[letter.partition]
    return plan
