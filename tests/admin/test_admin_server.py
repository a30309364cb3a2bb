"""The admin port as a server: ports, connections, bad clients, and the end."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from http.client import HTTPConnection

import pytest

from inbound.admin.listener import AdminServer
from inbound.errors import ConfigError
from inbound.http.server.listener import ServerLimits
from inbound.http.server.server import LIMITS, PageBounds
from inbound.observe.status.status import ProcessStatus
from tests.admin.admin_stage import Make, make
from tests.observe.status.made_status import ask, process
from tests.waiting import until, wait_for

__all__ = ["make"]  # the fixture


def taken() -> socket.socket:
    """Return a socket that listens on a free port; the next one is free too, as good as always."""
    return socket.create_server(("127.0.0.1", 0))


def connect(server: AdminServer, sent: bytes = b"") -> socket.socket:
    """Open a connection and send something."""
    client = socket.create_connection(("127.0.0.1", server.port), timeout=5)
    client.sendall(sent)
    return client


class Held:
    """A snapshot that takes until the test lets it go."""

    def __init__(self) -> None:
        self.asked, self.go_on = threading.Event(), threading.Event()

    def __call__(self) -> ProcessStatus:
        self.asked.set()
        wait_for(self.go_on, 5, "the test lets the snapshot go")
        return process()

    def connect(self, server: AdminServer) -> socket.socket:
        """Ask a server for this snapshot. Returns the client once the server makes the answer."""
        client = connect(server, b"GET /healthz HTTP/1.0\r\n\r\n")
        wait_for(self.asked, 5, "the server asks for the snapshot")
        return client


def all_of(client: socket.socket) -> str:
    """Read until the server closes the connection."""
    with client, client.makefile("rb") as answer:
        return answer.read().decode()


# -- ports ---------------------------------------------------------------------------------------------------------


def test_a_taken_default_port_gives_way(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """The port was not configured: the next free one is used, and the log says which."""
    with taken() as other, caplog.at_level(logging.WARNING):
        port = other.getsockname()[1]
        server = make(port=port, port_given=False)

        assert port < server.port < port + 100
        assert ask(server.url, "/healthz").code == 200
        assert f"admin: port {port} is taken, listening on {server.port}" in caplog.text


def test_a_taken_port_that_was_asked_for_fails(make: Make) -> None:
    """A configured port is relied on: another one would not be found."""
    with taken() as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError) as error:
            make(port=port)

    assert str(error.value) == (
        f"admin.listen: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "stop what listens there, or set another port (0 takes any)"
    )


@pytest.fixture
def highest_port_taken() -> Iterator[None]:
    """The last port there is is taken."""
    with ExitStack() as open_now:
        with contextlib.suppress(OSError):  # another process has it: as good
            open_now.enter_context(socket.create_server(("127.0.0.1", 65535)))
        yield


@pytest.mark.usefixtures("highest_port_taken")
@pytest.mark.parametrize(
    ("host", "port", "message"),
    [
        ("127.0.0.1", 65535, "cannot listen on 127.0.0.1:65535: Address already in use"),
        # TEST-NET-1, which no machine has.
        (
            "192.0.2.1",
            8081,
            "cannot listen on 192.0.2.1:8081: Cannot assign requested address; use an address of this machine",
        ),
        ("fe80::1%nowhere", 8081, "the host 'fe80::1%nowhere' is unknown (Name or service not known); give an address"),
        ("a..b", 8081, "the host 'a..b' is unknown"),
    ],
)
def test_an_address_that_cannot_be_had_is_refused(make: Make, host: str, port: int, message: str) -> None:
    """Also where the port was not given: the search ends at the highest port, and with an address that is not ours."""
    with pytest.raises(ConfigError) as error:
        make(host=host, port=port, port_given=False)

    assert str(error.value).startswith(f"admin.listen: {message}")


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "[::1]"),
        ("0.0.0.0", socket.gethostname()),  # which is no address that another machine could ask
    ],
)
def test_the_url_says_where_the_server_is(make: Make, host: str, named: str) -> None:
    """Port 0 is any port; a literal IPv6 address stands in brackets."""
    try:
        server = make(host=host)
    except ConfigError as error:
        assert host == "::1"
        pytest.skip(f"this machine has no IPv6: {error}")

    assert server.url == f"http://{named}:{server.port}"
    assert ask(server.url.replace(socket.gethostname(), "127.0.0.1"), "/healthz").code == 200


# -- connections -----------------------------------------------------------------------------------------------------


def test_a_connection_serves_many_requests(make: Make) -> None:
    """Prometheus keeps its connection, also after an error page and a request with a body."""
    client = HTTPConnection("127.0.0.1", make().port, timeout=5)
    with closing(client):
        codes = []
        for method, path, body in (
            ("GET", "/healthz", None),
            ("POST", "/status", b"x" * 99),
            ("GET", "/nothing", None),
        ):
            client.request(method, path, body)
            answer = client.getresponse()
            answer.read()
            codes.append((answer.status, client.sock is not None))

    assert codes == [(200, True), (405, True), (404, True)]


def test_a_slow_request_is_given_up(make: Make) -> None:
    """The time counts for the whole request: a byte now and then does not lengthen it."""
    server = make(limits=replace(LIMITS, request_seconds=0.1, tick_seconds=0.05))
    client = connect(server, b"GET /healthz HTTP/1.1\r\n")
    ended = threading.Event()

    def drip() -> None:
        try:
            while not ended.wait(0.02):
                client.send(b"a")
        except OSError:
            pass  # the server has closed: what the test waits for

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        assert client.recv(100).startswith(b"HTTP/1.1 408 ")
    except ConnectionResetError:
        pass  # closed while a byte was under way
    finally:
        ended.set()
        dripping.join()
        client.close()


def test_the_longest_waiting_client_makes_room(make: Make) -> None:
    """Silent clients cannot keep a probe out, however many they are."""
    server = make(limits=replace(LIMITS, connections=2))
    first = connect(server)
    with connect(server), connect(server):
        assert ask(server.url, "/healthz").code == 200
        assert all_of(first) == ""


def test_one_too_many_is_refused_while_all_others_are_answered(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """An answer in flight is never cut off for another client."""
    held = Held()
    server = make(held, limits=replace(LIMITS, connections=1, tick_seconds=0.05))
    busy = held.connect(server)

    refused = all_of(connect(server))
    held.go_on.set()

    assert refused.startswith("HTTP/1.1 503 ")
    assert all_of(busy).endswith("\r\n\r\nok\n")
    until(
        lambda: "admin: 1 connections were refused: all others were being answered" in caplog.text,
        5,
        "it is in the log",
    )


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 3000 + b"\r\n", 431),
        (b"what is this?\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
    ],
)
def test_a_bad_request_is_answered_and_the_connection_closed(make: Make, sent: bytes, code: int) -> None:
    """Too long or not understood: the answer says so, and nothing after it is taken for a request."""
    server = make()

    answer = all_of(connect(server, sent))

    assert answer.split(" ", 2)[1] == str(code)
    assert "Connection: close\r\n" in answer
    assert ask(server.url, "/healthz").code == 200


@pytest.mark.parametrize(
    ("head", "code"),
    [
        ("Content-Length: 1000000", 413),
        ("Content-Length: -1", 400),
        ("Transfer-Encoding: chunked", 400),
        ("Content-Length: 9\r\nExpect: 100-continue\r\nContent-Length: 8", 400),
    ],
)
def test_a_body_that_is_not_read_ends_the_connection(make: Make, head: str, code: int) -> None:
    """What follows it might be taken for the next request; it is answered, and that was it."""
    client = connect(
        make(), f"POST /status HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n".encode()
    )
    client.shutdown(socket.SHUT_WR)

    answer = all_of(client)

    assert (
        answer.startswith(f"HTTP/1.1 {code} "),
        answer.count("Content-Length: "),
        "Connection: close" in answer,
    ) == (
        True,
        1,
        True,
    )


def test_a_client_may_still_send_after_its_answer(make: Make) -> None:
    """A connection reset while it sends would take the answer from it before it is read."""
    with connect(make(), b"POST /status HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n") as client:
        with client.makefile("rb") as answer:
            assert answer.read().startswith(b"HTTP/1.1 413 ")
        for _ in range(3):
            client.sendall(b"the rest of the body")


@pytest.mark.parametrize(
    ("times", "sent", "linger"),
    [
        (1, b"GET /healthz HTTP/1.1\r\n", None),  # half a request
        (50, b"GET / HTTP/9.9\r\n\r\n", struct.pack("ii", 1, 0)),  # a reset meets the thread in any state
    ],
)
def test_a_client_that_goes_away_is_no_error(
    make: Make, times: int, sent: bytes, linger: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is logged, and others are served."""
    server = make()
    for _ in range(times):
        client = connect(server, sent)
        if linger is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        client.close()
    assert ask(server.url, "/healthz").code == 200
    server.close()

    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


@pytest.mark.parametrize(
    ("head", "code"),
    [
        ("Content-Length: 2", 200),
        ("Content-Length: 2\r\nContent-Length: 2", 400),
        ("Content-Length: 2\r\nContent-Length: 3", 400),
        ("Content-Length: 2\r\nTransfer-Encoding: chunked", 400),
        ("Content-Length: +2", 400),
        ("Transfer-Encoding: chunked", 400),  # and what comes is no chunk
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Content-Length: 2000000", 413),
        ("Content-Length: " + "9" * 5000, 400),
        ("X: a\r\n b\r\nContent-Length: 2", 400),
        ("X: a\rb\r\nContent-Length: 2", 400),
        ("Host: other\r\nContent-Length: 2", 400),
        ("no header\r\nContent-Length: 2", 400),
    ],
)
def test_a_body_that_is_wanted_is_read_whole_or_refused(make: Make, head: str, code: int) -> None:
    """How long it is has to be clear: else a proxy before us may take its end for the next request."""
    client = connect(make(), f"POST /jolokia HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n{{}}".encode())
    client.shutdown(socket.SHUT_WR)

    answer = all_of(client)

    assert answer.startswith(f"HTTP/1.1 {code} ")
    assert ("Connection: close\r\n" in answer) == (code != 200)


def test_a_client_that_waits_with_a_body_may_go_on(make: Make) -> None:
    """Clients with large bodies ask first."""
    head = b"POST /jolokia HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    with connect(make(), head) as client, client.makefile("rb") as answer:
        assert [answer.readline(), answer.readline()] == [b"HTTP/1.1 100 Continue\r\n", b"\r\n"]
        client.sendall(b"{}")
        assert answer.readline() == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("limits", "sent"),
    [
        (LIMITS, [b"", b"GET /healthz HTTP/1.1\r\nHo"]),  # nothing, or half a request
        (LIMITS, [b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 2000]),  # and reads no answer
        (
            replace(LIMITS, connections=2),
            [b"POST /jolokia HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n"] * 6,
        ),  # the body is to come
    ],
)
def test_slow_clients_do_not_keep_others_waiting(make: Make, limits: ServerLimits, sent: list[bytes]) -> None:
    """Each has a thread of its own; where all connections are taken, one that waits for the client makes room."""
    server = make(limits=limits)
    with ExitStack() as crowd:
        for one in sent:
            crowd.enter_context(connect(server, one))
        assert ask(server.url, "/healthz").code == 200


def test_a_crowd_that_asks_keeps_no_probe_waiting(make: Make) -> None:
    """Requests without room are refused at once; probes have threads of their own. So no supervisor restarts us for a crowd."""
    asked, go_on = threading.Event(), threading.Event()

    def snapshot() -> ProcessStatus:
        if threading.current_thread().name.startswith("admin-page"):
            asked.set()
            wait_for(go_on, 5, "the test lets the page go")
        return process()

    server = make(snapshot, bounds=PageBounds(threads=1, waiting=0))
    with connect(server, b"GET /status HTTP/1.0\r\n\r\n") as first:
        wait_for(asked, 5, "the page is being made")
        refused, probed = ask(server.url, "/status"), ask(server.url, "/healthz")
        go_on.set()
        assert all_of(first).startswith("HTTP/1.1 200 ")

    assert (refused.code, refused.headers["Retry-After"], probed.code) == (503, "1", 200)
    assert "1 requests are being answered" in refused.text


# -- the end ---------------------------------------------------------------------------------------------------------


def test_close_frees_the_port_and_ends_all_threads(make: Make) -> None:
    """Also with clients that hang on; a second close does nothing."""
    before = set(threading.enumerate())
    server = make()
    port = server.port
    silent, half = connect(server), connect(server, b"GET /healthz HT")
    with silent, half:
        assert ask(server.url, "/healthz").code == 200
        server.close()
        server.close()

        assert silent.recv(1) == half.recv(1) == b""
    until(lambda: set(threading.enumerate()) <= before, 10, "all threads have ended")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    assert make(port=port).port == port


def test_close_lets_an_answer_end(make: Make) -> None:
    """A client that asked before the end still gets its answer."""
    held = Held()
    server = make(held)
    client = held.connect(server)

    closing_thread = threading.Thread(target=server.close)
    with connect(server) as idle:
        closing_thread.start()
        with contextlib.suppress(ConnectionResetError):  # where the server had not come to accept it yet
            assert idle.recv(1) == b""
    held.go_on.set()
    answer = all_of(client)
    closing_thread.join()

    assert answer.endswith("\r\n\r\nok\n")


def test_close_waits_for_a_bounded_time(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """A snapshot that hangs is left behind, and the log says so."""
    held = Held()
    server = make(held, bounds=PageBounds(close_seconds=0.02))
    with held.connect(server):
        server.close()

        assert "an answer is still being made at the end" in caplog.text
        held.go_on.set()


def test_close_without_start() -> None:
    """The owner may close what never came up."""
    AdminServer(process, host="127.0.0.1", port=0, port_given=True).close()
