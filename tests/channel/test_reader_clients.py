"""Which client a channel reads with, and what is refused before anything connects."""

from __future__ import annotations

import pytest

from inbound.config import load
from inbound.config.channel_models import ReaderConfig
from inbound.config.values import WRITTEN
from inbound.errors import ConfigError
from inbound.kafka.clients import choice as clients
from inbound.kafka.confluent.settings import to_confluent
from inbound.plan.plan import plan_channels


def plan(kafka: str = "{}", client: str = "confluent-kafka") -> None:
    """Plan one channel; its `kafka` is on line 2, its client on line 7."""
    text = (
        f"# a channel\nkafka: {kafka}\nchannels:\n  a:\n    topics: [t]\n    group: g\n    reader: {{client: {client}}}\n"
        "    processor: {type: simple, options: {sinks: [log]}}\n"
    )
    plan_channels(load(text, filename="inbound.yaml"))


def test_a_client_that_is_not_installed_is_refused_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the line that asks for it."""
    monkeypatch.setattr(clients, "find_spec", lambda name: None)
    plan(client="kafka-python")
    with pytest.raises(ConfigError) as caught:
        plan()
    assert str(caught.value) == (
        "inbound.yaml:7: channels.a.reader.client: confluent-kafka is not installed; install it with: "
        "pip install 'inbound-kafka[fast]'"
    )


def test_properties_are_translated_to_the_words_of_librdkafka() -> None:
    """Java's names that librdkafka has too stay as they are; credentials are in test_kafka_access.py."""
    given = {"bootstrap.servers": "a:1", "fetch.max.wait.ms": 5, "request.timeout.ms": 7, "receive.buffer.bytes": -1}
    given |= {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    assert to_confluent(given) == {
        "bootstrap.servers": "a:1",
        "fetch.wait.max.ms": 5,
        "socket.timeout.ms": 7,
        "socket.receive.buffer.bytes": 0,
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "none",
    }


@pytest.mark.parametrize(
    ("kafka", "problem"),
    [
        ("{retry.backoff.ms: 0}", 'Configuration property "retry.backoff.ms" value 0 is outside allowed range'),
        ("{security.protocol: SASL_PLAINTEXT, sasl.mechanism: GSSAPI}", "No provider for SASL mechanism GSSAPI"),
        ("{security.protocol: SSL, ssl.truststore.location: /nowhere}", "truststore.location: /nowhere cannot be read"),
        ("{security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.jaas.config: a.B required username=hunter2;}",
         'kafka.sasl.jaas.config: needs username="..." and password="..."'),
    ],
)  # fmt: skip
def test_what_librdkafka_cannot_use_is_refused_with_the_line(kafka: str, problem: str) -> None:
    """It is asked itself, without servers; a secret is not repeated."""
    with pytest.raises(ConfigError) as caught:
        plan(kafka)
    assert str(caught.value).startswith("inbound.yaml:2: kafka")
    assert problem in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_properties_of_every_kind_are_taken() -> None:
    """Also for both clients in one process."""
    plan(
        "{fetch.min.bytes: 10, check.crcs: false, metadata.max.age.ms: 900, fetch.max.bytes: 2000000, send.buffer.bytes: 65536}"
    )


def test_librdkafka_takes_the_largest_values_that_the_check_lets_pass() -> None:
    """It refused them at run time, under names of its own, and the channel tried again each half second."""
    largest = {"batch_bytes": "1GB", "max_batch_bytes": "1024GiB", "prefetch_bytes": "1024GiB", "idle_wait": "5m"}
    reader = ReaderConfig.model_validate({"client": "confluent-kafka", **largest}, context=WRITTEN)
    nowhere = {"bootstrap.servers": "127.0.0.1:1"}
    clients.connector(reader, nowhere, client_id="a", isolation="read_committed")().close()


def test_a_channel_that_names_the_topic_of_the_ledger_is_refused() -> None:
    """Each record that was read from it had others written to it, without end."""
    text = (
        "ledger: {type: kafka, topic: lines}\nchannels:\n  a:\n    topics: [orders, lines]\n    group: g\n"
        "    processor: {type: simple, options: {sinks: [log]}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        plan_channels(load(text, filename="inbound.yaml"))
    assert str(caught.value) == (
        "inbound.yaml:1: ledger.topic: lines is read by channel a; each record of it would have others written to it, without end; "
        "leave it out of the channel's topics, or give the ledger another one"
    )
    plan_channels(load(text.replace("topics: [orders, lines]", "topics_pattern: '.*'"), filename="inbound.yaml"))
