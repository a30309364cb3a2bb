"""Both transports against a real receiver on this machine: one suite."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest

from inbound.http.client.client import Client
from inbound.http.client.exchange import MOST_READ
from inbound.processors.dispatch.requests_transport import RequestsTransport
from inbound.processors.dispatch.transport import Answer, Target, Transport
from tests.http_receiver import CERTIFICATES, Dripping, Receiver, receiver

__all__ = ["receiver"]  # the fixture

Make = Callable[[asyncio.AbstractEventLoop], Transport]
LINES = [b"ce-id: 1", b"ce-source: /tests", b"content-type: text/plain"]


@pytest.fixture(params=[Client, RequestsTransport], ids=["http", "requests"])
def make(request: pytest.FixtureRequest) -> Make:
    """What makes a transport."""
    made: Make = request.param
    return made


def target(url: str, **more: Any) -> Target:
    return replace(Target(url, 1.5, 1.0), **more)


def post(make: Make, to: Target, *bodies: bytes, lines: list[bytes] = LINES) -> list[Answer]:
    """Post these bodies at once, and return the answers in the order in which they came."""

    async def run() -> list[Answer]:
        transport = make(asyncio.get_running_loop())
        answers: list[Answer] = []
        all_there = asyncio.Event()

        def done(answer: Answer) -> None:
            answers.append(answer)
            if len(answers) == len(bodies):
                all_there.set()

        for body in bodies:
            transport.post(to, lines, body, done)
        assert not answers, "answered from within"
        await asyncio.wait_for(all_there.wait(), 10)
        transport.close()
        return answers

    return asyncio.run(run())


def test_a_request_arrives_as_it_was_given(make: Make, receiver: Receiver) -> None:
    """Its lines, those of the target, and the bytes of the body; nothing is invented."""
    body = bytes(range(256))
    answers = post(make, target(f"{receiver.url}/in?a=b", headers=(b"x-own: 1", b"user-agent: inbound")), body)
    (request,) = receiver.requests
    told = {name for name in request.headers if name not in ("accept", "accept-encoding", "connection")}
    assert (answers[0].status, request.target, request.body) == (204, "/in?a=b", body)
    assert told == {"host", "user-agent", "content-length", "content-type", "ce-id", "ce-source", "x-own"}
    assert (request.headers["content-type"], request.headers["x-own"]) == ("text/plain", "1")


def test_an_answer_in_pieces_of_two_bytes_takes_no_more_than_its_size(make: Make) -> None:
    """A list of them took thirty times as much, for each of 64 connections."""
    head, chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"2\r\nab\r\n"
    tracemalloc.start()
    with closing(Dripping(head + chunk * 200_000 + b"0\r\n\r\n", b"")) as subscriber:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        (answer,) = post(make, target(subscriber.url, wants_reply=True, timeout=20.0), b"x")
        most = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()

    assert (len(answer.body), most < 4_000_000) == (400_000, True)


def test_cookies_of_a_subscriber_are_not_kept(make: Make, receiver: Receiver) -> None:
    """Each answer could bring a hundred more, of 64 KiB each; and they would go with all that is sent from then on."""
    receiver.answer_headers = {"Set-Cookie": "a=b; Path=/"}
    for_one = target(receiver.url, connections=1)
    post(make, for_one, b"x", b"y")

    assert ["cookie" in request.headers for request in receiver.requests] == [False, False]


def test_without_a_content_type_none_is_sent(make: Make, receiver: Receiver) -> None:
    """Clients like to make one up."""
    post(make, target(receiver.url), b"x", lines=LINES[:2])
    assert "content-type" not in receiver.requests[0].headers


def test_connections_are_kept_and_no_more_than_allowed(make: Make, receiver: Receiver) -> None:
    """However many requests are posted at once."""
    answers = post(make, target(receiver.url, connections=3), *[b"%d" % n for n in range(30)])
    assert (len(answers), sorted(int(r.body) for r in receiver.requests)) == (30, list(range(30)))
    assert len({request.port for request in receiver.requests}) <= 3


def test_the_answer_is_kept_where_replies_are_wanted(make: Make, receiver: Receiver) -> None:
    """Headers in lower case, and the whole body."""
    receiver.status = lambda number: 200
    receiver.answer_headers = {"Ce-Id": "r", "Content-Type": "text/x"}
    receiver.answer_body = b"reply" * 50_000
    (answer,) = post(make, target(receiver.url, wants_reply=True), b"x")
    headers = dict(answer.headers)
    assert (headers[b"ce-id"], headers[b"content-type"], answer.body, answer.cut) == (
        b"r", b"text/x", b"reply" * 50_000, False,
    )  # fmt: skip


def test_of_a_long_answer_the_beginning_is_read(make: Make, receiver: Receiver) -> None:
    """Its status counts."""
    receiver.status = lambda number: 200
    receiver.answer_body = b"x" * (3 * MOST_READ)
    (answer,) = post(make, target(receiver.url), b"x")
    assert (answer.status, len(answer.body), answer.cut, answer.problem) == (200, MOST_READ, True, None)


@pytest.mark.parametrize(("said", "low", "high"), [("7", 7.0, 7.0), ("date", 25.0, 31.0), ("soon", None, None)])
def test_what_the_receiver_asks_for_is_read(make: Make, receiver: Receiver, said: str, low: Any, high: Any) -> None:
    """Retry-After as a number, as a date, and as nonsense."""
    receiver.status = lambda number: 503
    receiver.answer_headers = {"Retry-After": formatdate(time.time() + 30, usegmt=True) if said == "date" else said}
    (answer,) = post(make, target(receiver.url), b"x")
    assert answer.retry_after is None if low is None else low <= (answer.retry_after or 0.0) <= high


def test_redirects_are_answers(make: Make, receiver: Receiver) -> None:
    """They are not followed."""
    receiver.status = lambda number: 307
    receiver.answer_headers = {"Location": f"{receiver.url}/elsewhere"}
    (answer,) = post(make, target(receiver.url), b"x")
    assert (answer.status, len(receiver.requests)) == (307, 1)


def test_no_connection_is_a_problem(make: Make, receiver: Receiver) -> None:
    """The listener is closed."""
    gone = Receiver()
    gone.close()
    (answer,) = post(make, target(gone.url), b"x")
    assert (answer.status, answer.problem is not None and "connection" in answer.problem) == (0, True)


def test_an_answer_that_does_not_come_is_a_problem(make: Make, receiver: Receiver) -> None:
    """After the time for the whole request."""
    hold = threading.Event()

    def status(number: int) -> int:
        hold.wait(5)
        return 204

    receiver.status = status
    (answer,) = post(make, target(receiver.url, timeout=0.2, connect_timeout=0.2), b"x")
    hold.set()
    assert (answer.status, answer.problem) == (0, "no whole answer within timeout (200ms)")


@pytest.mark.parametrize(
    "first",
    [b"HTTP/1.1 200 OK\r\nname: ", b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n"],
    ids=["headers", "body"],
)
def test_an_answer_that_drips_is_not_waited_for(make: Make, first: bytes) -> None:
    """The timeout is for the whole request: not for each byte."""
    with closing(Dripping(first, b"x")) as dripping:
        (answer,) = post(make, target(dripping.url, timeout=0.15, connect_timeout=0.15), b"x")
    assert answer.problem == "no whole answer within timeout (150ms)"


def test_tls_with_an_authority_and_a_client_certificate(make: Make) -> None:
    """And not without them."""
    receiver = Receiver(tls=True, client_certificate=True)
    files = {"ca_file": CERTIFICATES / "ca.pem", "client_cert": CERTIFICATES / "client.pem"}
    try:
        good = post(make, target(receiver.url, **files), b"x")
        bad = post(make, target(receiver.url), b"x")
    finally:
        receiver.close()
    assert (good[0].status, bad[0].status, "TLS" in (bad[0].problem or "")) == (204, 0, True)


def test_tls_with_an_authority_that_the_options_hold_themselves(make: Make) -> None:
    """As Knative gives it to each subscriber."""
    receiver = Receiver(tls=True)
    try:
        (answer,) = post(make, target(receiver.url, ca_text=(CERTIFICATES / "ca.pem").read_text()), b"x")
    finally:
        receiver.close()
    assert (answer.status, answer.problem) == (204, None)


def test_what_was_posted_to_a_target_that_is_retired_is_sent_all_the_same(make: Make, receiver: Receiver) -> None:
    """More of it than there are connections."""

    async def run() -> int:
        transport, to, left = make(asyncio.get_running_loop()), target(receiver.url, connections=2), asyncio.Event()
        answers: list[Answer] = []

        def done(answer: Answer) -> None:
            answers.append(answer)
            if len(answers) == 10:
                left.set()

        for number in range(10):
            transport.post(to, LINES, b"%d" % number, done)
        while not answers:
            await asyncio.sleep(0)
        transport.retire(to)
        await asyncio.wait_for(left.wait(), 10)
        transport.close()
        return sum(answer.status == 204 for answer in answers)

    assert asyncio.run(run()) == 10
