"""How a client authenticates to ZooKeeper, and who may use its nodes, from the configuration on."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionDropped, InvalidACLError, NoAuthError
from kazoo.protocol.serialization import Auth
from kazoo.security import ACL, Id

from inbound.config import ZooKeeperConfig, load
from inbound.controller.zookeeper_access import KazooSecurity
from inbound.errors import ConfigError
from inbound.process.zookeeper.client import zookeeper_access
from inbound.testing.world import Recording, World
from inbound.testing.zookeeper import Who

CERTIFICATES = Path(__file__).parent.parent / "certificates"
ANYONE = Id("world", "anyone")
#: Of user inbound with password s3cret: base64 of the SHA-1 of `inbound:s3cret`, as openssl says.
DIGEST = Id("digest", "inbound:u+zlQ3USWIHETW9/yIN0MMAXMA8=")
SASL = Id("sasl", "inbound")


@pytest.fixture
def password(tmp_path: Path) -> Path:
    """A mounted password, with the line end that editors add."""
    path = tmp_path / "password"
    path.write_text("s3cret\n")
    return path


def security(**settings: Any) -> KazooSecurity:
    """Return what a client does that is configured so."""
    return KazooSecurity(zookeeper_access(ZooKeeperConfig.model_validate(settings)))


def auth(scheme: str, password: Path) -> dict[str, Any]:
    return {"scheme": scheme, "user": "inbound", "password_file": password}


# -- the configuration -------------------------------------------------------------------------------------------------


def test_every_wrong_setting_is_named_with_its_line_and_no_secret_is_shown() -> None:
    """A password does not belong there, and what Kerberos needs is not supported."""
    text = (
        "zookeeper:\n  auth:\n    scheme: kerberos\n    user: 'a:b'\n    mechanism: GSSAPI\n    password: s3cret\n"
        "  tls:\n    key_file: key.pem\n    verify_hostname: maybe\n  acl: closed\n"
        "channels: {a: {topics: [a], group: g, processor: {type: simple}}}\n"
    )
    with pytest.raises(ConfigError) as error:
        load(text, filename="inbound.yaml")
    assert str(error.value).splitlines() == [
        "inbound.yaml:2: zookeeper.auth.password_file: missing; this key is required",
        "inbound.yaml:3: zookeeper.auth.scheme: need one of digest, sasl, got 'kerberos'",
        "inbound.yaml:4: zookeeper.auth.user: need the name of a user, without blanks, colons, commas, quotes and "
        "backslashes, got 'a:b'",
        "inbound.yaml:5: zookeeper.auth.mechanism: GSSAPI (Kerberos) is not supported; use DIGEST-MD5 over TLS, or a client "
        "certificate",
        "inbound.yaml:6: zookeeper.auth.password: unknown key; did you mean password_file? allowed: mechanism, "
        "password_file, scheme, user",
        "inbound.yaml:9: zookeeper.tls.verify_hostname: need true or false, got 'maybe'",
        "inbound.yaml:10: zookeeper.acl: need one of open, creator, readable, got 'closed'",
    ]


def test_rights_for_nobody_in_particular_are_refused() -> None:
    """And a key without a certificate: each would be left out without a word."""
    text = (
        "zookeeper:\n  acl: creator\n  tls: {{{tls}}}\n"
        "channels: {{a: {{topics: [a], group: g, processor: {{type: simple}}}}}}\n"
    )
    with pytest.raises(
        ConfigError, match=r"^inbound.yaml:2: zookeeper.acl: needs zookeeper.auth, or zookeeper.tls.cert"
    ):
        load(text.format(tls=""), filename="inbound.yaml")
    with pytest.raises(ConfigError, match=r"^inbound.yaml:3: zookeeper.tls.key_file: needs cert_file beside it$"):
        load(text.format(tls="key_file: a.pem"), filename="inbound.yaml")
    assert load(text.format(tls="cert_file: a.pem"), filename="inbound.yaml").config.zookeeper.acl == "creator"


def test_the_files_of_a_connection_are_known(password: Path) -> None:
    """All of them are watched: a mounted secret changes without the configuration."""
    tls = {"ca_file": "ca.pem", "cert_file": "a.pem", "key_file": "a.key", "key_password_file": "a.pw"}
    settings = ZooKeeperConfig.model_validate({"auth": auth("sasl", password), "tls": tls})
    assert settings.files == (password, Path("ca.pem"), Path("a.pem"), Path("a.key"), Path("a.pw"))
    assert ZooKeeperConfig().files == ()


# -- access rights -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [(31, ANYONE)]),
        ({"auth": "digest"}, [(31, DIGEST)]),
        ({"auth": "sasl"}, [(31, SASL)]),
        ({"auth": "sasl", "acl": "open"}, [(31, ANYONE)]),
        ({"auth": "digest", "acl": "readable"}, [(31, DIGEST), (1, ANYONE)]),
        ({"tls": {"cert_file": "a.pem"}}, [(31, ANYONE)]),
        ({"tls": {"cert_file": "a.pem"}, "acl": "creator"}, [(31, Id("auth", ""))]),
    ],
)
def test_who_logs_in_has_what_it_makes_for_itself_if_not_told_otherwise(
    settings: dict[str, Any], expected: list[tuple[int, Id]], password: Path
) -> None:
    """The one decision that every node's rights follow from."""
    if "auth" in settings:
        settings = settings | {"auth": auth(settings["auth"], password)}
    made = security(**settings)
    made.begin()
    assert made.acl == [ACL(*entry) for entry in expected]


def test_a_group_that_logs_in_leaves_no_node_to_others() -> None:
    """Through its whole life: joining, claims, commits, a pause, a death, the end."""
    world = World()
    world.kafka.create_topic("orders", 4)
    ours = Who("inbound", "creator")
    first, _ = world.join("a", Recording(), who=ours), world.join("b", Recording(), who=ours)
    for partition in range(4):
        world.kafka.publish("orders", partition, [b"x"] * 5)
    world.run(10)
    world.ensemble.expire_session("b")
    world.run(20)
    nodes = {path: stored.made_by for path, stored in world.ensemble.tree.nodes.items() if path != "/"}
    assert first.channel.membership.registered
    assert {f"/consumers/group/{part}" for part in ("ids", "owners", "offsets", "epochs", "gates", "pauses")} <= set(
        nodes
    )
    assert {path for path, made_by in nodes.items() if made_by != ours} == set()


def test_a_member_whose_user_is_not_let_in_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """A wrong password of digest is another user: it takes nothing, the group goes on, and the log names the missing right."""
    world = World()
    world.kafka.create_topic("orders", 2)
    right, wrong = Recording(), Recording()
    world.join("right", right, who=Who("inbound", "creator"))
    world.run(5)
    world.join("wrong", wrong, who=Who("inbound with a wrong password", "creator"))
    for partition in range(2):
        world.kafka.publish("orders", partition, [b"x"] * 3)
    world.run(15)
    assert (len(right.seen), wrong.seen) == (6, [])
    assert "is not allowed to inbound with a wrong password; trying again in 5 s" in caplog.text


# -- logging in --------------------------------------------------------------------------------------------------------


def test_the_password_is_read_at_each_attempt_and_known_to_have_changed(password: Path) -> None:
    """Its text without the line end; nothing shows it."""
    made = security(auth=auth("sasl", password))
    assert made.begin() == {"mechanism": "DIGEST-MD5", "username": "inbound", "password": "s3cret"}
    assert not made.outdated()
    password.write_text("other\r\n")
    assert made.outdated()
    assert made.begin() == {"mechanism": "DIGEST-MD5", "username": "inbound", "password": "other"}
    password.unlink()
    assert not made.outdated()
    assert "s3cret" not in repr(made.access)
    with pytest.raises(ConfigError, match=rf"^zookeeper.auth.password_file: {password} cannot be read: No such file"):
        made.begin()


def test_digest_sends_user_and_password_itself(password: Path) -> None:
    """SASL is kazoo's."""
    sent: list[object] = []
    for scheme in ("digest", "sasl"):
        made = security(auth=auth(scheme, password))
        made.begin()
        made.log_in(lambda request, xid: sent.append((request, xid)))
    assert sent == [(Auth(0, "digest", "inbound:s3cret"), -4)]


@pytest.mark.parametrize("text", ["", "\n", "two\nlines\n", "\x00"])
def test_a_password_file_without_a_password_is_refused(password: Path, text: str) -> None:
    """An empty one would be a user of its own."""
    password.write_text(text)
    with pytest.raises(ConfigError, match="must hold the password, on one line"):
        security(auth=auth("digest", password)).begin()


# -- TLS ---------------------------------------------------------------------------------------------------------------


def test_servers_are_verified_by_name_unless_that_is_switched_off() -> None:
    """And by who signed, always."""
    contexts = []
    for verify in (True, False):
        tls = security(tls={"ca_file": CERTIFICATES / "ca.pem", "verify_hostname": verify}).access.tls
        assert tls is not None
        context = tls.context()
        contexts.append((context.check_hostname, context.verify_mode, context.minimum_version))
    assert contexts == [
        (True, ssl.CERT_REQUIRED, ssl.TLSVersion.TLSv1_2),
        (False, ssl.CERT_REQUIRED, ssl.TLSVersion.TLSv1_2),
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"ca_file": "absent.pem"},
            "zookeeper.tls.ca_file: absent.pem cannot be used: No such file or directory; need",
        ),
        (
            {"ca_file": __file__},
            "zookeeper.tls.ca_file: .* cannot be used: NO_CERTIFICATE_OR_CRL_FOUND; need certificates as",
        ),
        (
            {"cert_file": CERTIFICATES / "ca.pem"},
            r"zookeeper.tls.cert_file: .*ca.pem cannot be used: .*need a certificate and",
        ),
    ],
)
def test_files_that_are_no_use_are_named(settings: dict[str, Any], message: str) -> None:
    """With what is wrong about them."""
    tls = security(tls=settings).access.tls
    assert tls is not None
    with pytest.raises(ConfigError, match=f"^{message}"):
        tls.context()


# -- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "error", "words"),
    [
        (None, AuthFailedError(), "the server asks every client to log in; set zookeeper.auth"),
        ("digest", AuthFailedError(), "the server takes no log-in by digest"),
        ("sasl", InvalidACLError(), "the server knows no users by sasl; see zookeeper.auth.scheme and zookeeper.acl"),
        (None, NoAuthError(), "a client without a user may not use zookeeper.chroot; its creator had logged in"),
        (
            "sasl",
            NoAuthError(),
            "user inbound (sasl) may not use zookeeper.chroot; check zookeeper.auth.user, or let it in",
        ),
        ("digest", NoAuthError(), "a wrong password shows only here; it is read again when it changes"),
        (None, ConnectionDropped("socket connection broken"), "if this port is for TLS, set zookeeper.tls"),
        (None, ConnectionDropped("Connection refused"), "Connection refused"),
    ],
)
def test_each_refusal_says_what_to_do(scheme: str | None, error: Exception, words: str, password: Path) -> None:
    """In terms of the configuration."""
    made = security(**({} if scheme is None else {"auth": auth(scheme, password)}))
    assert words in made.explain(error, session=False)


def test_what_waits_inside_of_a_tls_socket_counts_as_readable() -> None:
    """Two answers in one piece: with the first one read nothing is left outside for `select` to see."""
    ours, theirs = socket.socketpair()
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(CERTIFICATES / "server.pem")

    def serve() -> None:
        with serving.wrap_socket(theirs, server_side=True) as server:
            server.sendall(b"12")
            server.recv(1)  # until the other side is done

    server = threading.Thread(target=serve)
    server.start()
    client = security(tls={"ca_file": CERTIFICATES / "ca.pem"})
    with client.encrypt(ours, "localhost") as secure:
        first = secure.recv(1)
        outside = select.select([secure], [], [], 0)[0]
        found = client.select(select.select)([secure], [], [], 30.0)
        second = secure.recv(1)
        secure.sendall(b"!")
    server.join(60)
    assert (first, outside, found, second) == (b"1", [], ([secure], [], []), b"2")
