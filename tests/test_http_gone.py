"""A long answer can see that its client has hung up."""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import closing
from pathlib import Path

import pytest

from inbound.config import AdminTlsConfig
from inbound.http.pages import Page, text
from inbound.http.server import Limits, Request, Server
from inbound.http.tls import Certificates
from tests.test_admin_tls import SERVER, trusting
from tests.waiting import until, wait_for

log = logging.getLogger(__name__)


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

    certificates = Certificates(AdminTlsConfig(cert_file=certificate), log) if certificate is not None else None
    server = Server(socket.AF_INET, ("127.0.0.1", 0), answer, log=log, limits=Limits(), certificates=certificates)
    with closing(server):
        server.start()
        client = socket.create_connection(("127.0.0.1", server.server_port), 60)
        if certificate is not None:
            client = trusting().wrap_socket(client, server_hostname="127.0.0.1")
        client.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\nGET /next HTTP/1.1\r\n")
        wait_for(answering, 60, "the server answers")

        client.close()

        wait_for(seen, 60, "the server sees the end")
    assert before == [False]
