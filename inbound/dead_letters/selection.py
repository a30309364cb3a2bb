"""Which dead letters are meant, and what many of them have in common. Pure, but for the secrets that are known."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from inbound.config.known_secrets import hide
from inbound.dead_letters.letter import Letter
from inbound.globs import glob

#: A partition and an offset.
Place = tuple[int, int]
#: Of a reason, so many characters tell kinds of failures apart.
SHAPE_LENGTH = 60
#: No more characters of a reason are looked at: somebody else has written it.
LOOKED_AT = 4096
#: More kinds are counted together, and so are subscriptions then that have none of their own.
MOST_KINDS = 200
OTHER_SUBSCRIPTIONS = "(other subscriptions)"
OTHERS = "(other reasons)"


@dataclass(frozen=True)
class Selection:
    """What a command's filters ask for; a letter must meet all of them."""

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
        return self == Selection()

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return glob(["*", *(self.reason or "").lower(), "*"])

    def chooses(self, letter: Letter) -> bool:
        """Whether a letter meets all filters."""
        if self.at is not None and (letter.partition, letter.offset) not in self.at:
            return False
        if self.key is not None and letter.key != self.key:
            return False
        who = letter.group if letter.group is not None else letter.destination
        if self.subscriptions is not None and who not in self.subscriptions:
            return False
        return self._is_in_time(letter.timestamp) and self._has_reason(letter)

    def _is_in_time(self, timestamp: int) -> bool:
        if self.since is None and self.until is None:
            return True
        if timestamp < 0:  # it has no time
            return False
        return (self.since is None or timestamp >= self.since * 1000) and (
            self.until is None or timestamp < self.until * 1000
        )

    def _has_reason(self, letter: Letter) -> bool:
        if self.reason is None:
            return True
        if self.reason.isascii() and self.reason.isdigit():
            return letter.code == self.reason
        return self._pattern.fullmatch(letter.why.lower()) is not None


def shape(letter: Letter) -> str:
    """Return what a letter's reason has in common with others of its kind: its beginning, with `#` for numbers."""
    # Without secrets first: with `#` for its numbers one would not be known again.
    text = " ".join(hide(letter.reason[:LOOKED_AT]).split())[: 4 * SHAPE_LENGTH]
    same = "".join("#" if digits else "".join(run) for digits, run in groupby(text, str.isdigit))
    return " ".join(filter(None, (letter.code, same[:SHAPE_LENGTH]))) or "-"


@dataclass
class Kind:
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
class Summary:
    """Letters counted by subscription and kind of reason; bounded, however many kinds there are."""

    kinds: dict[tuple[str, str], Kind] = field(default_factory=lambda: defaultdict(Kind))
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

    def rows(self) -> list[tuple[str, str, Kind]]:
        """Return subscription, reason and counts, the largest first."""
        return sorted(
            ((subscription, reason, kind) for (subscription, reason), kind in self.kinds.items()),
            key=lambda row: (-row[2].count, row[:2]),
        )
