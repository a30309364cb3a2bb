"""Formats a ledger's lines, as `docs/ledger.md` describes them.

Sequence number and seal come later.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from typing import Any

from inbound.clock import Clock
from inbound.errors import LedgerError
from inbound.ledger.base import Done, Ledger, LedgerStatus, Range, Settled, checked_facts
from inbound.ledger.format import FORMAT_VERSION, FileName, seal
from inbound.runtime.instruments import Histogram


class LedgerLines:
    """Formats the entries of one consumer. Any thread.

    The constant part of each partition's lines is kept, and the numbers are put in by hand: `json.dumps` of a whole
    line takes longer than writing it. `wall` is in seconds since the Unix epoch, for people.
    """

    def __init__(self, group: str, consumer_id: str) -> None:
        self._group = group
        self._consumer_id = consumer_id
        self._owner = f'"group":{json.dumps(group)},"consumer":{json.dumps(consumer_id)}'
        self._partitions: dict[tuple[str, int], str] = {}

    def begun(self, entry: Range, wall: float) -> str:
        commit = "" if entry.commit is None else f'"commit":{entry.commit},'
        return (
            f'{{"kind":"begun",{self._of(entry.topic, entry.partition)},"epoch":{entry.epoch},"first":{entry.first},'
            f'"next":{entry.next},"records":{entry.records},{commit}"wall":{wall:.3f}'
        )

    def done(self, entry: Done, wall: float) -> str:
        return (
            f'{{"kind":"done",{self._of(entry.topic, entry.partition)},"epoch":{entry.epoch},"first":{entry.first},'
            f'"next":{entry.next},"commit":{_or_null(entry.commit)},"wall":{wall:.3f}'
        )

    def settled(self, entry: Settled, wall: float) -> str:
        return (
            f'{{"kind":"settled",{self._of(entry.topic, entry.partition)},"epoch":{entry.epoch},'
            f'"commit":{entry.commit},"outcome":"{entry.outcome}","mzxid":{_or_null(entry.mzxid)},"wall":{wall:.3f}'
        )

    def note(self, kind: str, topic: str, partition: int, epoch: int, facts: Mapping[str, Any], wall: float) -> str:
        return (
            f'{{"kind":"{kind}",{self._of(topic, partition)},"epoch":{epoch},"facts":{_json(facts)},"wall":{wall:.3f}'
        )

    def degraded(self, lacking: Mapping[tuple[str, int, int], float], wall: float) -> list[str]:
        """Mark partitions, with epochs, whose entries since those times are missing.

        Times are in seconds since 1970. The first line is about the whole run, for earlier releases, which read no
        other.
        """
        facts = _json({"from": round(min(lacking.values()), 3), "to": round(wall, 3), "partitions": len(lacking)})
        return [
            f'{{"kind":"degraded",{self._owner},"facts":{facts},"wall":{wall:.3f}',
            *(
                self.note("degraded", topic, partition, epoch, {"from": round(since, 3), "to": round(wall, 3)}, wall)
                for (topic, partition, epoch), since in sorted(lacking.items())
            ),
        ]

    def end(self, why: str, wall: float) -> str:
        """Return a file's last line: `rolled` if another file follows, or `closed`."""
        return f'{{"kind":"end",{self._owner},"why":"{why}","wall":{wall:.3f}'

    def header(self, name: FileName, previous: str | None, why: str, wall: float) -> str:
        """Return a file's first line.

        It names the file, the file before it in this run, and why that one ended.
        """
        members = {
            "v": FORMAT_VERSION,
            "kind": "header",
            "group": self._group,
            "consumer": self._consumer_id,
            "run": name.run,
            "file": name.number,
            "previous": previous,
            "why": why,
            "writer": _writer(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": name.start,
            "wall": round(wall, 3),
        }
        return _json(members)[:-1]

    def _of(self, topic: str, partition: int) -> str:
        members = self._partitions.get((topic, partition))
        if members is None:
            members = f'{self._owner},"topic":{json.dumps(topic)},"partition":{partition}'
            self._partitions[topic, partition] = members
        return members


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _or_null(value: int | None) -> int | str:
    return "null" if value is None else value


def _writer() -> str:
    try:
        return f"inbound {metadata.version('inbound-kafka')}"
    except metadata.PackageNotFoundError:
        return "inbound (from a checkout)"


class WrittenLedger(Ledger):
    """Makes a line of each entry.

    A subclass adds `done` and `close`, which wait.
    """

    def __init__(self, group: str, consumer_id: str, clock: Clock) -> None:
        self._lines = LedgerLines(group, consumer_id)
        self._consumer_id = consumer_id
        self._clock = clock
        self._sync_seconds = Histogram()
        self._lock = threading.Lock()
        # Under the lock: counts of what was written, the last number, files or producers made, and why the next one is made.
        self._entries = self._bytes = self._failures = 0
        self._seq = self._number = 0
        self._why = "start"
        self.closed = False  # nothing more can be recorded
        # What is not recorded, and since when; under its own lock, as `lacks` must not wait for a write.
        self._lacking: dict[tuple[str, int, int], float] = {}
        self._lacking_lock = threading.Lock()

    def begun(self, entry: Range) -> None:
        self._append([self._lines.begun(entry, self._clock.wall())])

    def settled(self, entries: Sequence[Settled]) -> None:
        wall = self._clock.wall()
        self._append([self._lines.settled(entry, wall) for entry in entries])

    def note(self, kind: str, *, topic: str, partition: int, epoch: int, **facts: Any) -> None:
        named = checked_facts(kind, facts)
        self._append([self._lines.note(kind, topic, partition, epoch, named, self._clock.wall())])

    def lacks(self, topic: str, partition: int, epoch: int) -> None:
        with self._lacking_lock:
            self._lacking.setdefault((topic, partition, epoch), self._clock.wall())

    def status(self) -> LedgerStatus:
        return LedgerStatus(
            entries_total=self._entries,
            bytes_total=self._bytes,
            failures_total=self._failures,
            sync_seconds=self._sync_seconds.status(),
        )

    @contextmanager
    def _marked(self, bodies: Sequence[str]) -> Iterator[Sequence[str]]:
        """Put `degraded` lines first, if entries are missing; the body writes."""
        with self._lacking_lock:
            lacking, self._lacking = self._lacking, {}
        if not lacking:
            yield bodies
            return
        try:
            yield [*self._lines.degraded(lacking, self._clock.wall()), *bodies]
        except LedgerError:
            with self._lacking_lock:
                self._lacking = {**self._lacking, **lacking}
            raise

    def _sealed(self, body: str) -> bytes:
        """Seal a header or end mark: it repeats the last number."""
        return seal(f'{body},"seq":{self._seq}'.encode())

    @abstractmethod
    def _append(self, bodies: Sequence[str]) -> object:
        """Write lines under the next numbers. LedgerError as the public methods."""
