"""What is written by the shape of a record, held against the way of all other records: the same request, or the same refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random

import pytest

from inbound.processors.batch import PlainRecord, Record
from inbound.processors.cloudevents_bridge import HttpParts, Refused, record_to_binary, record_to_json
from inbound.processors.cloudevents_kafka import attribute_of
from inbound.processors.dispatch.counters import DispatchCounters
from inbound.processors.dispatch.encoding import pass_headers
from inbound.processors.dispatch.shapes import MOST_NAMES, MOST_SHAPES, Shapes
from inbound.processors.http_headers import MOST_BYTES, Forwarding

EVENT = ("ce_specversion", "ce_id", "ce_source", "ce_type")
#: What nearly all records have, and what may follow from one more or less of each.
ATTRIBUTES = ("ce_time", "ce_subject", "ce_dataschema", "ce_partitionkey", "ce_x", "ce_a1")
ODD = (
    "CE_ID", "Ce_Type", "ce_", "ce_A", "ce_a-b", "ce_a_b", "ce_data", "ce_datacontenttype", "ce_traceparent", "ce_tracestate",
    "ce_größe", "ce_" + "n" * 61, "ce_" + "n" * 62, "ce-id", "Content-Type", "content_type", "",
)  # fmt: skip
OTHERS = (
    "x-request-id", "X-Shop", "b3", "traceparent", "TraceState", "tracestate", "authorization", "Proxy-Authorization", "host",
    "content-length", "x a", "x:a", "x-a\r\nx-b", "größe", "x_y", "user-agent", "retry-after",
)  # fmt: skip
VALUES: tuple[bytes | None, ...] = (
    b"1", b"a b", b" a", b"a\t", b"", None, b'"', b"%41", b"a,b", b"\x00", b"a\r\nb: c", b"\x7f", "größe".encode(), b"\xff",
    b"\xc2\x80", "\N{LINE SEPARATOR}".encode(), b"~!", b"v" * 300, b"v" * (MOST_BYTES // 2), b"v" * MOST_BYTES,
    *(b"v" * (MOST_BYTES - short) for short in (11, 12, 13, 23, 24, 25)),
)  # fmt: skip
OF_ITS_OWN: dict[str, tuple[bytes | None, ...]] = {
    "ce_specversion": (b"1.0", b"1.0", b"1.0", b"1.0", b"0.3", b"1.0 ", b""),
    "ce_time": (b"2026-02-28T23:59:59Z", b"2026-02-30T00:00:00Z", b"2024-02-29t00:00:00.123456789+01:00", b"now", b"", None,
                b"2026-06-30T23:59:60Z", b"0000-01-01T00:00:00Z"),
    "content-type": (
        b"application/json", b"application/json", b"text/plain", b"text/plain; charset=utf-16", b"application/octet-stream",
        b"application/cloudevents+json", b"application/cloudevents-batch+json", b"application/cloudevents+avro", b"a/b+JSON;c=d",
        b" application/json", b"text/pl\x00ain", "text/größe".encode(), b"\xff", b"", None, b"x", b"text/plain; charset=none",
        b"a/" + b"b" * 4094, b"a/" + b"b" * 4095,
    ),
}  # fmt: skip
BODIES: tuple[bytes | None, ...] = (
    b'{"a":1}', b"{}", b"null", b"", None, b'{"a":', b"\xff", b"NaN", b"[1,2", b'"\\ud800"', b"a\x00b", b"h\x00i\x00",
    b'{"specversion":"1.0","id":"7","source":"/tests","type":"order"}',
)  # fmt: skip


class Ways:
    """The short way and the long one, each with its own count of what was left out."""

    def __init__(self, *patterns: str, without: Sequence[str] = ()) -> None:
        self.long_ways = 0
        self.counters = DispatchCounters(), DispatchCounters()
        forwarding = Forwarding(patterns, without)
        self._other, long = (
            partial(record_to_binary, beside=partial(pass_headers, forwarding.passes, counters) if patterns else None)
            for counters in self.counters
        )
        self._long = long
        self._shapes = Shapes(forwarding.passes, self._counted)

    def _counted(self, record: Record) -> HttpParts:
        self.long_ways += 1
        return self._other(record)

    def both(self, record: Record) -> tuple[object, object]:
        """What each way makes of a record: the request, or why there is none; and what was left out so far."""
        assert self._made(self._shapes.json, record) == self._made(record_to_json, record), record
        made = [self._made(way, record) for way in (self._shapes.binary, self._long)]
        short, long = zip(made, (counters.headers_left_out for counters in self.counters), strict=True)
        return short, long

    @staticmethod
    def _made(way: Callable[[Record], HttpParts | bytes], record: Record) -> HttpParts | bytes | str:
        try:
            return way(record)
        except Refused as refused:
            return str(refused)


@pytest.fixture(autouse=True)
def no_names_known() -> None:
    """Only so many names of headers are remembered, by all tests of a process: those drawn here are to be among them."""
    attribute_of.clear()


def names_of(random: Random) -> list[str]:
    """Mostly an event's, in any order; some of them twice, or not there."""
    names = [*EVENT, *random.sample(ATTRIBUTES, random.randrange(3))]
    if random.random() < 0.7:
        names.append("content-type")
    names += random.choices(OTHERS, k=random.choice((0, 0, 1, 2, 5)))
    if random.random() < 0.3:
        names += random.choices(ODD, k=random.choice((1, 1, 2)))
    if random.random() < 0.1:
        names.append("x" * random.randrange(1, 301))
    if random.random() < 0.05:
        names += [f"x-{n}" for n in range(random.choice((50, MOST_NAMES - len(names), MOST_NAMES, 300)))]
    if random.random() < 0.1:
        names.remove(random.choice(names))
    if random.random() < 0.5:
        random.shuffle(names)
    return names


def records_of(names: Sequence[str], random: Random) -> Iterator[Record]:
    """Some with such values as nearly all have, and others in which one or two values are any."""
    usual = {"ce_specversion": b"1.0", "ce_time": b"2026-01-01T00:00:00Z", "content-type": b"application/json"}
    for _ in range(6):
        values: list[bytes | None] = [usual.get(name, b"/v~1") for name in names]
        for place in random.choices(range(len(names)), k=random.choice((0, 0, 1, 2))):
            values[place] = random.choice(OF_ITS_OWN.get(names[place].lower(), VALUES))
        body = random.choice(BODIES) if random.random() < 0.5 else b'{"a":1}'
        yield PlainRecord(0, value=body, headers=list(zip(names, values, strict=True)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("patterns", "without"), [(("*",), ("user-agent", "x-shop")), (("x-*", "authorization"), ()), ((), ())],
    ids=["all", "some", "none"],
)  # fmt: skip
def test_both_ways_write_the_same(patterns: Sequence[str], without: Sequence[str], seed: int) -> None:
    """For any names and values of headers: request, refusal, and the count of what was left out."""
    random, ways, records = Random(seed), Ways(*patterns, without=without), 0
    for _ in range(150):
        for record in records_of(names_of(random), random):
            short, long = ways.both(record)
            assert short == long, record
            records += 1
    assert 0.2 < ways.long_ways / records < 0.8  # each of the two was tried


def test_each_usual_value_is_written_the_same_in_each_place() -> None:
    """One shape, in which one value at a time is any."""
    names, ways = (*EVENT, "ce_time", "ce_subject", "content-type", "x-request-id", "traceparent"), Ways("*")
    usual: list[bytes | None] = [
        b"1.0",
        b"7",
        b"/a",
        b"t",
        b"2026-01-01T00:00:00Z",
        b"s",
        b"application/json",
        b"r",
        b"t",
    ]
    for place, name in enumerate(names):
        for value in (*VALUES, *OF_ITS_OWN.get(name, ())):
            for body in BODIES[:6]:
                headers = [*zip(names, [*usual[:place], value, *usual[place + 1 :]], strict=True)]
                short, long = ways.both(PlainRecord(0, value=body, headers=headers))
                assert short == long, (headers, body)


def test_more_shapes_than_are_known_are_written_the_same() -> None:
    """Each name is new; later the first ones come once more."""
    ways = Ways("*")
    for number in [*range(MOST_SHAPES + 5), *range(5)] * 2:
        headers = [*((name, b"1.0") for name in EVENT), (f"x-{number}", b"v")]
        short, long = ways.both(PlainRecord(0, value=b"", headers=headers))
        assert short == long
