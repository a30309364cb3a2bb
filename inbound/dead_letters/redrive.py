"""A redrive: its plan, and the sending of parcels."""

from __future__ import annotations

import threading
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from inbound.dead_letters.letter import Letter, as_read, counted, letter_of
from inbound.dead_letters.redrive_ledger import RedriveLedger
from inbound.dead_letters.selection import Place
from inbound.processors.batch import Record
from inbound.processors.cloudevents_bridge import RecordParts

#: Default limit of redrives, so that a letter that always returns does not circle.
MAX_REDRIVES = 3
#: So many refused letters are named; the others are counted.
NAMED = 10


# -- the plan ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RedriveTarget:
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
    """A letter as it is sent: the original record, with its counter."""

    partition: int  # of the letter
    offset: int
    parts: RecordParts
    topic: str | None  # None: it is posted
    to_partition: int | None  # None: the one that its key says, or any
    reply: bool  # it is a reply, and is posted to where replies go
    where: str

    @property
    def place(self) -> Place:
        """The letter's place."""
        return self.partition, self.offset


@dataclass
class RedrivePlan:
    """The plan of a redrive, in offsets: there may be millions."""

    offsets: dict[int, array[int]] = field(default_factory=lambda: defaultdict(lambda: array("q")))
    #: Counts by subscription and target.
    routes: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Counts by reason of refusal, and the first letters of each.
    refused: Counter[str] = field(default_factory=Counter)
    named: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    #: Counts of letters that the ledger knows as redriven, by target.
    before: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        """How many letters are sent."""
        return sum(len(offsets) for offsets in self.offsets.values())

    def refuse(self, letter: Letter, why: str) -> None:
        """Refuse a letter: it stays in the topic."""
        self.refused[why] += 1
        if len(self.named[why]) < NAMED:
            self.named[why].append(letter.place)


@dataclass(frozen=True)
class Planner:
    """Decides letter by letter what a redrive sends."""

    dead_letter_topic: str
    destination: RedriveTarget
    max_redrives: int
    done: Mapping[Place, str]  # the places of letters that were redriven, with where to
    partitions: Callable[[str], int | None]  # how many a topic has; None: there is no such topic
    name_of: Callable[[Letter], str]  # names who gave a letter up

    def plan(self, letters: Iterable[Letter]) -> RedrivePlan:
        """Return the plan for these letters, in their order."""
        plan = RedrivePlan()
        for letter in letters:
            before = self.done.get((letter.partition, letter.offset))
            if before is not None:
                plan.before[before] += 1
                continue
            why = self._refusal(letter)
            if why is not None:
                plan.refuse(letter, why)
                continue
            plan.offsets[letter.partition].append(letter.offset)
            plan.routes[self.name_of(letter), self.destination.where(letter)] += 1
        return plan

    def parcel(self, partition: int, record: Record) -> Parcel:
        """Return the parcel of a letter that the plan has chosen.

        A record returns to the partition that it came from, if that still exists: the partitioner that chose it is unknown.
        """
        letter, to = letter_of(partition, record), self.destination
        parts = counted(as_read(record), letter.redrives + 1)
        topic: str | None = None if to.kind == "subscription" else to.name
        to_partition = None
        if to.kind == "original" and letter.origin is not None:
            topic = letter.origin.topic
            if letter.origin.partition < (self.partitions(topic) or 0):
                to_partition = letter.origin.partition
        return Parcel(partition, record.offset, parts, topic, to_partition, letter.kind == "reply", to.where(letter))

    def _refusal(self, letter: Letter) -> str | None:
        """Return why a letter is not sent; None if it is."""
        to = self.destination
        if to.kind == "subscription":
            if letter.kind == "reply" and not to.posts_replies:
                return f"it is a subscriber's reply, and subscription {to.name} has no replyUri; redrive it with --to-topic"
            return None  # it cannot come back from there: the letter stays where it is, and is not written again
        if letter.redrives >= self.max_redrives:
            times = f"{self.max_redrives} times" if self.max_redrives != 1 else "once"
            return f"it was redriven {times} or more, and came back (--max-redrives): find out why before it goes round again"
        if to.kind == "topic":
            return None
        if letter.kind == "reply":
            return "it is a subscriber's reply, and was in no topic; redrive it with --to-topic or --to-subscription"
        if letter.origin is None:
            return "it does not say which topic it came from; redrive it with --to-topic or --to-subscription"
        if letter.origin.topic == self.dead_letter_topic:
            return "it came from this topic itself; redrive it with --to-topic or --to-subscription"
        if self.partitions(letter.origin.topic) is None:
            return f"its topic {letter.origin.topic} does not exist; create it, or redrive with --to-topic"
        return None


# -- sending -------------------------------------------------------------------------------------------------------


class RedriveOutcome(NamedTuple):
    """The outcome of one letter."""

    sent: bool
    where: str  # `orders/3/991`, or the subscriber's URL as messages show it
    why: str = ""  # where it was refused


Done = Callable[[Parcel, RedriveOutcome], None]


class LetterSender(Protocol):
    """Sends parcels: `senders.TopicSender` or `senders.SubscriberSender`."""

    def send(self, parcels: Iterable[Parcel], done: Done, stop: threading.Event) -> None:
        """Send all parcels, and call `done` with each outcome, in this thread.

        Once `stop` is set it begins no parcel, and returns when all that were sent are answered. A parcel that waits for a retry
        then has no outcome.

        Raises:
            BrokerUnavailableError: the brokers do not answer. Unacknowledged parcels have no outcome.
        """


@dataclass
class RedriveAccount:
    """The progress of a redrive."""

    planned: int
    sent: int = 0
    refused: int = 0
    named: list[str] = field(default_factory=list)  # the first refused, each with why

    @property
    def left(self) -> int:
        """How many letters have no outcome: deleted, or not reached."""
        return self.planned - self.sent - self.refused


def redrive(
    parcels: Iterable[Parcel], sender: LetterSender, ledger: RedriveLedger, account: RedriveAccount, *, stop: threading.Event,
    progress: Callable[[RedriveAccount], None] = lambda account: None,
) -> None:  # fmt: skip
    """Send all parcels, and note each outcome in ledger and account.

    Raises:
        BrokerUnavailableError: the brokers no longer answer. All known outcomes are noted.
        LedgerError: the ledger cannot be written. Nothing more is sent.
    """

    def done(parcel: Parcel, outcome: RedriveOutcome) -> None:
        ledger.note(parcel.place, "sent" if outcome.sent else "refused", parcel.where, outcome.why or outcome.where)
        if outcome.sent:
            account.sent += 1
        else:
            account.refused += 1
            if len(account.named) < NAMED:
                account.named.append(f"{parcel.partition}/{parcel.offset}: {outcome.where}: {outcome.why}")
        progress(account)

    try:
        sender.send(_until(stop, parcels), done, stop)
    finally:
        ledger.sync()


def _until(stop: threading.Event, parcels: Iterable[Parcel]) -> Iterator[Parcel]:
    for parcel in parcels:
        if stop.is_set():
            return
        yield parcel
