"""The receiver of requests, and its answer: shared by all that posts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from urllib3.util import parse_url

#: What is read of an answer, in bytes; a longer one is cut off there. Of one that may hold a reply, the second.
MOST_READ, MOST_READ_OF_A_REPLY = 64 * 1024, 1024 * 1024


class Answer(NamedTuple):
    """What came back.

    `problem` says why it is no whole answer; `status` is 0 where there was none.
    """

    status: int
    headers: Sequence[tuple[bytes, bytes]] = ()  # only where the target's replies are wanted; names in lower case
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
    """Whom to post to, and how.

    Times are in seconds.
    """

    url: str = field(repr=False)
    timeout: float
    connect_timeout: float
    connections: int = 64
    headers: tuple[bytes, ...] = field(default=(), repr=False)  # lines that go with every request
    wants_reply: bool = False
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    ca_text: str | None = field(default=None, repr=False)  # PEM: who else may sign its certificate

    @property
    def shown(self) -> str:
        """How messages name the URL: a query can hold a token."""
        url = parse_url(self.url)
        return f"{url.scheme}://{url.netloc}{url.path or '/'}"

    @property
    def most_read(self) -> int:
        """How many bytes of an answer's body are read."""
        return MOST_READ_OF_A_REPLY if self.wants_reply else MOST_READ


Done = Callable[[Answer], None]
