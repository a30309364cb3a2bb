"""An answer of a server is a page, and its bytes."""

from __future__ import annotations

import email.utils
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, NamedTuple

from inbound.runtime.text import printable

TEXT = "text/plain; charset=utf-8"


class ServerAnswer(NamedTuple):
    """One answer on the wire."""

    status: int
    reason: str = ""  # the body, one line for the client, unless there is a `body`
    retry_after: int | None = None  # seconds
    headers: tuple[str, ...] = ()  # further ones, each `Name: value`
    last: bool = False  # no further request can be read on this connection
    body: bytes | None = None
    content_type: str = TEXT

    def encode(self, date: bytes, *, close: bool, without_body: bool = False) -> bytes:
        """Return the whole message; `date` is its header's value.

        An answer to HEAD is `without_body`.
        """
        body = self.body
        if body is None:
            body = f"{printable(self.reason)}\n".encode() if self.reason else b""
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}", *self.headers]
        if body:
            lines.append(f"Content-Type: {self.content_type}")
        if self.retry_after is not None:
            lines.append(f"Retry-After: {self.retry_after}")
        if close:
            lines.append("Connection: close")
        head = "\r\n".join([*lines, f"Content-Length: {len(body)}", ""]).encode("latin-1")
        return b"%bDate: %b\r\n\r\n%b" % (head, date, b"" if without_body else body)


ACCEPTED = ServerAnswer(202)


def http_date(unix_time: float) -> bytes:
    """Return a time for the header Date."""
    return email.utils.formatdate(unix_time, usegmt=True).encode()


HTML = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Page:
    """One answer."""

    code: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()

    def with_header(self, name: str, value: str) -> Page:
        """Return this page with one more header."""
        return replace(self, headers=(*self.headers, (name, value)))


def text(code: int, *lines: str) -> Page:
    """Return a page of plain text."""
    return Page(code, "".join(f"{printable(line)}\n" for line in lines).encode())


def json_page(version: int, body: Mapping[str, Any]) -> Page:
    """Return a page of JSON, which begins with its format's version `v`."""
    return Page(HTTPStatus.OK, f"{json.dumps({'v': version, **body})}\n".encode(), "application/json")
