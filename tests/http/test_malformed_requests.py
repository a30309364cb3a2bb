"""What is no clear request is refused at every listener, once, and nothing behind it is read."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from inbound.config import ProfilingConfig
from inbound.observe.profiling.listener import ProfilingListener
from tests.admin.admin_stage import Make, make
from tests.http.malformed_requests import MALFORMED, NEXT
from tests.ingress.ingress_stage import running

__all__ = ["make"]  # the fixture


@pytest.fixture(params=["admin", "profiling", "ingress"])
def port(request: pytest.FixtureRequest, make: Make) -> Iterator[int]:
    """The port of a listener."""
    if request.param == "admin":
        yield make().port
    elif request.param == "profiling":
        listener = ProfilingListener(ProfilingConfig(listen="127.0.0.1:0"))
        listener.start()
        yield int(listener.url.rpartition(":")[2])
        listener.close()
    else:
        with running() as (ingress, _):
            yield int(ingress.url.rpartition(":")[2])


def answers(port: int, sent: bytes) -> list[int]:
    """Send something, and `NEXT` behind it. Returns the statuses of what is answered until the server hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        found = b""
        try:
            client.sendall(sent + NEXT)
            client.shutdown(socket.SHUT_WR)
            while data := client.recv(65536):
                found += data
        except (ConnectionResetError, BrokenPipeError):
            pass  # it hung up while we were sending
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) [A-Z]", found)]


def test_a_length_of_thousands_of_zeros_is_a_length(port: int) -> None:
    """Python reads no number of so many digits: each such request was a trace in the log, and got no answer."""
    found = answers(
        port, b"POST /topics/orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"0" * 5000 + b"1\r\n\r\nx"
    )

    assert (len(found), set(found) <= {400, 403, 404, 405}) == (2, True)


def test_there_are_enough_of_them() -> None:
    """Each another."""
    assert (len(MALFORMED) >= 100, len({sent for _, sent in MALFORMED})) == (True, len(MALFORMED))


def test_what_is_no_clear_request_is_refused_and_nothing_behind_it_is_answered(port: int) -> None:
    """At most one answer, and no good one: 400, 405, 413, 414, 431, 501 or 505."""
    found = {name: answers(port, sent) for name, sent in MALFORMED}

    wrong = {
        name: statuses
        for name, statuses in found.items()
        if len(statuses) > 1 or not set(statuses) <= {400, 403, 404, 405, 413, 414, 431, 501, 505}
    }
    silent = [name for name, statuses in found.items() if not statuses]
    assert (wrong, silent) == ({}, [])
