"""The rights of clients to read, and to change something."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
from collections.abc import Callable, Collection
from http import HTTPStatus
from urllib.parse import SplitResult, urlsplit

from inbound.errors import InboundError
from inbound.http.server.page import Page, text
from inbound.http.server.server import Request

#: Returns the token that a client must send. May raise InboundError.
Token = Callable[[], str]


class Rights:
    """Refuses requests to read, or to change something. Any thread.

    A page can make a browser send any request, also to our address if a name in the DNS points to it. So the header `Host`
    must be an address, `localhost`, or one of `hosts`, and a page must be ours, for reading too. A client with a certificate or
    the token is no page.

    A verified client certificate is enough for changes, and so is the token. Without a token only loopback may change
    something, and not a browser for a page of another site. `certificates`: clients can show a certificate that we verify.
    `section` of the configuration is the listener's, `what` names its operations.
    """

    def __init__(
        self,
        token: Token | None,
        *,
        certificates: bool = False,
        log: logging.Logger | None = None,
        section: str = "admin",
        what: str = "operations",
        hosts: Collection[str] = (),
    ) -> None:
        self._token = token
        self._certificates = certificates
        self._section = section
        self._what = what
        self._log = log or logging.getLogger(__name__)
        self._hosts = frozenset((*hosts, "localhost", socket.gethostname().lower()))

    def refused_to_read(self, request: Request) -> Page | None:
        """Return the refusal of a request to read; None: it may."""
        if not (request.certificate is not None or self._is_named(request) or self._has_token(request)):
            return text(
                HTTPStatus.FORBIDDEN,
                f"the host {_shown(request.host)} is none that this port is asked by: name it in admin.hosts, or use an address, "
                "or localhost",
            )
        if request.origin is not None and _parsed(request.origin).netloc != (request.host or "").lower():
            return text(HTTPStatus.FORBIDDEN, "pages of other sites may read nothing here")
        return None

    def refused(self, request: Request, listening_at: str) -> Page | None:
        """Return the refusal of a request to change something; None: it may.

        `listening_at` is the address that the listener is bound to.
        """
        if request.certificate is not None:
            # A browser shows the certificate for a page of any site.
            return self._refused_as_other_site(request)
        if self._token is not None:
            return self._refused_by_token(request, self._token)
        if self._certificates:
            return text(
                HTTPStatus.FORBIDDEN,
                f"this needs a client certificate that {self._section}.tls.client_ca_file verifies",
            )
        if not is_loopback(listening_at):
            return text(
                HTTPStatus.FORBIDDEN,
                f"{self._what} need a token where the {self._section} port can be reached from other machines: "
                f"set {self._section}.token_file to a file that holds one, and send it as `Authorization: Bearer ...`",
            )
        return self._refused_as_other_host(request) or self._refused_as_other_site(request)

    def _refused_by_token(self, request: Request, read: Token) -> Page | None:
        try:
            token = read()
        except InboundError as error:
            self._log.error("%s: %s were refused: %s", self._section, self._what, error)
            return text(HTTPStatus.SERVICE_UNAVAILABLE, "the token cannot be read; see the log of the process")
        scheme, _, given = (request.authorization or "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode()):
            return self._refused_as_other_site(request) if request.origin is not None or request.cached else None
        return text(
            HTTPStatus.UNAUTHORIZED,
            f"this needs `Authorization: Bearer` with the token of {self._section}.token_file",
        ).with_header("WWW-Authenticate", "Bearer")

    def _refused_as_other_host(self, request: Request) -> Page | None:
        """Refuse other names.

        If one points to this machine, a browser takes its pages for ours.
        """
        host = _parsed(f"//{request.host or ''}").hostname or ""
        if is_loopback(host) or host in self._hosts:
            return None
        return text(
            HTTPStatus.FORBIDDEN,
            f"{self._what} are taken for localhost only: ask by that name, or set {self._section}.token_file",
        )

    def _is_named(self, request: Request) -> bool:
        if request.host is None:
            return True  # HTTP/1.0: no browser asks so
        host = _parsed(f"//{request.host}").hostname or ""
        return host in self._hosts or _address(host) is not None

    def _has_token(self, request: Request) -> bool:
        return self._token is not None and self._refused_by_token(request, self._token) is None

    def _refused_as_other_site(self, request: Request) -> Page | None:
        """Refuse pages of other sites.

        With GET a browser sends no Origin: then the page is unknown.
        """
        own = (request.host or "").lower()
        if request.from_browser if request.origin is None else _parsed(request.origin).netloc != own:
            return text(
                HTTPStatus.FORBIDDEN, f"{self._what} are not taken from pages of other sites; use the command line"
            )
        return None


def is_loopback(host: str) -> bool:
    """Whether `host` is an address that only this machine can reach."""
    address = _address(host)
    return address is not None and address.is_loopback


def _shown(host: str | None) -> str:
    """Return a host for an answer, cut to 100 characters."""
    text = host or ""
    return repr(text) if len(text) <= 100 else f"{text[:100]!r}..."


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _parsed(url: str) -> SplitResult:
    """Return a URL's parts; a malformed one has the impossible host `?`."""
    try:
        return urlsplit(url.lower())
    except ValueError:
        return SplitResult("", "?", "", "", "")
