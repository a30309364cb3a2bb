"""The listener of profiles is a separate server with separate rights."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from http import HTTPStatus

from inbound.clock import Clock, SystemClock
from inbound.config import ProfilingConfig
from inbound.errors import ConfigError
from inbound.http.server.page import Page
from inbound.http.server.rights import Rights, Token, is_loopback
from inbound.http.server.server import LIMITS, PageServer, Request
from inbound.observe.profiling.pages import PREFIX, ProfilePages

#: Enough for a few people; each may wait for minutes.
CONNECTIONS = replace(LIMITS, connections=16)
_HIGHEST_PORT = 65535
#: `Sec-Fetch-Site` of our own pages, and of an address that a person has typed.
_OF_A_PERSON = ("same-origin", "none")


class ProfilingListener:
    """Listens from `start` to `close`.

    `token` is required of every request; None: loopback needs none, and other addresses get no answer.

    Raises:
        ConfigError: a file that `config.tls` names cannot be used.
    """

    def __init__(
        self,
        config: ProfilingConfig,
        *,
        token: Token | None = None,
        index: int | None = None,
        hosts: Collection[str] = (),
        clock: Clock | None = None,
        log: logging.Logger | None = None,
    ) -> None:
        """`index`, this process's number under `run --processes`, is added to the port."""
        self._config = config
        self._port = port_of(config, index or 0)
        self._log = log or logging.getLogger(__name__)
        self._server = PageServer(self._answer, log=self._log, limits=CONNECTIONS, tls=config.tls, name="profiling")
        self._rights = Rights(
            token, certificates=config.tls is not None and config.tls.client_ca_file is not None, log=self._log,
            section="profiling", what="profiles", hosts=hosts,
        )  # fmt: skip
        self._token_in_clear = token is not None and config.tls is None
        self.pages = ProfilePages(clock or SystemClock(), config.heap_frames)

    def start(self) -> None:
        """Bind the port and serve.

        Raises:
            ConfigError: the address cannot be used; the message says why and what to do.
        """
        self._server.start(self._config.host, [self._port])
        if self._token_in_clear and not is_loopback(self._server.host):
            self._log.warning(
                "profiling: the token can be read on its way to %s; set profiling.tls to encrypt it", self.url
            )
        if self._config.heap:
            self.pages.heap.begin()
        self._log.info("profiling: %s%s", self.url, PREFIX)

    @property
    def url(self) -> str:
        """Its URL, without a slash at the end."""
        return self._server.url

    def interrupt(self) -> None:
        """End a running profile early, and take no more. Any thread."""
        self.pages.interrupt()

    def close(self) -> None:
        """Stop listening and tracing, and end every thread, in a few seconds.

        A second call does nothing.
        """
        self.interrupt()
        self._server.close()
        self.pages.heap.end()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _answer(self, request: Request) -> Page:
        request = request.with_password()
        request = replace(request, from_browser=request.from_browser and request.site not in _OF_A_PERSON)
        page = self._rights.refused_to_read(request) or self._rights.refused(request, self._server.host)
        if page is not None:
            if page.code == HTTPStatus.UNAUTHORIZED:
                # `go tool pprof http://x:TOKEN@host/...` and browsers know no other way to send it.
                page = page.with_header("WWW-Authenticate", 'Basic realm="profiling"')
            return page.with_header("X-Go-Pprof", "1")
        return self.pages.answer(request)


def port_of(config: ProfilingConfig, index: int) -> int:
    """Return the port of the process `index`; raises ConfigError: none so high."""
    port = config.port + index if config.port else 0
    if port > _HIGHEST_PORT:
        raise ConfigError(
            f"profiling.listen: process {index} would have port {port}, and {_HIGHEST_PORT} is the highest"
        )
    return port
