"""The client of the admin port gets status, explanations and operations.

It uses no proxy.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from inbound.admin.routes import EXPLAIN, EXPLAIN_VERSION, STATUS_VERSION
from inbound.errors import InboundError
from inbound.observe.status.status import ProcessStatus, process_status
from inbound.topic_partition import TopicPartition

#: Bytes of the longest answer: the status of 1,000 partitions has about 0.5 MB.
MAX_BODY = 256 * 1024 * 1024
#: The advice when the process does not answer.
ELSEWHERE = "each process logs its address when it starts (`admin: http://...`): give that with --url"

_JSON = {"Accept": "application/json"}


def fetch_status(url: str, timeout: float = 5.0, tls: ssl.SSLContext | None = None) -> Mapping[str, Any]:
    """Return the JSON of `/status` from the admin port at `url`.

    `timeout` is in seconds, for connecting and for each read; `tls` is for https, default: the system's authorities.

    Raises:
        InboundError: no process answers, or not with a status; the message has the URL, the reason, and what to do.
    """
    path = f"{urlsplit(url).path.rstrip('/').removesuffix('/status')}/status"
    try:
        answer, body = _ask("GET", url, path, _JSON, timeout, tls)
    except InboundError as error:
        raise InboundError(f"{error}; is the process running? If so, {ELSEWHERE}") from None
    found, version = _read(url, path, answer, body, f"; {ELSEWHERE}")
    if version != STATUS_VERSION:
        raise InboundError(
            f"{url}: gives its status in format {version}, this inbound reads format {STATUS_VERSION}; "
            "use `inbound status` of the version that runs there, or --json"
        )
    return found


def fetch_explanations(
    url: str, tp: TopicPartition, at: float | None = None, *, timeout: float = 5.0, tls: ssl.SSLContext | None = None
) -> list[dict[str, Any]]:
    """Return a partition's explanations, one per channel, from the process at `url`.

    `at` is Unix time, None: now; `timeout` and `tls` are as in `fetch_status`.

    Raises:
        InboundError: no process answers, or not with explanations; the message has the URL and the reason.
    """
    query = urlencode({"topic": tp.topic, "partition": tp.partition} | ({} if at is None else {"at": at}))
    path = f"{urlsplit(url).path.rstrip('/')}{EXPLAIN}"
    answer, body = _ask("GET", url, f"{path}?{query}", _JSON, timeout, tls)
    found, version = _read(url, EXPLAIN, answer, body)
    if version != EXPLAIN_VERSION:
        raise InboundError(
            f"{url}: answers in format {version}, this inbound reads {EXPLAIN_VERSION}; use the version that runs there"
        )
    return list(found.get("answers", ()))


def post(
    url: str, path: str, token: str | None, timeout: float, tls: ssl.SSLContext | None = None
) -> tuple[int, str, bytes]:
    """Send a POST; return status, content type and body.

    Raises:
        InboundError: no process answers; the operation may have been done.
    """
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    answer, body = _ask("POST", url, path, headers, timeout, tls)
    return answer.status, answer.headers.get("Content-Type", ""), body


def processes_of(url: str, body: Mapping[str, Any]) -> list[ProcessStatus]:
    """Return the processes in a body of `fetch_status`.

    There is one, or those of `run --processes`.

    Raises:
        InboundError: it is no status.
    """
    try:
        several = body.get("processes")
        return [process_status(one) for one in ([body] if several is None else several)]
    except (ValueError, TypeError) as error:
        raise InboundError(f"{url}: {error}; {ELSEWHERE}") from None


def _read(
    url: str, path: str, answer: http.client.HTTPResponse, body: bytes, advice: str = ""
) -> tuple[dict[str, Any], object]:
    """Return the JSON of an answer, and its version."""
    if answer.status != http.client.OK:
        first = body.decode(errors="replace").strip().partition("\n")[0][:200]
        raise InboundError(
            f"{url}: answered {answer.status} {answer.reason} for {path}: {first or '(nothing)'}{advice}"
        )
    try:
        found: dict[str, Any] = json.loads(body)
        return found, found["v"]
    except (ValueError, KeyError, TypeError):
        raise InboundError(f"{url}: what answers there is not inbound{advice}") from None


def _ask(
    method: str,
    url: str,
    path: str,
    headers: Mapping[str, str],
    timeout: float,
    tls: ssl.SSLContext | None,
) -> tuple[http.client.HTTPResponse, bytes]:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = (
        http.client.HTTPSConnection(host, port, timeout=timeout, context=tls)
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=timeout)
    )
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read(MAX_BODY)
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise InboundError(f"{url}: no answer: {_reason(error, timeout)}") from None
    finally:
        connection.close()


def _reason(error: Exception, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"it took more than {timeout:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}; name its authority with --ca-file"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
