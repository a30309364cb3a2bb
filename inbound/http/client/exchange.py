"""The target of a request, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from urllib3.util import parse_url

#: Bytes of an answer's body that are read; of one that may hold a reply, the second.
MOST_READ, MOST_READ_OF_A_REPLY = 64 * 1024, 1024 * 1024


class Answer(NamedTuple):
    """The answer to one request, or the problem."""

    status: int  # 0: none came
    headers: Sequence[tuple[bytes, bytes]] = ()  # if the target wants replies; names in lower case
    body: bytes = b""
    retry_after: float | None = None  # seconds, from the receiver
    problem: str | None = None  # why it is no whole answer
    cut: bool = False  # there was more of the body

    @property
    def shown(self) -> str:
        """Its words in messages."""
        return self.problem or f"answered {self.status}"


@dataclass(frozen=True, eq=False)
class Target:
    """A receiver of requests; times are in seconds."""

    url: str = field(repr=False)
    timeout: float
    connect_timeout: float
    connections: int = 64
    headers: tuple[bytes, ...] = field(default=(), repr=False)  # lines of every request
    wants_reply: bool = False
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    ca_text: str | None = field(default=None, repr=False)  # PEM: further authorities for its certificate

    @property
    def shown(self) -> str:
        """The URL in messages, without its query, which can hold a token."""
        url = parse_url(self.url)
        return f"{url.scheme}://{url.netloc}{url.path or '/'}"

    @property
    def most_read(self) -> int:
        """The number of bytes that are read of an answer's body."""
        return MOST_READ_OF_A_REPLY if self.wants_reply else MOST_READ


Done = Callable[[Answer], None]
