"""The admin listener: health, readiness, status, metrics and operations of this process over HTTP."""

from __future__ import annotations

import errno
import logging
from collections.abc import Collection
from http import HTTPStatus

from inbound.config import AdminTlsConfig
from inbound.errors import ConfigError
from inbound.http.addresses import problem, resolved, url_of
from inbound.http.explanations import Explain, Explanations
from inbound.http.listener import Limits
from inbound.http.operations import Operate, Operations
from inbound.http.pages import Page, Pages, text
from inbound.http.reloads import Reload, Reloads
from inbound.http.rights import Rights, Token, is_loopback
from inbound.http.server import LIMITS, METHODS, TAKES_BODY, Bounds, Request, Server
from inbound.http.tls import Certificates, PemFiles
from inbound.jmx.face import JMX, JmxFace
from inbound.jmx.policy import ReadPolicy
from inbound.metrics import Snapshot

#: How many ports are tried, from the default one on, when nobody asked for a certain one.
PORTS_TRIED = 100
_HIGHEST_PORT = 65535


class AdminServer:
    """Listens from `start` to `close`, both called by the owner; the snapshot is asked for in threads of its own.

    If `port_given` is False and the port is taken, the next free one is used, and the log says which. Port 0 is any.
    `operate` does what is asked for by POST; `policy` says what may be asked for under /jmx and /jolokia; `explain` says why a
    partition stands still; `hosts` are the names that it may be asked by; `token` says what whoever asks must know, None:
    nothing on loopback, and elsewhere no operation is done. With `tls` it speaks HTTPS.

    Raises:
        ConfigError: a file that `tls` names cannot be used.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        host: str,
        port: int,
        port_given: bool,
        operate: Operate | None = None,
        explain: Explain | None = None,
        reload: Reload | None = None,
        policy: ReadPolicy | None = None,
        token: Token | None = None,
        tls: AdminTlsConfig | None = None,
        hosts: Collection[str] = (),
        log: logging.Logger | None = None,
        limits: Limits = LIMITS,
        bounds: Bounds = Bounds(),  # noqa: B008 - it is frozen
    ) -> None:
        self._host = host
        self._port = port
        self._port_given = port_given
        self._log = log or logging.getLogger(__name__)
        self._limits = limits
        self._bounds = bounds
        self._pages = Pages(snapshot, self._log)
        self._token_in_clear = token is not None and tls is None
        self._certificates = Certificates(PemFiles.of_admin(tls), self._log) if tls is not None else None
        self.rights = Rights(
            token, certificates=tls is not None and tls.client_ca_file is not None, log=self._log, hosts=hosts
        )
        self._operations = Operations(operate, self.rights, self._log) if operate is not None else None
        if operate is not None:
            self._pages.operations = (
                "POST /channels/<name>/pause, /resume, /rebalance (?consumer=ID&reason=TEXT)",
                "POST /channels/<name>/release?topic=NAME&partition=NUMBER (&seconds=, &consumer=)",
                "POST /channels/<name>/rate?per_second=RECORDS|none (&consumer=)",
            )
        self._reloads = Reloads(reload, self.rights, self._log) if reload is not None else None
        self._explanations = Explanations(explain, self._log) if explain is not None else None
        if reload is not None:
            self._pages.operations = (*self._pages.operations, "POST /reload")
        if explain is not None:
            self._pages.operations = (
                *self._pages.operations,
                "GET /explain?topic=NAME&partition=NUMBER (&at=, &channel=)",
            )
        self._jmx = JmxFace(snapshot, operate, self.rights, policy, self._log)
        self._pages.operations = (
            f"{JMX:<10} beans as JSON, as Hadoop's servlet shows them (?qry=PATTERN, ?get=NAME::ATTRIBUTE)",
            f"{TAKES_BODY:<10} beans by Jolokia's protocol",
            *self._pages.operations,
        )
        self._server: Server | None = None

    def start(self) -> None:
        """Bind the port and serve.

        Raises:
            ConfigError: the address cannot be used; the message says why and what to do.
        """
        family, address = resolved(self._host, self._port, "admin.listen")
        last = self._port if self._port_given or not self._port else min(self._port + PORTS_TRIED - 1, _HIGHEST_PORT)
        for port in range(self._port, last + 1):
            try:
                self._server = Server(
                    family, (address[0], port, *address[2:]), self._answer, log=self._log, limits=self._limits,
                    bounds=self._bounds, certificates=self._certificates,
                )  # fmt: skip
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or port == last:
                    several = error.errno == errno.EADDRINUSE and last != self._port
                    ports = f"{self._port} to {last}" if several else f"{self._port}"
                    raise ConfigError(problem(error, self._host, ports, "admin.listen")) from None
        if self.port != self._port and self._port:
            self._log.warning("admin: port %d is taken, listening on %d", self._port, self.port)
        if self._token_in_clear and not is_loopback(str(self._running.server_address[0])):
            self._log.warning("admin: the token can be read on its way to %s; set admin.tls to encrypt it", self.url)
        self._running.start()

    @property
    def wanted_port(self) -> int:
        """The port that was asked for; 0: any."""
        return self._port

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._running.server_address[1])

    @property
    def url(self) -> str:
        """Where others reach it, without a slash at the end. Listening everywhere, the host's name stands for it."""
        return url_of(tuple(self._running.server_address), tls=self._certificates is not None)

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
        if (refused := self.rights.refused_to_read(request)) is not None:
            return refused
        if self._operations is not None:
            page = self._operations.answer(request, str(self._running.server_address[0]))
            if page is not None:
                return page
        page = self._jmx.answer(request, str(self._running.server_address[0]))
        if page is not None:
            return page
        if self._reloads is not None:
            page = self._reloads.answer(request, str(self._running.server_address[0]))
            if page is not None:
                return page
        if self._explanations is not None and (page := self._explanations.answer(request)) is not None:
            return page
        if self._pages.knows(request.path) and request.method not in METHODS:
            allowed = ", ".join(METHODS)
            page = text(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} can be read only: {allowed}")
            return page.with_header("Allow", allowed)
        return self._pages.get(request.path, request.accept)
