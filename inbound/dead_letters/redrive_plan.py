"""Which letters a redrive sends, where to, and which it refuses: decided before anything is sent. Pure."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from inbound.dead_letters.letter import Letter, as_read, counted, letter_of
from inbound.dead_letters.selection import Place
from inbound.processors.batch import Record
from inbound.processors.cloudevents_bridge import RecordParts

#: How often a letter may be redriven, where nobody says otherwise: one that comes back each time must not go round.
MAX_REDRIVES = 3
#: Refused letters that are named; of the others only the number is told.
NAMED = 10


@dataclass(frozen=True)
class Destination:
    """Where a redrive sends letters."""

    kind: Literal["original", "topic", "subscription"]
    name: str = ""  # of the topic or the subscription
    posts_replies: bool = False  # the subscription has a `replyUri`

    def where(self, letter: Letter) -> str:
        """Return where this letter goes, in words: `topic orders`, `subscription billing`."""
        if self.kind == "original":
            return f"topic {letter.origin.topic}" if letter.origin is not None else "its topic"
        return f"{self.kind} {self.name}"


class Parcel(NamedTuple):
    """A letter as it is sent: the record that was read, with its counter."""

    partition: int  # of the letter
    offset: int
    parts: RecordParts
    topic: str | None  # None: it is posted
    to_partition: int | None  # None: the one that its key says, or any
    reply: bool  # it is a reply, and is posted to where replies go
    where: str

    @property
    def place(self) -> Place:
        """Where the letter stands."""
        return self.partition, self.offset


@dataclass
class Plan:
    """What a redrive will do. Offsets only: there may be millions of letters."""

    offsets: dict[int, array[int]] = field(default_factory=lambda: defaultdict(lambda: array("q")))
    #: How many go from whom to where: (subscription, where).
    routes: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: How many are refused for which reason, and the first of them.
    refused: Counter[str] = field(default_factory=Counter)
    named: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    #: How many the ledger says were redriven before, by where to.
    before: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        """How many letters are sent."""
        return sum(len(offsets) for offsets in self.offsets.values())

    def refuse(self, letter: Letter, why: str) -> None:
        """Leave a letter where it is."""
        self.refused[why] += 1
        if len(self.named[why]) < NAMED:
            self.named[why].append(letter.place)


class Planner:
    """Decides letter by letter. `partitions` says how many partitions a topic has; None: there is no such topic."""

    def __init__(
        self, dead_letter_topic: str, destination: Destination, *, max_redrives: int, done: Mapping[Place, str],
        partitions: Callable[[str], int | None], name_of: Callable[[Letter], str],
    ) -> None:  # fmt: skip
        """`done` are the places of letters that were redriven, with where to; `name_of` names who gave one up."""
        self._dead_letter_topic = dead_letter_topic
        self._destination = destination
        self._max_redrives = max_redrives
        self._done = done
        self._partitions = partitions
        self._name_of = name_of

    def plan(self, letters: Iterable[Letter]) -> Plan:
        """Return what is done with these letters, in their order."""
        plan = Plan()
        for letter in letters:
            before = self._done.get((letter.partition, letter.offset))
            if before is not None:
                plan.before[before] += 1
                continue
            why = self._refusal(letter)
            if why is not None:
                plan.refuse(letter, why)
                continue
            plan.offsets[letter.partition].append(letter.offset)
            plan.routes[self._name_of(letter), self._destination.where(letter)] += 1
        return plan

    def parcel(self, partition: int, record: Record) -> Parcel:
        """Return what is sent for a letter that the plan has chosen.

        A record that goes back to its topic goes to the partition that it was read from, while there is one of that
        number: which partitioner chose it, nobody knows here.
        """
        letter, to = letter_of(partition, record), self._destination
        parts = counted(as_read(record), letter.redrives + 1)
        topic: str | None = None if to.kind == "subscription" else to.name
        to_partition = None
        if to.kind == "original" and letter.origin is not None:
            topic = letter.origin.topic
            if letter.origin.partition < (self._partitions(topic) or 0):
                to_partition = letter.origin.partition
        return Parcel(partition, record.offset, parts, topic, to_partition, letter.kind == "reply", to.where(letter))

    def _refusal(self, letter: Letter) -> str | None:
        """Return why a letter is not sent; None: it is."""
        to = self._destination
        if to.kind == "subscription":
            if letter.kind == "reply" and not to.posts_replies:
                return f"it is a subscriber's reply, and subscription {to.name} has no replyUri; redrive it with --to-topic"
            return None  # it cannot come back from there: the letter stays where it is, and is not written anew
        if letter.redrives >= self._max_redrives:
            times = f"{self._max_redrives} times" if self._max_redrives != 1 else "once"
            return f"it was redriven {times} or more, and came back (--max-redrives): find out why before it goes round again"
        if to.kind == "topic":
            return None
        if letter.kind == "reply":
            return "it is a subscriber's reply, and was in no topic; redrive it with --to-topic or --to-subscription"
        if letter.origin is None:
            return "it does not say which topic it came from; redrive it with --to-topic or --to-subscription"
        if letter.origin.topic == self._dead_letter_topic:
            return "it came from this topic itself; redrive it with --to-topic or --to-subscription"
        if self._partitions(letter.origin.topic) is None:
            return f"its topic {letter.origin.topic} does not exist; create it, or redrive with --to-topic"
        return None
