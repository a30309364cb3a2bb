"""Snapshots made by hand, and a way to ask an admin port; for the tests of metrics, admin port and status."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from inbound.observe.status.status import ChannelStatus, PartitionStatus, ProcessStatus, SessionStatus, ThreadStatus

#: Unix time at which the made snapshots are a minute old: 2025-02-01 00:01:00 UTC.
NOW = 1738368060.0


def partition(number: int = 0, **changes: Any) -> PartitionStatus:
    """Return a partition of `orders` that does well."""
    made = PartitionStatus(
        topic="orders", partition=number, place="scheduled", leaving=False, epoch=7, position=1500, committed=1400,
        high_watermark=2000, lag=600, buffered_bytes=4096, records_total=500, batches_total=5, commits_total=4,
        attempts=0, held=None, last_error=None, last_batch_at=NOW - 4, in_doubt=False,
    )  # fmt: skip
    return replace(made, **changes)


def channel(**changes: Any) -> ChannelStatus:
    """Return a channel that holds orders/0 and orders/1 of four."""
    made = ChannelStatus(
        name="orders", group="orders-svc", consumer_id="host-1", coordinator="dynamic", registered=True,
        topics={"orders": 4}, members=["host-1", "host-2"], share=2, partitions=[partition(0), partition(1)],
        abandoned=[], records_total=1234, batches_total=12, commits_total=11, commits_waiting=1,
        commits_fenced_total=0, not_sent_total=3, zk_transactions_total=9, consumed={"orders/0": 500, "orders/3": 734},
        kafka_problem=None, ledger_problem=None, provable=True,
    )  # fmt: skip
    return replace(made, **changes)


def session(**changes: Any) -> SessionStatus:
    """Return a session that lives."""
    made = SessionStatus(
        state="member", id="0x1000ab", timeout=10.0, certain_for=6.2, sessions_total=1, evaluations_total=30
    )
    return replace(made, **changes)


def process(**changes: Any) -> ProcessStatus:
    """Return a process with one channel, started a minute ago."""
    threads = [
        ThreadStatus(name="controller", alive=True, last_step_age=0.2, failures=0),
        ThreadStatus(name="orders-worker-0", alive=True, last_step_age=300.0, failures=2, in_callback=True),
    ]
    made = ProcessStatus(
        version="0.1.0", pid=4711, host="host", started="2025-02-01T00:00:00+00:00", stopping=False,
        session=session(), channels=[channel()], threads=threads,
    )  # fmt: skip
    return replace(made, **changes)


class Answer(NamedTuple):
    """What an HTTP server answered."""

    code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


def ask(url: str, path: str, method: str = "GET", **headers: str) -> Answer:
    """Send one request without a body on a connection of its own."""
    return send(url, path, method, headers)


def send(
    url: str,
    path: str,
    method: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """Send one request on a connection of its own; `tls` is for https."""
    parts = urlsplit(url)
    connection = (
        http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        if tls is None
        else http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=60, context=tls)
    )
    with closing(connection):
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read())
