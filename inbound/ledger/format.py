"""Names the ledger's files, and seals the lines in them.

`docs/ledger.md` describes the format for readers. A line is a JSON object whose last member is the CRC32C of everything
before it: `{"kind":"begun", ... ,"seq":7,"crc":"1c291ca3"}`. The first line of a file is its header. How a line is
sealed and where the header carries its version (`v`) stay as they are in every later version of the format, so that a
reader always tells "newer than I am" from "damaged".
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple
from urllib.parse import quote, unquote

from crc32c import crc32c

from inbound.errors import LedgerError

#: Version of the lines and their meaning. A new kind of line or member needs no new version; a changed one does.
FORMAT_VERSION = 1

SUFFIX = ".jsonl"
#: Of a file that was converted; the rest of the name stays.
PARQUET_SUFFIX = ".parquet"

#: No file system in use takes longer names.
_LONGEST_NAME = 255

#: len(',"crc":"01234567"}')
_SEAL_LENGTH = 18


def seal(body: bytes) -> bytes:
    """Make a line of a JSON object that lacks its closing brace."""
    return b'%b,"crc":"%08x"}\n' % (body, crc32c(body))


def unseal(line: bytes) -> bytes | None:
    """Return a line's JSON object, or None if its seal is wrong."""
    body = line[:-_SEAL_LENGTH]
    if line[-_SEAL_LENGTH:] != b',"crc":"%08x"}' % crc32c(body):
        return None
    return body + b"}"


def path_part(name: str) -> str:
    """Encode any name as one part of a path; `name_of` decodes it."""
    if not name:
        raise LedgerError("ledger: a group or consumer id is empty; give it a name")
    part = quote(name, safe="", errors="surrogatepass")
    return "%2E" + part[1:] if part.startswith(".") else part


def name_of(part: str) -> str:
    return unquote(part, errors="surrogatepass")


def temporary_name(name: str) -> str:
    """Return the name of a file that only this process writes."""
    return f".{name}.{os.getpid()}.tmp"


def is_temporary(name: str) -> bool:
    """Return whether a name is that of an unfinished file or shipment."""
    return name.startswith(".") and name.endswith(".tmp")


class FileName(NamedTuple):
    """A file's name: `<consumer>-<start>-<number>.jsonl`, by run and number.

    A converted file ends in `.parquet` instead.
    """

    consumer: str
    start: str
    number: int

    @property
    def run(self) -> str:
        """The part that all files of one process run share."""
        return f"{path_part(self.consumer)}-{self.start}"

    def __str__(self) -> str:
        name = f"{self.run}-{self.number:04d}{SUFFIX}"
        if len(name) > _LONGEST_NAME:
            raise LedgerError(
                f"ledger: consumer id {self.consumer!r} makes a file name of {len(name)} characters, {_LONGEST_NAME} "
                "are possible; set a shorter consumer_id"
            )
        return name

    @classmethod
    def parse(cls, name: str) -> FileName | None:
        """Return a name's parts; None if it is no ledger file's."""
        suffix = PARQUET_SUFFIX if name.endswith(PARQUET_SUFFIX) else SUFFIX
        consumer, _, rest = name.removesuffix(suffix).rpartition("-")
        consumer, _, start = consumer.rpartition("-")
        if not (name.endswith(suffix) and consumer and start and rest.isdecimal()) or name.startswith("."):
            return None
        return cls(name_of(consumer), start, int(rest))


def start_stamp(milliseconds: int) -> str:
    """Format milliseconds since 1970 as `20250131T235959123Z` (UTC), sortable as text."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(seconds))}{rest:03d}Z"
