"""The admin port serves health, status, metrics and operations of a process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from http import HTTPStatus

from inbound.admin.routes import Explain, Operations, Pages, Reload, explained
from inbound.config import AdminConfig, AdminTlsConfig, Config
from inbound.errors import ConfigError
from inbound.http.server.listener import ServerLimits
from inbound.http.server.page import Page, text
from inbound.http.server.rights import Rights, Token, is_loopback
from inbound.http.server.server import LIMITS, METHODS, TAKES_BODY, PageBounds, PageServer, Request
from inbound.observe.jmx.beans import Operate
from inbound.observe.jmx.pages import JMX, JmxPages
from inbound.observe.jmx.policy import ReadPolicy
from inbound.observe.metrics import Snapshot

#: Ports that are tried, from the default one on.
PORTS_TRIED = 100
_HIGHEST_PORT = 65535
#: Lines of the list of pages.
_JMX_ROUTES = (
    f"{JMX:<10} beans as JSON, as Hadoop's servlet shows them (?qry=PATTERN, ?get=NAME::ATTRIBUTE)",
    f"{TAKES_BODY:<10} beans by Jolokia's protocol",
)
_OPERATE_ROUTES = (
    "POST /channels/<name>/pause, /resume, /rebalance (?consumer=ID&reason=TEXT)",
    "POST /channels/<name>/release?topic=NAME&partition=NUMBER (&seconds=, &consumer=)",
    "POST /channels/<name>/rate?per_second=RECORDS|none (&consumer=)",
)


class AdminServer:
    """Listens from `start` to `close`.

    If `port_given` is False and the port is taken, the next free one is used, and the log names it. Port 0 is any. `operate`
    carries out operations of a POST; `policy` allows requests of /jmx and /jolokia; `explain` returns why a partition is
    stalled; `hosts` are the names that clients may use for it; `token` returns the token that clients must send (None: none on
    loopback; elsewhere operations are refused). With `tls` it speaks HTTPS.

    Raises ConfigError: a file of `tls` cannot be used.
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
        limits: ServerLimits = LIMITS,
        bounds: PageBounds = PageBounds(),  # noqa: B008 - it is frozen
    ) -> None:
        self._host = host
        self._port = port
        self._port_given = port_given
        self._log = log or logging.getLogger(__name__)
        self._token_in_clear = token is not None and tls is None
        self._server = PageServer(self._answer, log=self._log, limits=limits, bounds=bounds, tls=tls)
        self.rights = Rights(
            token, certificates=tls is not None and tls.client_ca_file is not None, log=self._log, hosts=hosts
        )
        self._operations = Operations(self.rights, operate=operate, reload=reload)
        self._explain = explain
        self._jmx = JmxPages(snapshot, operate, self.rights, policy, self._log)
        also = [*_JMX_ROUTES, *(_OPERATE_ROUTES if operate is not None else ())]
        also += ["POST /reload"] if reload is not None else []
        also += ["GET /explain?topic=NAME&partition=NUMBER (&at=, &channel=)"] if explain is not None else []
        self._pages = Pages(snapshot, self._log, also)

    def start(self) -> None:
        """Bind the port and serve; raises ConfigError: the address cannot be used."""
        last = self._port if self._port_given or not self._port else min(self._port + PORTS_TRIED - 1, _HIGHEST_PORT)
        self._server.start(self._host, range(self._port, last + 1))
        if self.port != self._port and self._port:
            self._log.warning("admin: port %d is taken, listening on %d", self._port, self.port)
        if self._token_in_clear and not is_loopback(self._server.host):
            self._log.warning("admin: the token can be read on its way to %s; set admin.tls to encrypt it", self.url)

    @property
    def wanted_port(self) -> int:
        """The configured port; 0: any."""
        return self._port

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def url(self) -> str:
        """Its URL: see `HttpServer.url`."""
        return self._server.url

    def close(self) -> None:
        """Stop listening; end threads and connections; may be called twice."""
        self._server.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _answer(self, request: Request) -> Page:
        if (refused := self.rights.refused_to_read(request)) is not None:
            return refused
        at = self._server.host
        page = self._operations.answer(request, at) or self._jmx.answer(request, at)
        if page is None and self._explain is not None:
            page = explained(self._explain, request, self._log)
        if page is not None:
            return page
        if self._pages.knows(request.path) and request.method not in METHODS:
            allowed = ", ".join(METHODS)
            page = text(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} can be read only: {allowed}")
            return page.with_header("Allow", allowed)
        return self._pages.get(request.path, request.accept)


log = logging.getLogger(__name__)

#: Returns a listener of a configuration, not started; `Token` and `ReadPolicy` are those of `AdminServer`.
MakeAdmin = Callable[[Config, Token | None, ReadPolicy | None], AdminServer]


class AdminListener:
    """Starts, replaces and closes the admin port.

    Two threads call it: the owner's, and that of changes.
    """

    def __init__(
        self,
        make: MakeAdmin,
        config: Config,
        token: Token | None,
        policy: ReadPolicy | None,
        *,
        read_token: Callable[[AdminConfig], Token | None],
        read_policy: Callable[[AdminConfig], ReadPolicy | None],
        tell: Callable[[str], object] = lambda url: log.info("admin: %s/status", url),
    ) -> None:
        """`tell` is called with the URL each time it starts to listen.

        `token` and `policy` belong to `config`; `read_token` and `read_policy` return those of another one. Raises
        ConfigError: a certificate cannot be used.
        """
        self._make = make
        self._read_token = read_token
        self._read_policy = read_policy
        self._tell = tell
        self._given = config, token, policy
        self.server = make(config, token, policy)

    @property
    def url(self) -> str:
        """Its URL. Any thread."""
        return self.server.url

    @property
    def token(self) -> Token | None:
        """The reader of the token for operations. Any thread."""
        return self._given[1]

    def start(self) -> None:
        """Listen; raises ConfigError: the address cannot be used."""
        self.server.start()
        self._tell(self.url)

    def change(self, config: Config) -> None:
        """Replace the server by one of `config`.

        If both want the same port the old one is closed first, and listens again if the new one cannot.
        Raises ConfigError: the new one cannot listen, or a file cannot be used; the old one goes on.
        """
        given = config, self._read_token(config.admin), self._read_policy(config.admin)
        before, new = self.server, self._make(*given)
        same_port = new.wanted_port == before.port
        if same_port:
            before.close()
        try:
            new.start()
        except ConfigError:
            if same_port:
                self.server = self._make(*self._given)
                self.server.start()
            raise
        self.server, self._given = new, given
        self._tell(self.url)
        if not same_port:
            before.close()

    def close(self) -> None:
        """Stop listening; a second call does nothing."""
        self.server.close()
