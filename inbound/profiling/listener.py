"""The listener of profiles: an HTTP server of its own, with rights of its own."""

from __future__ import annotations

import base64
import logging
from collections.abc import Collection
from dataclasses import replace
from http import HTTPStatus

from inbound.clock import Clock, SystemClock
from inbound.config import ProfilingConfig
from inbound.errors import ConfigError
from inbound.http.addresses import problem, resolved, url_of
from inbound.http.pages import Page, text
from inbound.http.rights import Rights, Token, is_loopback
from inbound.http.server import LIMITS, Request, Server
from inbound.http.tls import Certificates, PemFiles
from inbound.profiling.answers import PREFIX, Answers

KEY = "profiling.listen"
#: Enough for a few people; each may wait for minutes.
CONNECTIONS = replace(LIMITS, connections=16)
_HIGHEST_PORT = 65535
#: Where a browser says that the page stands which asks: here, or nowhere, because a person has typed the address.
_OF_A_PERSON = ("same-origin", "none")


class ProfilingListener:
    """Listens from `start` to `close`, both called by the owner; answers in threads of its own.

    `token` says what whoever asks must know; None: nothing on loopback, and elsewhere nothing is answered.

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
        """`index` is this process's number under `run --processes`: each listens on the port that is so much higher."""
        self._config = config
        self._port = port_of(config, index or 0)
        self._log = log or logging.getLogger(__name__)
        self._certificates = (
            Certificates(PemFiles.of_admin(config.tls, "profiling"), self._log) if config.tls is not None else None
        )
        self._rights = Rights(
            token, certificates=config.tls is not None and config.tls.client_ca_file is not None, log=self._log,
            section="profiling", what="profiles", hosts=hosts,
        )  # fmt: skip
        self._token_in_clear = token is not None and config.tls is None
        self.answers = Answers(clock or SystemClock(), config.heap_frames)
        self._server: Server | None = None

    def start(self) -> None:
        """Bind the port and serve.

        Raises:
            ConfigError: the address cannot be used; the message says why and what to do.
        """
        family, address = resolved(self._config.host, self._port, KEY)
        try:
            server = Server(
                family, address, self._answer, log=self._log, limits=CONNECTIONS, certificates=self._certificates,
                name="profiling",
            )  # fmt: skip
        except OSError as error:
            raise ConfigError(problem(error, self._config.host, str(self._port), KEY)) from None
        self._server = server
        if self._token_in_clear and not is_loopback(str(server.server_address[0])):
            self._log.warning(
                "profiling: the token can be read on its way to %s; set profiling.tls to encrypt it", self.url
            )
        if self._config.heap:
            self.answers.heap.begin()
        server.start()
        self._log.info("profiling: %s%s", self.url, PREFIX)

    @property
    def url(self) -> str:
        """Where others reach it, without a slash at the end."""
        if self._server is None:
            raise RuntimeError("the listener of profiles was not started")
        return url_of(tuple(self._server.server_address), tls=self._certificates is not None)

    def interrupt(self) -> None:
        """End a profile that is being taken, with what there is, and take no more. Any thread."""
        self.answers.interrupt()

    def close(self) -> None:
        """Stop listening, trace no more, and end every thread, in at most a few seconds. May be called twice."""
        self.interrupt()
        if self._server is not None:
            self._server.close()
            self.answers.heap.end()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _answer(self, request: Request) -> Page:
        assert self._server is not None
        request = _as_asked(request)
        page = self._rights.refused_to_read(request) or self._rights.refused(
            request, str(self._server.server_address[0])
        )
        if page is not None:
            if page.code == HTTPStatus.UNAUTHORIZED:
                # `go tool pprof http://x:TOKEN@host/...` and browsers know no other way to send it.
                page = page.with_header("WWW-Authenticate", 'Basic realm="profiling"')
            return page.with_header("X-Go-Pprof", "1")
        try:
            return self.answers.answer(request)
        except Exception:
            self._log.exception("profiling: %s could not be answered", request.path)
            return text(HTTPStatus.INTERNAL_SERVER_ERROR, "it failed; see the log of the process")


def port_of(config: ProfilingConfig, index: int) -> int:
    """Return the port of the process of that number. Raises ConfigError: there is none so high."""
    port = config.port + index if config.port else 0
    if port > _HIGHEST_PORT:
        raise ConfigError(f"{KEY}: process {index} would have port {port}, and {_HIGHEST_PORT} is the highest")
    return port


def _as_asked(request: Request) -> Request:
    """Return what is asked with the token where rights look for it, and as a person's where a browser says that."""
    scheme, _, given = (request.authorization or "").partition(" ")
    if scheme.lower() == "basic":
        try:
            password = base64.b64decode(given.strip(), validate=True).decode().partition(":")[2]
        except ValueError:  # no base64, or no text in it
            password = ""
        request = replace(request, authorization=f"Bearer {password}", cached=True)
    return replace(request, from_browser=request.from_browser and request.site not in _OF_A_PERSON)
