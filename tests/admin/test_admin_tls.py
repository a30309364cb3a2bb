"""The admin port over TLS: who may operate, certificates that change, and clients that do it wrong."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import ssl
import threading
from contextlib import ExitStack, closing
from dataclasses import replace
from http.client import HTTPSConnection
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from inbound.admin.client import fetch_status, post
from inbound.admin.listener import AdminServer
from inbound.admin.routes import answered
from inbound.cli.main import main
from inbound.config import AdminTlsConfig
from inbound.errors import ConfigError, InboundError
from inbound.group.operations import OperationResult
from inbound.http.server.listener import ConnectionTable
from inbound.http.server.page import Page, text
from inbound.http.server.server import LIMITS, PageServer, Request
from inbound.http.server.serving import Handshake
from inbound.http.server.tls import Certificates, PemFiles
from inbound.observe.status.status import ReloadOutcome
from inbound.testing import ManualClock
from tests.admin.admin_stage import Make, make
from tests.waiting import until, wait_for

__all__ = ["make"]  # the fixture

PEM = Path(__file__).parent.parent / "certificates"
CA, SERVER, CLIENT = PEM / "ca.pem", PEM / "server.pem", PEM / "client.pem"
log = logging.getLogger(__name__)
FILES = PemFiles.of_admin(AdminTlsConfig(cert_file=SERVER))


@pytest.fixture
def secure(make: Make) -> Make:
    """Start an admin server with TLS that does every operation."""

    def start(tls: AdminTlsConfig, *, token: str | None = None, **settings: Any) -> AdminServer:
        return make(
            tls=tls,
            token=None if token is None else lambda: token,
            reload=lambda seconds: ReloadOutcome("unchanged"),
            operate=lambda channel, operation: answered(
                lambda: OperationResult(channel, "svc", operation.verb.value, None, True, "done", [], [])
            ),
            **settings,
        )

    return start


def trusting(certificate: Path | None = None) -> ssl.SSLContext:
    """Return what a client has that trusts the authority of these tests, and shows `certificate`."""
    context = ssl.create_default_context(cafile=CA)
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


def pause(server: AdminServer, tls: ssl.SSLContext, token: str | None = None) -> int:
    """Ask for an operation. Returns the status of the answer."""
    return post(f"https://127.0.0.1:{server.port}", "/channels/orders/pause", token, 5.0, tls)[0]


def test_reading_over_tls(secure: Make) -> None:
    """The client checks whom it speaks to; a client that does not trust us gets nothing but advice."""
    server = secure(AdminTlsConfig(cert_file=SERVER))
    assert server.url == f"https://127.0.0.1:{server.port}"
    assert fetch_status(server.url, tls=trusting())["pid"] == 4711
    with pytest.raises(InboundError, match=r"certificate is not trusted: .*; name its authority with --ca-file"):
        fetch_status(server.url)


@pytest.mark.parametrize(
    ("authority", "token", "certificate", "given", "code"),
    [
        (CA, None, CLIENT, None, 200),
        (CA, None, None, None, 403),
        (CA, "s3cret", CLIENT, None, 200),
        (CA, "s3cret", None, "s3cret", 200),
        (CA, "s3cret", None, "wrong", 401),
        (CA, "s3cret", None, None, 401),
        (None, None, CLIENT, None, 403),  # TLS alone says who the server is: no certificate is asked for
    ],
)
def test_a_certificate_or_the_token_lets_a_client_operate(
    secure: Make, authority: Path | None, token: str | None, certificate: Path | None, given: str | None, code: int
) -> None:
    """Also where other machines reach the port. Everybody may read."""
    server = secure(AdminTlsConfig(cert_file=SERVER, client_ca_file=authority), token=token, host="0.0.0.0")
    assert pause(server, trusting(certificate), given) == code
    assert fetch_status(f"https://127.0.0.1:{server.port}", tls=trusting())["pid"] == 4711


def test_the_command_line_shows_its_certificate(secure: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """`reload` asks over HTTPS with the given certificate."""
    server = secure(AdminTlsConfig(cert_file=SERVER, client_ca_file=CA))
    files = ["--ca-file", str(CA), "--cert-file", str(CLIENT)]

    assert main(["reload", "--url", f"https://127.0.0.1:{server.port}", *files]) == 0

    assert capsys.readouterr().out == "nothing has changed\n"


def test_a_certificate_of_another_authority_is_refused(secure: Make, tmp_path: Path) -> None:
    """At the handshake: it is not as if there were none."""
    server = secure(AdminTlsConfig(cert_file=SERVER, client_ca_file=SERVER))  # signs no client
    with pytest.raises(InboundError):
        pause(server, trusting(CLIENT))
    assert fetch_status(server.url, tls=trusting())["pid"] == 4711


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /healthz HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\x00" * 4096, b"\x16\x03\x01\xff\xff" * 99],
)
def test_who_does_not_speak_tls_is_no_error(secure: Make, sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """It is hung up on, nothing is logged, and others are served."""
    server = secure(
        AdminTlsConfig(cert_file=SERVER),
        limits=replace(LIMITS, request_seconds=0.1, handshake_seconds=0.1, tick_seconds=0.05),
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(sent)
        try:
            while data := client.recv(100):
                assert b"HTTP" not in data
        except ConnectionResetError:
            pass  # as good as an end
    generous = secure(AdminTlsConfig(cert_file=SERVER))
    assert fetch_status(generous.url, tls=trusting())["pid"] == 4711
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


def test_a_crowd_that_shakes_no_hands_does_not_keep_others_out(secure: Make) -> None:
    """A connection that waits for the handshake makes room like one that waits for a request."""
    server = secure(AdminTlsConfig(cert_file=SERVER), limits=replace(LIMITS, connections=2))
    with ExitStack() as crowd:
        for _ in range(6):
            crowd.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5))
        assert fetch_status(server.url, tls=trusting())["pid"] == 4711


def test_who_shakes_no_hands_does_not_hold_up_the_end(secure: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of it is to be answered: so the log has no word of what is left."""
    server = secure(AdminTlsConfig(cert_file=SERVER))
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as silent:
        assert fetch_status(server.url, tls=trusting())["pid"] == 4711  # so the silent one is in, too
        server.close()
        assert (silent.recv(1), caplog.messages) == (b"", [])


def test_who_is_about_to_shake_hands_does_not_hold_up_the_end(secure: Make) -> None:
    """It was given up before it had begun: its socket stayed open, and it counted as a connection without end."""
    server = secure(AdminTlsConfig(cert_file=SERVER))._server

    async def end() -> tuple[int, bytes]:
        listener = ConnectionTable(server, LIMITS, asyncio.get_running_loop())
        client, accepted = socket.socketpair()
        with client:
            Handshake(listener, accepted, "127.0.0.1").begin(Certificates(FILES, log).context)
            listener.drain(0.0)
            for _ in range(10):
                await asyncio.sleep(0)
            client.setblocking(False)
            return len(listener.connections), client.recv(1)

    assert asyncio.run(end()) == (0, b"")


def test_while_a_crowd_comes_all_else_goes_on(secure: Make) -> None:
    """All that waited were accepted at once, without any answer: a thousand, and those that came in that time."""
    admin = secure(AdminTlsConfig(cert_file=SERVER))
    server = admin._server._server
    crowded, seen = threading.Event(), list[int]()

    def look() -> None:
        seen.append(server.connections)
        if len(seen) < 50:
            server.call_soon(look)

    server.call_soon(crowded.wait)
    with ExitStack() as crowd:
        for _ in range(20):
            crowd.enter_context(socket.create_connection(("127.0.0.1", admin.port), timeout=10))
        server.call_soon(look)
        crowded.set()
        until(lambda: len(seen) == 50, 10, "it was looked often enough")
    assert {after - before for before, after in pairwise(seen)} == {0, 1}


def test_an_answer_that_ends_the_connection_comes_whole(secure: Make) -> None:
    """A refused request, and the connection's end as TLS has it."""
    server = secure(AdminTlsConfig(cert_file=SERVER))
    with closing(HTTPSConnection("127.0.0.1", server.port, timeout=5, context=trusting())) as client:
        client.request("POST", "/status", b"x" * 100_000)
        answer = client.getresponse()
        assert (answer.status, answer.headers["Connection"], answer.read()) == (
            413, "close", b"the body has more than 64 KiB\n",
        )  # fmt: skip


def test_certificates_that_change_are_used_without_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A mounted folder's link points elsewhere, twice; unusable files in between change nothing, and are logged once."""
    clock = ManualClock()
    for name, certificate in (("1", SERVER), ("2", CLIENT), ("3", SERVER)):
        (tmp_path / name).mkdir()
        shutil.copy(certificate, tmp_path / name / "tls.pem")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "tls.pem").write_text("no PEM")
    link = tmp_path / "..data"

    def point(name: str) -> None:
        (tmp_path / "new").symlink_to(name)
        (tmp_path / "new").rename(link)
        clock.advance(2.0)

    point("1")
    certificates = Certificates(PemFiles.of_admin(AdminTlsConfig(cert_file=link / "tls.pem")), log, clock.now)
    seen = [certificates.context]
    with caplog.at_level(logging.INFO):
        for name in ("1", "2", "bad", "bad", "3"):
            point(name)
            seen.append(certificates.context)
            seen[-1] = certificates.context
    same = [seen[i] is seen[i + 1] for i in range(5)]
    assert same == [True, False, True, True, False]
    assert [record.levelname for record in caplog.records] == ["INFO", "ERROR", "INFO"]


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        ({"cert_file": PEM / "none.pem"}, "admin.tls.cert_file: "),
        ({"cert_file": CA}, "admin.tls.cert_file: "),  # no key in it
        ({"cert_file": SERVER, "client_ca_file": PEM / "none.pem"}, "admin.tls.client_ca_file: "),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_at_the_start(secure: Make, tls: dict[str, Path], said: str) -> None:
    """With the key that names it."""
    with pytest.raises(ConfigError) as error:
        secure(AdminTlsConfig(**tls))
    assert str(error.value).startswith(said)


@pytest.mark.parametrize("certificate", [None, SERVER], ids=["http", "https"])
def test_a_client_that_hangs_up_is_seen(certificate: Path | None) -> None:
    """Not before it does, also if it has sent more than its request; with TLS as without."""
    answering, seen = threading.Event(), threading.Event()
    before: list[bool] = []

    def answer(request: Request) -> Page:
        before.append(request.gone())
        answering.set()
        until(request.gone, 60, "the client's end is seen", look=0.01)
        seen.set()
        return text(200, "done")

    tls = AdminTlsConfig(cert_file=certificate) if certificate is not None else None
    with closing(PageServer(answer, log=log, tls=tls)) as server:
        server.start("127.0.0.1", [0])
        client = socket.create_connection((server.host, server.port), 60)
        if certificate is not None:
            client = trusting().wrap_socket(client, server_hostname="127.0.0.1")
        client.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\nGET /next HTTP/1.1\r\n")
        wait_for(answering, 60, "the server answers")

        client.close()

        wait_for(seen, 60, "the server sees the end")
    assert before == [False]
