"""What carries a request to a receiver and its answer back: where another one can be plugged in."""

from __future__ import annotations

from typing import Protocol

from inbound.http1.exchange import MOST_READ as MOST_READ
from inbound.http1.exchange import MOST_READ_OF_A_REPLY as MOST_READ_OF_A_REPLY
from inbound.http1.exchange import Answer as Answer
from inbound.http1.exchange import Done as Done
from inbound.http1.exchange import Target as Target


class Transport(Protocol):
    """Posts requests, many at a time. For the thread of one event loop. `inbound.http1.client.Client` is the usual one."""

    def post(self, target: Target, lines: list[bytes], body: bytes, done: Done) -> None:
        """Send a request of these header lines, once; `done` is called with what came of it, never from within."""

    def retire(self, target: Target) -> None:
        """Nothing more is sent to `target`: its connections can be closed when what is under way has ended."""

    def close(self) -> None:
        """Close all connections; requests under way are given up, and nobody is told."""
