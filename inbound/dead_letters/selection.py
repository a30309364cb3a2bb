"""The choice of dead letters: filters, summary and purge plan.

Pure, but for the known secrets.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from inbound.config.secrets import hide
from inbound.dead_letters.letter import Letter
from inbound.runtime.patterns import glob

#: A partition and an offset.
Place = tuple[int, int]
#: The characters of a reason that tell kinds of failures apart.
SHAPE_LENGTH = 60
#: The characters of a reason that are read: its length is unbounded.
LOOKED_AT = 4096
#: Further kinds are counted together, as are new subscriptions after that.
MOST_KINDS = 200
OTHER_SUBSCRIPTIONS = "(other subscriptions)"
OTHERS = "(other reasons)"


@dataclass(frozen=True)
class LetterSelection:
    """The filters of a command; a letter must meet all of them."""

    #: Groups and URLs of those that gave the record up; None: all.
    subscriptions: frozenset[str] | None = None
    since: float | None = None  # seconds since 1970; the letter's own time counts
    until: float | None = None  # before it
    reason: str | None = None  # a code, or text in which * and ? stand for any
    key: bytes | None = None
    at: frozenset[Place] | None = None

    @cached_property
    def everything(self) -> bool:
        """Whether no filter is set."""
        return self == LetterSelection()

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return glob(["*", *(self.reason or "").lower(), "*"])

    def chooses(self, letter: Letter) -> bool:
        """Whether a letter meets all filters."""
        who = letter.group if letter.group is not None else letter.destination
        return (
            (self.at is None or (letter.partition, letter.offset) in self.at)
            and (self.key is None or letter.key == self.key)
            and (self.subscriptions is None or who in self.subscriptions)
            and (self.since is None or letter.timestamp >= max(0, self.since * 1000))  # a negative one is unknown
            and (self.until is None or 0 <= letter.timestamp < self.until * 1000)
            and self._has_reason(letter)
        )

    def _has_reason(self, letter: Letter) -> bool:
        if self.reason is None:
            return True
        if self.reason.isascii() and self.reason.isdigit():
            return letter.code == self.reason
        return self._pattern.fullmatch(letter.why.lower()) is not None


def shape(letter: Letter) -> str:
    """Return the kind of a reason: its beginning, with `#` for numbers."""
    # Without secrets first: with `#` for its numbers one would not be known again.
    text = " ".join(hide(letter.reason[:LOOKED_AT]).split())[: 4 * SHAPE_LENGTH]
    same = "".join("#" if digits else "".join(run) for digits, run in groupby(text, str.isdigit))
    return " ".join(filter(None, (letter.code, same[:SHAPE_LENGTH]))) or "-"


@dataclass
class LetterCount:
    """Letters that one subscription gave up for one kind of reason."""

    count: int = 0
    oldest: int = -1  # milliseconds since the Unix epoch
    newest: int = -1
    redriven: int = 0  # that were redriven and came back

    def add(self, letter: Letter) -> None:
        """Count one more."""
        self.count += 1
        self.redriven += letter.redrives > 0
        if letter.timestamp >= 0:
            self.oldest = letter.timestamp if self.oldest < 0 else min(self.oldest, letter.timestamp)
            self.newest = max(self.newest, letter.timestamp)


@dataclass
class LetterSummary:
    """Letters counted by subscription and kind of reason, in bounded size."""

    kinds: dict[tuple[str, str], LetterCount] = field(default_factory=lambda: defaultdict(LetterCount))
    total: int = 0

    def add(self, subscription: str, letter: Letter) -> None:
        """Count a letter."""
        key = (subscription, shape(letter))
        if key not in self.kinds and len(self.kinds) >= MOST_KINDS:
            key = (subscription, OTHERS)
            if key not in self.kinds and len(self.kinds) >= 2 * MOST_KINDS:
                key = (OTHER_SUBSCRIPTIONS, OTHERS)
        self.kinds[key].add(letter)
        self.total += 1

    def rows(self) -> list[tuple[str, str, LetterCount]]:
        """Return subscription, reason and counts, the largest first."""
        return sorted(
            ((subscription, reason, kind) for (subscription, reason), kind in self.kinds.items()),
            key=lambda row: (-row[2].count, row[:2]),
        )


@dataclass
class PurgeCut:
    """The part of one partition that a purge deletes."""

    start: int  # where its log begins
    end: int  # before this offset everything is deleted
    letters: int = 0  # that are deleted
    #: Letters that are not chosen and stand before a chosen one: they would be deleted with it.
    others: int = 0
    first_other: int | None = None  # the offset of the first letter that is not chosen
    behind: int = 0  # chosen ones behind the first other one: they stay


@dataclass
class PurgePlan:
    """The parts that a purge deletes, by partition."""

    cuts: dict[int, PurgeCut] = field(default_factory=dict)

    @property
    def letters(self) -> int:
        """How many letters are deleted."""
        return sum(cut.letters for cut in self.cuts.values())

    @property
    def blocked(self) -> dict[int, PurgeCut]:
        """The partitions in which chosen letters stand behind others."""
        return {partition: cut for partition, cut in self.cuts.items() if cut.behind}

    def offsets(self) -> dict[int, int]:
        """Return the offset up to which each affected partition is deleted."""
        return {partition: cut.end for partition, cut in self.cuts.items() if cut.end > cut.start}


def plan_purge(starts: dict[int, int], letters: Iterable[Letter], chooses: Callable[[Letter], bool]) -> PurgePlan:
    """Return the cut of each partition: up to its first other letter.

    Letters that are not chosen are the others. `letters` are all letters from the start, by partition and offset.
    """
    plan = PurgePlan({partition: PurgeCut(start, start) for partition, start in starts.items()})
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
