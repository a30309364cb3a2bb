"""The journals of `examples/delays`, read while the processes still write them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from inbound.errors import InboundError


class JournalError(InboundError):
    """A journal holds a line that no processor wrote."""


class Entry(NamedTuple):
    """One line: a batch `begin`s, flights of it are `counted`, it `end`s."""

    consumer: str
    at: float  # seconds since the epoch, by the clock that all processes of a machine share
    what: str
    partition: int
    first: int = 0
    next: int = 0
    flights: tuple[tuple[int, str, int | None], ...] = ()  # offset, carrier, delay


def entry_of(consumer: str, line: bytes) -> Entry:
    """Read one line. Raises ValueError, KeyError or TypeError if it is none of ours."""
    value = json.loads(line)
    return Entry(
        consumer,
        float(value["at"]),
        str(value["what"]),
        int(value["partition"]),
        int(value.get("first", 0)),
        int(value.get("next", 0)),
        tuple((int(offset), str(carrier), delay) for offset, carrier, delay in value.get("flights", ())),
    )


class Journals:
    """Reads what is new in all files of a folder. A torn last line is one that was not written (yet)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def new_entries(self) -> Iterator[Entry]:
        """Yield the entries written since the last call, in each file's order.

        Raises JournalError: a line in the middle cannot be read.
        """
        for path in sorted(self._folder.glob("*.jsonl")):
            start = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(start)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = start + len(whole)
            consumer = path.name.split(".")[0]
            for line in whole.splitlines():
                try:
                    yield entry_of(consumer, line)
                except (ValueError, KeyError, TypeError) as error:
                    raise JournalError(f"{path}: not a line of the processor ({error!r}): {line[:200]!r}") from None


class OpenBatches:
    """Which batches each consumer has begun and not ended."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], tuple[Entry, int]] = {}

    def add(self, entry: Entry) -> None:
        """Follow one entry; the entries of one consumer must come in its order."""
        key = (entry.consumer, entry.partition)
        if entry.what == "begin":
            self._open[key] = (entry, 0)
        elif entry.what == "end":
            self._open.pop(key, None)
        elif key in self._open:
            begun, counted = self._open[key]
            self._open[key] = (begun, counted + len(entry.flights))

    def of(self, consumer: str) -> list[tuple[Entry, int]]:
        """Return the open batches of a consumer: the `begin`, and how many of its flights were counted."""
        return [batch for (name, _), batch in sorted(self._open.items()) if name == consumer]

    def in_flight(self, consumer: str) -> int:
        """Return how many records a consumer has been handed in batches that it has not answered."""
        return sum(begun.next - begun.first for begun, _ in self.of(consumer))

    def halfway(self, consumer: str) -> bool:
        """Whether a consumer is inside a batch of which it counted some flights, but not all."""
        return any(0 < counted < begun.next - begun.first for begun, counted in self.of(consumer))
