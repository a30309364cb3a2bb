"""Requests as attackers and broken clients send them, made from a seed, and played against a port."""

from __future__ import annotations

import base64
import json
import random
import re
import socket
import struct
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

METHODS = (
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "PATCH",
    "get",
    "PRI",
    "X" * 3000,
    "G\x00T",
)
ADMIN_PATHS = (
    "/",
    "/healthz",
    "/readyz",
    "/status",
    "/metrics",
    "/jmx",
    "/jmx?qry=inbound:*",
    "/jmx?get=inbound:type=Controller::State",
    "/jolokia",
    "/jolokia/version",
    "/jolokia/list",
    "/jolokia/search/*:*",
    "/jolokia/read/inbound:*",
    "/jolokia/exec/inbound:type=Channel,name=orders/pause",
    "/jolokia/exec/inbound:name=orders,type=Channel/pause/x",
    "/jolokia/write/inbound:type=Channel,name=orders/RecordsPerSecond/1",
    "/jolokia?p=/exec/inbound:type=Channel,name=orders/pause",
    "/explain",
    "/explain?topic=orders&partition=0",
    "/explain?topic=%00&partition=99999999999999999999&at=%ff",
    "/reload",
    "/channels/orders/pause",
    "/channels/orders/resume?consumer=x",
    "/channels/orders/rebalance",
    "/channels/%6frders/pause",
    "/channels/orders/release?topic=orders&partition=0&seconds=1e400",
    "/channels/orders/rate?per_second=0",
)
INGRESS_PATHS = (
    "/",
    "/healthz",
    "/topics/{topic}",
    "/topics/none",
    "/topics/",
    "/topics/{topic}/x",
    "/topics/%00",
    "/x",
)
TRICKS = (
    "//{0}",
    "/.{0}",
    "/x/..{0}",
    "{0}/../..",
    "/..%2f..%2fetc/passwd",
    "/%2e%2e{0}",
    "{0}%00",
    "{0}%0d%0aX-Injected:%20yes",
    "/x://h{0}",
    "{0}?a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&at=nan",
    "{0}?{1}",
    "{0}#x",
    "{0};x=y",
    "{0}/",
    "http://evil.example{0}",
    "*",
    "",
    "{0}\x00",
    "{0}\t",
    "{0} x",
    "{0}\u00fc\u0131",
    "{0}?a=%",
    "{0}?%gg=%u0000",
    "{0}!/!!/!*",
    "{0}%ff%fe",
)
LENGTHS = (
    "0",
    "5",
    "-1",
    "+5",
    "5, 5",
    "5,6",
    "0x5",
    " 5",
    "5 ",
    "5_0",
    "",
    "9" * 20,
    "9" * 4000,
    "\u0665",
    "1e3",
    "1048577",
    "00005",
    "0" * 5000 + "5",
)
CODINGS = (
    "chunked",
    "Chunked",
    "chunked, identity",
    "identity",
    "xchunked",
    "gzip, chunked",
    "chunked\x0b",
    "\tchunked",
    "",
)
CHUNKS = (
    b"5\r\nhello\r\n0\r\n\r\n",
    b"ffffffffffffffff\r\nx",
    b"-1\r\nx\r\n",
    b"0x5\r\nhello\r\n0\r\n\r\n",
    b"5;a=b\r\nhello\r\n0\r\n\r\n",
    b"5\nhello\n0\n\n",
    b"5\r\nhelloGET / HTTP/1.1\r\n\r\n",
    b"0\r\nX: y\r\n\r\n",
    b"5 \r\nhello\r\n0\r\n\r\n",
    b"1\r\na\r\n" * 5000,
    b"5;" + b"x" * 70_000 + b"\r\nhello\r\n0\r\n\r\n",
    b"0\r\n" + b"T: x\r\n" * 5000 + b"\r\n",
    b"\r\n0\r\n\r\n",
    b"5\r\nhel",
)
_EXEC = {"type": "exec", "mbean": "inbound:type=Channel,name=orders", "operation": "pause", "arguments": []}
_WRITE = {"type": "write", "mbean": "inbound:type=Channel,name=orders", "attribute": "RecordsPerSecond", "value": 1}
BODIES = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"[" * 20_000,
    b'{"a":' * 20_000,
    b"1e999999",
    b'{"type":NaN}',
    b"9" * 5000,
    b"\x00" * 99,
    json.dumps(_EXEC).encode(),
    json.dumps(_WRITE).encode(),
    json.dumps([_EXEC, _WRITE] * 20).encode(),
    b'{"type":"\\ud800"}',
    json.dumps({"type": "read", "mbean": "*:" + "*" * 200}).encode(),
    json.dumps({"type": "read", "mbean": ["a"], "path": {}}).encode(),
    json.dumps([{"type": "version"}] * 200).encode(),
    json.dumps({"specversion": "1.0", "id": 1, "source": [], "type": None}).encode(),
    json.dumps({"specversion": "1.0", "id": "1", "source": "/x", "type": "t", "data_base64": "%%%"}).encode(),
    b"a" * 200_000,
)


@dataclass
class Attack:
    """One connection: what is sent, and how it ends."""

    pieces: list[bytes]
    end: str  # close: at once; reset: with RST; read: after the answers


@dataclass
class Maker:
    """Makes attacks; the same seed makes the same ones. `tokens` are tried too, besides wrong ones."""

    seed: int
    paths: Sequence[str]
    tokens: Sequence[str] = ()
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def attack(self) -> Attack:
        """Return the next one."""
        rng = self.rng
        sent = b"".join(self._request() for _ in range(rng.choice([1, 1, 1, 2, 3, 30])))
        if rng.random() < 0.3:
            sent = self._mutated(sent)
        if rng.random() < 0.02:
            sent = rng.randbytes(rng.choice([1, 100, 20_000]))
        cuts = sorted(rng.randrange(len(sent) + 1) for _ in range(rng.choice([0, 0, 0, 1, 3])))
        pieces = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
        return Attack(pieces, rng.choice(["read", "read", "read", "read", "close", "reset"]))

    def half(self) -> bytes:
        """Return the begin of a request whose end never comes."""
        whole = self._request()
        return whole[: self.rng.randrange(len(whole))]

    # -- inside ------------------------------------------------------------------------------------------------------

    def _request(self) -> bytes:
        rng = self.rng
        method = rng.choice(METHODS) if rng.random() < 0.4 else rng.choice(["GET", "POST"])
        path = rng.choice(self.paths)
        if rng.random() < 0.4:
            path = rng.choice(TRICKS).format(path, "a" * rng.choice([10, 9000, 70_000]))
        version = rng.choice(
            ["HTTP/1.1"] * 12 + ["HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.1.1", "http/1.1", "", "HTTP/1.-1"]
        )
        lines = [f"{method} {path} {version}".encode("utf-8", "replace")]
        lines += [self._header() for _ in range(rng.randrange(5))]
        if rng.random() < 0.8 and not any(line.startswith(b"Host:") for line in lines):
            lines.append(b"Host: localhost")  # without one nothing but the head is looked at
        if self.tokens and rng.random() < 0.5 and not any(b"uthorization" in line for line in lines):
            lines.append(f"Authorization: Bearer {rng.choice(self.tokens)}".encode())  # who may, gets further
        body = b""
        if rng.random() < 0.5:
            body = rng.choice(BODIES)
            shape = rng.random()
            if shape < 0.6:
                lines.append(b"Content-Length: %d" % len(body))
            elif shape < 0.8:
                body = rng.choice(CHUNKS)
                lines.append(f"Transfer-Encoding: {rng.choice(CODINGS)}".encode())
            if shape > 0.5:
                lines.append(f"Content-Length: {rng.choice(LENGTHS)}".encode())
        rng.shuffle(rest := lines[1:])
        return b"\r\n".join([lines[0], *rest, b"", b""]) + body

    def _header(self) -> bytes:
        rng = self.rng
        token = rng.choice(["wrong", "", "a" * 20_000, "\x00", "\u00e9", "wrong wrong", *self.tokens])
        basic = base64.b64encode(f"admin:{rng.choice(['wrong', ''])}".encode()).decode()
        made = rng.choice(
            [
                "Host: localhost",
                "Host: evil.example",
                "Host: [::1",
                "Host: a\r\nHost: b",
                "Origin: https://evil.example",
                "Origin: null",
                f"Authorization: Bearer {token}",
                f"Authorization: Bearer {token}",
                f"authorization:Bearer  {token} ",
                f"Authorization: {token}",
                f"Authorization: Basic {basic}",
                f"Authorization: Bearer wrong\r\nAuthorization: Bearer {token}",
                f"X-Token: {token}",
                "Expect: 100-continue",
                "Expect: x",
                "Connection: close",
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c",
                "Upgrade: websocket",
                f"Content-Length: {rng.choice(LENGTHS)}",
                f"Transfer-Encoding: {rng.choice(CODINGS)}",
                "Content-Encoding: gzip",
                "Content-Type: application/cloudevents+json",
                "Content-Type: application/cloudevents-batch+json",
                "Content-Type: \x00",
                "Content-Type: multipart/mixed; boundary=x",
                "ce-specversion: 1.0",
                "ce-id: 1",
                "ce-type: t",
                "ce-source: /x",
                "ce-specversion: 9",
                "ce-id: %00%zz",
                "ce-time: yesterday",
                "X: " + "a" * rng.choice([100, 15_000, 100_000]),
                "\r\n".join(["X: y"] * rng.choice([10, 90, 4000])),
                "no colon",
                " continued",
                "X : y",
                ": y",
                "X\x00: y",
                "X: \x00\x01\x7f",
                "X: a\nInjected: b",
                "X: a\rb",
                "Accept: application/openmetrics-text",
                "Accept: */*;q=x",
                "Accept: application/openmetrics-text;version=x",
                "Range: bytes=0-",
                "Trailer: Host",
            ]
        )
        return (
            made.encode("utf-8", "replace")
            if rng.random() < 0.9
            else made.encode("latin-1", "replace") + rng.randbytes(3)
        )

    def _mutated(self, sent: bytes) -> bytes:
        rng, data = self.rng, bytearray(sent)
        for _ in range(rng.choice([1, 2, 10])):
            at = rng.randrange(len(data) + 1)
            what = rng.choice([b"", b"\x00", b"\r", b"\n", b"\r\n", b" ", b"\xff", b":", rng.randbytes(2)])
            data[at : at + rng.choice([0, 1, 1, 5])] = what
        return bytes(data) or b"\x00"


class Player:
    """Plays attacks against a port of this machine, and notes what was answered."""

    def __init__(self, port: int, secrets: Sequence[str]) -> None:
        self.codes: Counter[int] = Counter()
        self.faults: list[str] = []
        self._port = port
        self._secrets = [secret.encode() for secret in secrets]

    def play(self, attack: Attack) -> None:
        """Send it, and read what comes; a connection that neither answers nor ends is a fault."""
        try:
            with self.connect() as client:
                for piece in attack.pieces:
                    client.sendall(piece)
                if attack.end == "reset":
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                elif attack.end == "read":
                    client.shutdown(socket.SHUT_WR)
                    self._note(attack, self._all_of(client))
        except TimeoutError:
            self.faults.append(f"neither answered nor ended: {b''.join(attack.pieces)[:300]!r}")
        except OSError:
            pass  # the server has closed the connection while we were sending

    def connect(self) -> socket.socket:
        """Return a connection."""
        return socket.create_connection(("127.0.0.1", self._port), timeout=60)

    def ask(self, path: str, token: str | None = None, method: str = "GET") -> tuple[int, bytes]:
        """Ask as a good client does. Returns the status and the body."""
        head = f"Authorization: Bearer {token}\r\n" if token else ""
        with self.connect() as client:
            client.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{head}Connection: close\r\n\r\n".encode())
            answer = self._all_of(client)
        first, _, rest = answer.partition(b"\r\n")
        return int(first.split()[1]), rest.partition(b"\r\n\r\n")[2]

    @staticmethod
    def _all_of(client: socket.socket) -> bytes:
        answer = b""
        with suppress(ConnectionResetError):  # the server may close while there is more that it did not read
            while data := client.recv(1 << 16):
                answer += data
        return answer

    def _note(self, attack: Attack, answer: bytes) -> None:
        codes = [int(code) for code in re.findall(rb"(?:^|(?<=\n))HTTP/1\.[01] ([0-9]{3}) ", answer)]
        self.codes.update(codes)
        what = b"".join(attack.pieces)[:300]
        # That a transfer coding is not known, or the version of HTTP is another one, only a client can cause.
        if wrong := [code for code in codes if code >= 500 and code not in (501, 505)]:
            self.faults.append(f"{wrong}: {what!r} -> {answer[:300]!r}")
        if any(secret in answer for secret in self._secrets):
            self.faults.append(f"a secret was told: {what!r}")
        if b"\nX-Injected:" in answer or b"\nInjected:" in answer:
            self.faults.append(f"a header was injected: {what!r}")
