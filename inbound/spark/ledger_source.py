"""A group's ledger at one moment, in chunks for driver or executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import pyarrow as pa

from inbound.errors import LedgerError
from inbound.ledger import LedgerFile, columns, list_files
from inbound.ledger.disk import reason
from inbound.ledger.format import FileName
from inbound.ledger.places import FilePath, open_file
from inbound.proof.columns import Block, block_of, parse_block
from inbound.proof.spans import RunSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

#: The driver reads a ledger smaller than this: starting a job's Python takes longer. Bytes.
SMALL = 32 << 20
#: The part of a file that is read at once. Bytes.
CHUNK = 16 << 20
_BLOCK = 1 << 20
_TASKS_PER_CORE = 4


class LedgerMovedError(LedgerError):
    """A file was converted or deleted during the read: start again."""


@dataclass(frozen=True, slots=True)
class LedgerChunk:
    """The lines of a file that begin within a range of bytes."""

    path: FilePath
    source: RunSource
    parquet: bool
    start: int  # the first line begins here, or later
    end: int  # the last line begins before this
    limit: int  # nothing behind it is read
    torn: bool = False  # the file is known to end at the limit: a line without newline there is torn

    def block(self) -> Block:
        """Return the lines.

        Raises LedgerError as `inbound.ledger.read_file`, and LedgerMovedError.
        """
        try:
            with open_file(self.path) as data:
                if self.parquet:
                    batches = list(columns.parquet_batches(data, self.path))
                    return block_of(pa.Table.from_batches(batches, columns.schema()), self.source)
                return self._lines(data)
        except FileNotFoundError as error:
            raise LedgerMovedError(f"ledger file {self.path}: it was there a moment ago; try again") from error
        except OSError as error:
            raise LedgerError(
                f"ledger file {self.path}: it cannot be read ({reason(error)}); check the path and its rights"
            ) from error

    def _lines(self, data: BinaryIO) -> Block:
        begin, raw = self._bytes(data)
        block = parse_block(raw, self.source, last=self.torn)
        if self.start and any(not damage.harmless for damage in block.damage):
            # Messages name lines by their number in the file, which has no other use.
            data.seek(0)
            before = sum(part.count(b"\n") for part in _blocks(data, begin))
            block = parse_block(raw, self.source, first_line=before + 1, last=self.torn)
        return block

    def _bytes(self, data: BinaryIO) -> tuple[int, bytes]:
        """Return the chunk's whole lines, and their place in the file."""
        begin = 0
        if not self.start:
            raw = data.read(self.end)
        else:
            data.seek(self.start - 1)
            raw = data.read(self.end - self.start + 1)
            begin = self.start + raw.find(b"\n")
            raw = raw[raw.find(b"\n") + 1 :] if b"\n" in raw else b""
            if not raw:  # one line that began before the chunk goes through all of it, or ends with it
                return self.end, b""
        at = self.end
        rest = []
        if not raw.endswith(b"\n"):
            while at < self.limit and (more := data.read(min(_BLOCK, self.limit - at))):
                at += len(more)
                cut = more.find(b"\n") + 1
                rest.append(more[:cut] if cut else more)
                if cut:
                    break
        return begin, b"".join((raw, *rest))


@dataclass(frozen=True, slots=True)
class LedgerCut:
    """The ledger of a group at one moment."""

    place: FilePath
    group: str
    files: tuple[LedgerFile, ...]

    @classmethod
    def now(cls, place: FilePath, group: str) -> LedgerCut:
        """List the files with their lengths, or raise LedgerError."""
        return cls(place, group, tuple(list_files(place, group)))

    @property
    def foreign(self) -> list[LedgerFile]:
        return [file for file in self.files if file.format == "foreign"]

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files if file.format != "foreign")

    @property
    def empty(self) -> bool:
        return not self.bytes

    def chunks(self, size: int = CHUNK) -> list[LedgerChunk]:
        """Return the whole ledger, in pieces of about so many bytes."""
        return [one for file in self.files for one in chunks_of(file, 0, size)]


def chunks_of(file: LedgerFile, begin: int = 0, size: int = CHUNK) -> Iterable[LedgerChunk]:
    """Yield the chunks of a file from byte `begin` on."""
    name = FileName.parse(file.path.name)
    if file.format == "foreign" or name is None:
        return
    source = RunSource(file.group, name.consumer, name.run, str(file.path))
    if file.format == "parquet":
        yield LedgerChunk(file.path, source, True, 0, file.size, file.size)
        return
    for start in range(begin, max(file.size, begin + 1), size):
        yield LedgerChunk(file.path, source, False, start, min(start + size, file.size), file.size)


def take_chunks(chunks: Sequence[LedgerChunk], take: Callable[[Block], T], spark: SparkSession | None) -> list[T]:
    """Apply `take` to each chunk, on executors if that is possible.

    Executors need several chunks and a session.
    """
    if spark is None or len(chunks) < 2:
        return [take(chunk.block()) for chunk in chunks]
    context = spark.sparkContext
    # A task for each chunk would cost as much as the chunk.
    tasks = min(len(chunks), _TASKS_PER_CORE * context.defaultParallelism)
    return context.parallelize(chunks, tasks).map(lambda chunk: take(chunk.block())).collect()


def _blocks(data: BinaryIO, count: int) -> Iterable[bytes]:
    while count > 0 and (block := data.read(min(_BLOCK, count))):
        count -= len(block)
        yield block
