"""Kafka's own property names in kafka-python's words; what lets us in is in test_kafka_access.py."""

from __future__ import annotations

import kafka
import pytest

from inbound.errors import ConfigError
from inbound.kafka.kafka_python import to_kafka_python


def test_names_are_translated() -> None:
    """Whatever comes out is a setting of kafka-python's."""
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
    """It is said when the configuration is read."""
    monkeypatch.setattr("inbound.kafka.kafka_python.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"GSSAPI needs the package gssapi; install it with: pip install gssapi"):
        to_kafka_python({"bootstrap.servers": "b:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"})
