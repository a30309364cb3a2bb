"""A search for inputs that cost more than their size: pieces of each parser's language, repeated, between pieces of it.

What backtracks, copies what it has each time, or looks at everything again for each part of it shows when a short piece is
repeated often enough; which piece, nobody knows beforehand. `slower` says by how much twice the size costs more.
"""

from __future__ import annotations

import gc
import io
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from inbound.config.document import parse_each
from inbound.config.manifests import parse_manifests
from inbound.config.secrets import KnownSecrets
from inbound.coordinators.nodes import decode_epoch, decode_member, decode_offset, decode_topic
from inbound.errors import InboundError
from inbound.http.client.client import retry_after
from inbound.http.server.rights import Rights
from inbound.http.server.server import Request
from inbound.ledger.format import seal
from inbound.ledger.jsonl import read_lines, split_lines
from inbound.observe.jmx.model import JmxError
from inbound.observe.jmx.names import ObjectName
from inbound.observe.jmx.pages import JmxPages, _json
from inbound.observe.jmx.requests import of_json, of_path
from inbound.observe.tracing.propagation import Propagation, in_request
from inbound.offsets.csv_file import read_csv
from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_bridge import http_to_records
from inbound.processors.cloudevents_kafka import decode_record
from tests.heartbeat import kept_out
from tests.ingress.ingress_stage import Stage
from tests.observe.status.made_status import process

#: Twice the size may take so many times as long; what takes less than `FLOOR` seconds says nothing.
RATIO, FLOOR = 3.0, 0.03
#: For so many processor seconds no input may keep the other threads out: ZooKeeper's heartbeats among them.
KEPT_OUT = 0.25
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


def _headers_of_record(name: str, text: str) -> object:
    given = [("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"s"), ("ce_type", b"t")]
    return decode_record(PlainRecord(0, value=b"x", headers=[*given, (name, text.encode("utf-8", "replace"))]))


def _structured(text: str) -> object:
    value = (_EVENT_BEGIN + text).encode("utf-8", "replace")
    return decode_record(PlainRecord(0, value=value, headers=[("content-type", b"application/cloudevents+json")]))


def _trace(text: str) -> object:
    raw = text.encode("utf-8", "replace")
    found = in_request([(b"traceparent", raw), (b"tracestate", raw), (b"b3", raw)])
    return _PROPAGATION.context(found)


def _retry_after(text: str) -> object:
    given = text.encode("latin-1", "replace")
    return retry_after([(b"retry-after", given), (b"date", given)])


def _jmx(text: str) -> object:
    return _FACE.answer(Request("GET", "/jmx", text), "127.0.0.1")


def _rights(text: str) -> object:
    asked = Request("POST", "/", host=text, origin=text)
    return _RIGHTS.refused_to_read(asked), _RIGHTS.refused(asked, "127.0.0.1")


def _password(text: str) -> object:
    return _FACE.answer(Request("POST", "/jolokia", authorization=text, body=b'{"type":"version"}'), "127.0.0.1")


def _manifest(text: str) -> object:
    return parse_manifests({"a.yaml": text})


def _ledger(text: str) -> object:
    lines = (seal(line) for line in text.encode("utf-8", "replace").split(b"\n"))
    return list(read_lines(split_lines(io.BytesIO(b"".join(lines))), Path("orders.jsonl")))


_RIGHTS = Rights(lambda: "secret")
_FACE = JmxPages(process, None, _RIGHTS, None, logging.getLogger("growth"))
_PROPAGATION = Propagation(ALWAYS_ON)
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
    Parser("Jolokia request", _JSON, lambda text: of_json(_json(text.encode("utf-8", "replace")), {})),
    Parser("YAML", _YAML, lambda text: parse_each(text, "a.yaml"), 32 * 1024),
    Parser(
        "offsets as CSV",
        (",", '"', "\n", "orders,", "1,", "a", " ", "group,topic,partition,offset\n", "orders,%d,1\n"),
        lambda text: read_csv(text, "a.csv", "g"),
    ),
    Parser("znode", (*_JSON, '{"consumer":"a","session":1,', '"former":[', '"a",'), _node),
    Parser("header of a record", _HEADER, lambda text: _headers_of_record("ce_x", text), 64 * 1024),
    Parser("time of a record", _HEADER, lambda text: _headers_of_record("ce_time", text), 64 * 1024),
    Parser("event in JSON in a record", _JSON, _structured),
    Parser(
        "headers of a trace", (*_HEADER, "00-", "0af7651916cd43dd8448eb211c80319c-", "b7ad6b7169203331-", ","), _trace
    ),
    Parser("Retry-After", (*_HEADER, "1", "9", ":", " GMT", "Mon, ", "01 Jan 2026 ", "+0000"), _retry_after, 64 * 1024),
    Parser("query of a JMX request", (*_JMX, "qry=", "get=", "&", "::"), _jmx, 16 * 1024),
    Parser("Host and Origin", (*_HEADER, "[", "]", "::1", "127.0.0.1", ":80", "http://"), _rights, 16 * 1024),
    Parser("Basic", (*_HEADER, "Basic ", "eDpz", "=="), _password, 16 * 1024),
    Parser(
        "manifest",
        (*_YAML, "kind: KafkaChannel\n", "spec:\n", "  subscribers:\n", "  - uid: a\n"),
        _manifest,
        32 * 1024,
    ),
    Parser("ledger", (*_JSON, "\t", '"kind":"begun",', '"seq":1,'), _ledger),
)


def motif_of(parser: Parser, rng: random.Random) -> Motif:
    """Return some motif."""

    def some(least: int, most: int) -> str:
        return "".join(rng.choice(parser.pieces) for _ in range(rng.randint(least, most)))

    return Motif(some(0, 2), some(1, 3), some(0, 2))


def take(parser: Parser, text: str) -> None:
    """Have it parsed, or refused in one of the ways that are foreseen; what is nested too deeply is one of them."""
    with suppress(InboundError, JmxError, ValueError, yaml.YAMLError):
        parser.take(text)


def cost(parser: Parser, text: str, tries: int = 1) -> float:
    """Return the processor seconds that it takes at the least."""
    found = []
    for _ in range(tries):
        gc.collect(0)
        gc.disable()  # what it looks through is all that a test process has
        try:
            began = time.thread_time()
            take(parser, text)
            found.append(time.thread_time() - began)
        finally:
            gc.enable()
    return min(found)


def _again(parser: Parser, motif: Motif, size: int) -> tuple[float, float]:
    """Return what `size` and half of it cost at the least, in turns: a moment in which the machine is slow is in both."""
    pairs = [(cost(parser, motif.grown(size)), cost(parser, motif.grown(size // 2))) for _ in range(15)]
    return min(now for now, _ in pairs), min(before for _, before in pairs)


def slower(parser: Parser, motif: Motif) -> str | None:
    """Return where twice the size takes more than twice as long, or keeps other threads out, and how long; None: nowhere."""
    size, before = min(2048, parser.most // 2), None
    while size <= parser.most:
        now = cost(parser, motif.grown(size))
        if before is not None and now > FLOOR and now > RATIO * max(before, FLOOR / RATIO):
            now, before = _again(parser, motif, size)
            if now > FLOOR and now > RATIO * max(before, FLOOR / RATIO):
                return f"{parser.name}: {motif}: {size // 2} characters {before:.3f} s, {size} characters {now:.3f} s"
        if now > KEPT_OUT:  # else it cannot keep anybody out for so long
            silent = kept_out(partial(take, parser, motif.grown(size)), KEPT_OUT)
            if silent > KEPT_OUT:
                return f"{parser.name}: {motif}: {size} characters keep other threads out for {silent:.3f} s"
        before = now
        size *= 2
    return None
