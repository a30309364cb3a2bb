"""Kafka that asks who we are, with both clients: accepted and refused credentials, and secrets that are rotated."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from inbound.admin.client import fetch_status
from inbound.config import IngressConfig, ReaderConfig
from inbound.embedded import EmbeddedCluster
from inbound.errors import BrokerUnavailableError
from inbound.ingress.producer import make_producer
from inbound.kafka.base import LogClient, LogRange
from inbound.kafka.clients.choice import connector
from inbound.kafka.clients.ledger_topic import KafkaLedgerTopic
from inbound.kafka.python.producer import KafkaTopicWriter
from inbound.kafka.python.topics import log_ends, prepare_topic
from inbound.processors.cloudevents_bridge import RecordParts
from inbound.topic_partition import TopicPartition
from integration.certificates import CA
from integration.certificates import PASSWORD as KEY_PASSWORD
from integration.harness import Scene, Scenes, both_clients
from integration.heartbeat import Heartbeat
from integration.secured import PASSWORD, USER, Mounted, TokenServer, quoted, secured, set_password, token
from tests.waiting import until

pytestmark = pytest.mark.thorough(
    "secured brokers; tests/kafka/test_kafka_access.py decides what a client is given, and says"
)

BOB, BOBS, WRONG = "bob=b,ob", "first-s3cret-of-bob", "wr0ng-s3cret"
SECRETS = (PASSWORD, BOBS, WRONG, KEY_PASSWORD)
#: Sessions of SASL, and tokens, last so long, where they end at all; they are renewed in the last fifth of it, which has
#: to be longer than a stall of a busy machine. Milliseconds.
SESSION_MS = 6000
TOPIC = "secured"
_MODULES = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CA:
    """The authority that all brokers' certificates are of; `carol` has one too."""
    one = CA(tmp_path_factory.mktemp("authority"))
    one.client("carol")
    return one


@pytest.fixture(scope="module")
def cluster(authority: CA) -> Iterator[EmbeddedCluster]:
    """Brokers with a listener for each way in."""
    with secured(authority, session_ms=SESSION_MS) as one:
        set_password(one, BOB, BOBS)
        prepare_topic({"bootstrap.servers": one.bootstrap_servers}, TOPIC, create=True, partitions=1)
        yield one


def password(user: str, word: str, mechanism: str, *, tls: Path | None = None) -> dict[str, str]:
    """Return the properties of who logs in with a password."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return {
        "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{_MODULES}.{module} required username={quoted(user)} password={quoted(word)};",
        **({"ssl.truststore.location": str(tls)} if tls else {}),
    }


def tls(authority: Path, **more: Path | str) -> dict[str, str]:
    """Return the properties of who trusts this authority; `keystore_location` stands for `ssl.keystore.location`."""
    given = {f"ssl.{name.replace('_', '.')}": str(value) for name, value in more.items()}
    return {"security.protocol": "SSL", "ssl.truststore.location": str(authority), **given}


def bearer(url: str, secret: str = "") -> dict[str, str]:
    """Return the properties of who has tokens from `url`."""
    line = f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required clientId="svc" clientSecret={quoted(secret)};'
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        **({"sasl.jaas.config": line} if secret else {}),
    }


def connect(client: str, servers: str, properties: Mapping[str, str]) -> LogClient:
    """Connect as a channel does."""
    reader = ReaderConfig(client=client)  # type: ignore[arg-type]
    given = {"bootstrap.servers": servers, **properties}
    return connector(reader, given, client_id="security", isolation="read_committed")()


def asked(client: str, servers: str, properties: Mapping[str, str]) -> str:
    """Return "let in", or why not: the message once the client knows."""
    given: list[str] = []

    def told() -> bool:
        try:
            with closing(connect(client, servers, properties)) as one:
                until(lambda: answered(one), 60, lambda: given[-1])
        except BrokerUnavailableError as error:
            given.append(str(error))
        return "does not answer" not in given[-1]

    def answered(one: LogClient) -> bool:
        try:
            given.append("let in" if TOPIC in one.topics([TOPIC], None) else "no topic")
        except BrokerUnavailableError as error:
            given.append(str(error))
        return "does not answer" not in given[-1]

    until(told, 120, lambda: given[-1])
    return given[-1]


def all_asked(client: str, cluster: EmbeddedCluster, ways: Mapping[str, tuple[str, dict[str, str]]]) -> dict[str, str]:
    """Try all `ways` (listener and properties) side by side."""
    with ThreadPoolExecutor(len(ways)) as pool:
        futures = {
            name: pool.submit(asked, client, cluster.servers_at(listener), properties)
            for name, (listener, properties) in ways.items()
        }
        return {name: future.result() for name, future in futures.items()}


@both_clients
def test_who_has_the_right_password_certificate_or_token_is_let_in(
    client: str, cluster: EmbeddedCluster, authority: CA, tmp_path: Path
) -> None:
    """In every form in which they may be given."""
    pem = authority.pem
    carol = {end: (authority.folder / f"client-carol{end}") for end in (".crt", ".key", ".pem", "-locked.pem")}
    (tmp_path / "token").write_text(token("dave", 3600) + "\n")
    (tmp_path / "password").write_text(BOBS + "\n")
    placeholder = f"${{directory:{tmp_path}:password}}"
    folder = Mounted(
        tmp_path / "folder", protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", user=BOB, password=BOBS,
        ca_crt=pem.read_text(),
    )  # fmt: skip
    older = Mounted(tmp_path / "older", username=USER, password=PASSWORD, ca_crt=pem.read_text())
    mutual = Mounted(
        tmp_path / "mutual", protocol="SSL", ca_crt=pem.read_text(), user_crt=carol[".crt"].read_text(),
        user_key=carol[".key"].read_text(),
    )  # fmt: skip
    inline = {
        "security.protocol": "SSL",
        "ssl.truststore.certificates": pem.read_text(),
        "ssl.keystore.certificate.chain": carol["-locked.pem"].read_text().partition("-----END ENCRYPTED")[2][18:],
        "ssl.keystore.key": carol["-locked.pem"].read_text().partition("-----BEGIN CERT")[0],
        "ssl.key.password": KEY_PASSWORD,
    }

    told = all_asked(
        client,
        cluster,
        {
            "PLAIN": ("PASSWORD", password(USER, PASSWORD, "PLAIN")),
            "SCRAM-SHA-256": ("PASSWORD", password(BOB, BOBS, "SCRAM-SHA-256")),
            "SCRAM-SHA-512 and TLS": ("BOTH", password(BOB, BOBS, "SCRAM-SHA-512", tls=pem)),
            "password in a file": ("PASSWORD", password(BOB, placeholder, "SCRAM-SHA-256")),
            "TLS": ("TLS", tls(pem)),
            "certificate": ("MUTUAL", tls(pem, keystore_location=carol[".pem"])),
            "encrypted key": ("MUTUAL", tls(pem, keystore_location=carol["-locked.pem"], key_password=KEY_PASSWORD)),
            "inline": ("MUTUAL", inline),
            "folder": ("BOTH", {"secret": str(folder.folder)}),
            "older folder": ("BOTH", {"secret": str(older.folder)}),
            "folder with a certificate": ("MUTUAL", {"secret": str(mutual.folder)}),
            "token in a file": ("TOKEN", bearer((tmp_path / "token").as_uri())),
            "another name, not looked at": ("ELSEWHERE", tls(pem, endpoint_identification_algorithm="")),
        },
    )

    assert {name: said for name, said in told.items() if said != "let in"} == {}


@both_clients
def test_a_refused_client_logs_why(client: str, cluster: EmbeddedCluster, authority: CA, tmp_path: Path) -> None:
    """Each mistake has its own words with either client, and none holds a secret."""
    pem, stranger = authority.pem, CA(tmp_path / "stranger")
    (tmp_path / "token").write_text(token("dave", -60))
    at = {name: cluster.servers_at(name) for name in cluster.brokers[0].ports}
    with TokenServer("svc-s3cret", 60) as server:
        told = all_asked(
            client,
            cluster,
            {
                "wrong PLAIN": ("PASSWORD", password(USER, WRONG, "PLAIN")),
                "wrong SCRAM": ("BOTH", password(BOB, WRONG, "SCRAM-SHA-256", tls=pem)),
                "no such mechanism": ("TOKEN", password(USER, PASSWORD, "PLAIN")),
                "wrong name": ("ELSEWHERE", tls(pem)),
                "unknown authority": ("TLS", tls(stranger.pem)),
                "expired": ("EXPIRED", tls(pem)),
                "no certificate": ("MUTUAL", tls(pem)),
                "unknown certificate": ("MUTUAL", tls(pem, keystore_location=stranger.client("eve").both)),
                "expired token": ("TOKEN", bearer((tmp_path / "token").as_uri())),
                "wrong client secret": ("TOKEN", bearer(server.url, WRONG)),
            },
        )

    expected = {
        "wrong PLAIN": f"authentication failed for user {USER} at broker {at['PASSWORD']} by PLAIN",
        "wrong SCRAM": f"authentication failed for user {BOB} at broker {at['BOTH']} by SCRAM-SHA-256",
        "no such mechanism": f"broker {at['TOKEN']} does not have sasl.mechanism PLAIN",
        "wrong name": f"the certificate of broker {at['ELSEWHERE']} is not for the name 127.0.0.1",
        "unknown authority": f"the certificate of broker {at['TLS']} is of an authority that is not trusted here",
        "expired": f"the certificate of broker {at['EXPIRED']} has expired",
        "no certificate": f"broker {at['MUTUAL']} wants a certificate of ours, and none is set",
        "unknown certificate": f"broker {at['MUTUAL']} did not take our certificate",
        "expired token": f"no token for Kafka: the one in {tmp_path / 'token'} has expired",
        "wrong client secret": f"no token for Kafka: {server.url} refused client svc (HTTP 401, invalid_client)",
    }
    assert {name: told[name] for name, words in expected.items() if words not in told[name]} == {}
    assert not [secret for secret in SECRETS if secret in "".join(told.values())]


@both_clients
def test_tokens_are_renewed_before_they_end(client: str, cluster: EmbeddedCluster) -> None:
    """A reader goes on for longer than several tokens live, on brokers that check them again; nothing fails."""
    tp = TopicPartition(TOPIC, 0)
    writer = KafkaTopicWriter({"bootstrap.servers": cluster.bootstrap_servers}, TOPIC, "load")
    with TokenServer("svc-s3cret", SESSION_MS / 1000) as server:
        servers = cluster.servers_at("TOKEN")
        connected = connect(client, servers, bearer(server.url, "svc-s3cret"))
        with closing(writer), closing(connected) as reader, Heartbeat() as heart:
            reader.topics([TOPIC], None)
            first = end_of(reader, tp)
            reader.read({tp: first})
            got: list[int] = []

            def read_on() -> bool:
                try:
                    reader.topics([TOPIC], None)
                except BrokerUnavailableError:
                    # kafka-python renews in the last 15 to 5 percent. If the machine was frozen for longer than that the
                    # broker has closed the connection, rightly, and the next one begins with another token.
                    if heart.lost(time.monotonic() - SESSION_MS / 1000) < 0.05 * SESSION_MS / 1000:
                        raise
                for fetched in reader.poll(0.1).fetched.values():
                    got.extend(record.offset for record in fetched.records)
                return server.given >= 4 and len(got) >= 5

            def one_more() -> bool:
                if len(got) >= sent[0]:
                    writer.send([(None, b"x", [])])
                    sent[0] += 1
                return read_on()

            sent = [0]
            until(one_more, 90, lambda: f"{server.given} tokens given, {len(got)} of {sent[0]} records read")
            until(lambda: read_on() and len(got) == sent[0], 60, lambda: f"{len(got)} of {sent[0]} records read")

    assert got == list(range(first, first + sent[0]))
    assert server.refused == 0


def end_of(reader: LogClient, tp: TopicPartition) -> int:
    """Return where the log ends."""
    found: dict[TopicPartition, LogRange] = {}

    def known() -> bool:
        found.update(reader.log_ranges([tp]))
        return tp in found

    until(known, 60, "where the log ends")
    return found[tp].end


def kafka_problem(scene: Scene, consumer: subprocess.Popen[bytes]) -> str:
    """Return what a consumer's status says of Kafka."""
    return str(fetch_status(scene.admin_url(consumer), 30)["channels"][0]["kafka_problem"])


@pytest.mark.parametrize("client", ["confluent-kafka"])
def test_a_password_is_rotated_under_load(cluster: EmbeddedCluster, scenes: Scenes, tmp_path: Path) -> None:
    """First at the brokers: the consumer says that it is not let in, and waits. Then in its mounted folder: it goes on by
    itself, without having lost or repeated a record."""
    user, old, new = "rotated", "old-s3cret-pw", "new-s3cret-pw"
    set_password(cluster, user, old)
    given = {
        "protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", "user": user,
        "brokers": cluster.servers_at("AGAIN"),
    }  # fmt: skip
    folder = Mounted(tmp_path / "secret", password=old, **given)
    scene = scenes(cluster=cluster, partitions=2, kafka=f"{{secret: {folder.folder}}}")
    (consumer,) = scene.run_group(1)
    scene.start_load(20)
    scene.wait_more(50)

    set_password(cluster, user, new)
    refused = f"authentication failed for user {user} at broker {cluster.servers_at('AGAIN')} by SCRAM-SHA-256"
    until(lambda: refused in kafka_problem(scene, consumer), 60, lambda: scene.log(consumer))
    folder.swap(password=new, **given)
    scene.wait_more(50)
    scene.settle()

    assert scene.stop_all() == [0], scene.log(consumer)
    assert scene.account().clean
    assert scene.log(consumer).count(refused) == 1  # told once, however often it was tried
    assert not [secret for secret in (old, new) if secret in scene.log(consumer)]


def test_everything_that_writes_comes_in_too(client: str, cluster: EmbeddedCluster, authority: CA) -> None:
    """Dead letters and published records, the ledger's topic, questions about topics, the ingress; all by TLS and password."""
    kafka: dict[str, Any] = {
        "bootstrap.servers": cluster.servers_at("BOTH"),
        **password(BOB, BOBS, "SCRAM-SHA-512", tls=authority.pem),
    }
    topic = f"written-{client}"

    prepare_topic(kafka, topic, create=True, partitions=1)
    with closing(KafkaTopicWriter(kafka, topic, "writer")) as writer:
        writer.send([(b"k", b"v", [])])
    ledger = KafkaLedgerTopic(kafka, f"ledger-{client}", "ledger", partitions=1, replication_factor=1, retention=3600.0)
    written: list[Exception | None] = []
    with closing(ledger):
        ledger.send(b"k", b"v", written.append)
        until(lambda: written, 60, "the ledger's entry acknowledged")
    producer = make_producer(IngressConfig(listen="127.0.0.1:0", topics=(topic,), client=client), kafka)  # type: ignore[arg-type]
    delivered: list[object] = []
    try:
        until(lambda: topic in producer.topics(), 60, "the ingress sees the topic")
        taken = producer.send(topic, [RecordParts(b"k", b"v", [])], [lambda error, _: delivered.append(error)])
        assert taken == (1, None)

        def acknowledged() -> bool:
            producer.poll()
            return bool(delivered)

        until(acknowledged, 60, "the ingress' record acknowledged")
    finally:
        producer.close(5)

    assert (written, delivered) == ([None], [None])
    assert log_ends(kafka, topic, 1) == {0: 2}
