"""A redrive: its plan, its ledger, and the sending.

The ledger is a file of sealed JSON lines, as those in `inbound/ledger/format.py`. The first line names the topic and its id; each
other line is the outcome of one letter. A line is written once its record is acknowledged, so after a crash at most what was
unacknowledged, or not noted yet, is sent again.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from inbound.clock import Clock
from inbound.dead_letters.letter import Letter, as_read, counted, letter_of
from inbound.dead_letters.selection import Place
from inbound.errors import LedgerError
from inbound.ledger.disk import reason
from inbound.ledger.format import seal, unseal
from inbound.processors.batch import Record
from inbound.processors.cloudevents_bridge import RecordParts

#: How often a letter may be redriven by default: one that comes back each time must not go round.
MAX_REDRIVES = 3
#: So many refused letters are named; the others are counted.
NAMED = 10
VERSION = 1
#: How often what was noted is made to survive a power failure. Lines survive the end of the process at once. Seconds.
SYNC_EVERY = 1.0
#: What the first line begins with.
_BEGIN = b'{"v":'
_WRITE = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


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
        """Where the letter stands."""
        return self.partition, self.offset


@dataclass
class RedrivePlan:
    """What a redrive will do.

    Offsets only: there may be millions of letters.
    """

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
        """Return what is done with these letters, in their order."""
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
        """Return what is sent for a letter that the plan has chosen.

        A record that goes back to its topic goes to the partition that it was read from, while there is one of that
        number: which partitioner chose it is unknown here.
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
        """Return why a letter is not sent; None: it is."""
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


# -- the ledger ----------------------------------------------------------------------------------------------------


class RedriveLedger:
    """What was done with the letters of one topic.

    One thread; `close` it.
    """

    def __init__(self, path: Path, topic: str, topic_id: str | None, clock: Clock, *, write: bool) -> None:
        """Read the file; with `write`, make it where it is missing, and have it alone until `close`.

        Raises:
            LedgerError: it cannot be used, is another topic's, is damaged, or another redrive writes it.
        """
        self.path = path
        self.done: dict[Place, str] = {}  # letters that were redriven, and where to
        self._clock = clock
        self._fd: int | None = None
        self._synced = clock.now()
        self._unsynced = False
        try:
            if write:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._fd = os.open(path, _WRITE, 0o666)
                self._lock(self._fd)
            data = self._held()
            whole = data[: data.rfind(b"\n") + 1]
            self._read(whole.splitlines(), topic, topic_id)
            if self._fd is not None:
                if len(whole) < len(data):  # the process that wrote it was killed in the midst of a line
                    os.ftruncate(self._fd, len(whole))
                if not whole:
                    self._append({"v": VERSION, "kind": "header", "topic": topic, "topic_id": topic_id})
                    self.sync()
        except OSError as error:
            self.close()
            raise self._unusable(error) from None
        except BaseException:
            self.close()
            raise

    def counts(self) -> Counter[str]:
        """Return how many letters were redriven, by where to."""
        return Counter(self.done.values())

    def note(self, place: Place, outcome: str, where: str, why: str = "") -> None:
        """Write down what became of a letter: `sent` or `refused`. Only what was sent is left out the next time.

        Raises:
            LedgerError: it cannot be written. What was sent and is not noted may be sent again.
        """
        line: dict[str, Any] = {"kind": outcome, "partition": place[0], "offset": place[1], "to": where}
        line["at"] = round(self._clock.wall(), 3)
        if why:
            line["why"] = why
        try:
            self._append(line)
            if self._clock.now() - self._synced >= SYNC_EVERY:
                self.sync()
        except OSError as error:
            raise self._unusable(error) from None
        if outcome == "sent":
            self.done[place] = where

    def sync(self) -> None:
        """Have what was noted survive a power failure. Raises LedgerError."""
        if self._fd is None or not self._unsynced:
            return
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise self._unusable(error) from None
        self._synced, self._unsynced = self._clock.now(), False

    def close(self) -> None:
        """Let others write it."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    # -- inside --------------------------------------------------------------------------------------------------------

    def _held(self) -> bytes:
        """Return what the file holds, which must be a ledger's as far as that can be seen: its end may be cut off."""
        path = self.path
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise LedgerError(f"redrive ledger {path}: is no file; give another --ledger")
        data = path.read_bytes() if path.exists() else b""
        if not (data.startswith(_BEGIN) or _BEGIN.startswith(data)) and b"\n" not in data:
            raise LedgerError(f"redrive ledger {path}: holds something else, which stays; give another --ledger")
        return data

    def _lock(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LedgerError(
                f"redrive ledger {self.path}: another redrive writes it now; wait for its end, or give another --ledger"
            ) from None
        except OSError:
            pass  # a file system without locks

    def _read(self, lines: list[bytes], topic: str, topic_id: str | None) -> None:
        for number, line in enumerate(lines, 1):
            body = unseal(line)
            if body is None:
                raise LedgerError(
                    f"redrive ledger {self.path}:{number}: the line is damaged (its checksum is wrong); restore the file, "
                    "or give another --ledger: letters that only this one knows are then sent again"
                )
            entry = json.loads(body)
            if number == 1:
                self._check(entry, topic, topic_id)
            elif entry.get("kind") == "sent":
                self.done[entry["partition"], entry["offset"]] = entry["to"]

    def _check(self, header: Mapping[str, Any], topic: str, topic_id: str | None) -> None:
        if header.get("v", 0) > VERSION:
            raise LedgerError(
                f"redrive ledger {self.path}: it has format version {header['v']}, this inbound reads up to {VERSION}; use "
                "the release that wrote it, or a newer one"
            )
        if header.get("kind") != "header" or header.get("topic") != topic:
            raise LedgerError(
                f"redrive ledger {self.path}: it is of topic {header.get('topic')}, not of {topic}; give another --ledger"
            )
        before = header.get("topic_id")
        if before is not None and topic_id is not None and before != topic_id:
            raise LedgerError(
                f"redrive ledger {self.path}: topic {topic} was deleted and recreated since (its id was {before}, and is "
                f"{topic_id}), so the offsets in it mean other letters; give another --ledger, or remove this one"
            )

    def _append(self, line: Mapping[str, Any]) -> None:
        assert self._fd is not None, "opened for reading"
        data = seal(json.dumps(line, separators=(",", ":"))[:-1].encode())
        while data:
            data = data[os.write(self._fd, data) :]
        self._unsynced = True

    def _unusable(self, error: OSError) -> LedgerError:
        return LedgerError(
            f"redrive ledger {self.path}: {reason(error)}; check the disk and the folder's rights, or give another --ledger. "
            "What was sent and is not noted may be sent again"
        )


# -- sending -------------------------------------------------------------------------------------------------------


class RedriveOutcome(NamedTuple):
    """What became of one letter."""

    sent: bool
    where: str  # `orders/3/991`, or the subscriber's URL as messages show it
    why: str = ""  # where it was refused


Done = Callable[[Parcel, RedriveOutcome], None]


class LetterSender(Protocol):
    """Sends parcels: `to_topics.TopicSender` or `to_subscriber.SubscriberSender`."""

    def send(self, parcels: Iterable[Parcel], done: Done, stop: threading.Event) -> None:
        """Send all, and call `done` with each as soon as its outcome is known, on this thread.

        Once `stop` is set nothing more is begun, and it returns when all that was sent is answered. What is still to be
        tried again then has no outcome.

        Raises:
            BrokerUnavailableError: the brokers do not answer. What was not acknowledged has no outcome.
        """


@dataclass
class RedriveAccount:
    """What a redrive has done so far."""

    planned: int
    sent: int = 0
    refused: int = 0
    named: list[str] = field(default_factory=list)  # the first refused, each with why

    @property
    def left(self) -> int:
        """How many have no outcome: retention has deleted them, or it ended before."""
        return self.planned - self.sent - self.refused


def redrive(
    parcels: Iterable[Parcel], sender: LetterSender, ledger: RedriveLedger, account: RedriveAccount, *, stop: threading.Event,
    progress: Callable[[RedriveAccount], None] = lambda account: None,
) -> None:  # fmt: skip
    """Send all parcels, and note each in the ledger when its outcome is known; `account` is kept up to date.

    Raises:
        BrokerUnavailableError: the brokers do not answer any more. What is done is noted.
        LedgerError: it cannot be written. Nothing more is sent.
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
