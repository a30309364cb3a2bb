"""Inputs of strangers that grow: what takes more than twice as long when it is twice as long can stop a process.

Each was an attack once, or is the kind of one: `grow(n)` returns text of some n bytes, `parse` is given it as it would be.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import lz4.frame

from inbound.config.secrets import KnownSecrets
from inbound.errors import InboundError
from inbound.kafka.auth.refusals import refusal
from inbound.kafka.python.decompression import TooLargeError, gunzip, unlz4
from inbound.observe.jmx.model import JmxError
from inbound.observe.jmx.names import ObjectName
from inbound.observe.jmx.requests import of_path
from inbound.observe.profiling.pages import Parameters
from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_bridge import http_to_records
from inbound.processors.cloudevents_kafka import decode_record

EVENT = [(b"ce-specversion", b"1.0"), (b"ce-id", b"1"), (b"ce-source", b"s"), (b"ce-type", b"t")]
STRUCTURED = b'{"specversion":"1.0","id":"1","source":"s","type":"t"'
BEAN = ObjectName.parse("inbound:type=Partition,topic=" + "a" * 249)


@dataclass(frozen=True)
class Growing:
    """One kind of input; `most` is the largest that can come, in bytes, and at `shown` it is seen how its cost grows."""

    name: str
    grow: Callable[[int], Any]
    parse: Callable[[Any], object]
    most: int
    shown: int = 64 * 1024


def header(value: Callable[[int], bytes], name: bytes = b"ce-x") -> Callable[[int], Any]:
    return lambda n: ([*EVENT, (name, value(n))], b"x")


def body(value: Callable[[int], bytes], declared: bytes = b"application/cloudevents+json") -> Callable[[int], Any]:
    return lambda n: ([(b"content-type", declared)], value(n))


def posted(message: Any) -> object:
    """As the ingress takes it."""
    return http_to_records(*message)


def read(value: bytes) -> object:
    """As a record with this content type is read, refused, and told of in the log."""
    record = PlainRecord(0, value=b"x", headers=[("content-type", value)])
    try:
        return decode_record(record)
    except ValueError as error:
        return KnownSecrets().hide(str(error))


def structured(value: bytes) -> object:
    """As a record that is a whole event is read."""
    return decode_record(PlainRecord(0, value=value, headers=[("content-type", b"application/cloudevents+json")]))


def named(query: str) -> object:
    """As profiles look for a thread."""
    return Parameters(query, ["thread"]).pattern("thread").fullmatch("a" * 150)


def many(piece: str) -> Callable[[int], bytes]:
    """Return what makes some n bytes of `piece`; `%d` in it is a number."""
    if "%d" not in piece:
        return lambda n: piece.encode() * (n // len(piece))
    return lambda n: b"".join(piece.encode() % number for number in range(n // (len(piece) + 3)))


def batch(piece: str) -> Callable[[int], bytes]:
    return lambda n: b"[" + many(piece + ",")(n) + piece.encode().replace(b"%d", b"0") + b"]"


BATCH = b"application/cloudevents-batch+json"
TLS = {"security.protocol": "SSL"}
EVENTS = '{"specversion":"1.0","id":"1","source":"s","type":"t"}'
KIB, MIB = 1024, 1024 * 1024
GZIP_EMPTY = gzip.compress(b"", mtime=0)
LZ4_EMPTY = lz4.frame.compress(b"", store_size=False)


def text(charset: str, piece: bytes) -> Callable[[int], Any]:
    declared = f"text/plain; charset={charset}".encode()
    return lambda n: ([*EVENT, (b"content-type", declared)], piece * (n // len(piece)))


def nested(opening: bytes, closing: bytes) -> Callable[[int], Any]:
    def grow(n: int) -> bytes:
        depth = n // len(opening + closing)
        return STRUCTURED + b',"data":' + opening * depth + b"1" + closing * depth + b"}"

    return body(grow)


GROWING = (
    Growing("JMX pattern of stars", lambda n: f"*:topic={'*' * n}b,*", lambda text: ObjectName.parse(text).matches(BEAN), 4000),
    Growing(
        "JMX pattern of stars and letters", lambda n: f"*:topic={'*a' * (n // 2)}b,*",
        lambda text: ObjectName.parse(text).matches(BEAN), 4000,
    ),
    Growing("JMX value in quotes", lambda n: 'a:b="' + '\\"' * (n // 2), ObjectName.parse, 4000),
    Growing("JMX keys", lambda n: "a:" + ",".join(f"k{i}=v" for i in range(n // 6)), ObjectName.parse, 4000),
    Growing("Jolokia path of marks", lambda n: "read/" + "!" * n, lambda path: of_path(path, {}), MIB),
    Growing("Jolokia path of slashes", lambda n: "read/" + "a/" * (n // 2), lambda path: of_path(path, {}), MIB),
    Growing("log line of question marks", lambda n: "application/cloudevents" + "?" * n, KnownSecrets().hide, MIB),
    Growing("log line of parameters", lambda n: "http://a/?" + "token=a&" * (n // 8), KnownSecrets().hide, MIB),
    Growing("log line of schemes", lambda n: "://" * (n // 3), KnownSecrets().hide, MIB),
    Growing("log line of bearers", lambda n: "bearer " * (n // 7), KnownSecrets().hide, MIB),
    Growing("content type of a record", lambda n: b"application/cloudevents" + b"?" * n, read, MIB),
    Growing("content type of parameters", lambda n: b"text/plain" + b"; charset" * (n // 9), read, MIB),
    Growing("header that ends in a quote", header(lambda n: b'"' + b'\\"' * (n // 2)), posted, 64 * KIB),
    Growing("header of quotes", header(many('"a\\b"')), posted, 64 * KIB),
    Growing("header of percents", header(many("%41")), posted, 64 * KIB),
    Growing("header of bad percents", header(many("%")), posted, 64 * KIB),
    Growing("time of digits", header(lambda n: b"2020-01-01T00:00:00." + b"1" * n, b"ce-time"), posted, 64 * KIB),
    Growing("headers", lambda n: ([*EVENT, *((b"ce-x%d" % i, b"1") for i in range(n // 12))], b"x"), posted, 64 * KIB),
    Growing("batch of other first names", body(batch('{"x%d":"y",' + EVENTS[1:]), BATCH), posted, 8 * MIB),
    Growing("batch of one first name", body(batch(EVENTS), BATCH), posted, 8 * MIB),
    Growing("batch of escaped first names", body(batch('{"\\u0061":"y",' + EVENTS[1:]), BATCH), posted, 8 * MIB),
    Growing("batch of ends in data", body(batch('{"data":"},{\\"id","id":"1",' + EVENTS[1:]), BATCH), posted, 8 * MIB),
    Growing("text in punycode", text("punycode", b"a"), posted, 8 * MIB),
    Growing("text in ISO-2022-JP", text("iso-2022-jp", b"\x1b$B!!"), posted, 8 * MIB),
    Growing("JSON of digits", body(lambda n: STRUCTURED + b',"data":' + b"1" * n + b"}"), posted, 8 * MIB),
    Growing("JSON of an exponent", body(lambda n: STRUCTURED + b',"data":1e' + b"1" * n + b"}"), posted, 8 * MIB),
    Growing("JSON of lists", nested(b"[", b"]"), posted, 8 * MIB),
    Growing("JSON of objects", nested(b'{"a":', b"}"), posted, 8 * MIB),
    Growing("JSON of lists of nothing", body(lambda n: STRUCTURED + b',"data":[' + b"[]," * (n // 3) + b"1]}"), posted, 8 * MIB),
    Growing(
        "JSON of lists of nothing in a record", lambda n: STRUCTURED + b',"data":[' + b"[]," * (n // 3) + b"1]}", structured,
        16 * MIB,
    ),
    Growing(
        "JSON of names", body(lambda n: STRUCTURED + b',"data":{' + many('"%d":1,')(n) + b'"z":1}}'), posted, 8 * MIB,
    ),
    Growing(
        "JSON of a text of commas", body(lambda n: STRUCTURED + b',"data":"' + b',\\"' * (n // 3) + b'"}'), posted, 8 * MIB,
    ),
    Growing("JSON of one name", body(lambda n: STRUCTURED + b',"data":1' * (n // 9) + b"}"), posted, 8 * MIB),
    Growing("JSON of escapes", body(lambda n: STRUCTURED + b',"data":"' + b"\\u0041" * (n // 6) + b'"}'), posted, 8 * MIB),
    Growing("thread of brackets", lambda n: "thread=" + "[" * n, named, 16 * KIB),
    Growing("thread of stars", lambda n: "thread=" + "*a" * (n // 2), named, 16 * KIB),
    Growing("broker's words", lambda n: "Handshake failed: " * (n // 18), lambda said: refusal(said, "b:1", TLS), 32 * KIB),
    Growing("gzip of empty texts", lambda n: GZIP_EMPTY * (n // 20), lambda data: gunzip(data, 64 * MIB), 4 * MIB, MIB),
    Growing("LZ4 of empty texts", lambda n: LZ4_EMPTY * (n // 11), lambda data: unlz4(data, 64 * MIB), 4 * MIB, MIB),
    Growing("gzip of zeros", lambda n: gzip.compress(b"\0" * (n * 50)), lambda data: gunzip(data, 64 * MIB), 2 * MIB),
)  # fmt: skip


def take(one: Growing, given: Any) -> None:
    """Have it parsed, or refused."""
    with suppress(InboundError, JmxError, ValueError, TooLargeError):
        one.parse(given)


def cost(one: Growing, size: int) -> float:
    """Return the processor seconds of the cheapest of three, for what others do must not count."""
    found = []
    for _ in range(3):
        given = one.grow(size)
        began = time.process_time()
        take(one, given)
        found.append(time.process_time() - began)
        if found[-1] > 1.0:
            break
    return min(found)
