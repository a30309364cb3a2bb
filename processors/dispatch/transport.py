"""What carries a request to a receiver and its answer back: the small interface behind which libcurl is one of two."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from urllib3.util import parse_url

#: What is read of an answer, in bytes; a longer one is cut off there. Of one that may hold a reply, the second.
MOST_READ, MOST_READ_OF_A_REPLY = 64 * 1024, 1024 * 1024


class Answer(NamedTuple):
    """What came back. `problem` says why it is no whole answer; `status` is 0 where there was none."""

    status: int
    headers: Sequence[tuple[bytes, bytes]] = ()  # only where the target's replies are wanted
    body: bytes = b""
    retry_after: float | None = None  # seconds, as the receiver asked for
    problem: str | None = None
    cut: bool = False  # there was more of the body

    @property
    def shown(self) -> str:
        """What a message says of it."""
        return self.problem or f"answered {self.status}"


@dataclass(frozen=True, eq=False)
class Target:
    """Whom to post to, and how. Times are in seconds."""

    url: str = field(repr=False)
    timeout: float
    connect_timeout: float
    connections: int = 64
    headers: tuple[bytes, ...] = field(default=(), repr=False)  # lines that go with every request
    wants_reply: bool = False
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None

    @property
    def shown(self) -> str:
        """How messages name the URL: a query can hold a token."""
        url = parse_url(self.url)
        return f"{url.scheme}://{url.netloc}{url.path or '/'}"


Done = Callable[[Answer], None]


class Transport(ABC):
    """Posts requests, many at a time. For the thread of one event loop."""

    @abstractmethod
    def post(self, target: Target, lines: list[bytes], body: bytes, done: Done) -> None:
        """Send a request of these header lines, once; `done` is called with what came of it, never from within."""

    @abstractmethod
    def retire(self, target: Target) -> None:
        """Nothing more is sent to `target`: its connections can be closed when what is under way has ended."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections; requests under way are given up, and nobody is told."""
