"""Kafka's records as rows of the archive, on executors. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_kafka import decode_record, read_headers
from inbound.processors.cloudevents_values import (
    Refused,
    check_attributes,
    read_base64,
    read_data,
    read_json,
    write_attribute,
    write_data,
)
from inbound.spark.archive.layout import EVENTS, LATE, LONGEST_TYPE, UNDECODABLE, day_of, folder, type_name

Rows = Iterator[pa.RecordBatch]

_TIME: Final = pa.timestamp("us", tz="UTC")
_WHERE_FROM: Final = (
    ("kafka_topic", pa.string()),
    ("kafka_partition", pa.int32()),
    ("kafka_offset", pa.int64()),
    ("kafka_timestamp", _TIME),
    ("key", pa.binary()),
)
#: `type` and `date` are in the folders' names.
EVENT: Final = pa.schema(
    [
        ("folder", pa.string()),
        ("specversion", pa.string()),
        ("id", pa.string()),
        ("source", pa.string()),
        ("subject", pa.string()),
        ("time", _TIME),
        ("datacontenttype", pa.string()),
        ("dataschema", pa.string()),
        ("extensions", pa.map_(pa.string(), pa.string())),
        ("data", pa.binary()),
        *_WHERE_FROM,
    ]
)
SET_APART: Final = pa.schema(
    [
        ("folder", pa.string()),
        ("reason", pa.string()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        *_WHERE_FROM,
    ]
)
_KAFKA: Final = "kafka_topic string, kafka_partition int, kafka_offset bigint, kafka_timestamp timestamp, key binary"
EVENT_DDL: Final = (
    "folder string, specversion string, id string, source string, subject string, time timestamp, datacontenttype string, "
    f"dataschema string, extensions map<string,string>, data binary, {_KAFKA}"
)
SET_APART_DDL: Final = (
    f"folder string, reason string, value binary, headers array<struct<key:string,value:binary>>, {_KAFKA}"
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
#: Moments of the years 1 to 9999, in microseconds.
_FIRST: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_END: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND + 1
_NO_TIMESTAMP: Final = -1000  # Spark's value of a missing timestamp: Kafka's -1 ms
_COLUMNS: Final = ("specversion", "id", "source", "subject", "dataschema")
_NO_EXTENSION: Final = frozenset((*_COLUMNS, "type", "time", "datacontenttype"))
_BYTES: Final = 32 * 2**20  # of a batch of rows


def archived(late: float | None) -> Callable[[Rows], Rows]:
    """Return the function that turns Spark's records into rows of `EVENT`.

    An event is late if its time is more than `late` seconds before its record's timestamp; None: none ever is. A record
    that is no event becomes a row, too: its value is `data`, its headers and the reason are JSON in `subject`, from which
    `set_apart` makes its own columns. So one pass over the log is enough.
    """
    latest = None if late is None else round(late * 1e6)

    def run(batches: Rows) -> Rows:
        for batch in batches:
            yield from _in_parts(_rows(batch, latest), EVENT)

    return run


def set_apart(batches: Rows) -> Rows:
    """Turn rows of records that are no events into rows of `SET_APART`."""
    for batch in batches:
        rows = batch.to_pydict()
        said = [json.loads(text) for text in rows["subject"]]
        rows["value"] = rows["data"]
        rows["reason"] = [one["reason"] for one in said]
        rows["headers"] = [
            [{"key": name, "value": None if raw is None else base64.b64decode(raw)} for name, raw in one["headers"]]
            for one in said
        ]
        yield pa.RecordBatch.from_pydict({name: rows[name] for name in SET_APART.names}, schema=SET_APART)


def _in_parts(rows: Iterator[dict[str, Any]], schema: pa.Schema) -> Rows:
    part: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        part.append(row)
        size += len(row["data"] or b"") + 200
        if size > _BYTES:
            yield pa.RecordBatch.from_pylist(part, schema=schema)
            part, size = [], 0
    if part:
        yield pa.RecordBatch.from_pylist(part, schema=schema)


def _rows(batch: pa.RecordBatch, late: int | None) -> Iterator[dict[str, Any]]:
    stamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
    columns = [batch.column(name).to_pylist() for name in ("topic", "partition", "offset", "key", "value")]
    for topic, partition, offset, key, value, stamp, headers in zip(*columns, stamps, _headers(batch), strict=True):
        moment = None if stamp == _NO_TIMESTAMP else stamp
        row: dict[str, Any] = {
            "kafka_topic": topic,
            "kafka_partition": partition,
            "kafka_offset": offset,
            "kafka_timestamp": moment,
            "key": key,
        }
        try:
            row.update(_event(headers, value, moment, late))
        except ValueError as error:
            raws = [(name, None if raw is None else base64.b64encode(raw).decode()) for name, raw in headers]
            row["folder"] = folder(UNDECODABLE, day_of(moment))
            row["data"] = value
            row["subject"] = json.dumps({"reason": str(error), "headers": raws})
        yield row


def _headers(batch: pa.RecordBatch) -> Iterator[Sequence[tuple[str, bytes | None]]]:
    column = batch.column("headers")
    names, values = (part.to_pylist() for part in column.values.flatten())
    pairs = list(zip(names, values, strict=True))
    for first, end in pairwise(column.offsets.to_pylist()):
        yield pairs[first:end]


def _event(
    headers: Sequence[tuple[str, bytes | None]], value: bytes | None, stamp: int | None, late: int | None
) -> dict[str, Any]:
    attributes, kind = read_headers(headers)
    if attributes is None:  # structured: the value is the whole event
        attributes, data, declared = _read_whole(headers, value)
    else:
        check_attributes(attributes)
        read_data(value, kind)  # refuses what is not as its content type says
        data, declared = value, attributes.get("datacontenttype")
    name = type_name(attributes["type"])
    if name is None:
        raise Refused(f"the type is too long for the archive: as a folder's name it has more than {LONGEST_TYPE} bytes")
    time = attributes.get("time")
    moment: int | None = None if time is None else (time - _EPOCH) // _MICROSECOND
    if moment is not None and not _FIRST <= moment < _END:
        raise Refused(
            f"time is {attributes['time']}, which is before the year 1 in UTC, or after 9999: no reader has a date"
        )
    is_late = late is not None and moment is not None and stamp is not None and stamp - moment > late
    return {
        "folder": folder(LATE if is_late else EVENTS, day_of(stamp if moment is None else moment), name),
        **{column: attributes.get(column) for column in _COLUMNS},
        "time": moment,
        "datacontenttype": declared,
        "extensions": [(key, _text(key, attributes[key])) for key in attributes if key not in _NO_EXTENSION],
        "data": data,
    }


def _read_whole(
    headers: Sequence[tuple[str, bytes | None]], value: bytes | None
) -> tuple[dict[str, Any], bytes | None, str | None]:
    event = decode_record(PlainRecord(-1, -1, None, value, headers))
    attributes = event.get_attributes()
    data, declared = write_data(event.get_data(), attributes.get("datacontenttype"))
    if value is not None and b'"data_base64"' in value and (encoded := read_json(value).get("data_base64")) is not None:
        data = read_base64(encoded)  # as it was sent, not as it is written after parsing
    return attributes, data, declared


def _text(name: str, value: Any) -> str:
    written = write_attribute(name, value)
    return str(written).lower() if isinstance(written, bool) else str(written)
