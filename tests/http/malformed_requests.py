"""Requests that a server and a proxy before it may read in two ways, or that are none: each is answered once, and that was it.

After the lists of "HTTP Desync Attacks" (Kettle, 2019), of RFC 9112 ("Security Considerations"), and llhttp's own tests.
"""

from __future__ import annotations

from collections.abc import Iterator

#: The request behind it: no server may answer it.
NEXT = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"


def _lines(*lines: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join([*lines, b"", b""]) + body


def _post(*headers: bytes, body: bytes = b"", version: bytes = b"HTTP/1.1", host: bytes | None = b"Host: a") -> bytes:
    return _lines(b"POST /a " + version, *([host] if host is not None else []), *headers, body=body)


def _start_lines() -> Iterator[tuple[str, bytes]]:
    for name, line in (
        ("no target", b"GET HTTP/1.1"),
        ("no version", b"GET /"),
        ("nothing but a word", b"GET"),
        ("a blank line of blanks", b"   "),
        ("lower case", b"get / HTTP/1.1"),
        ("method of marks", b"G@T / HTTP/1.1"),
        ("method with a colon", b"GET: / HTTP/1.1"),
        ("unknown method", b"BREW / HTTP/1.1"),
        ("tab for a blank", b"GET\t/\tHTTP/1.1"),
        ("blank in the target", b"GET /a b HTTP/1.1"),
        ("control in the target", b"GET /\x01 HTTP/1.1"),
        ("DEL in the target", b"GET /\x7f HTTP/1.1"),
        ("NUL in the target", b"GET /\x00 HTTP/1.1"),
        ("UTF-8 in the target", "GET /\u00e9 HTTP/1.1".encode()),
        ("target without a slash", b"GET a HTTP/1.1"),
        ("a host for a target", b"GET a:80 HTTP/1.1"),
        ("star", b"GET * HTTP/1.1"),
        ("another host in the target", b"GET http://b/ HTTP/1.1"),
        ("another scheme", b"GET ftp://a/ HTTP/1.1"),
        ("HTTP/0.9", b"GET / HTTP/0.9"),
        ("HTTP/1.2", b"GET / HTTP/1.2"),
        ("HTTP/2.0", b"GET / HTTP/2.0"),
        ("HTTP/9.9", b"GET / HTTP/9.9"),
        ("HTTP/11.1", b"GET / HTTP/11.1"),
        ("HTTP/1", b"GET / HTTP/1"),
        ("HTTP/1.1.1", b"GET / HTTP/1.1.1"),
        ("HTTP/+1.1", b"GET / HTTP/+1.1"),
        ("http/1.1", b"GET / http/1.1"),
        ("RTSP", b"GET / RTSP/1.0"),
        ("version and more", b"GET / HTTP/1.1 x"),
        ("preface of HTTP/2", b"PRI * HTTP/2.0"),
    ):
        yield name, _lines(line, b"Host: a")
    yield "line feeds alone", b"GET / HTTP/1.1\nHost: a\n\n"
    yield "carriage returns alone", b"GET / HTTP/1.1\rHost: a\r\r"
    yield "TLS on the plain port", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 32
    yield "bytes", bytes(range(256))
    yield "an answer", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    yield "SSH", b"SSH-2.0-OpenSSH_9.0\r\n"
    yield "a proxy's line", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"


def _heads() -> Iterator[tuple[str, bytes]]:
    for name, header in (
        ("blank before the colon", b"X : a"),
        ("tab before the colon", b"X\t: a"),
        ("no colon", b"X"),
        ("no name", b": a"),
        ("blank in the name", b"X Y: a"),
        ("NUL in the name", b"X\x00: a"),
        ("NUL in the value", b"X: a\x00b"),
        ("control in the value", b"X: a\x01b"),
        ("DEL in the value", b"X: a\x7fb"),
        ("UTF-8 in the name", "X\u00e9: a".encode()),
        ("brackets in the name", b"X(): a"),
        ("quotes in the name", b'"X": a'),
        ("bare CR in the value", b"X: a\rb"),
        ("bare CR before a header", b"X: a\rContent-Length: 5"),
        ("bare LF before a header", b"X: a\nContent-Length: 5\x0b"),
        ("fold by a blank", b"X: a\r\n b"),
        ("fold by a tab", b"X: a\r\n\tb"),
        ("fold of a length", b"Content-Length: 0\r\n 5"),
        ("fold of a coding", b"Transfer-Encoding:\r\n chunked"),
        ("two hosts", b"Host: b"),
        ("two equal hosts", b"Host: a"),
        ("two origins", b"Origin: http://a\r\nOrigin: http://b"),
        ("two tokens", b"Authorization: Bearer a\r\nAuthorization: Bearer b"),
    ):
        yield name, _post(header)
    yield "blank before the first header", b"GET / HTTP/1.1\r\n Host: a\r\n\r\n"
    yield "no host", _post(host=None)
    yield "colon before the headers", b"GET / HTTP/1.1\r\n:\r\nHost: a\r\n\r\n"


def _lengths() -> Iterator[tuple[str, bytes]]:
    for value in (
        b"-1",
        b"+1",
        b"1 1",
        b"1,1",
        b"1, 2",
        b"0x1",
        b"1e1",
        b"1.0",
        b"",
        b" ",
        b"one",
        b"1;2",
        b"1\t2",
        b"'1'",
        b"\xd9\xa1",
        b"99999999999999999999",
        b"18446744073709551616",
    ):
        yield f"length {value!r}", _post(b"Content-Length: " + value, body=b"x")
    yield "two equal lengths", _post(b"Content-Length: 1", b"Content-Length: 1", body=b"x")
    yield "two lengths", _post(b"Content-Length: 1", b"Content-Length: 2", body=b"xx")
    yield "two lengths in other letters", _post(b"Content-Length: 1", b"content-length: 2", body=b"xx")
    yield "a length and chunks", _post(b"Content-Length: 5", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n")
    yield "chunks and a length", _post(b"Transfer-Encoding: chunked", b"Content-Length: 5", body=b"0\r\n\r\n")


def _codings() -> Iterator[tuple[str, bytes]]:
    for value in (
        b"gzip",
        b"gzip, chunked",
        b"chunked, gzip",
        b"identity",
        b"chunked, identity",
        b"xchunked",
        b"chunkedx",
        b"chunked chunked",
        b"chunked, chunked",
        b"chunked;q=1",
        b'"chunked"',
        b"\x0bchunked",
        b"chun\x00ked",
        b",",
        b"",
    ):
        yield f"coding {value!r}", _post(b"Transfer-Encoding: " + value, body=b"0\r\n\r\n")
    yield "two codings", _post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", body=b"0\r\n\r\n")
    yield "two equal codings", _post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n")
    for version in (b"HTTP/1.0", b"HTTP/2.0"):
        upgrade = (b"Connection: upgrade", b"Upgrade: h2c", b"Transfer-Encoding: chunked")
        yield (
            f"chunks of {version.decode()} that asks for another protocol",
            _post(*upgrade, body=b"0\r\n\r\n", version=version),
        )
    yield "chunks of HTTP/1.0", _post(b"Transfer-Encoding: chunked", body=b"0\r\n\r\n", version=b"HTTP/1.0")


def _chunks() -> Iterator[tuple[str, bytes]]:
    for name, body in (
        ("no size", b"\r\nx\r\n0\r\n\r\n"),
        ("a negative size", b"-1\r\nx\r\n0\r\n\r\n"),
        ("a signed size", b"+1\r\nx\r\n0\r\n\r\n"),
        ("a size of 0x", b"0x1\r\nx\r\n0\r\n\r\n"),
        ("a size of letters", b"g\r\nx\r\n0\r\n\r\n"),
        ("a blank behind the size", b"1 \r\nx\r\n0\r\n\r\n"),
        ("a blank before the size", b" 1\r\nx\r\n0\r\n\r\n"),
        ("a huge size", b"f" * 17 + b"\r\nx\r\n0\r\n\r\n"),
        ("line feeds alone in chunks", b"1\nx\n0\n\n"),
        ("a chunk that is longer", b"1\r\nxy\r\n0\r\n\r\n"),
        ("a chunk without its end", b"1\r\nx0\r\n\r\n"),
        ("CR alone behind the size", b"1\rx\r\n0\r\n\r\n"),
        ("a bare LF in an extension", b"1;a\nx\r\n0\r\n\r\n"),
        ("a broken trailer", b"0\r\nX\r\n\r\n"),
        ("a fold in a trailer", b"0\r\nX: a\r\n b\r\n\r\n"),
    ):
        yield name, _post(b"Transfer-Encoding: chunked", body=body)


def _sizes() -> Iterator[tuple[str, bytes]]:
    yield "a long target", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"
    yield "a long header", _post(b"X: " + b"a" * 100_000)
    yield "a long name", _post(b"X" * 100_000 + b": a")
    yield "many headers", _post(*[b"X-%d: a" % number for number in range(10_000)])
    yield "a head that does not end", b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 400_000
    yield "a method that does not end", b"G" * 400_000
    yield "an extension that does not end", _post(b"Transfer-Encoding: chunked", body=b"1;" + b"a" * 1_000_000)


MALFORMED: tuple[tuple[str, bytes], ...] = (*_start_lines(), *_heads(), *_lengths(), *_codings(), *_chunks(), *_sizes())
