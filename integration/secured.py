"""Brokers that let nobody in without a password or a certificate: a listener for each way in, and one for each mistake."""

from __future__ import annotations

import base64
import json
import os
import shutil
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from kafka.admin import KafkaAdminClient, UserScramCredentialUpsertion

from inbound.cli.shared.files import jar_cache, java_command
from inbound.embedded import EmbeddedCluster
from inbound.embedded.kafka import Listener
from integration.certificates import CA, Pem

_MODULES = "org.apache.kafka.common.security"
#: Who may come in by PLAIN, for good; SCRAM's users are made, and given other passwords, while the brokers run.
USER, PASSWORD = "alice", 'plain-s3cret "quoted" \\ pw'
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def quoted(text: str) -> str:
    """Return text as a JAAS line holds it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def listeners(authority: CA, *, session_ms: int) -> list[Listener]:
    """Return the listeners, named after what they ask for; `TOKEN` and `AGAIN` ask again after `session_ms`."""
    server, elsewhere, expired = (
        authority.server(),
        authority.server(["elsewhere.test"], file="other"),
        authority.expired(),
    )
    plain = f"{_MODULES}.plain.PlainLoginModule required user_{USER}={quoted(PASSWORD)};"
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    sasl = {
        "sasl.enabled.mechanisms": ",".join(("PLAIN", *MECHANISMS)),
        "plain.sasl.jaas.config": plain,
        **{f"{mechanism.lower()}.sasl.jaas.config": scram for mechanism in MECHANISMS},
    }
    oauth = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        # Kafka's own for tests: what a token says is believed, but for when it ends.
        "oauthbearer.sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        "oauthbearer.connections.max.reauth.ms": str(session_ms),
    }
    again = {f"{mechanism.lower()}.connections.max.reauth.ms": str(session_ms) for mechanism in MECHANISMS}
    return [
        Listener("PASSWORD", "SASL_PLAINTEXT", sasl),
        Listener("AGAIN", "SASL_PLAINTEXT", {**sasl, **again}),
        Listener("TOKEN", "SASL_PLAINTEXT", oauth),
        Listener("BOTH", "SASL_SSL", {**sasl, **_shown(server)}),
        Listener("TLS", "SSL", _shown(server)),
        Listener("MUTUAL", "SSL", {**_shown(server), **_asked(authority)}),
        Listener("ELSEWHERE", "SSL", _shown(elsewhere)),
        Listener("EXPIRED", "SSL", _shown(expired)),
    ]


def _shown(pem: Pem) -> dict[str, str]:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pem.both)}


def _asked(authority: CA) -> dict[str, str]:
    return {
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.pem),
    }


def secured(authority: CA, *, session_ms: int) -> EmbeddedCluster:
    """Return a cluster with these listeners, to be entered."""
    return EmbeddedCluster(jars=jar_cache(), java=java_command(), listeners=listeners(authority, session_ms=session_ms))


def set_password(cluster: EmbeddedCluster, user: str, password: str) -> None:
    """Let a user come in by SCRAM, with this password and no other from now on."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        for mechanism in MECHANISMS:  # brokers take one change of a user at a time
            said = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, mechanism, password)])
            assert not any(said.values()), said
    finally:
        admin.close()


class Mounted:
    """A folder as Kubernetes mounts a secret: links to `..data`, which is a link to what counts now."""

    def __init__(self, folder: Path, **files: str) -> None:
        self.folder = folder
        folder.mkdir()
        self._count = 0
        self.swap(**files)

    def swap(self, **files: str) -> None:
        """Let the folder hold these files; underscores of names stand for dots."""
        named = {name.replace("_", "."): text for name, text in files.items()}
        self._count += 1
        fresh = self.folder / f"..{self._count}"
        fresh.mkdir()
        for name, text in named.items():
            (fresh / name).write_text(text)
        link = self.folder / "..data_tmp"
        old = self.folder / os.readlink(self.folder / "..data") if self._count > 1 else None
        link.symlink_to(fresh.name)
        link.replace(self.folder / "..data")
        for name in named:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        if old is not None:
            shutil.rmtree(old)


def token(subject: str, seconds: float) -> str:
    """Return an unsigned token that ends in so many seconds."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": subject, "iat": now, "exp": now + seconds})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


class TokenServer:
    """Gives tokens to clients that know the secret, and counts them."""

    def __init__(self, secret: str, seconds: float) -> None:
        server = self
        self.given = 0
        self.refused = 0
        expected = base64.b64encode(f"svc:{secret}".encode()).decode()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                right = self.headers["Authorization"] == f"Basic {expected}" and "grant_type=client_credentials" in form
                body: dict[str, object] = {"error": "invalid_client"}
                if right:
                    server.given += 1
                    body = {"access_token": token("svc", seconds), "expires_in": seconds, "token_type": "Bearer"}
                else:
                    server.refused += 1
                self.send_response(200 if right else 401)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def __enter__(self) -> TokenServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
