"""The admin listener: health, readiness, status, metrics and operations of this process over HTTP."""

from __future__ import annotations

import errno
import logging
import os
import socket
from http import HTTPStatus
from typing import Any

from inbound.errors import ConfigError
from inbound.http.operations import Operate, Operations, Token
from inbound.http.pages import Page, Pages, text
from inbound.http.server import METHODS, Limits, Request, Server
from inbound.metrics import Snapshot

#: How many ports are tried, from the default one on, when nobody asked for a certain one.
PORTS_TRIED = 100
_HIGHEST_PORT = 65535


class AdminServer:
    """Listens from `start` to `close`, both called by the owner; the snapshot is asked for in threads of its own.

    If `port_given` is False and the port is taken, the next free one is used, and the log says which. Port 0 is any.
    `operate` does what is asked for by POST; `token` says what whoever asks must know, None: nothing on loopback, and
    elsewhere no operation is done.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        host: str,
        port: int,
        port_given: bool,
        operate: Operate | None = None,
        token: Token | None = None,
        log: logging.Logger | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._port_given = port_given
        self._log = log or logging.getLogger(__name__)
        self._limits = limits or Limits()
        self._pages = Pages(snapshot, self._log)
        self._operations = Operations(operate, token, self._log) if operate is not None else None
        if operate is not None:
            self._pages.operations = ("POST /channels/<name>/pause, /resume, /rebalance (?consumer=ID&reason=TEXT)",)
        self._server: Server | None = None

    def start(self) -> None:
        """Bind the port and serve.

        Raises:
            ConfigError: the address cannot be used; the message says why and what to do.
        """
        family, address = self._resolve()
        last = self._port if self._port_given or not self._port else min(self._port + PORTS_TRIED - 1, _HIGHEST_PORT)
        for port in range(self._port, last + 1):
            try:
                self._server = Server(
                    family, (address[0], port, *address[2:]), self._answer, log=self._log, limits=self._limits
                )
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or port == last:
                    raise ConfigError(self._problem(error, last)) from None
        if self.port != self._port and self._port:
            self._log.warning("admin: port %d is taken, listening on %d", self._port, self.port)
        self._running.start()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._running.server_address[1])

    @property
    def url(self) -> str:
        """Where others reach it, without a slash at the end. Listening everywhere, the host's name stands for it."""
        host = str(self._running.server_address[0])
        if host in {"0.0.0.0", "::"}:
            host = socket.gethostname()
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def close(self) -> None:
        """Stop listening and end every thread and connection, in at most a few seconds. May be called twice."""
        if self._server is not None:
            self._server.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _running(self) -> Server:
        if self._server is None:
            raise RuntimeError("the admin server was not started")
        return self._server

    def _answer(self, request: Request) -> Page:
        if self._operations is not None:
            page = self._operations.answer(request, str(self._running.server_address[0]))
            if page is not None:
                return page
        if self._pages.knows(request.path) and request.method not in METHODS:
            allowed = ", ".join(METHODS)
            page = text(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} can be read only: {allowed}")
            return page.with_header("Allow", allowed)
        return self._pages.get(request.path, request.accept)

    def _resolve(self) -> tuple[int, tuple[Any, ...]]:
        try:
            found = socket.getaddrinfo(self._host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except (OSError, UnicodeError) as error:
            raise ConfigError(
                f"admin.listen: the host {self._host!r} is unknown ({getattr(error, 'strerror', None) or error}); "
                "give an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all"
            ) from None
        family, _, _, _, address = found[0]
        return family, address

    def _problem(self, error: OSError, last: int) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        reason = os.strerror(error.errno) if error.errno else str(error)
        way_out = {
            errno.EADDRINUSE: "stop what listens there, or set another port (0 takes any)",
            errno.EACCES: "use a port above 1023, or give this user the right to it",
            errno.EADDRNOTAVAIL: "use an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all",
        }.get(error.errno or 0, "set another address")
        several = error.errno == errno.EADDRINUSE and last != self._port
        ports = f"{self._port} to {last}" if several else f"{self._port}"
        return f"admin.listen: cannot listen on {host}:{ports}: {reason}; {way_out}"
