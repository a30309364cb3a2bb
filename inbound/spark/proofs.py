"""A proof's files for people and programs, and the next proof's start."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from inbound.errors import ConfigError, InboundError
from inbound.ledger.disk import replace_file
from inbound.ledger.format import path_part
from inbound.ledger.places import FilePath, RemotePath, open_file, put_file
from inbound.proof.export import ProofFormatError, from_json, to_json
from inbound.proof.model import PartitionKey, Proof, Verdict
from inbound.proof.rows import FINDING_COLUMNS, PARTITION_COLUMNS, ColumnType, finding_rows, partition_rows
from inbound.report.proof_page import proof_page

_JSON, _PAGE, _FINDINGS, _PARTITIONS = "proof.json", "proof.html", "findings.parquet", "partitions.parquet"
_TYPES: Mapping[ColumnType, Any] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "list<int64>": pa.list_(pa.int64()),
    "list<string>": pa.list_(pa.string()),
}
#: Of the file with the proven offsets.
_FORMAT, _VERSION = "inbound-proven", 1


class ProvenError(InboundError):
    """The file with the proven offsets cannot be used."""


# -- a proof's files -----------------------------------------------------------------------------------------------------


def check_folder(folder: Path) -> None:
    """Raise ConfigError if the folder has anything but a proof."""
    try:
        names = {path.name for path in folder.iterdir()} if folder.exists() else set()
        if not names:
            return
        from_json((folder / _JSON).read_bytes(), str(folder / _JSON))
    except (OSError, ProofFormatError) as error:
        raise ConfigError(
            f"--output {folder}: is no folder of a proof, so nothing is written there ({error}); name a new or empty folder"
        ) from None


def write_proof(folder: Path, proof: Proof) -> None:
    """Write proof.json, proof.html, findings.parquet and partitions.parquet, each whole or not at all.

    Raises:
        ConfigError: the folder holds something else, or can't be written.
    """
    check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, columns, rows in (
            (_FINDINGS, FINDING_COLUMNS, finding_rows(proof)),
            (_PARTITIONS, PARTITION_COLUMNS, partition_rows(proof)),
        ):
            schema = pa.schema([(column, _TYPES[type_]) for column, type_ in columns.items()])
            sink = pa.BufferOutputStream()
            parquet.write_table(pa.Table.from_pylist(rows, schema=schema), sink, compression="zstd")
            replace_file(folder / name, sink.getvalue().to_pybytes())
        replace_file(folder / _PAGE, proof_page(proof).encode())
        replace_file(folder / _JSON, to_json(proof).encode())
    except OSError as error:
        raise ConfigError(f"--output {folder}: cannot be written: {error.strerror or error}") from None


# -- where the next proof begins -----------------------------------------------------------------------------------------


class Proven(NamedTuple):
    """The end of a partition's proven offsets."""

    offset: int
    topic_id: str | None
    made: float  # seconds since 1970


def place_of_proven(ledger: FilePath, group: str) -> FilePath:
    """Return the file beside a ledger with a group's proven offsets."""
    return ledger / "proofs" / f"{path_part(group)}.json"


def read_proven(path: FilePath, group: str) -> dict[PartitionKey, Proven]:
    """Return a group's proven offsets; none if there is no file yet.

    Raises:
        ProvenError: the file is another one, is damaged, newer than this release, or of another group.
    """
    try:
        with open_file(path) as data:
            members = json.loads(data.read())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ProvenError(f"{path}: cannot be read ({error})") from None
    if not isinstance(members, dict) or members.get("format") != _FORMAT:
        raise ProvenError(f"{path}: is not a file of proven offsets")
    if not isinstance(members.get("v"), int) or members["v"] > _VERSION:
        raise ProvenError(f"{path}: has format version {members.get('v')}, this inbound reads up to {_VERSION}")
    if members.get("group") != group:
        raise ProvenError(f"{path}: is of group {members.get('group')}, not of {group}")
    try:
        return {
            PartitionKey(group, str(one["topic"]), int(one["partition"])): Proven(
                int(one["proven"]), one["topic_id"], float(one["made"])
            )
            for one in members["partitions"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ProvenError(f"{path}: is damaged, {error!r} is wrong in it") from None


def moved_on(
    before: Mapping[PartitionKey, Proven], proof: Proof, topic_ids: Mapping[str, str | None]
) -> dict[PartitionKey, Proven]:
    """Return the proven offsets after a proof.

    Only an exact proof moves them, and only of proven partitions.
    """
    after = dict(before)
    for one in proof.partitions:
        if proof.mode == "exact" and one.verdict is Verdict.PROVEN and one.proven is not None:
            after[one.key] = Proven(one.proven, topic_ids.get(one.key.topic), proof.made)
    return after


def write_proven(path: FilePath, group: str, proven: Mapping[PartitionKey, Proven]) -> None:
    """Write a group's proven offsets atomically, or raise OSError."""
    partitions = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "proven": one.offset,
            "topic_id": one.topic_id,
            "made": one.made,
        }
        for key, one in sorted(proven.items())
        if key.group == group
    ]
    members = {"format": _FORMAT, "v": _VERSION, "group": group, "partitions": partitions}
    data = (json.dumps(members, indent=1) + "\n").encode()
    if isinstance(path, RemotePath):
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / path.name
            copy.write_bytes(data)
            put_file(copy, path)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data)


def dates(proven: Mapping[PartitionKey, Proven]) -> str:
    """Return the time of the proofs: one, or the first and last."""
    days = sorted({f"{datetime.fromtimestamp(one.made, UTC):%Y-%m-%d %H:%M} UTC" for one in proven.values()})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
