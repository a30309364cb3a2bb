"""The HTTP client on real sockets: what receivers do to connections and answers, and what comes of a request then."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest
import uvloop
from urllib3.util import parse_url

from inbound.http.client import client
from inbound.http.client.client import Client
from inbound.http.client.exchange import Answer, Target
from tests.http.wrong_answers import FINE, WAYS, Way
from tests.http_receiver import Receiver, receiver
from tests.raw_receiver import RawReceiver, Then

__all__ = ["receiver"]  # the fixture


@pytest.fixture(params=["sockets", "loop"], autouse=True)
def reads_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections without TLS are read by `Sockets`, and by the loop where the system has no epoll."""
    if request.param == "loop":
        monkeypatch.setattr(client, "AVAILABLE", False)


def target(url: str, **more: Any) -> Target:
    return replace(Target(url, 5.0, 1.0, connections=1), **more)


async def answered(posting: Client, to: Target, body: bytes) -> Answer:
    """Post a body. Returns its answer."""
    came: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    posting.post(to, [b"ce-id: 1"], body, came.set_result)
    return await asyncio.wait_for(came, 10)


def post_in_turn(to: Target, *bodies: bytes, at_once: bool = False) -> list[Answer]:
    """Post these bodies, each when the one before has its answer or all `at_once`. Returns the answers.

    Any complaint of the loop fails the test.
    """

    async def run() -> list[Answer]:
        loop = asyncio.get_running_loop()
        complaints: list[Any] = []
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        posting = Client(loop)
        if at_once:
            answers = await asyncio.gather(*[answered(posting, to, body) for body in bodies])
        else:
            answers = [await answered(posting, to, body) for body in bodies]
        posting.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert (complaints, left) == ([], set())
        return answers

    return uvloop.run(run())


@contextmanager
def raw(*answers: tuple[bytes, Then]) -> Iterator[RawReceiver]:
    with closing(RawReceiver(*answers)) as made:
        yield made


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_wrong_answer_is_one_request_s_trouble(way: Way) -> None:
    """Any answer is a status or a problem; and the next request has its own answer and no other."""
    with raw((way.answer, way.then), (FINE, Then.STAYS)) as wrong:
        first, second = post_in_turn(target(wrong.url), b"one", b"two")
    assert (first.status if first.problem is None else 0, first.problem is None) == (way.status, way.status != 0)
    assert way.body is None or first.body == way.body
    assert (second.status, second.body, second.problem) == (200, b"ok", None)


def test_a_connection_that_was_closed_meanwhile_costs_nothing() -> None:
    """As receivers do after a while, without a word."""
    with raw((FINE, Then.CLOSES)) as closing_one:
        answers = post_in_turn(target(closing_one.url), *[b"x"] * 5)
    assert ([answer.status for answer in answers], len(closing_one.requests)) == ([200] * 5, 5)


def test_a_request_that_a_closing_connection_has_swallowed_is_sent_once_more() -> None:
    """On a new connection, at once; the second failure is reported."""
    swallowed = (b"", Then.CLOSES)
    with raw((FINE, Then.STAYS), swallowed, (FINE, Then.STAYS), swallowed, swallowed, (FINE, Then.STAYS)) as one:
        answers = post_in_turn(target(one.url), b"1", b"2", b"3", b"4")
    assert [(answer.status, answer.problem) for answer in answers] == [
        (200, None), (200, None), (0, "the connection broke (closed before the answer was whole)"), (200, None),
    ]  # fmt: skip
    assert [request[-1:] for request in one.requests] == [b"1", b"2", b"2", b"3", b"3", b"4"]


def test_a_client_that_is_closed_takes_nothing_from_another_one_of_its_loop() -> None:
    """They share what watches their connections; also where it is closed twice, and in the midst of its own answer."""

    async def run(to: Target) -> list[int]:
        one, other = Client(asyncio.get_running_loop()), Client(asyncio.get_running_loop())
        came = asyncio.Queue[int]()

        def closes(answer: Answer) -> None:
            one.close()
            one.close()
            came.put_nowait(answer.status)

        first = (await answered(other, to, b"1")).status
        one.post(to, [], b"2", closes)
        answers = [first, await asyncio.wait_for(came.get(), 5), (await answered(other, to, b"3")).status]
        other.close()
        return answers

    with raw((FINE, Then.STAYS)) as kept:
        answers = uvloop.run(run(target(kept.url)))
    assert (answers, kept.connections) == ([200] * 3, 2)


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_a_request_does_not_go_by_a_connection_on_which_something_came_that_nobody_asked_for(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies say 408 before they close what is idle; and the next event comes in that very turn of the loop."""
    unasked = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    data_received = client.ClientConnection.data_received

    async def run(to: Target, saying: RawReceiver) -> list[Answer]:
        posting, answers, both = Client(asyncio.get_running_loop()), list[Answer](), asyncio.Event()

        def done(answer: Answer) -> None:
            answers.append(answer)
            saying.say(unasked) if len(answers) == 1 else both.set()

        def received(connection: client.ClientConnection, data: bytes) -> None:
            data_received(connection, data)
            if data == unasked:
                posting.post(to, [], b"second", done)

        monkeypatch.setattr(client.ClientConnection, "data_received", received)
        posting.post(to, [], b"first", done)
        await asyncio.wait_for(both.wait(), 5)
        posting.close()
        return answers

    with raw((FINE, Then.STAYS)) as saying, asyncio.Runner(loop_factory=new_loop) as runner:
        answers = runner.run(run(target(saying.url), saying))
    assert [answer.status for answer in answers] == [200, 200]


def test_an_answer_that_comes_twice_is_not_that_of_a_request_that_was_not_sent_yet() -> None:
    """The next event is posted before the loop has read it; a request that was never sent would count as delivered."""

    async def run(to: Target, saying: RawReceiver) -> list[int]:
        posting = Client(asyncio.get_running_loop())
        first = await answered(posting, to, b"1")
        saying.say(FINE)
        second = await answered(posting, to, b"2")
        async with asyncio.timeout(2):
            while len(saying.requests) < 2:
                await asyncio.sleep(0)
        posting.close()
        return [first.status, second.status]

    with raw((FINE, Then.STAYS)) as saying:
        answers = uvloop.run(run(target(saying.url), saying))
    assert (answers, [request[-1:] for request in saying.requests]) == ([200, 200], [b"1", b"2"])


def test_a_connection_that_was_idle_for_long_is_not_used(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> None:
    """What stands between may have forgotten it: the request would wait for its timeout."""
    monkeypatch.setattr(client, "LONGEST_IDLE", -1.0)
    post_in_turn(target(receiver.url), b"x", b"y")
    assert len({request.port for request in receiver.requests}) == 2


@pytest.mark.parametrize(
    ("url", "asked", "host"),
    [
        ("http://host", "/", "host"),
        ("http://host?a=b", "/?a=b", "host"),
        ("http://Host:8080/Path", "/Path", "host:8080"),
        ("https://host:443/", "/", "host:443"),
        ("http://[::1]", "/", "[::1]"),
        ("http://[::1]:8080/path", "/path", "[::1]:8080"),
    ],
)
def test_what_is_asked_for_and_of_which_host(url: str, asked: str, host: str) -> None:
    """A host alone is asked for `/`; the port is named where the URL has one."""
    head = client._head(parse_url(url), target(url))
    assert head == f"POST {asked} HTTP/1.1\r\nhost: {host}".encode()


@pytest.mark.parametrize(("listens", "written"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_a_host_alone_is_reached(listens: str, written: str) -> None:
    """By IPv4 and by IPv6."""
    try:
        made = RawReceiver((FINE, Then.STAYS), host=listens)
    except OSError as error:
        assert listens == "::1"
        pytest.skip(f"this machine has no IPv6: {error}")
    with closing(made) as there:
        post_in_turn(target(there.url), b"x")
    port = there.url.rpartition(":")[2]
    assert there.requests == [
        f"POST / HTTP/1.1\r\nhost: {written}:{port}\r\nce-id: 1\r\ncontent-length: 1\r\n\r\nx".encode()
    ]


def test_user_and_password_of_the_url_go_as_basic_authorization(receiver: Receiver) -> None:
    """Decoded; a configured header wins."""
    url = receiver.url.replace("://", "://us%65r:p%40ss@")
    post_in_turn(target(url), b"x")
    post_in_turn(target(url, headers=(b"Authorization: Bearer t",)), b"x")
    assert [request.headers["authorization"] for request in receiver.requests] == [
        "Basic dXNlcjpwQHNz", "Bearer t",
    ]  # fmt: skip


def test_a_host_is_reached_by_whichever_of_its_addresses_answers(receiver: Receiver) -> None:
    """`localhost` has two, and the receiver listens at one."""
    (answer,) = post_in_turn(target(receiver.url.replace("127.0.0.1", "localhost")), b"x")
    assert answer.status == 204


@pytest.mark.parametrize(
    ("answer", "then", "status"),
    [
        (FINE, Then.STAYS, 200),
        (b"", Then.STAYS, 0),
        (b"", Then.CLOSES, 0),
        (b"HTTP/1.1 200 OK\r\n\r\n", Then.CLOSES, 200),
    ],
    ids=["answer", "time-out", "closed", "answer to the end"],
)
def test_a_caller_that_fails_keeps_no_other_from_its_answer(answer: bytes, then: Then, status: int) -> None:
    """It is reported; requests that wait for the connection are sent, and those in flight beside it end."""

    async def run(to: Target) -> tuple[list[str], list[int]]:
        loop = asyncio.get_running_loop()
        complaints: list[str] = []
        posting, answers, told = Client(loop), list[int](), asyncio.Event()

        def complain(_: object, context: dict[str, Any]) -> None:
            complaints.append(str(context["exception"]))
            end()

        def fail(answer: Answer) -> None:
            raise ValueError("a defect")

        def done(answer: Answer) -> None:
            answers.append(answer.status)
            end()

        def end() -> None:
            if len(complaints) + len(answers) == 5:  # in any order of the two connections
                told.set()

        loop.set_exception_handler(complain)

        for number in range(5):
            posting.post(to, [], b"x", fail if number in (0, 2) else done)
        await asyncio.wait_for(told.wait(), 5)
        posting.close()
        return complaints, answers

    with raw((answer, then)) as one:
        told = uvloop.run(run(target(one.url, timeout=5.0 if answer or then is Then.CLOSES else 0.02, connections=2)))
    assert told == (["a defect"] * 2, [status] * 3)


def test_a_name_without_an_address_is_a_problem() -> None:
    """Names under `invalid` have none (RFC 6761)."""
    (answer,) = post_in_turn(target("http://unknown.invalid/"), b"x")
    assert (answer.status, answer.problem) == (0, "the host's name has no address")


def test_a_name_that_hangs_costs_one_thread_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    """Its server of names does not answer: each of its requests waits for the same answer, and others have theirs."""
    asked: list[str] = []
    over = threading.Event()
    real = socket.getaddrinfo

    def look_up(host: str, *more: Any, **options: Any) -> Any:
        if host == "slow.invalid" and not options.get("flags"):
            asked.append(host)
            over.wait(5)
        return real(host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    slow = target("http://slow.invalid/", timeout=0.05, connect_timeout=0.05, connections=8)

    async def run() -> tuple[list[Answer], Answer]:
        posting = Client(asyncio.get_running_loop())
        wanted = [slow] * 8 + [target(receiver.url.replace("127.0.0.1", "localhost"))]
        *hanging, other = await asyncio.gather(*[answered(posting, to, b"x") for to in wanted])
        posting.close()
        return hanging, other

    given_up, answer = uvloop.run(run())
    over.set()
    assert {one.problem for one in given_up} <= {
        "no whole answer within timeout (50ms)", "no connection within connect_timeout (50ms)",
    }  # fmt: skip
    assert (answer.status, asked) == (204, ["slow.invalid"])


def test_the_answer_says_why_there_is_no_connection() -> None:
    """Nothing listens; or the listener speaks another protocol than the URL says."""
    with closing(socket.socket()) as taken, raw((b"HTTP/1.1 400 No TLS\r\n\r\n", Then.CLOSES)) as plain:
        taken.bind(("127.0.0.1", 0))
        (refused,) = post_in_turn(target(f"http://127.0.0.1:{taken.getsockname()[1]}"), b"x")
        url = plain.url.replace("http", "https")
        (no_tls,) = post_in_turn(target(url), b"x")
    with raw((b"\x15\x03\x01\x00\x02\x02\x46", Then.CLOSES)) as encrypted:
        (tls,) = post_in_turn(target(encrypted.url), b"x")
    assert [refused.problem, no_tls.problem, tls.problem] == [
        "no connection: Connection refused",
        "TLS: the receiver does not speak it; should the URL begin with http, or name another port?",
        "the answer is no HTTP/1.1 (Expected HTTP/, RTSP/ or ICE/); it is TLS: should the URL begin with https?",
    ]


def test_a_certificate_file_that_has_gone_is_a_problem() -> None:
    """It was there when the subscription began."""
    (answer,) = post_in_turn(target("https://127.0.0.1:1/", ca_file="/nowhere/ca.pem"), b"x")
    assert answer.problem is not None
    assert answer.problem.startswith("TLS: ")


def test_an_answer_that_comes_before_the_request_was_read_is_the_answer() -> None:
    """A refusal of what is too long; the rest of the request is not sent as the next one."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def refuse() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 413 Too Long\r\ncontent-length: 0\r\n\r\n")
                held.append(connection)

        held: list[socket.socket] = []
        thread = threading.Thread(target=refuse)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        answers = post_in_turn(target(url), bytes(20_000_000), bytes(20_000_000))
        thread.join()
        for connection in held:
            connection.close()
    assert [answer.status for answer in answers] == [413, 413]


def test_the_time_of_a_request_begins_when_it_is_sent_and_not_while_it_waits_for_a_connection(
    receiver: Receiver,
) -> None:
    """Forty answers of 20 ms each on one connection, with a timeout of 300 ms."""
    pause = threading.Event()

    def status(number: int) -> int:
        pause.wait(0.02)
        return 204

    receiver.status = status
    answers = post_in_turn(target(receiver.url, timeout=0.3), *[b"x"] * 40, at_once=True)
    assert [answer.status for answer in answers] == [204] * 40


@pytest.mark.slow
def test_each_of_many_that_hang_is_given_up_in_its_time(receiver: Receiver) -> None:
    """And those that answer are not."""
    hold = threading.Event()

    def status(number: int) -> int:
        if number % 2:
            hold.wait(5)
        return 204

    receiver.status = status
    answers = post_in_turn(target(receiver.url, timeout=1.0, connections=8), *[b"x"] * 16, at_once=True)
    hold.set()
    assert sorted(answer.status for answer in answers) == [0] * 8 + [204] * 8
