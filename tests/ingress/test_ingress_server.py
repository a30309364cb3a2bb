"""The ingress on a port of this machine, its end, and what its status says."""

from __future__ import annotations

import logging
import os
import resource
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from inbound.config import IngressConfig, TlsConfig
from inbound.errors import ConfigError
from inbound.ingress import server
from inbound.ingress.server import Ingress
from tests.http_receiver import CERTIFICATES
from tests.ingress.ingress_stage import MemoryProducer, acknowledge_once, ask, ask_in_flight, await_in_flight, running
from tests.waiting import until


def test_an_event_is_taken_and_counted() -> None:
    """Over a real socket."""
    with running() as (ingress, producer):
        answer = ask(ingress)
        status = ingress.status()

    assert (answer, len(producer.written)) == ((202, ""), 1)
    assert (status.answers, status.accepted_events_total, status.received_bytes_total) == ({"202": 1}, 1, 5)
    assert [thread.alive for thread in ingress.threads()] == [False, False]


def test_a_stop_answers_what_is_under_way() -> None:
    """The listener is closed at once, the answer comes, and only then is it over."""
    with running() as (ingress, producer):
        answer = ask_in_flight(ingress, producer)
        acknowledge_once(lambda: ingress.status().draining, producer)
        answered = ingress.stop(10.0)
        with pytest.raises(ConnectionRefusedError):
            ask(ingress)

    assert (answered, answer.result(), producer.closed) == (True, (202, ""), True)


@pytest.mark.parametrize("tls", [None, TlsConfig(cert=CERTIFICATES / "server.pem")], ids=["plain", "TLS"])
def test_who_comes_while_it_ends_is_refused_at_once(tls: TlsConfig | None) -> None:
    """And goes to another process, or to the ingress that replaces it on this port: no client waits for its end."""
    with running(IngressConfig(tls=tls)) as (ingress, producer):
        client = ssl.create_default_context(cafile=CERTIFICATES / "ca.pem") if tls is not None else None
        answer = ask_in_flight(ingress, producer, tls=client)
        stopping = threading.Thread(target=lambda: ingress.stop(10.0))
        stopping.start()
        try:
            until(lambda: _is_refused(int(ingress.url.rpartition(":")[2])), 3, "the port is closed", look=0.01)
        finally:
            producer.held = False
            stopping.join()

    assert answer.result() == (202, "")


def _is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        pass  # the port was closed between the two ends of shaking hands
    return False


@contextmanager
def files_left(count: int) -> Iterator[None]:
    """Let this process open so many files more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_clients_do_not_take_the_files_that_others_need(caplog: pytest.LogCaptureFixture) -> None:
    """A thousand silent ones would else keep a process with 1,024 files from Kafka, ZooKeeper and its ledger."""
    with files_left(200), caplog.at_level(logging.INFO), running(IngressConfig(max_connections=5000)) as (ingress, _):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        limits = ingress._server._limits

    assert limits.connections == most
    assert f"ingress: {most} clients at a time, not max_connections (5000): half of the files that this" in caplog.text


@pytest.mark.slow
def test_a_process_without_files_says_so_now_and_then_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio's own listener logged it with a trace, thousands of times a second."""
    with running() as (ingress, _), ExitStack() as crowd:
        address = socket.gethostbyname("localhost"), int(ingress.url.rpartition(":")[2])
        clients = [crowd.enter_context(socket.socket()) for _ in range(20)]
        with files_left(5):
            for client in clients:
                client.connect(address)
            until(lambda: "no connection can be taken" in caplog.text, 10, "the log says so", look=0.001)
            before = ingress.status().connections
        until(lambda: ingress.status().connections == 20, 10, "all are taken", look=0.001)
        answer = ask(ingress)

    told = [record.getMessage() for record in caplog.records]
    assert (before < 20, answer) == (True, (202, ""))
    assert told == ["ingress: no connection can be taken: [Errno 24] Too many open files; trying again every 0.5 s"]


def test_a_client_that_raises_does_not_leave_who_waits_without_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    """Its acknowledgements are polled for again, and the log has the exception."""
    with running() as (ingress, producer):
        producer.raises = [RuntimeError("a fault of the client")]
        answer = ask(ingress)

    assert answer == (202, "")
    assert "a fault of the client" in caplog.text


def test_a_stop_waits_for_a_bounded_time() -> None:
    """Who was not answered within the time sees the connection end, never a 202."""
    with running() as (ingress, producer):
        producer.held = True
        host, port = ingress.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(b"POST /topics/orders HTTP/1.1\r\nhost: x\r\nce-id: 1\r\nce-source: s\r\nce-type: t\r\n")
            client.sendall(b"ce-specversion: 1.0\r\ncontent-length: 0\r\n\r\n")
            await_in_flight(ingress)
            answered = ingress.stop(0.1)
            said = client.recv(100)

    assert (answered, said) == (False, b"")


def test_tls_and_client_certificates() -> None:
    """With client_ca only those who show a certificate of that authority get as far as HTTP."""
    server = CERTIFICATES / "server.pem"
    tls = TlsConfig(cert=server, client_ca=CERTIFICATES / "ca.pem")
    stranger = ssl.create_default_context(cafile=CERTIFICATES / "ca.pem")
    known = ssl.create_default_context(cafile=CERTIFICATES / "ca.pem")
    known.load_cert_chain(CERTIFICATES / "client.pem")

    with running(IngressConfig(tls=tls)) as (ingress, producer):
        url = ingress.url
        answer = ask(ingress, tls=known)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(ingress, tls=stranger)

    assert (answer, len(producer.written), url.startswith("https://")) == ((202, ""), 1, True)


def test_certificates_that_cannot_be_used_are_named() -> None:
    """Before anything is bound."""
    tls = TlsConfig(cert=CERTIFICATES / "ca.pem")

    with pytest.raises(ConfigError, match=r"ingress\.tls\.cert: .*ca\.pem cannot be used: .*\(with its key\)"):
        Ingress(IngressConfig(tls=tls), {}, producer=MemoryProducer())


@pytest.mark.slow
def test_the_client_is_polled_while_nothing_is_posted() -> None:
    """What librdkafka says of itself would pile up in an idle ingress."""
    with running() as (_, producer):
        before = producer.polls
        until(lambda: producer.polls > before, 10, "it is polled once a second")


def test_a_token_that_cannot_be_read_leaves_no_client_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads would go on asking Kafka: where another ingress is to take over, with each try one more."""
    made: list[MemoryProducer] = []

    def make(*_: object) -> MemoryProducer:
        made.append(MemoryProducer())
        return made[-1]

    def token() -> str:
        raise ConfigError("ingress.token_file: cannot be read")

    monkeypatch.setattr(server, "make_producer", make)
    with pytest.raises(ConfigError):
        Ingress(IngressConfig(), {}, token=token)
    assert made == []
