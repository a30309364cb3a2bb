"""What lets us in at Kafka's brokers: mounted folders, files, properties; and what both clients are told of it."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import kafka
import pytest

from inbound.config.kafka_secret import from_secret, kafka_files
from inbound.config.loader import depends_on, load
from inbound.errors import ConfigError
from inbound.kafka.auth.access import Login, contents, login, resolve, warnings
from inbound.kafka.auth.tls import context
from inbound.kafka.confluent.settings import to_confluent
from inbound.kafka.python.client import to_kafka_python
from inbound.spark.kafka_source import client_options

CERTIFICATES = Path(__file__).parent.parent / "certificates"
CA, CLIENT = CERTIFICATES / "ca.pem", CERTIFICATES / "client.pem"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def folder(place: Path, **files: str) -> Path:
    """Write files into a folder; underscores of their names stand for dots."""
    place.mkdir(exist_ok=True)
    for name, text in files.items():
        (place / name.replace("_", ".")).write_text(text)
    return place


# -- a mounted folder ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "properties"),
    [
        ({"protocol": "PLAINTEXT\n"}, {"security.protocol": "PLAINTEXT"}),
        (
            {"protocol": "SASL_PLAINTEXT", "user": "me\n", "password": "word\n"},
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
             "sasl.jaas.config": f'{PLAIN} required username="me" password="word";'},
        ),
        (
            {"protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "user": "me", "password": 'w"rd', "ca.crt": "CA\n"},
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
             "sasl.jaas.config": f'{SCRAM} required username="me" password="w\\"rd";', "ssl.truststore.certificates": "CA\n"},
        ),
        (
            {"protocol": "SSL", "ca.crt": "CA", "user.crt": "CERT", "user.key": "KEY"},
            {"security.protocol": "SSL", "ssl.truststore.certificates": "CA", "ssl.keystore.certificate.chain": "CERT",
             "ssl.keystore.key": "KEY"},
        ),
        (
            {"protocol": "SSL", "ca.crt": "CA", "user.crt": "CERT", "user.key": "KEY", "user.skip": "true"},
            {"security.protocol": "SSL", "ssl.truststore.certificates": "CA"},
        ),
        # Knative's older channels: the protocol follows from what is there.
        (
            {"username": "me", "password": "word", "saslType": "SCRAM-SHA-256", "brokers": "a:1, b:2", "namespace": "x"},
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "bootstrap.servers": "a:1,b:2",
             "sasl.jaas.config": f'{SCRAM} required username="me" password="word";'},
        ),
        (
            {"user": "me", "password": "word", "tls.enabled": "true", "sasltype": ""},
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
             "sasl.jaas.config": f'{PLAIN} required username="me" password="word";'},
        ),
        ({"ca.crt": "CA", "username": "", "password": ""},
         {"security.protocol": "SSL", "ssl.truststore.certificates": "CA"}),
        # As Strimzi writes the secret of a user; other files are unknown.
        (
            {"protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "password": "word",
             "sasl.jaas.config": f"{SCRAM} required username=me password=word;", "user.p12": "..."},
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512",
             "sasl.jaas.config": f"{SCRAM} required username=me password=word;"},
        ),
    ],
)  # fmt: skip
def test_the_files_of_a_secret_are_kafkas_properties(files: dict[str, str], properties: dict[str, str]) -> None:
    """In both of Knative's forms."""
    assert from_secret(files) == properties


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"protocol": "TLS"}, "protocol: need one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"protocol": "SASL_SSL", "user": "me"}, "password: is missing or empty, and sasl.mechanism PLAIN needs it"),
        (
            {"protocol": "SASL_SSL", "password": "hunter2"},
            "user: is missing or empty, and sasl.mechanism PLAIN needs it",
        ),
        ({"protocol": "SASL_SSL", "sasl.mechanism": "hunter2", "password": "a"}, "sasl.mechanism: need one of PLAIN, "),
        ({"protocol": "SSL", "ca.crt": "CA"}, 'user.crt: is missing or empty; put "true" into user.skip'),
        ({"protocol": "SSL", "user.crt": "hunter2"}, "user.key: is missing or empty"),
        ({"protocol": "SSL", "user.skip": "hunter2"}, "user.skip: need true or false"),
    ],
)
def test_what_a_secret_lacks_is_reported_by_the_name_of_the_file(files: dict[str, str], problem: str) -> None:
    """And nothing of what stands in others."""
    with pytest.raises(ValueError, match=problem.split("(")[0]) as caught:
        from_secret(files)
    assert "hunter2" not in str(caught.value)


def test_what_is_written_beside_a_folder_wins(tmp_path: Path) -> None:
    """Also in another form: a configured trust store instead of the folder's."""
    place = folder(tmp_path / "s", protocol="SASL_SSL", user="me", password="word", ca_crt="CA", brokers="a:1")

    found = resolve({"secret": str(place), "bootstrap.servers": "b:2", "ssl.truststore.location": "own.pem"})

    assert found == {
        "bootstrap.servers": "b:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="me" password="word";',
        "ssl.truststore.location": "own.pem",
    }


def test_a_folder_is_read_each_time_and_its_links_followed(tmp_path: Path) -> None:
    """As Kubernetes mounts it: a link to `..data`, which is a link to what counts now."""
    place = tmp_path / "s"
    folder(place)
    for number, word in enumerate(("old", "new")):
        folder(place / f"..{number}", protocol="SASL_PLAINTEXT", user="me", password=word)
    for name in ("protocol", "user", "password"):
        (place / name).symlink_to(f"..data/{name}")
    (place / "..data").symlink_to("..0")
    first = login(resolve({"secret": str(place)}))
    (place / "..tmp").symlink_to("..1")
    (place / "..tmp").replace(place / "..data")

    assert first == Login("PLAIN", "me", "old")
    assert login(resolve({"secret": str(place)})) == Login("PLAIN", "me", "new")


def test_a_folder_that_is_not_there_is_named() -> None:
    """With what to do."""
    with pytest.raises(ConfigError) as caught:
        resolve({"secret": "/no/such"})
    assert (
        str(caught.value) == "kafka.secret: /no/such cannot be read: No such file or directory; mount the secret there"
    )


# -- files in properties -------------------------------------------------------------------------------------------------


def test_placeholders_stand_for_files_as_kafkas_own_providers_have_them(tmp_path: Path) -> None:
    """A file of a folder, a line of a properties file; in a JAAS line they are quoted."""
    folder(tmp_path, word='se"cret\n', props="a=1\nkey = locked\n")
    jaas = f'{PLAIN} required username="me" password="${{directory:{tmp_path}:word}}";'

    found = resolve(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas,
            "ssl.key.password": f"${{file:{tmp_path / 'props'}:key}}",
        }
    )

    assert login(found) == Login("PLAIN", "me", 'se"cret')
    assert found["ssl.key.password"] == "locked"


def test_a_placeholder_without_its_file_is_refused(tmp_path: Path) -> None:
    """By the property and the path."""
    (tmp_path / "props").write_text("a=hunter2\n")
    with pytest.raises(ConfigError, match=r"kafka\.ssl\.key\.password: /no/such/word cannot be read"):
        resolve({"ssl.key.password": "${directory:/no/such:word}"})
    with pytest.raises(ConfigError, match=r"has no line b=") as caught:
        resolve({"ssl.key.password": f"${{file:{tmp_path / 'props'}:b}}"})
    assert "hunter2" not in str(caught.value)


def test_the_files_that_decide_are_listed_and_their_content_compared(tmp_path: Path) -> None:
    """For watching them; a token's file is not among them, for it is read at each use."""
    trust = tmp_path / "ca.pem"
    trust.write_text("one")
    properties = {
        "secret": "/mounted",
        "ssl.truststore.location": str(trust),
        "ssl.key.password": "${directory:/keys:word}${file:/keys/props:b}",
        "sasl.oauthbearer.token.endpoint.url": "file:///token",
    }
    assert kafka_files(properties) == (Path("/mounted"), trust, Path("/keys/word"), Path("/keys/props"))

    before = contents({"ssl.truststore.location": str(trust)})
    trust.write_text("two")
    assert contents({"ssl.truststore.location": str(trust)}) != before

    text = "channels: {a: {topics: [t], group: g, processor: {type: simple}}}\nkafka: {secret: /mounted}\n"
    assert depends_on(load(text, filename="inbound.yaml").config)["kafka"] == (Path("/mounted"),)


# -- who we are ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"security.protocol": "SSL"}, None),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256",
          "sasl.jaas.config": f"{SCRAM} required username=a password=b;"}, Login("SCRAM-SHA-256", "a", "b")),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, Login("GSSAPI")),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
          "sasl.oauthbearer.token.endpoint.url": "https://a/t",
          "sasl.jaas.config": f"{BEARER} required clientId=a clientSecret=b scope=c extension_logicalCluster=d;"},
         Login("OAUTHBEARER", "a", "b", "https://a/t", "c", {"logicalCluster": "d"})),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
          "sasl.oauthbearer.token.endpoint.url": "https://a/t", "sasl.oauthbearer.scope": "c",
          "sasl.oauthbearer.client.credentials.client.id": "a",
          "sasl.oauthbearer.client.credentials.client.secret": "b"}, Login("OAUTHBEARER", "a", "b", "https://a/t", "c")),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
          "sasl.oauthbearer.token.endpoint.url": "file:///t"}, Login("OAUTHBEARER", token_url="file:///t")),
    ],
)  # fmt: skip
def test_who_we_are(properties: dict[str, str], expected: Login | None) -> None:
    """By mechanism."""
    assert login(properties) == expected


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({}, "kafka.sasl.mechanism: is missing"),
        ({"sasl.mechanism": "PLAIN"}, "kafka.sasl.jaas.config: needs username"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} required username=hunter2;"}, "needs username"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "kafka.sasl.oauthbearer.token.endpoint.url: need where tokens are"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://a"}, "needs clientId"),
    ],
)
def test_who_we_are_must_be_complete(properties: dict[str, str], problem: str) -> None:
    """Both clients say the same."""
    given = {"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", **properties}
    for translate in (to_kafka_python, to_confluent):
        with pytest.raises(ConfigError, match=problem) as caught:
            translate(given)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({}, None),
        ({"security.protocol": "SSL"}, None),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}, "any certificate of the authority"),
        ({"ssl.truststore.location": "a"}, "have no effect with security.protocol PLAINTEXT; did you mean SSL?"),
        ({"sasl.mechanism": "PLAIN"}, "did you mean SASL_SSL?"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "unencrypted; use SASL_SSL"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}, None),
    ],
)
def test_what_is_less_safe_than_it_looks_is_reported(properties: dict[str, str], words: str | None) -> None:
    """Once, when the configuration is read."""
    assert [words in line for line in warnings(properties)] == ([True] if words else [])  # type: ignore[operator]


# -- what the clients are told -------------------------------------------------------------------------------------------

FULL = {
    "bootstrap.servers": "b:9093",
    "client.id": "me",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": f'{SCRAM} required username="m,e=" password="word";',
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": str(CA),
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": str(CLIENT),
    "ssl.endpoint.identification.algorithm": "https",
}


def test_kafka_python_is_configured() -> None:
    """TLS by a context of ours, in which names are checked; the user as SCRAM wants it written."""
    settings = to_kafka_python(FULL)
    made = settings.pop("ssl_context")
    door = settings.pop("kafka_client")

    assert settings == {
        "bootstrap_servers": "b:9093",
        "client_id": "me",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "m=2Ce=3D",
        "sasl_plain_password": "word",
    }
    assert (made.check_hostname, made.verify_mode, len(made.get_ca_certs())) == (True, ssl.CERT_REQUIRED, 1)
    assert door.refused is None


def test_librdkafka_is_configured() -> None:
    """Files by their names, content as content."""
    location = {"ssl.certificate.location": str(CLIENT), "ssl.key.location": str(CLIENT), "ssl.ca.location": str(CA)}
    common = {
        "bootstrap.servers": "b:9093",
        "client.id": "me",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "m,e=",
        "sasl.password": "word",
        "ssl.endpoint.identification.algorithm": "https",
    }
    inline = {name: value for name, value in FULL.items() if not name.endswith("location")} | {
        "ssl.truststore.certificates": "CA", "ssl.keystore.certificate.chain": "CERT", "ssl.keystore.key": "KEY"}  # fmt: skip

    assert to_confluent(FULL) == common | location
    assert to_confluent(inline) == common | {
        "ssl.ca.pem": "CA", "ssl.certificate.pem": "CERT", "ssl.key.pem": "KEY"}  # fmt: skip


def test_spark_is_configured() -> None:
    """What Java needs besides: how stores are written, and who gets tokens."""
    options = client_options(
        {
            "bootstrap.servers": "b:1",
            "security.protocol": "SASL_SSL",
            "ssl.truststore.certificates": "CA",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "https://a/t",
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.credentials.client.secret": "word",
        }
    )

    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    assert options == {
        "kafka.bootstrap.servers": "b:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.certificates": "CA",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://a/t",
        "kafka.sasl.jaas.config": f'{BEARER} required clientId="me" clientSecret="word";',
        "kafka.sasl.login.callback.handler.class": handler,
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
    }


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        (
            {"ssl.truststore.location": "/no/such"},
            "kafka.ssl.truststore.location: /no/such cannot be read: No such file",
        ),
        ({"ssl.truststore.certificates": "hunter2"}, "kafka.ssl.truststore.certificates: holds no certificates in PEM"),
        ({"ssl.keystore.location": str(CA)}, "kafka.ssl.keystore.location: need one private key and its certificates"),
        ({"ssl.keystore.key": "hunter2"}, "kafka.ssl.keystore.key: need one private key and its certificates, in PEM"),
        ({"ssl.cipher.suites": "hunter2"}, "kafka.ssl.cipher.suites: names no cipher suite that OpenSSL knows"),
    ],
)
def test_certificates_that_cannot_be_used_are_named(properties: dict[str, Any], problem: str) -> None:
    """By the property, without their content."""
    with pytest.raises(ConfigError) as caught:
        context({"security.protocol": "SSL", **properties})
    assert str(caught.value).startswith(problem)
    assert "hunter2" not in str(caught.value)


def test_names_are_translated() -> None:
    """Every result is a setting of kafka-python's."""
    settings = to_kafka_python(
        {
            "bootstrap.servers": "b:1",
            "client.dns.lookup": "use_all_dns_ips",
            "fetch.max.wait.ms": 5,
            "check.crcs": False,
        }
    )

    assert settings == {
        "bootstrap_servers": "b:1",
        "client_dns_lookup": "use_all_dns_ips",
        "fetch_max_wait_ms": 5,
        "check_crcs": False,
    }
    assert settings.keys() <= kafka.KafkaConsumer.DEFAULT_CONFIG.keys()


@pytest.mark.parametrize(
    ("algorithm", "checked"),
    [({}, True), ({"ssl.endpoint.identification.algorithm": "https"}, True),
     ({"ssl.endpoint.identification.algorithm": ""}, False)],
)  # fmt: skip
def test_the_name_in_a_brokers_certificate_is_checked(algorithm: dict[str, str], checked: bool) -> None:
    """By default, and if it is asked for."""
    settings = to_kafka_python({"bootstrap.servers": "b:1", "security.protocol": "SSL", **algorithm})

    assert settings["ssl_context"].check_hostname is checked


def test_what_kafka_python_does_not_know_is_refused() -> None:
    """By its own name."""
    with pytest.raises(ConfigError, match=r"kafka\.config\.providers: the kafka-python reader has no such setting"):
        to_kafka_python({"config.providers": "x"})


def test_kerberos_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the configuration reports it."""
    monkeypatch.setattr("inbound.kafka.python.client.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"GSSAPI needs the package gssapi; install it with: pip install gssapi"):
        to_kafka_python({"bootstrap.servers": "b:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"})
