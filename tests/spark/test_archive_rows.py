"""Records of Kafka as rows of the archive."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from inbound.spark.archive.layout import LONGEST_TYPE
from inbound.spark.archive.rows import EVENT, SET_APART, archived, set_apart

NOW = 1_700_000_000_000_000
DAY = 86_400_000_000
#: What Spark's Kafka source gives, with headers.
SOURCE = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
Headers = list[tuple[str, bytes | None]]


def records(*found: tuple[bytes | None, Headers | None], stamp: int = NOW) -> pa.RecordBatch:
    """Return a batch of records, as Spark delivers it."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": b"k",
                "value": value,
                "topic": "orders",
                "partition": 3,
                "offset": 70 + number,
                "timestamp": stamp,
                "headers": None if headers is None else [{"key": name, "value": raw} for name, raw in headers],
            }
            for number, (value, headers) in enumerate(found)
        ],
        schema=SOURCE,
    )


def rows_of(batch: pa.RecordBatch, late: float | None = 86400.0) -> list[dict[str, Any]]:
    """Return the rows of the archive."""
    made = list(archived(late)(iter([batch])))
    assert {one.schema for one in made} <= {EVENT}
    return [row for one in made for row in one.to_pylist()]


def headers(at: str | None = None, kind: str = "a.b", **more: str) -> Headers:
    """Return the headers of an event in binary mode."""
    attributes = {"specversion": "1.0", "id": "1", "source": "/s", "type": kind, **more}
    if at is not None:
        attributes["time"] = at
    return [(f"ce_{name}", text.encode()) for name, text in attributes.items()]


def at(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat()


def test_an_event_of_binary_mode() -> None:
    """Attributes have columns, extensions a map; the data is the record's value, byte by byte."""
    more = {"subject": "x", "dataschema": "urn:s", "traceid": "42"}
    (row,) = rows_of(records((b'{"a" : 1}', [*headers(at(NOW), **more), ("content-type", b"application/json")])))

    assert row == {
        "folder": "events/date=2023-11-14/type=a.b",
        "specversion": "1.0",
        "id": "1",
        "source": "/s",
        "subject": "x",
        "dataschema": "urn:s",
        "time": datetime.fromtimestamp(NOW / 1e6, UTC),
        "datacontenttype": "application/json",
        "extensions": [("traceid", "42")],
        "data": b'{"a" : 1}',
        "kafka_topic": "orders",
        "kafka_partition": 3,
        "kafka_offset": 70,
        "key": b"k",
        "kafka_timestamp": datetime.fromtimestamp(NOW / 1e6, UTC),
    }


@pytest.mark.parametrize(
    ("members", "data", "declared"),
    [
        ({"data": {"a": [1, 2.0]}}, b'{"a":[1,2.0]}', "application/json"),
        ({"data_base64": "AAH/", "datacontenttype": "image/png"}, b"\x00\x01\xff", "image/png"),
        ({"data_base64": "eyAiYSI6MX0=", "datacontenttype": "application/json"}, b'{ "a":1}', "application/json"),
        ({"data": "Grüße", "datacontenttype": "text/plain"}, "Grüße".encode(), "text/plain"),
        ({}, None, None),
    ],
)
def test_an_event_of_structured_mode(members: dict[str, Any], data: bytes | None, declared: str | None) -> None:
    """The data is what binary mode would carry; base64 is undone, and its content is not rewritten."""
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "a", "count": 3, "urgent": False, **members}
    value = json.dumps(event).encode()

    (row,) = rows_of(records((value, [("content-type", b"application/cloudevents+json")])))

    assert (row["data"], row["datacontenttype"]) == (data, declared)
    assert row["extensions"] == [("count", "3"), ("urgent", "false")]


def test_late_is_what_happened_long_before_its_record() -> None:
    """More than `late` before the record's timestamp, and not a microsecond less; without a time, nothing is late."""
    just, over = at(NOW - DAY), at(NOW - DAY - 1)
    batch = records((b"", headers(just)), (b"", headers(over)), (b"", headers()))

    assert [row["folder"].split("/")[0] for row in rows_of(batch)] == ["events", "late", "events"]
    assert [row["folder"].split("/")[0] for row in rows_of(batch, None)] == ["events"] * 3


def test_what_is_no_event_keeps_all_its_bytes() -> None:
    """Key, value, headers (repeated ones and nulls, too), and why it is no event."""
    strange: Headers = [("a", b"\xff"), ("a", None), ("ce_specversion", b"0.1")]
    batch = records((b"\x00", strange), (None, None), (b"{}", headers(kind="x" * (LONGEST_TYPE + 1))))

    (made,) = [apart for one in archived(None)(iter([batch])) for apart in set_apart(iter([one]))]

    assert made.schema == SET_APART
    rows = made.to_pylist()
    assert [row["value"] for row in rows] == [b"\x00", None, b"{}"]
    assert [(one["key"], one["value"]) for one in rows[0]["headers"]] == strange
    assert [row["reason"].split(":")[0] for row in rows] == [
        "required attribute id is missing",
        "no CloudEvent",
        "the type is too long for the archive",
    ]
    assert {(row["folder"], row["key"]) for row in rows} == {("undecodable/date=2023-11-14", b"k")}


@pytest.mark.parametrize(
    ("time", "stamp", "day"),
    [
        ("2020-02-29T23:30:00-01:00", NOW, "2020-03-01"),
        ("0001-01-01T00:00:00Z", NOW, "0001-01-01"),
        ("9999-12-31T23:59:59.999999Z", NOW, "9999-12-31"),
        (None, NOW, "2023-11-14"),
        (None, -1000, "1970-01-01"),
    ],
)
def test_the_day_is_that_of_the_event_in_utc(time: str | None, stamp: int, day: str) -> None:
    """Where an event has no time, its record's counts; where that has none either, the first day of all clocks."""
    (row,) = rows_of(records((b"", headers(time)), stamp=stamp), None)

    assert row["folder"] == f"events/date={day}/type=a.b"


def test_a_part_of_a_batch_has_its_own_headers() -> None:
    """A slice of a batch, which shares its buffers with the whole, is read right."""
    batch = records(*((b"", [*headers(), ("ce_n", b"%d" % n)]) for n in range(5))).slice(2, 2)

    assert [row["extensions"] for row in rows_of(batch)] == [[("n", "2")], [("n", "3")]]


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_has_no_date_is_set_apart(time: str) -> None:
    """In UTC it is before the first day that readers know, or after the last."""
    (row,) = rows_of(records((b"", headers(time))))

    assert row["folder"] == "undecodable/date=2023-11-14"
    assert json.loads(row["subject"])["reason"] == (
        f"time is {time.replace('T', ' ')}, which is before the year 1 in UTC, or after 9999: no reader has a date"
    )


def test_large_rows_are_handed_on_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of large records does not become one large batch of rows."""
    monkeypatch.setattr("inbound.spark.archive.rows._BYTES", 3000)
    large = bytes(2000)

    made = list(archived(None)(iter([records(*((large, headers()) for _ in range(4)))])))

    assert [one.num_rows for one in made] == [2, 2]
