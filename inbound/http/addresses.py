"""Where a listener listens: the address that a name stands for, what is wrong with it, and how others reach it."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

from inbound.errors import ConfigError


def resolved(host: str, port: int, key: str) -> tuple[int, tuple[Any, ...]]:
    """Return the family and the address to bind.

    Raises:
        ConfigError: there is no such host; the message begins with `key`.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"{key}: the host {host!r} is unknown ({getattr(error, 'strerror', None) or error}); "
            "give an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all"
        ) from None
    family, _, _, _, address = found[0]
    return family, address


def problem(error: OSError, host: str, ports: str, key: str) -> str:
    """Return why nothing can listen at `ports` (one, or `8081 to 8180`), and what to do."""
    host = f"[{host}]" if ":" in host else host
    reason = os.strerror(error.errno) if error.errno else str(error)
    way_out = {
        errno.EADDRINUSE: "stop what listens there, or set another port (0 takes any)",
        errno.EACCES: "use a port above 1023, or give this user the right to it",
        errno.EADDRNOTAVAIL: "use an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all",
    }.get(error.errno or 0, "set another address")
    return f"{key}: cannot listen on {host}:{ports}: {reason}; {way_out}"


def url_of(address: tuple[Any, ...], *, tls: bool) -> str:
    """Return where others reach what listens at `address`, without a slash at the end. Everywhere: by the host's name."""
    host = str(address[0])
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        host = socket.gethostname()
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{address[1]}"
