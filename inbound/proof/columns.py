"""Parses a ledger's lines into columns, whole blocks at a time.

The lines are a file's bytes or its Parquet rows. Needs numpy and pyarrow (the extra `spark`), which `inbound run` never
imports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from crc32c import crc32c
from numpy.typing import NDArray

from inbound.errors import LedgerError
from inbound.ledger.format import FORMAT_VERSION
from inbound.proof.model import Damage
from inbound.proof.spans import EVENTS, RunSource

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: len(',"crc":"01234567"}')
_SEAL = 18
#: Bytes that pyarrow parses at once: its working set should fit into the processor's cache.
_JSON_BLOCK = 1 << 20
#: Codes of kinds; OTHER is a kind that this reader does not know.
BEGUN, DONE, SETTLED, EVENT, OTHER = range(5)
_CODES = {"begun": BEGUN, "done": DONE, "settled": SETTLED, **dict.fromkeys(EVENTS, EVENT)}
#: The arrays of a block.
_COLUMNS = ("seq", "kind", "place", "epoch", "first", "next", "records", "commit", "outcome", "mzxid", "wall")
#: Codes of outcomes.
NO_OUTCOME, LANDED, FENCED, UNKNOWN = range(4)
OUTCOMES = ("", "landed", "fenced", "unknown")
#: Where a line has no such member.
ABSENT = -1
_NUMBERS = ("seq", "partition", "epoch", "first", "next", "records", "commit", "mzxid")
_SCHEMA = pa.schema(
    [
        *((name, pa.int64()) for name in _NUMBERS),
        ("wall", pa.float64()),
        *((name, pa.string()) for name in ("kind", "topic", "outcome")),
    ]
)


@dataclass(slots=True)
class Block:
    """Lines of one run as columns, a row for each entry."""

    source: RunSource
    seq: Ints
    kind: NDArray[np.int8]
    place: Ints  # which of `places`; ABSENT: it is about the whole run
    epoch: Ints
    first: Ints
    next: Ints
    records: Ints
    commit: Ints
    outcome: NDArray[np.int8]
    mzxid: Ints
    wall: NDArray[np.float64]
    places: list[tuple[str, int]] = field(default_factory=list)  # topic and partition
    events: dict[int, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)  # by row: kind and facts
    damage: list[Damage] = field(default_factory=list)
    header: Mapping[str, Any] | None = None
    ending: Mapping[str, Any] | None = None
    torn: bool = False

    def __len__(self) -> int:
        return len(self.seq)

    def take(self, rows: Ints) -> Block:
        at = {int(row): index for index, row in enumerate(rows)} if self.events else {}
        return replace(
            self,
            events={at[row]: event for row, event in self.events.items() if row in at},
            **{name: getattr(self, name)[rows] for name in _COLUMNS},
        )


def parse_block(data: bytes, source: RunSource, *, first_line: int = 1, last: bool = True) -> Block:
    """Parse whole lines of a `.jsonl` file, and check their seals.

    A damaged line becomes a Damage.

    Args:
        data: From the beginning of a line to the end of one.
        source: Whose they are; the file's header tells, or its name.
        first_line: The number of the first line in its file, for messages.
        last: Whether the file ends with these: its last line may be torn then.

    Raises:
        LedgerError: the header says that the file is of a newer format than this reader.
    """
    lines = data.split(b"\n")
    tail = lines.pop()
    # Every line goes through this loop: it is `inbound.ledger.format.unseal`, without a call for each.
    wrong = [index for index, line in enumerate(lines) if line[-_SEAL:] != b',"crc":"%08x"}' % crc32c(line[:-_SEAL])]
    damage = [(index, "its checksum is wrong") for index in wrong]
    if foreign := {index for index, line in enumerate(lines) if line[:1] != b"{"}.difference(wrong):
        # Arrow's parser ends the process at `null`.
        damage += [(index, "its checksum is right, but it is no JSON object") for index in foreign]
        wrong += foreign
    kept, good = list(range(len(lines))), data[: len(data) - len(tail)]
    if wrong:
        damaged = set(wrong)
        kept = [index for index in kept if index not in damaged]
        good = b"\n".join([lines[index] for index in kept])
    table, unfit = _table(good, [lines[index] for index in kept]) if kept else (_SCHEMA.empty_table(), [])
    if unfit:
        damage += [(kept[at], f"its checksum is right, but it is no line of a ledger: {why}") for at, why in unfit]
        gone = {at for at, _ in unfit}
        kept = [index for at, index in enumerate(kept) if at not in gone]
    block, rows = _block(table, source, lambda at: _facts_of(lines[kept[at]]))
    block.damage += [
        Damage(
            source.where, f"line {first_line + index} of {source.where} can't be read: {why}", source.group, source.run,
            _number_before(rows, kept, index),
        )
        for index, why in sorted(damage)
    ]  # fmt: skip
    if tail and last:
        block.torn = True
        what = f"the last line of {source.where} lacks its end: it was being written when the process died"
        number = int(rows[-1]) if len(rows) else None
        block.damage.append(Damage(source.where, what, source.group, source.run, number, harmless=True))
    return block


def _table(good: bytes, lines: Sequence[bytes]) -> tuple[pa.Table, list[tuple[int, str]]]:
    """Return the lines that fit as a table, and the others' faults."""
    try:
        table = _parsed(good, max(map(len, lines)))
        if table.num_rows == len(lines) and not table["seq"].null_count and not table["kind"].null_count:
            return table, []
    except pa.ArrowInvalid:
        pass
    tables, unfit = [], []
    for index, line in enumerate(lines):
        try:
            one = _parsed(line + b"\n", len(line))
            if one.num_rows != 1 or one["seq"].null_count or one["kind"].null_count:
                raise pa.ArrowInvalid("it lacks its number or its kind")
            tables.append(one)
        except pa.ArrowInvalid as error:
            unfit.append((index, str(error)))
    return (pa.concat_tables(tables) if tables else _SCHEMA.empty_table()), unfit


def _parsed(data: bytes, longest: int) -> pa.Table:
    return pyarrow.json.read_json(
        pa.BufferReader(data),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=max(_JSON_BLOCK, longest + 2)),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore"),
    )


def _facts_of(line: bytes) -> Mapping[str, Any]:
    members = json.loads(line)
    facts = members.pop("facts", {})
    named = {k: v for k, v in members.items() if k not in _NAMED}
    return {**named, **facts} if isinstance(facts, dict) else {**named, "facts": facts}


_NAMED = frozenset((*_NUMBERS, "group", "consumer", "topic", "kind", "wall", "outcome", "crc", "run"))


def _number_before(numbers: Ints, kept: Sequence[int], index: int) -> int:
    """Return the last good line's number before a damaged one; 0: none."""
    at = int(np.searchsorted(np.asarray(kept, np.int64), index))
    return int(numbers[at - 1]) if at else 0


def block_of(table: pa.Table, source: RunSource) -> Block:
    """Make a block of a converted file's rows (`inbound.ledger.columns`).

    A row of kind `damaged` becomes a Damage.

    Raises:
        LedgerError: a row has no kind, or the format is newer than this reader.
    """
    damaged = pc.equal(table["kind"], "damaged").fill_null(False)  # `_block` refuses a row without a kind
    facts, lines = table["facts"], table["line"]
    good = table.filter(pc.invert(damaged))
    texts = facts.filter(pc.invert(damaged))

    def facts_at(at: int) -> Mapping[str, Any]:
        return json.loads(texts[at].as_py() or "{}")  # type: ignore[no-any-return]

    block, numbers = _block(good.select(_SCHEMA.names), source, facts_at)
    at_rows = np.flatnonzero(damaged.to_numpy(zero_copy_only=False))
    for nth, row in enumerate(at_rows.tolist()):
        said = json.loads(facts[row].as_py() or "{}")
        before = row - nth  # good rows before it
        number = int(numbers[before - 1]) if before else 0
        torn = "offset" in said
        block.torn |= torn
        what = (
            f"the last line of {source.where} lacks its end: it was being written when the process died" if torn
            else f"line {lines[row].as_py()} of {source.where} can't be read: {said.get('reason', 'damaged')}"
        )  # fmt: skip
        block.damage.append(Damage(source.where, what, source.group, source.run, number, harmless=torn))
    return block


def _block(table: pa.Table, source: RunSource, facts_at: Any) -> tuple[Block, Ints]:
    """Return the block, and the numbers of all rows (headers, ends included)."""
    names, kind_at = _coded(table, "kind")
    if (kind_at == ABSENT).any():  # as an index it would be the last kind, which may be `settled`
        raise LedgerError(f"ledger file {source.where}: a row has no kind; convert the file again")
    numbers = _ints(table["seq"])
    wall = table["wall"].fill_null(0.0).to_numpy()
    marks = [names.index(name) if name in names else -2 for name in ("header", "end")]
    header = ending = None
    for which, at in ((code, int(at)) for code in (0, 1) for at in np.flatnonzero(kind_at == marks[code])):
        mark = {"seq": int(numbers[at]), **facts_at(at)}
        if which == 0:
            header = mark
            if int(mark.get("v", 1)) > FORMAT_VERSION:
                raise LedgerError(
                    f"ledger file {source.where}: it has format version {mark['v']}, this inbound reads up to "
                    f"{FORMAT_VERSION}; read it with the release that wrote it ({mark.get('writer')}) or a newer one"
                )
        else:
            ending = mark
    entry = ~np.isin(kind_at, marks)
    codes = np.array([_CODES.get(name, OTHER) for name in names], np.int8)[kind_at]
    place, places = _places(table)
    rows = np.flatnonzero(entry)
    events = {at: (names[kind_at[row]], facts_at(row)) for at, row in enumerate(rows.tolist()) if codes[row] == EVENT}
    epoch, first, end, records, commit, mzxid = (
        _ints(table[name])[rows] for name in ("epoch", "first", "next", "records", "commit", "mzxid")
    )
    block = Block(
        source, numbers[rows], codes[rows], place[rows], epoch, first, end, records, commit, _outcomes(table)[rows], mzxid,
        wall[rows], places, events, header=header, ending=ending,
    )  # fmt: skip
    return block, numbers


def _ints(column: pa.ChunkedArray) -> Ints:
    return column.cast(pa.int64()).fill_null(ABSENT).to_numpy()  # type: ignore[no-any-return]


def _coded(table: pa.Table, name: str) -> tuple[list[str], NDArray[np.int32]]:
    """Return a column's texts, and each row's index in them, or ABSENT."""
    if not table.num_rows:
        return [], np.empty(0, np.int32)
    found = table[name].combine_chunks().dictionary_encode()
    return found.dictionary.to_pylist(), found.indices.fill_null(ABSENT).to_numpy()


def _places(table: pa.Table) -> tuple[Ints, list[tuple[str, int]]]:
    names, topic_at = _coded(table, "topic")
    topic = topic_at.astype(np.int64)
    partition = _ints(table["partition"])
    absent = (topic < 0) | (partition < 0)
    code = np.where(absent, ABSENT, (topic << 32) | np.maximum(partition, 0))
    found, place = np.unique(code, return_inverse=True)
    place = place.astype(np.int64)
    if len(found) and found[0] == ABSENT:
        place, found = place - 1, found[1:]
    return place, [(names[int(value) >> 32], int(value) & 0xFFFFFFFF) for value in found]


def _outcomes(table: pa.Table) -> NDArray[np.int8]:
    names, at = _coded(table, "outcome")
    codes = [OUTCOMES.index(name) if name in OUTCOMES else UNKNOWN for name in names]
    return np.array([*codes, NO_OUTCOME], np.int8)[at]


def together(blocks: Sequence[Block]) -> Block:
    """Put blocks of one run that have entries in common into one."""
    places: dict[tuple[str, int], int] = {}
    moved = []
    events: dict[int, tuple[str, Mapping[str, Any]]] = {}
    at = 0
    for block in blocks:
        codes = np.array([places.setdefault(place, len(places)) for place in block.places] + [ABSENT], np.int64)
        moved.append(codes[block.place])
        events |= {at + row: event for row, event in block.events.items()}
        at += len(block)
    columns = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in _COLUMNS if name != "place"}
    return Block(
        blocks[0].source, place=np.concatenate(moved), places=list(places), events=events,
        damage=[damage for block in blocks for damage in block.damage], header=blocks[0].header, ending=blocks[-1].ending,
        torn=blocks[-1].torn, **columns,
    )  # fmt: skip
