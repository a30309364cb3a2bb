"""Asks a running process for its status."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from inbound.errors import InboundError
from inbound.http.pages import STATUS_VERSION
from inbound.status import ProcessStatus, process_status

#: More is no status. Bytes; one of 1,000 partitions has about 0.5 MB.
MAX_BODY = 256 * 1024 * 1024
#: What to do when the one asked for does not answer.
ELSEWHERE = "each process logs its address when it starts (`admin: http://...`): give that with --url"


def connection_to(url: str, timeout: float, tls: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
    """Return a connection to the host of `url`, not open yet; `tls` is for https, default: what the system trusts."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout, context=tls)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)


def fetch_status(url: str, timeout: float = 5.0, tls: ssl.SSLContext | None = None) -> Mapping[str, Any]:
    """Return the JSON that the admin port at `url` answers for `/status`; proxies are not used.

    `timeout` is in seconds, for connecting and for each read; `tls` is as in `connection_to`.

    Raises:
        InboundError: nobody answers, or not with a status; the message says which URL, why, and what to do.
    """
    parts = urlsplit(url)
    path = f"{parts.path.rstrip('/').removesuffix('/status')}/status"
    connection = connection_to(url, timeout, tls)
    try:
        connection.request("GET", path, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        body = answer.read(MAX_BODY)
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise InboundError(
            f"{url}: no answer: {_reason(error, timeout)}; is the process running? If so, {ELSEWHERE}"
        ) from None
    finally:
        connection.close()
    if answer.status != 200:
        first = body.decode(errors="replace").strip().partition("\n")[0][:200]
        raise InboundError(
            f"{url}: answered {answer.status} {answer.reason} for {path}: {first or '(nothing)'}; {ELSEWHERE}"
        )
    try:
        found = json.loads(body)
        version = found["v"]
    except (ValueError, KeyError, TypeError):
        raise InboundError(f"{url}: what answers there is not inbound; {ELSEWHERE}") from None
    if version != STATUS_VERSION:
        raise InboundError(
            f"{url}: gives its status in format {version}, this inbound reads format {STATUS_VERSION}; "
            "use `inbound status` of the version that runs there, or --json"
        )
    return found  # type: ignore[no-any-return]


def post(
    url: str, path: str, token: str | None, timeout: float, tls: ssl.SSLContext | None = None
) -> tuple[int, str, bytes]:
    """Send a POST to the admin port at `url`. Returns the status, the content type and the body of the answer.

    Raises:
        InboundError: nobody answers; whether it was done is not known.
    """
    connection = connection_to(url, timeout, tls)
    try:
        connection.request("POST", path, headers={"Authorization": f"Bearer {token}"} if token is not None else {})
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Content-Type", ""), answer.read(MAX_BODY)
    except (OSError, http.client.HTTPException) as error:
        raise InboundError(f"{url}: no answer: {_reason(error, timeout)}") from None
    finally:
        connection.close()


def processes_of(url: str, body: Mapping[str, Any]) -> list[ProcessStatus]:
    """Return what `fetch_status` found at `url`: one process, or those of `run --processes`.

    Raises:
        InboundError: it is no status.
    """
    try:
        several = body.get("processes")
        return [process_status(one) for one in ([body] if several is None else several)]
    except (ValueError, TypeError) as error:
        raise InboundError(f"{url}: {error}; {ELSEWHERE}") from None


def _reason(error: Exception, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"it took more than {timeout:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}; name its authority with --ca-file"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
