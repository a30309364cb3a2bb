"""A search for inputs that cost more than their size: pieces of each parser's language, repeated, between pieces of it.

What backtracks, copies what it has each time, or looks at everything again for each part of it shows when a short piece is
repeated often enough; which piece, nobody knows beforehand. `slower` says by how much twice the size costs more.
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import yaml

from inbound.config.document import parse_all
from inbound.config.known_secrets import KnownSecrets
from inbound.coordinators.nodes import decode_epoch, decode_member, decode_offset, decode_topic
from inbound.errors import InboundError
from inbound.jmx.model import JmxError
from inbound.jmx.names import ObjectName
from inbound.jmx.requests import of_json, of_path
from inbound.offsets.csv_file import read_csv
from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_bridge import http_to_records
from inbound.processors.cloudevents_kafka import decode_record
from tests.ingress_stage import Stage

#: Twice the size may take so many times as long; what takes less than `FLOOR` seconds says nothing.
RATIO, FLOOR = 3.0, 0.03
_EVENT = [(b"ce-specversion", b"1.0"), (b"ce-id", b"1"), (b"ce-source", b"s"), (b"ce-type", b"t")]
_BEAN = ObjectName.parse("inbound:type=Partition,topic=" + "a" * 200)
_JSON = (
    "{",
    "}",
    "[",
    "]",
    '"',
    ",",
    ":",
    '"a":',
    '"a":1,',
    '{"a":1},',
    "\\",
    "\\u0041",
    "\\ud800",
    "1",
    "0.1",
    "1e9",
    "-",
    " ",
    "\n",
    "null",
    '},{"id',
    '{"x%d":1},',
    '"x%d":1,',
    "\x00",
    "é",
    '"data":',
    '"specversion":"1.0",',
)
_HTTP = (
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST / HTTP/1.1\r\n",
    "\r\n",
    "\r",
    "\n",
    "X: a\r\n",
    "X%d: a\r\n",
    "Content-Length: 1\r\n",
    " ",
    "Transfer-Encoding: chunked\r\n",
    "1\r\nx\r\n",
    "1;a=b\r\nx\r\n",
    "0\r\n\r\n",
    "a",
    ":",
    ",",
    '"',
    ";",
    "Host: a\r\n",
    "\t",
)
_HEADER = (
    '"',
    "\\",
    '\\"',
    "%",
    "%41",
    "%zz",
    "a",
    " ",
    "?",
    "&",
    "=",
    "a=b&",
    ";",
    "charset=",
    "; charset=utf-8",
    "://",
    "@",
    "Bearer ",
    "bearer aaaaaaaa",
    "token=",
    "application/cloudevents",
    "+json",
    "/",
    "text/",
    "é",
    "2020-01-01T00:00:00.",
    "1",
    "Z",
)
_JMX = (
    "*",
    "?",
    '"',
    "\\",
    "\\*",
    ",",
    "=",
    ":",
    "a",
    "type=",
    "k%d=v,",
    "*a",
    "!",
    "!/",
    "!!",
    "/",
    "read/",
    "\n",
    " ",
    "%2a",
)
_YAML = (
    "- ",
    "a: ",
    "a%d: 1\n",
    "[",
    "]",
    "{",
    "}",
    ",",
    '"',
    "'",
    "\n",
    "  ",
    "&a ",
    "*a",
    "!!str ",
    "|",
    ">",
    "#",
    "---\n",
    "<<: ",
    "? ",
    ": ",
    "\\x41",
    "1",
    "é",
    "%YAML",
    "\t",
)


@dataclass(frozen=True)
class Parser:
    """What takes a stranger's text, the pieces of its language, and the largest that can come, in characters."""

    name: str
    pieces: Sequence[str]
    take: Callable[[str], object]
    most: int = 128 * 1024


@dataclass(frozen=True)
class Motif:
    """`piece` again and again, between two ends."""

    before: str
    piece: str
    after: str

    def grown(self, size: int) -> str:
        """Return about `size` characters; `%d` is another number each time."""
        count = max(1, size // len(self.piece))
        middle = (
            "".join(self.piece.replace("%d", str(n)) for n in range(count))
            if "%d" in self.piece
            else self.piece * count
        )
        return f"{self.before}{middle}{self.after}"


def _headers(name: bytes) -> Callable[[str], object]:
    return lambda text: http_to_records([*_EVENT, (name, text.encode("utf-8", "replace"))], b"x")


def _body(declared: bytes, begin: str = "") -> Callable[[str], object]:
    return lambda text: http_to_records([(b"content-type", declared)], (begin + text).encode("utf-8", "replace"))


def _record(text: str) -> object:
    try:
        return decode_record(PlainRecord(0, value=b"x", headers=[("content-type", text.encode("utf-8", "replace"))]))
    except ValueError as error:
        return KnownSecrets().hide(str(error))


def _node(text: str) -> object:
    data = text.encode("utf-8", "replace")
    for decode in (decode_epoch, decode_member, decode_offset, decode_topic):
        with suppress(InboundError):
            decode("/a", data)
    return None


_EVENT_BEGIN = '{"specversion":"1.0","id":"1","source":"s","type":"t",'
PARSERS = (
    Parser("HTTP", _HTTP, lambda text: Stage().post(text.encode("utf-8", "replace"))),
    Parser("ce header", _HEADER, _headers(b"ce-x"), 64 * 1024),
    Parser("time header", _HEADER, _headers(b"ce-time"), 64 * 1024),
    Parser("Content-Type", _HEADER, _headers(b"content-type"), 64 * 1024),
    Parser("event in JSON", _JSON, _body(b"application/cloudevents+json", _EVENT_BEGIN)),
    Parser("batch", _JSON, _body(b"application/cloudevents-batch+json", "[")),
    Parser("record's content type, and the line about it", _HEADER, _record),
    Parser("log line", _HEADER, KnownSecrets().hide),
    Parser("JMX pattern", _JMX, lambda text: ObjectName.parse(text).matches(_BEAN), 4096),
    Parser(
        "JMX pattern of a value", _JMX, lambda text: ObjectName.parse(f"inbound:topic={text},*").matches(_BEAN), 4000
    ),
    Parser("Jolokia path", _JMX, lambda text: of_path(text, {}), 16 * 1024),
    Parser("Jolokia request", _JSON, lambda text: of_json(json.loads(text), {})),
    Parser("YAML", _YAML, lambda text: parse_all(text, "a.yaml"), 32 * 1024),
    Parser(
        "offsets as CSV",
        (",", '"', "\n", "orders,", "1,", "a", " ", "group,topic,partition,offset\n", "orders,%d,1\n"),
        lambda text: read_csv(text, "a.csv", "g"),
    ),
    Parser("znode", (*_JSON, '{"consumer":"a","session":1,', '"former":[', '"a",'), _node),
)


def motif_of(parser: Parser, rng: random.Random) -> Motif:
    """Return some motif."""

    def some(least: int, most: int) -> str:
        return "".join(rng.choice(parser.pieces) for _ in range(rng.randint(least, most)))

    return Motif(some(0, 2), some(1, 3), some(0, 2))


def cost(parser: Parser, text: str, tries: int = 1) -> float:
    """Return the processor seconds that it takes at the least."""
    found = []
    for _ in range(tries):
        gc.collect(0)
        began = time.thread_time()
        with suppress(InboundError, JmxError, ValueError, RecursionError, yaml.YAMLError):
            parser.take(text)
        found.append(time.thread_time() - began)
    return min(found)


def slower(parser: Parser, motif: Motif) -> str | None:
    """Return where twice the size takes more than twice as long, and how long; None: nowhere."""
    size, before = min(2048, parser.most // 2), None
    while size <= parser.most:
        now = cost(parser, motif.grown(size))
        if before is not None and now > FLOOR and now > RATIO * max(before, FLOOR / RATIO):
            now, before = cost(parser, motif.grown(size), 5), cost(parser, motif.grown(size // 2), 5)
            if now > FLOOR and now > RATIO * max(before, FLOOR / RATIO):
                return f"{parser.name}: {motif}: {size // 2} characters {before:.3f} s, {size} characters {now:.3f} s"
        before = now
        size *= 2
    return None
