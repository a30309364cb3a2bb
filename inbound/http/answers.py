"""What a server answers, as bytes on the wire."""

from __future__ import annotations

import email.utils
from http import HTTPStatus
from typing import NamedTuple

from inbound.printable import printable

TEXT = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """One answer: `reason` is its body, one line for whoever asked, unless there is a `body`."""

    status: int
    reason: str = ""
    #: Seconds after which asking again makes sense.
    retry_after: int | None = None
    #: Further headers, each `Name: value`.
    headers: tuple[str, ...] = ()
    #: No further request can be read on this connection.
    last: bool = False
    body: bytes | None = None
    content_type: str = TEXT

    def encode(self, date: bytes, *, close: bool, without_body: bool = False) -> bytes:
        """Return the whole message; `date` is the value of its header, `without_body` for an answer to HEAD."""
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


ACCEPTED = Answer(202)


def http_date(unix_time: float) -> bytes:
    """Return a time as the header Date has it."""
    return email.utils.formatdate(unix_time, usegmt=True).encode()
