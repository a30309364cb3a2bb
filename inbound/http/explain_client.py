"""Asks a running process why a partition stands still."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlencode, urlsplit

from inbound.errors import InboundError
from inbound.http.client import connection_to
from inbound.http.explanations import EXPLAIN_VERSION, PATH
from inbound.topic_partition import TopicPartition

#: More is no answer: that has some 10 KB. Bytes.
MAX_BODY = 16 * 1024 * 1024


def fetch_explanations(
    url: str, tp: TopicPartition, at: float | None = None, *, timeout: float = 5.0, tls: ssl.SSLContext | None = None
) -> list[dict[str, Any]]:
    """Return what the process at `url` says of a partition, an answer for each of its channels concerned.

    `at` is Unix time, None: now; `timeout` is in seconds, for connecting and for each read.

    Raises:
        InboundError: nobody answers, or not that; the message says which URL and why.
    """
    query = urlencode({"topic": tp.topic, "partition": tp.partition} | ({} if at is None else {"at": at}))
    connection = connection_to(url, timeout, tls)
    try:
        connection.request(
            "GET", f"{urlsplit(url).path.rstrip('/')}{PATH}?{query}", headers={"Accept": "application/json"}
        )
        answer = connection.getresponse()
        body = answer.read(MAX_BODY)
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        said = f"nothing within {timeout:g} s" if isinstance(error, TimeoutError) else said
        raise InboundError(f"{url}: no answer: {said}") from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        first = body.decode(errors="replace").strip().partition("\n")[0][:200]
        raise InboundError(f"{url}: answered {answer.status} {answer.reason} for {PATH}: {first or '(nothing)'}")
    try:
        found = json.loads(body)
        if found["v"] == EXPLAIN_VERSION:
            return list(found["answers"])
    except (ValueError, KeyError, TypeError):
        raise InboundError(f"{url}: what answers there is not inbound") from None
    raise InboundError(
        f"{url}: answers in format {found['v']}, this inbound reads {EXPLAIN_VERSION}; use the one that runs there"
    )
