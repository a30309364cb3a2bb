"""Converts a ledger's lines to Arrow columns, for Parquet files and Spark.

pyarrow is imported when used. Columns are the members of a line, `facts` (with the members that have no column) as JSON
text. An unreadable line is a row too, of kind `damaged` with its bytes in `raw`, so that a converted file hides
nothing.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from inbound.errors import ConfigError, LedgerError
from inbound.ledger.format import FORMAT_VERSION, seal, unseal
from inbound.ledger.jsonl import Corrupt, Entry, Item, TornTail, read_line, read_record, run_of
from inbound.ledger.places import FilePath

if TYPE_CHECKING:
    import pyarrow

#: Kind of a row for an unreadable line.
DAMAGED = "damaged"
#: Rows in memory at once.
ROWS = 8192
#: Rows of a row group of a Parquet file.
_GROUP_ROWS = 16 * ROWS
#: How nearly all lines begin.
_PLAIN = (b'{"kind":"begun",', b'{"kind":"done",', b'{"kind":"settled",')
#: Names of a Parquet file's metadata: the format's version, and the header's members.
_VERSION, _HEADER = b"inbound.ledger.version", b"inbound.ledger.header"

_DICTIONARY = ("kind", "run", "group", "consumer", "topic", "outcome")
_INTEGERS = ("seq", "partition", "epoch", "first", "next", "records", "commit", "mzxid", "line")


@cache
def schema() -> pyarrow.Schema:
    """Return the columns: all but `kind`, `run` and `line` may be null."""
    arrow = _arrow()
    text = arrow.string()
    kinds = {**dict.fromkeys(_DICTIONARY, text), **dict.fromkeys(_INTEGERS, arrow.int64())}
    kinds |= {"partition": arrow.int32(), "wall": arrow.float64(), "facts": text, "raw": arrow.binary()}
    return arrow.schema([(name, kinds[name]) for name in _ORDER])


_ORDER = (
    "kind", "run", "seq", "group", "consumer", "topic", "partition", "epoch", "first", "next", "records", "commit",
    "outcome", "mzxid", "wall", "facts", "line", "raw",
)  # fmt: skip


def jsonl_batches(lines: Iterable[bytes], path: FilePath) -> Iterator[pyarrow.RecordBatch]:
    """Yield a `.jsonl` file's lines as record batches; LedgerError as `read_file`."""
    chunk = _Chunk(path, run_of(path))
    for number, line in enumerate(lines, start=1):
        chunk.add(number, line)
        if chunk.rows == ROWS:
            yield chunk.batch()
            chunk = _Chunk(path, chunk.run, chunk.offset)
    if chunk.rows:
        yield chunk.batch()


class _Chunk:
    """Some lines of a file. pyarrow parses most, ten times as fast."""

    def __init__(self, path: FilePath, run: str, offset: int = 0) -> None:
        self._path = path
        self.run = run
        self.offset = offset  # of the next line
        self._plain: list[bytes] = []
        self._places: list[tuple[int, str]] = []  # line and run of each plain one
        self._others: list[tuple[bytes, dict[str, Any]]] = []

    @property
    def rows(self) -> int:
        return len(self._plain) + len(self._others)

    def add(self, number: int, line: bytes) -> None:
        if line.startswith(_PLAIN) and line.endswith(b"\n") and b'"facts"' not in line:
            body = unseal(line[:-1])
            if body is not None:
                self._plain.append(body)
                self._places.append((number, self.run))
                self.offset += len(line)
                return
        item: Item = TornTail(self._path, self.offset, len(line))
        if line.endswith(b"\n"):
            item = read_line(line[:-1], self._path, number, self.run)
        if isinstance(item, Entry) and item.kind == "header":
            self.run = item.run
        self._others.append((line, _row(item, line) | {"line": number}))
        self.offset += len(line)

    def batch(self) -> pyarrow.RecordBatch:
        arrow = _arrow()
        others = _batch(self._others)
        if not self._plain:
            return others
        try:
            plain = _parsed(self._plain)
        except arrow.ArrowException:  # a member that we don't know, or of another kind: one by one
            return self._one_by_one()
        columns = {name: plain.column(name) for name in plain.column_names}
        columns["line"] = arrow.array([line for line, _ in self._places], arrow.int64())
        columns["run"] = arrow.array([run for _, run in self._places], arrow.string())
        empty = {"facts": arrow.string(), "raw": arrow.binary()}
        columns |= {name: arrow.nulls(len(self._plain), kind) for name, kind in empty.items()}
        table = arrow.table([columns[name] for name in _ORDER], schema=schema())
        if others.num_rows:
            table = arrow.concat_tables([table, arrow.Table.from_batches([others])]).sort_by("line")
        (batch,) = table.combine_chunks().to_batches()
        return batch

    def _one_by_one(self) -> pyarrow.RecordBatch:
        rows = list(self._others)
        for body, (number, run) in zip(self._plain, self._places, strict=True):
            line = seal(body[:-1])
            rows.append((line, _row(read_line(line[:-1], self._path, number, run), line)))
        return _batch(sorted(rows, key=lambda row: row[1]["line"]))


def _parsed(bodies: list[bytes]) -> pyarrow.Table:
    from pyarrow import json as arrow_json

    text = b"\n".join(bodies)
    members = _arrow().schema([field for field in schema() if field.name not in ("run", "line", "facts", "raw")])
    return arrow_json.read_json(
        BytesIO(text),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=arrow_json.ParseOptions(explicit_schema=members, unexpected_field_behavior="error"),
    )


def record_batches(
    topic: str, records: Iterable[tuple[int, int, bytes | None, bytes | None]]
) -> Iterator[pyarrow.RecordBatch]:
    """Yield a topic's (partition, offset, key, value) records as record batches."""
    rows: list[tuple[bytes, dict[str, Any]]] = []
    for partition, offset, key, value in records:
        raw = value or b""
        rows.append((raw, _row(read_record(topic, partition, offset, key, value), raw)))
        if len(rows) == ROWS:
            yield _batch(rows)
            rows = []
    if rows:
        yield _batch(rows)


def parquet_batches(data: BinaryIO, path: FilePath) -> Iterator[pyarrow.RecordBatch]:
    """Yield a converted file's rows as record batches; LedgerError as `read_file`."""
    arrow = _arrow()
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(data)
        metadata = file.schema_arrow.metadata or {}
        version = int(metadata.get(_VERSION, 0))
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if not version:
        raise LedgerError(f"ledger file {path}: it is Parquet, but no ledger's; move it out of the ledger's folder")
    if version > FORMAT_VERSION:
        raise LedgerError(
            f"ledger file {path}: it has format version {version}, this inbound reads up to {FORMAT_VERSION}; "
            "read it with the release that wrote it or a newer one"
        )
    try:
        for batch in file.iter_batches(batch_size=ROWS, columns=list(_ORDER)):
            yield batch.cast(schema())
    except (arrow.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def write_parquet(lines: Iterable[bytes], path: FilePath, target: Path) -> None:
    """Write a `.jsonl` file's lines to `target`, unsynced, and check their number.

    Raises:
        LedgerError: as `read_file`.
        OSError: it can't be written.
    """
    from pyarrow import parquet

    batches = jsonl_batches(lines, path)
    first = next(batches, None)
    metadata = {_VERSION: str(FORMAT_VERSION).encode(), _HEADER: _header(first)}
    rows = 0
    with parquet.ParquetWriter(
        target, schema().with_metadata(metadata), compression="zstd", use_dictionary=list(_DICTIONARY)
    ) as writer:
        while first is not None:
            writer.write_batch(first, row_group_size=_GROUP_ROWS)
            rows += first.num_rows
            first = next(batches, None)
    if (found := parquet.read_metadata(target).num_rows) != rows:
        raise OSError(errno.EIO, f"{found} of {rows} lines are in it", str(target))


def items_of(batch: pyarrow.RecordBatch, path: FilePath) -> Iterator[Item]:
    """Yield a record batch's rows as `read_line` returns the lines."""
    for row in batch.to_pylist():
        text = row.pop("facts")
        facts = json.loads(text) if text else {}
        del row["raw"]
        if row["kind"] != DAMAGED:
            yield Entry(path=path, facts=facts, **row)
        elif "offset" in facts:
            yield TornTail(path, facts["offset"], facts["bytes"])
        else:
            yield Corrupt(path, row["line"], facts["reason"])


def _row(item: Item, raw: bytes) -> dict[str, Any]:
    if isinstance(item, Entry):
        row = {name: getattr(item, name) for name in _ORDER if name not in ("facts", "raw")}
        row["facts"] = json.dumps(item.facts, separators=(",", ":")) if item.facts else None
        return row
    if isinstance(item, TornTail):
        return _damaged(0, {"offset": item.offset, "bytes": item.bytes}, raw)
    return _damaged(item.line, {"reason": item.reason}, raw)


def _damaged(line: int, facts: Mapping[str, Any], raw: bytes) -> dict[str, Any]:
    return {"kind": DAMAGED, "line": line, "facts": json.dumps(facts), "raw": raw}


def _batch(rows: list[tuple[bytes, dict[str, Any]]]) -> pyarrow.RecordBatch:
    make = _arrow().RecordBatch.from_pylist
    try:
        return make([row for _, row in rows], schema=schema())
    except (ValueError, TypeError, OverflowError):  # Arrow's own errors are of these kinds
        return make([_fitting(row, raw) for raw, row in rows], schema=schema())


def _fitting(row: dict[str, Any], raw: bytes) -> dict[str, Any]:
    """Return the row, or a damaged one if its members don't fit."""
    try:
        _arrow().RecordBatch.from_pylist([row], schema=schema())
    except (ValueError, TypeError, OverflowError) as error:
        return _damaged(row["line"], {"reason": f"its checksum is right, but it does not fit a ledger: {error}"}, raw)
    return row


def _header(first: pyarrow.RecordBatch | None) -> bytes:
    if first is None or first["kind"][0].as_py() != "header":
        return b"{}"
    return (first["facts"][0].as_py() or "{}").encode()


def _unreadable(path: FilePath, error: Exception) -> LedgerError:
    return LedgerError(f"ledger file {path}: it cannot be read ({error}); restore it from a copy, or move it away")


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ConfigError(
            "a ledger's Parquet files need pyarrow, which is not installed; run: pip install 'inbound-kafka[ledger]'"
        ) from error
    return pyarrow
