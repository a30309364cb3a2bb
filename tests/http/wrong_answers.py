"""A hundred ways to answer a request wrongly, or oddly: bytes, what happens to the connection, and what is to come of it."""

from __future__ import annotations

from typing import NamedTuple

from tests.raw_receiver import Then

KEPT, CLOSES, RESETS, HALF = Then.STAYS, Then.CLOSES, Then.RESETS, Then.HALF_CLOSES


class Way(NamedTuple):
    """One way: the bytes of the answer, and the status that is made of it; 0: a problem."""

    name: str
    answer: bytes
    status: int
    then: Then = CLOSES
    body: bytes | None = None  # None: not looked at


def head(*lines: bytes, status: bytes = b"200 OK") -> bytes:
    """Return a head with these header lines."""
    return b"\r\n".join((b"HTTP/1.1 " + status, *lines, b"", b""))


def chunked(body: bytes, *lines: bytes) -> bytes:
    """Return an answer whose body is this text, chunks and all."""
    return head(b"transfer-encoding: chunked", *lines) + body


FINE = head(b"content-length: 2") + b"ok"
FLOOD = 200_000  # bytes: more than is taken beside a body

NO_HTTP = [
    Way("nothing", b"", 0),
    Way("a reset", b"", 0, RESETS),
    Way("the end of its side", b"", 0, HALF),
    Way("an empty line alone", b"\r\n", 0),
    Way("a page without a head", b"<html>502 Bad Gateway</html>", 0),
    Way("another protocol", b"SSH-2.0-OpenSSH_9.6\r\n", 0),
    Way("the beginning of HTTP/2", b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80", 0),
    Way("an alert of TLS", b"\x15\x03\x01\x00\x02\x02\x46", 0),
    Way("a request", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", 0),
    Way("NUL bytes", bytes(1000), 0),
    Way("a flood of NUL bytes", bytes(FLOOD), 0),
    Way("noise", bytes(range(256)) * 4, 0),
    Way("JSON", b'{"status": 200}', 0),
]
STATUS_LINES = [
    Way("no status", b"HTTP/1.1\r\n\r\n", 0),
    Way("a word as status", b"HTTP/1.1 fine OK\r\n\r\n", 0),
    Way("a status of two digits", b"HTTP/1.1 20 OK\r\n\r\n", 0),
    Way("a status of four digits", b"HTTP/1.1 2000 OK\r\n\r\n", 0),
    Way("a negative status", b"HTTP/1.1 -200 OK\r\n\r\n", 0),
    Way("status 0", b"HTTP/1.1 000 OK\r\ncontent-length: 0\r\n\r\n", 0),
    Way("status 99", b"HTTP/1.1 099 OK\r\ncontent-length: 0\r\n\r\n", 0),
    Way("status 600", b"HTTP/1.1 600 OK\r\ncontent-length: 0\r\n\r\n", 600),
    Way("status 999", b"HTTP/1.1 999 OK\r\ncontent-length: 0\r\n\r\n", 999),
    Way("no reason", b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", 200),
    Way("a reason of bytes", b"HTTP/1.1 200 \xff\xfe\r\ncontent-length: 0\r\n\r\n", 200),
    Way("a reason without an end", b"HTTP/1.1 200 " + b"O" * FLOOD, 0),
    Way("HTTP/0.9", b"HTTP/0.9 200 OK\r\ncontent-length: 0\r\n\r\n", 200),
    Way("HTTP/1.0", b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", 200),
    Way("HTTP/1.2", b"HTTP/1.2 200 OK\r\ncontent-length: 0\r\n\r\n", 0),
    Way("HTTP/2.0", b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n", 200),
    Way("HTTP/3", b"HTTP/3 200 OK\r\n\r\n", 0),
    Way("small letters", b"http/1.1 200 OK\r\n\r\n", 0),
    Way("a space too many", b"HTTP/1.1  200 OK\r\n\r\n", 0),
    Way("a space before", b" HTTP/1.1 200 OK\r\n\r\n", 0),
    Way("half a status line", b"HTTP/1.1 20", 0),
]
HEADERS = [
    Way("no colon", head(b"content-length 0"), 0),
    Way("a space before the colon", head(b"content-length : 0"), 0),
    Way("an empty name", head(b": x"), 0),
    Way("NUL in a name", head(b"a\x00b: x"), 0),
    Way("NUL in a value", head(b"a: x\x00y"), 0),
    Way("a name of bytes", head(b"\xff\xfe: x"), 0),
    Way("a value of bytes", head(b"a: \xff\xfe", b"content-length: 0"), 200),
    Way("a folded line", head(b"a: x", b" y", b"content-length: 0"), 0),
    Way("CR alone", head(b"a: x\ry", b"content-length: 0"), 0),
    Way("LF alone at the ends of lines", b"HTTP/1.1 200 OK\ncontent-length: 0\n\n", 0),
    Way("a head without its end", b"HTTP/1.1 200 OK\r\na: x\r\n", 0),
    Way("a name without an end", b"HTTP/1.1 200 OK\r\n" + b"a" * FLOOD, 0),
    Way("a value without an end", b"HTTP/1.1 200 OK\r\na: " + b"x" * FLOOD, 0),
    Way("ten thousand headers", head(*[b"a: %d" % n for n in range(20_000)]), 0),
    Way("a control character", head(b"a: \x07", b"content-length: 0"), 0),
    Way("Connection: upgrade", head(b"connection: upgrade", b"upgrade: h2c", b"content-length: 0"), 200),
]
LENGTHS = [
    Way("a negative length", head(b"content-length: -1"), 0),
    Way("a word as length", head(b"content-length: many"), 0),
    Way("an empty length", head(b"content-length: "), 0),
    Way("a length with a sign", head(b"content-length: +2") + b"ok", 0),
    Way("a length in hexadecimal", head(b"content-length: 0x2") + b"ok", 0),
    Way("a length with a point", head(b"content-length: 2.0") + b"ok", 0),
    Way("a list of lengths", head(b"content-length: 2, 2") + b"ok", 0),
    Way("two lengths", head(b"content-length: 2", b"content-length: 3") + b"ok!", 0),
    Way("the same length twice", head(b"content-length: 2", b"content-length: 2") + b"ok", 0),
    Way("a length beyond 64 bits", head(b"content-length: 18446744073709551617"), 0),
    Way("a length of 2^63", head(b"content-length: 9223372036854775808"), 0),
    Way("less than announced", head(b"content-length: 5") + b"ok", 0),
    Way("less than announced, and a reset", head(b"content-length: 5") + b"ok", 0, RESETS),
    Way("more than announced", head(b"content-length: 2") + b"ok and more", 200, KEPT, b"ok"),
    Way("a body behind none", head(b"content-length: 0") + b"more", 200, KEPT, b""),
    Way("both a length and chunks", chunked(b"2\r\nok\r\n0\r\n\r\n", b"content-length: 2"), 0),
    Way("neither, up to the end", head() + b"ok", 200, CLOSES, b"ok"),
    Way("neither, up to half an end", head() + b"ok", 200, HALF, b"ok"),
    Way("neither, up to a reset", head() + b"ok", 0, RESETS),
]
CHUNKS = [
    Way("a chunk without a size", chunked(b"\r\nok\r\n"), 0),
    Way("a word as size", chunked(b"two\r\nok\r\n0\r\n\r\n"), 0),
    Way("a negative size", chunked(b"-2\r\nok\r\n0\r\n\r\n"), 0),
    Way("a size with 0x", chunked(b"0x2\r\nok\r\n0\r\n\r\n"), 0),
    Way("a size beyond 64 bits", chunked(b"1" * 20 + b"\r\nok\r\n0\r\n\r\n"), 0),
    Way("a size of a page of digits", chunked(b"0" * FLOOD + b"2\r\nok\r\n0\r\n\r\n"), 0),
    Way("a chunk that is longer than its size", chunked(b"2\r\nok!\r\n0\r\n\r\n"), 0),
    Way("a chunk without an end", chunked(b"2\r\nok0\r\n\r\n"), 0),
    Way("no last chunk", chunked(b"2\r\nok\r\n"), 0),
    Way("half a chunk", chunked(b"ff\r\nok"), 0),
    Way("LF alone behind a size", chunked(b"2\nok\r\n0\r\n\r\n"), 0),
    Way("an extension", chunked(b"2;a=b\r\nok\r\n0\r\n\r\n"), 200, KEPT, b"ok"),
    Way("an extension without an end", chunked(b"2;" + b"a" * FLOOD), 0),
    Way("a trailer", chunked(b"2\r\nok\r\n0\r\nce-id: other\r\n\r\n"), 200, KEPT, b"ok"),
    Way("a trailer without an end", chunked(b"2\r\nok\r\n0\r\n" + b"a: x\r\n" * 40_000), 0),
    Way("a coding that is not known", head(b"transfer-encoding: gzip") + b"ok", 0),
    Way("chunks that are not the last coding", head(b"transfer-encoding: chunked, gzip") + b"2\r\nok\r\n0\r\n\r\n", 0),
    Way("no coding at all", head(b"transfer-encoding: ") + b"ok", 0),
    Way("nearly chunked", head(b"transfer-encoding: xchunked") + b"2\r\nok\r\n0\r\n\r\n", 0),
]
SEVERAL = [
    Way("an interim answer and no other", head(status=b"100 Continue"), 0),
    Way("an interim answer before the one", head(status=b"100 Continue") + FINE, 200, KEPT, b"ok"),
    Way("early hints", head(b"link: </x>", status=b"103 Early Hints") + FINE, 200, KEPT, b"ok"),
    Way("an unknown interim answer", head(status=b"199 Hm") + FINE, 200, KEPT, b"ok"),
    Way("a flood of interim answers", head(status=b"100 Continue") * 10_000 + FINE, 0),
    Way(
        "another protocol from now on", head(b"upgrade: x", b"connection: upgrade", status=b"101 Switching") + b"x", 101
    ),
    Way("101 and nothing else", head(status=b"101 Switching Protocols"), 101),
    Way("two answers", FINE + head(b"content-length: 0", status=b"500 No"), 200, KEPT, b"ok"),
    Way("an answer and half of one", FINE + b"HTTP/1.1 500", 200, KEPT, b"ok"),
    Way("an answer and noise", FINE + b"\xff\xfe\xfd", 200, KEPT, b"ok"),
    Way("an answer and empty lines", FINE + b"\r\n\r\n", 200, KEPT, b"ok"),
    Way("204 with a body", head(b"content-length: 2", status=b"204 No Content") + b"ok", 204, KEPT),
    Way("304 with a body", head(b"content-length: 2", status=b"304 Not Modified") + b"ok", 304, KEPT),
    Way("205 with a body", head(b"content-length: 2", status=b"205 Reset Content") + b"ok", 205, KEPT, b"ok"),
    Way("closed without a word", FINE, 200, CLOSES, b"ok"),
    Way("reset without a word", FINE, 200, RESETS, b"ok"),
    Way("close, and it stays", head(b"connection: close", b"content-length: 2") + b"ok", 200, KEPT, b"ok"),
    Way("a redirect to itself", head(b"location: /", b"content-length: 0", status=b"307 There"), 307, KEPT),
    Way("a redirect without a place", head(b"content-length: 0", status=b"302 Found"), 302, KEPT),
]
WAYS = [*NO_HTTP, *STATUS_LINES, *HEADERS, *LENGTHS, *CHUNKS, *SEVERAL]
