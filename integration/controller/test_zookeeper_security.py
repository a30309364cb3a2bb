"""ZooKeeper with TLS, log-ins and access rights, on a real server: who gets in, who does not, and the messages."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inbound.clock import SystemClock
from inbound.config import ZooKeeperConfig
from inbound.controller.kazoo_zk import KazooZooKeeper
from inbound.coordinators.zookeeper import Call, Check, Create, Delete, SetData
from inbound.errors import ZkDeniedError
from inbound.process.zookeeper.client import zookeeper_client
from integration.certificates import CA
from integration.controller.secure_zookeeper import PASSWORD, STRANGER, STRANGERS_PASSWORD, USER, SecureZooKeeper
from tests.waiting import until

pytestmark = pytest.mark.thorough(
    "a secured ZooKeeper; test_kazoo_zookeeper.py has log-ins by digest and access rights"
)

#: For what needs milliseconds on a quiet machine. Seconds.
LONG = 30.0
_names = itertools.count()


class Clients:
    """Makes clients as a configuration describes them, and ends them."""

    def __init__(self, server: SecureZooKeeper) -> None:
        self.server = server
        self.made: list[KazooZooKeeper] = []

    def __call__(
        self, *, hosts: str | None = None, chroot: str = "", tls: dict[str, Any] | None = None, **rest: Any
    ) -> KazooZooKeeper:
        """Return a client on its way, of the port for TLS if not told otherwise."""
        files = {"ca_file": self.server.ca.pem} if tls is None else tls
        given = {"hosts": hosts or self.server.secure, "chroot": chroot, "session_timeout": "20s", "tls": files or None}
        settings = ZooKeeperConfig.model_validate({**given, **rest})
        client = zookeeper_client(settings, SystemClock())
        self.made.append(client)
        client.start()
        return client

    def connected(self, **settings: Any) -> KazooZooKeeper:
        client = self(**settings)
        until(lambda: client.connection is not None, LONG, lambda: f"connected: {client.problem}")
        return client

    def sasl(self, password: str = PASSWORD, user: str = USER, **more: Any) -> dict[str, Any]:
        """Return settings of a log-in that the server checks."""
        return {"auth": self.auth("sasl", password, user), **more}

    def auth(self, scheme: str, password: str = PASSWORD, user: str = USER) -> dict[str, Any]:
        name = f"password-{next(_names)}"
        return {"scheme": scheme, "user": user, "password_file": self.server.password_file(password, name)}


def told(zk: KazooZooKeeper, words: str) -> None:
    """Wait until the client says so of what is wrong."""
    until(
        lambda: any(words in why for why in list(zk._link._troubles.values())), LONG, lambda: f"{words!r}: {zk.problem}"
    )
    assert zk.problem is not None


def answer(call: Call[Any]) -> Any:
    until(lambda: call.done, LONG, call.what)
    return call.result()


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureZooKeeper]:
    """A server that asks every client to log in."""
    server = SecureZooKeeper(tmp_path_factory.mktemp("asking"))
    with server.serving(sasl_required=True):
        yield server


@pytest.fixture
def clients(asking: SecureZooKeeper) -> Iterator[Clients]:
    """Clients of that server."""
    made = Clients(asking)
    yield made
    for client in made.made:
        client.close()


@pytest.fixture
def chroot() -> str:
    """A place of its own for each test."""
    return f"/security/{next(_names)}"


# -- getting in --------------------------------------------------------------------------------------------------------


def test_who_logs_in_over_tls_does_all_that_coordination_does(clients: Clients, chroot: str) -> None:
    """Claims, checked commits, ephemeral nodes, many requests in one go, answers larger than what TLS has in one piece."""
    one, two = (clients.connected(chroot=chroot, **clients.sasl()) for _ in "ab")
    answer(one.transaction([Create("/epoch"), Create("/offset"), Create("/owner", b"one", ephemeral=True)]))
    for version in range(3):
        answer(one.transaction([Check("/epoch", 0), SetData("/offset", b"%d" % version, version)]))
    answer(two.transaction([SetData("/epoch", b"two", 0), Delete("/owner"), Create("/owner", b"two", ephemeral=True)]))
    calls: list[Call[Any]] = [two.transaction([SetData("/offset", b"x" * 9000)]) for _ in range(200)]
    calls += [one.get("/offset") for _ in range(200)]
    for call in calls:
        answer(call)
    answer(one.transaction([Create(f"/child-{n}-{'x' * 200}") for n in range(400)]))
    children = answer(two.children("/"))
    owner = answer(one.get("/owner"))
    assert len(children) == 403
    assert (owner.data, owner.stat.ephemeral_owner) == (b"two", two.connection.session.id)  # type: ignore[union-attr]


def test_a_session_survives_a_lost_connection(clients: Clients, chroot: str) -> None:
    """Authenticated again, in the same session, with its ephemeral nodes; also over a connection broken for it."""
    zk = clients.connected(chroot=chroot, **clients.sasl())
    answer(zk.transaction([Create("/fleeting", ephemeral=True)]))
    before = zk.connection
    assert before is not None
    zk.reconnect()
    until(lambda: zk.connection is not None and zk.connection.generation > before.generation, LONG, "reconnected")
    node = answer(zk.get("/fleeting"))
    assert node.stat.ephemeral_owner == before.session.id
    answer(zk.transaction([Delete("/fleeting")]))


def test_each_server_is_verified_under_its_own_name(tmp_path: Path) -> None:
    """Two servers with a certificate each: both are taken by their names, none by the other's."""
    first, second = SecureZooKeeper(tmp_path / "first"), SecureZooKeeper(tmp_path / "second")
    clients = Clients(first)
    own_names = f"{first.secure},{second.secure.replace('localhost', '127.0.0.1')}"
    others_names = f"{first.secure.replace('localhost', '127.0.0.1')},{second.secure}"
    for server, pem, refused in (
        (first, first.pem, "not valid for '127.0.0.1'"),
        (second, first.ca.server(("127.0.0.1",), file="address"), "not valid for 'localhost'"),
    ):
        with server.serving(pem):
            told(clients(hosts=others_names), refused)
            assert answered(clients.connected(hosts=own_names))
    for client in clients.made:
        client.close()


def answered(zk: KazooZooKeeper) -> bool:
    """Whether the server that the client is connected to, if it is, answers."""
    try:
        return answer(zk.get("/")) is not None
    except Exception:
        return False


# -- not getting in ----------------------------------------------------------------------------------------------------


def _refusals(clients: Clients) -> dict[str, tuple[dict[str, Any], str]]:
    server = clients.server
    address = server.secure.replace("localhost", "127.0.0.1")
    foreign = CA(server.folder / "foreign")
    return {
        "no log-in": ({}, "the server asks every client to log in; set zookeeper.auth"),
        "another kind of log-in": (
            {"auth": clients.auth("digest")}, "the server takes no log-in by digest; see zookeeper.auth.scheme",
        ),
        "wrong password": (
            clients.sasl("not-the-pw"), "log-in of user inbound (sasl) refused: wrong user or password (correct zookeeper.auth",
        ),
        "unknown user": (clients.sasl(user="stranger"), "log-in of user stranger (sasl) refused: wrong user or password"),
        "unknown authority": (
            clients.sasl(tls={"ca_file": foreign.pem}),
            "the server's certificate is not trusted: unable to get local issuer certificate; see zookeeper.tls.ca_file",
        ),
        "another name": (
            clients.sasl(hosts=address),
            "IP address mismatch, certificate is not valid for '127.0.0.1': name servers in zookeeper.hosts as their",
        ),
        "plain, where TLS is spoken": (clients.sasl(tls={}), "if this port is for TLS, set zookeeper.tls"),
        "TLS, where none is spoken": (
            clients.sasl(hosts=server.plain), "is this its port for TLS (secureClientPort)?",
        ),
    }  # fmt: skip


def test_a_refused_client_logs_why_and_keeps_trying_slowly(clients: Clients, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing hangs, at the end neither; nothing is tried over and over, and nothing tells the password."""
    refusals = _refusals(clients)
    with caplog.at_level(1):
        made = {case: clients(**settings) for case, (settings, _) in refusals.items()}
        attempts = [count_attempts(zk) for zk in made.values()]
        for case, (_, words) in refusals.items():
            told(made[case], words)
        time.sleep(2.5)
        until(lambda: all(attempts), LONG, lambda: f"each tries again: {attempts}")
        for zk in made.values():
            zk.close()
    logged = {case: times_logged(caplog, words) for case, (_, words) in refusals.items()}
    assert logged == dict.fromkeys(refusals, 1)
    assert not times_logged(caplog, "did not stop")
    assert all(times and most_in(2.5, times) <= 12 for times in attempts), attempts
    assert not any(secret in caplog.text for secret in (PASSWORD, "not-the-pw"))


def most_in(seconds: float, times: list[float]) -> int:
    """Return how many of these lie within so many seconds at most."""
    return max(sum(begin <= at <= begin + seconds for at in times) for begin in times)


def times_logged(caplog: pytest.LogCaptureFixture, words: str) -> int:
    """Return how often inbound logged something with these words."""
    return sum(r.name.startswith("inbound") and words in r.getMessage() for r in caplog.records)


def count_attempts(zk: KazooZooKeeper) -> list[float]:
    """Return a list that gets the time of each connection from now on."""
    attempts: list[float] = []
    connect: Callable[..., Any] = zk._link._kazoo_create_connection

    def counted(*arguments: Any, **options: Any) -> Any:
        attempts.append(time.monotonic())
        return connect(*arguments, **options)

    zk._link._kazoo_create_connection = counted
    return attempts


def test_a_certificate_that_has_expired_or_is_anothers_is_refused(tmp_path: Path) -> None:
    """The server's; then it gets a good one, and the client connects without help."""
    server = SecureZooKeeper(tmp_path)
    clients = Clients(server)
    with server.serving(server.expired):
        zk = clients()
        told(zk, "certificate has expired; it has to be renewed there")
    with server.serving(server.wrong_name):
        told(zk, "certificate is not valid for 'localhost'")
        free = clients.connected(tls={"ca_file": server.ca.pem, "verify_hostname": False})
        assert answer(free.get("/")) is not None
    with server.serving():
        until(lambda: zk.connection is not None, LONG, lambda: str(zk.problem))
    for client in clients.made:
        client.close()


def test_a_server_that_asks_for_certificates_takes_only_good_ones(tmp_path: Path) -> None:
    """None, an expired one and a stranger's are refused; a good one is a user, whose nodes are his alone."""
    server = SecureZooKeeper(tmp_path)
    clients = Clients(server)
    trusted = {"ca_file": server.ca.pem}
    mine, locked = server.client, server.ca.client("second")
    passphrase = server.password_file("key-s3cret-pw", "passphrase")
    with server.serving(client_certificates="need"):
        for other in (server.ca.expired((USER,), file="expired-client"), CA(tmp_path / "foreign").client(USER), None):
            shown = {} if other is None else {"cert_file": other.certificate, "key_file": other.key}
            zk = clients(tls=trusted | shown)
            told(zk, "the server refused our certificate")
            zk.close()
        tls = trusted | {"cert_file": mine.certificate, "key_file": mine.key}
        owner = clients.connected(tls=tls, chroot="/mine", acl="creator")
        answer(owner.transaction([Create("/node")]))
        second = clients.connected(tls=trusted | {"cert_file": locked.locked, "key_password_file": passphrase})
        with pytest.raises(ZkDeniedError, match=r"read of /mine/node is not allowed to the certificate .*locked.pem"):
            answer(second.get("/mine/node"))
    for client in clients.made:
        client.close()


# -- passwords that change ---------------------------------------------------------------------------------------------


def test_a_password_that_was_wrong_for_a_moment_costs_no_session(clients: Clients, chroot: str) -> None:
    """Its file is read at each attempt; while it is gone, or holds nothing, the message says so. Who is refused with a
    wrong one has his ephemeral nodes still when it is corrected in time."""
    settings = clients.sasl()
    file: Path = settings["auth"]["password_file"]
    zk = clients.connected(chroot=chroot, session_timeout="60s", **settings)
    before = zk.connection
    assert before is not None
    answer(zk.transaction([Create("/fleeting", ephemeral=True)]))
    file.write_text("not-the-pw")
    zk.reconnect()
    told(zk, "wrong user or password")
    file.unlink()
    told(zk, f"{file} cannot be read: No such file")
    file.write_text("")
    told(zk, f"{file} must hold the password")
    file.write_text(PASSWORD)
    until(lambda: zk.connection is not None, LONG, lambda: str(zk.problem))
    assert zk.problem is None
    assert (zk.connection is not None and zk.connection.session) == before.session
    assert answer(zk.get("/fleeting")).stat.ephemeral_owner == before.session.id


def test_a_wrong_password_of_digest_shows_at_the_nodes_and_its_correction_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """There the server refuses no password: a wrong one makes a stranger. The session stays."""
    server = SecureZooKeeper(tmp_path)
    clients = Clients(server)
    with server.serving(), caplog.at_level(logging.INFO, "inbound"):
        right = clients.connected(auth=clients.auth("digest"))
        answer(right.transaction([Create("/mine", b"1")]))
        wrong = clients.auth("digest", "not-the-pw")
        zk = clients.connected(auth=wrong)
        before = zk.connection
        for call in (lambda: zk.get("/mine"), lambda: zk.transaction([Create("/free"), SetData("/mine", b"2")])):
            with pytest.raises(ZkDeniedError, match="a wrong password shows only here; it is read again when it chang"):
                answer(call())
        assert "/mine" in str(zk.problem)
        wrong["password_file"].write_text(PASSWORD)
        until(lambda: answered_node(zk), LONG, lambda: f"taken: {zk.problem}")
        assert before is not None
        assert zk.connection is not None
        assert zk.connection.session == before.session
        assert answer(zk.get("/free")) is None
    assert "the password of user inbound (digest) has changed; reconnecting with it" in caplog.text
    assert not any(secret in caplog.text for secret in (PASSWORD, "not-the-pw"))
    for client in clients.made:
        client.close()


def answered_node(zk: KazooZooKeeper) -> bool:
    """Ask for the node, as who is refused does again and again; whether it is there."""
    try:
        return answer(zk.get("/mine")) is not None
    except Exception:
        return False


# -- access rights -----------------------------------------------------------------------------------------------------


def test_what_a_user_makes_is_closed_to_another_from_the_chroot_down(clients: Clients, chroot: str) -> None:
    """Who logs in as another can neither read, nor write, nor delete; an observer may read what is made readable."""
    owner = clients.connected(chroot=chroot, **clients.sasl())
    shown = clients.connected(chroot=f"{chroot}-shown", acl="readable", **clients.sasl())
    for zk in (owner, shown):
        answer(zk.transaction([Create("/offsets"), Create("/offsets/0", b"17"), Create("/owner", ephemeral=True)]))
    stranger = clients(chroot=chroot, **clients.sasl(STRANGERS_PASSWORD, STRANGER))
    told(stranger, "user stranger (sasl) may not use zookeeper.chroot")
    outside = clients.connected(**clients.sasl(STRANGERS_PASSWORD, STRANGER))
    for op in (SetData(f"{chroot}/offsets/0", b"0"), Delete(f"{chroot}/offsets/0"), Delete(f"{chroot}/owner")):
        for place in (chroot, f"{chroot}-shown"):
            with pytest.raises(ZkDeniedError):
                answer(outside.transaction([op._replace(path=op.path.replace(chroot, place))]))
    with pytest.raises(ZkDeniedError, match=r"read of .* is not allowed to user stranger"):
        answer(outside.get(f"{chroot}/offsets/0"))
    node = answer(outside.get(f"{chroot}-shown/offsets/0"))
    assert node.data == b"17"
