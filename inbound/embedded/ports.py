"""Free loopback ports for servers that keep them across restarts."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

#: Below the ranges that Linux (32768-60999) and macOS (49152-65535) take client ports from. A port of theirs could go
#: to somebody's outgoing connection while its server is down, and a client that reconnects could even get it itself
#: and talk to itself.
_LOWEST, _HIGHEST = 15000, 32000


def is_free(port: int) -> bool:
    """Return whether a server could listen on `port` of the loopback address now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do: ignore closing connections
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_ports(count: int, avoid: Collection[int] = ()) -> list[int]:
    """Return `count` different free ports, none of them in `avoid`."""
    candidates = random.SystemRandom().sample(range(_LOWEST, _HIGHEST), _HIGHEST - _LOWEST)
    free = (port for port in candidates if port not in avoid and is_free(port))
    return [next(free) for _ in range(count)]
