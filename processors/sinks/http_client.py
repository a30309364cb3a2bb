"""Posts to one URL in bounded time, without redirects, over kept connections."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)
from urllib3.util import Url

from inbound.config.units import format_duration
from inbound.errors import SinkError
from inbound.processors.cloudevents_http import HttpAnswer, HttpMessage

#: The most idle connections that are kept; more threads at once open new ones.
KEPT_CONNECTIONS = 64
#: The most bytes that are read of an answer; for a longer one the connection is closed.
MOST_READ = 64 * 1024

_ADVICE: Mapping[int, str] = {
    400: "the receiver cannot read it: correct `mode` or `batch`, or the receiver",
    401: "correct the credentials in `headers`",
    403: "correct the credentials in `headers`",
    404: "correct `url`",
    405: "correct `url`: it takes no POST",
    410: "correct `url`",
    413: "send less at once: `batch: false`, or a smaller `reader.batch_bytes`",
    415: "the receiver does not know this encoding: correct `mode` or `batch`",
    429: "the receiver wants less: set `max_read_rate`",
}


class HttpClient:
    """Posts to one URL. Any thread; each request has its own connection."""

    def __init__(
        self,
        url: Url,
        *,
        headers: Mapping[str, str],
        connect_timeout: float,
        timeout: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`headers` go with every request; the timeouts are in seconds.

        `connect_timeout` is for a connection, and then for sending; `timeout` is for the whole request.
        """
        assert url.host is not None, url
        self._target = url.request_uri
        #: How messages name the URL: a query can hold a token.
        self.shown = f"{url.scheme}://{url.netloc}{url.path or '/'}"
        own = {name.lower(): value for name, value in headers.items()}
        self._headers = {"user-agent": "inbound", "accept-encoding": "identity", **own}
        self._connect_timeout, self._timeout = connect_timeout, timeout
        self._pool: HTTPConnectionPool
        if url.scheme == "https":
            self._pool = _TlsPool(url.host, url.port, maxsize=KEPT_CONNECTIONS, block=False, ssl_context=tls)
        else:
            self._pool = _Pool(url.host, url.port, maxsize=KEPT_CONNECTIONS, block=False)

    def post(self, message: HttpMessage) -> HttpAnswer:
        """Send `message` once, and return the answer, of any status.

        Raises:
            SinkError: there was no whole answer; the receiver may have the message nevertheless.
        """
        try:
            response = self._pool.urlopen(
                "POST",
                self._target,
                body=message.body,
                headers={**self._headers, **message.headers},
                timeout=Timeout(connect=self._connect_timeout, total=self._timeout),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                body = response.read(MOST_READ + 1, decode_content=False)
            except BaseException:
                response.close()
                raise
            if len(body) > MOST_READ:
                response.close()
            else:
                response.release_conn()
        except (HTTPError, http.client.HTTPException, OSError) as error:
            raise SinkError(f"POST {self.shown}: {self._cause(error)}") from error
        return HttpAnswer(response.status, response.headers, body[:MOST_READ])

    def check(self, answer: HttpAnswer) -> None:
        """Raise SinkError unless `answer` is 2xx."""
        status = answer.status
        if not 200 <= status < 300:
            said = f"{status} {http.client.responses.get(status, '')}".strip()
            raise SinkError(f"POST {self.shown}: answered {said}; {_advice(status)}")

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    def _cause(self, error: Exception) -> str:
        if isinstance(error, NameResolutionError):
            return "the host's name has no address; correct `url`, or the name service"
        if isinstance(error, NewConnectionError):
            reason = getattr(error.__cause__, "strerror", None) or error
            return f"no connection: {reason}; start the receiver, or correct `url`"
        if isinstance(error, ConnectTimeoutError):
            return (
                f"no connection within connect_timeout ({format_duration(self._connect_timeout)}); see to the receiver"
            )
        if isinstance(error, (ReadTimeoutError, TimeoutError)):
            return (
                f"no whole answer within timeout ({format_duration(self._timeout)}); see to the receiver, or raise it"
            )
        if isinstance(error, SSLError):
            return f"TLS: {error}; correct `ca_file` or `client_cert`, or the receiver's certificate"
        if any(isinstance(part, TimeoutError) for part in error.args):
            limit = format_duration(self._connect_timeout)
            return f"the request was not taken within connect_timeout ({limit}); see to the receiver, or raise it"
        return f"the connection broke: {error}; see to the receiver"


def _advice(status: int) -> str:
    if 300 <= status < 400:
        return "redirects are not followed: put the address itself in `url`"
    return _ADVICE.get(status) or ("see to the receiver" if status >= 500 else "see what the receiver wants")


class _UntilDeadline(io.RawIOBase):
    """The reading side of a socket, with a deadline.

    A socket's own timeout is for each read: a receiver that sends a byte now and then could hold a thread without end.
    """

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: float) -> None:
        self._raw = raw
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time for the whole answer is over")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    """An answer that must be complete in the time that is left."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        left = sock.gettimeout()
        assert left is not None
        reader = _UntilDeadline(self.fp.detach(), sock, time.monotonic() + left)
        self.fp = io.BufferedReader(reader)


class _Connection(HTTPConnection):
    response_class = _TimedResponse


class _TlsConnection(HTTPSConnection):
    response_class = _TimedResponse


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


#: Pools by scheme for a urllib3 `PoolManager`; the read timeout is for the whole answer.
TIMED_POOLS: Mapping[str, type[HTTPConnectionPool]] = {"http": _Pool, "https": _TlsPool}
