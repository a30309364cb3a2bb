"""Why brokers do not let us in: what clients say of it, and what we make of that."""

from __future__ import annotations

from typing import Any

import pytest

from inbound.errors import ConfigError
from inbound.kafka.auth.access import source
from inbound.kafka.auth.refusals import refusal
from inbound.kafka.python.connections import REFUSED_AGAIN, Door

SCRAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.jaas.config": 'x.ScramLoginModule required username="bob" password="hunter2";',
}
TLS = {"security.protocol": "SSL"}
MUTUAL = TLS | {"ssl.keystore.location": "me.pem"}
FAILED = "authentication failed for user bob at broker b:1 by SCRAM-SHA-256"


@pytest.mark.parametrize(
    ("said", "properties", "words"),
    [
        # kafka-python
        ("[Error 58] SaslAuthenticationFailedError: SaslAuthenticationFailedError: Authentication failed: Invalid username "
         "or password", SCRAM, f"{FAILED}: Authentication failed: Invalid username or password; check the file"),
        ("[Error 58] SaslAuthenticationFailedError: Failed to authenticate via SASL PLAIN", SCRAM, FAILED),
        ("[Error 33] UnsupportedSaslMechanismError", SCRAM, "broker b:1 does not have sasl.mechanism SCRAM-SHA-256; set"),
        ("UnsupportedSaslMechanismError: Kafka broker does not support SCRAM-SHA-256 sasl mechanism. Enabled mechanisms: "
         "['PLAIN', 'GSSAPI']", SCRAM, "SCRAM-SHA-256; it has PLAIN, GSSAPI; set"),
        ("[Error 34] IllegalSaslStateError", SCRAM, "broker b:1 asks for no SASL there; check kafka.security.protocol"),
        ("KafkaConnectionError: Handshake failed: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate "
         "has expired (_ssl.c:1006)", TLS, "the certificate of broker b:1 has expired; it has to be renewed there"),
        ("certificate verify failed: certificate is not yet valid (_ssl.c:1006)", TLS, "is not valid yet; check both clocks"),
        ("certificate verify failed: Hostname mismatch, certificate is not valid for 'b'. (_ssl.c:1006)", TLS,
         "the certificate of broker b:1 is not for the name b; use"),
        ("certificate verify failed: IP address mismatch, certificate is not valid for '127.0.0.1'. (_ssl.c:1)", TLS,
         "is not for the name b"),
        ("certificate verify failed: unable to get local issuer certificate (_ssl.c:1006)", TLS, "an authority that is not"),
        ("certificate verify failed: self-signed certificate (_ssl.c:1006)", TLS, "an authority that is not trusted here"),
        ("[SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert bad certificate (_ssl.c:2580)", TLS, "wants a certificate of ours"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required", TLS, "wants a certificate of ours"),
        ("[SSL: SSLV3_ALERT_CERTIFICATE_UNKNOWN] sslv3 alert certificate unknown", MUTUAL, "did not take our certificate"),
        ("KafkaConnectionError: Handshake failed: [SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred", TLS, "not speak TLS"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", TLS, "broker b:1 does not speak TLS there"),
        # librdkafka
        ("_AUTHENTICATION: sasl_ssl://b:1/bootstrap: SASL authentication error: Authentication failed during authentication "
         "due to invalid credentials with SASL mechanism SCRAM-SHA-256 (after 302ms in state AUTH_REQ)", SCRAM,
         f"{FAILED}: Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256; "
         "check the file"),
        ("_AUTHENTICATION: sasl_plaintext://b:1/bootstrap: SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL "
         "mechanism: broker's supported mechanisms: OAUTHBEARER (after 301ms in state AUTH_HANDSHAKE)", SCRAM,
         "SCRAM-SHA-256; it has OAUTHBEARER; set"),
        ("_AUTHENTICATION: sasl_plaintext://b:1/bootstrap: SASL PLAIN mechanism handshake failed: Broker: Request not valid in "
         "current SASL state: broker's supported mechanisms:  (after 1ms in state AUTH_HANDSHAKE)", SCRAM, "asks for no SASL"),
        ("_TRANSPORT: ssl://b:1/bootstrap: Receive failed: error:0A000412:SSL routines::ssl/tls alert bad certificate: SSL "
         "alert number 42 (after 8ms in state APIVERSION_QUERY)", TLS, "wants a certificate of ours"),
        ("_TRANSPORT: ssl://b:1/bootstrap: SSL handshake failed: Disconnected: SSL connection closed by peer: connecting to a "
         "PLAINTEXT broker listener? (after 11ms in state SSL_HANDSHAKE)", TLS, "does not speak TLS there"),
        # ours
        ("_AUTHENTICATION: Failed to acquire SASL OAUTHBEARER token: no token for Kafka: https://a refused client svc (HTTP "
         "401); check the client's id and secret", SCRAM, "no token for Kafka: https://a refused client svc (HTTP 401)"),
    ],
)  # fmt: skip
def test_a_refusal_says_who_where_and_what_to_do(said: str, properties: dict[str, str], words: str) -> None:
    """In the same words for both clients."""
    found = refusal(said, "b:1", properties, "the file")

    assert found is not None
    assert words in str(found)
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    "said",
    [
        "KafkaConnectionError: socket disconnected",
        "_TRANSPORT: ssl://b:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in CONNECT)",
        "_ALL_BROKERS_DOWN: 1/1 brokers are down",
        "KafkaTimeoutError: Unable to bootstrap from b:1",
        # librdkafka calls every end of the exchange an authentication error.
        "_AUTHENTICATION: GroupCoordinator: SASL authentication error: SaslAuthenticateRequest failed: Local: Broker transport "
        "failure (after 0ms in state AUTH_REQ)",
        "_AUTHENTICATION: sasl_ssl://b:1/bootstrap: SASL authentication error: SaslAuthenticateRequest failed: Local: Timed out "
        "(after 1000ms in state AUTH_REQ)",
        "_AUTHENTICATION: sasl_ssl://b:1/bootstrap: SASL PLAIN mechanism handshake failed: Local: Broker transport failure: "
        "broker's supported mechanisms:  (after 12ms in state AUTH_HANDSHAKE)",
    ],
)
@pytest.mark.parametrize("properties", [SCRAM, TLS])
def test_what_is_no_refusal_is_none(said: str, properties: dict[str, str]) -> None:
    """A broker that is away."""
    assert refusal(said, "b:1", properties) is None


def test_a_door_remembers_the_last_refusal_until_a_connection_is_made() -> None:
    """A broken connection in between changes nothing."""
    door = Door({"bootstrap.servers": "b:1", **SCRAM, "security.protocol": "SASL_PLAINTEXT"})
    door.note(OSError("[Error 58] SaslAuthenticationFailedError: no"), "b:1")
    door.note(OSError("socket disconnected"), "b:1")
    refused = door.why(OSError("Unable to bootstrap"))
    door.let_in()

    assert refused.startswith(f"{FAILED}: no; check kafka.sasl.jaas.config")
    assert door.why(TimeoutError("too late")) == "TimeoutError: too late"


def test_a_door_goes_on_with_what_it_has_when_a_file_is_gone(tmp_path: Any) -> None:
    """And says so if that does not let it in."""
    (tmp_path / "word").write_text("hunter2")
    jaas = f'x.ScramLoginModule required username="bob" password="${{directory:{tmp_path}:word}}";'
    door = Door({**SCRAM, "security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": jaas})
    (tmp_path / "word").unlink()
    with pytest.raises(ConfigError) as caught:
        door.settings()
    door.note(caught.value, "b:1")

    assert "what lets us in at broker b:1 cannot be used: kafka.sasl.jaas.config: " in str(door.refused)
    (tmp_path / "word").write_text("other")
    assert door.settings()["sasl_plain_password"] == "other"


def test_a_refusal_names_the_place_to_correct() -> None:
    """In the folder, or in the configuration."""
    assert source({"secret": "/mounted"}) == "user and password in /mounted"
    assert source({}) == "kafka.sasl.jaas.config, and the files that it names"
    assert REFUSED_AGAIN >= 1  # some directories lock out who asks more often
