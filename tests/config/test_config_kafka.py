"""Kafka client properties: their spellings, their types, and which are not set here."""

from __future__ import annotations

import pytest

from inbound.config import Config, load, render
from inbound.config.kafka_properties import ACCEPTED, OWNED, UNSUPPORTED, canonical
from inbound.errors import ConfigError

CHANNELS = "channels: {orders: {topics: [orders], group: g, processor: {type: simple}}}\n"


def config(kafka: str) -> Config:
    """Return a configuration whose `kafka` is the given flow mapping, on line 2."""
    return load(CHANNELS + f"kafka: {kafka}\n", filename="inbound.yaml").config


def test_dotted_snake_and_camel_spellings_are_one_property() -> None:
    """All arrive under the Java name. Numbers and flags may be quoted: properties files hold nothing but text."""
    for name in ("bootstrap.servers", "bootstrap_servers", "bootstrapServers"):
        assert config(f'{{{name}: "b:9092"}}').kafka == {"bootstrap.servers": "b:9092"}
    assert config('{fetch.max.wait.ms: "250", check.crcs: "FALSE"}').kafka == {
        "bootstrap.servers": "127.0.0.1:9092",
        "fetch.max.wait.ms": 250,
        "check.crcs": False,
    }


def test_servers_default_to_this_machine_and_may_be_a_list() -> None:
    """A list is joined as the Java client writes it. A mounted folder may say them: there is no default beside one."""
    assert config("{client.id: me}").kafka == {"bootstrap.servers": "127.0.0.1:9092", "client.id": "me"}
    assert config('{bootstrap.servers: ["a:1", "[::1]:2"]}').kafka["bootstrap.servers"] == "a:1,[::1]:2"
    mounted = config("{secret: /mounted/kafka}")
    assert mounted.kafka == {"secret": "/mounted/kafka"}
    assert "  secret: /mounted/kafka\n" in render(mounted)


@pytest.mark.parametrize(
    ("kafka", "problem"),
    [
        ("{boostrap.servers: 'a:1'}", "boostrap.servers: unknown Kafka property; did you mean bootstrap.servers?"),
        ("{fetchMaxWait: 1}", "fetchMaxWait: unknown Kafka property; did you mean fetch.max.wait.ms?"),
        ("{zzz: 1}", f"zzz: unknown Kafka property; known are {', '.join(ACCEPTED)}"),
        ("{group.id: g}", "group.id: is not set here: set channels.<name>.group instead"),
        ("{enableAutoCommit: false}", "enable.auto.commit: is not set here: the processor's answers decide what is "
                                      "committed; remove it"),
        ("{interceptor.classes: x}", "interceptor.classes: has no effect with the clients that inbound reads with; "
                                     "remove it"),
        ("{fetch.max.wait.ms: 10s}", "fetch.max.wait.ms: need a whole number without a unit (milliseconds), got '10s'"),
        ("{fetch.max.bytes: 1MiB}", "fetch.max.bytes: need a whole number without a unit (bytes), got '1MiB'"),
        ("{fetch.max.bytes: 0}", "fetch.max.bytes: need 1 to 2147483647 (bytes), got 0"),
        ("{request.timeout.ms: 9999999999}", "request.timeout.ms: need 1 to 2147483647 (milliseconds), got 9999999999"),
        ("{check.crcs: maybe}", "check.crcs: need true or false, got 'maybe'"),
        ("{client.id: 5}", 'client.id: need text, got 5; put it in quotes: "5"'),
        ("{client.id: off}", 'client.id: need text, got off, which YAML reads as false; put it in quotes: "off"'),
        ("{client.id: {a: b}}", "client.id: need text, got a mapping"),
        ("{bootstrap.servers: localhost}", "bootstrap.servers: need host:port, with commas between several, got "
                                           "'localhost'"),
        ("{bootstrap.servers: []}", "bootstrap.servers: need at least one host:port, got an empty list"),
        ("{security.protocol: TLS}", "security.protocol: need one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, "
                                     "got 'TLS'"),
        ("{ssl.truststore.type: JKS}", "ssl.truststore.type: need PEM, got 'JKS'"),
        ("{sasl.mechanism: OAUTH}", "sasl.mechanism: need one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI, "
                                    "got 'OAUTH'"),
        ("{sasl.jaas.config: PlainLoginModule}", "sasl.jaas.config: need a login module, `required`, and options: "
                                                 '...PlainLoginModule required username="...";'),
        ("{sasl.login.callback.handler.class: my.Handler}", "sasl.login.callback.handler.class: need one of "
         "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler, "
         "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler, got 'my.Handler'"),
        ("{ssl.keystore.password: hunter2}", "ssl.keystore.password: has no effect with the clients that inbound reads with; "
                                             "remove it"),
        ("{config.providers: file}", "config.providers: is not set here: ${file:/path:key} and ${directory:/path:key} are "
                                     "always understood; remove it"),
        ("{client.id: a, client_id: b}", "client.id: given twice, also in line 2; keep one"),
    ],
)  # fmt: skip
def test_a_wrong_property_is_refused_with_its_line(kafka: str, problem: str) -> None:
    """Unknown, owned by inbound, without effect, or of the wrong type: each says the way out."""
    with pytest.raises(ConfigError) as caught:
        config(kafka)
    assert str(caught.value) == f"inbound.yaml:2: kafka.{problem}"


def test_secrets_are_never_shown() -> None:
    """Not in an error about them, not in what is rendered, not in the repr that a log line might hold."""
    with pytest.raises(ConfigError) as caught:
        config("{ssl.key.password: 4711, ssl.keystore.type: hunter2}")
    assert str(caught.value).splitlines() == [
        "inbound.yaml:2: kafka.ssl.key.password: need text; put the value in quotes",
        "inbound.yaml:2: kafka.ssl.keystore.type: need PEM, got something else",
    ]

    good = config('{ssl.key.password: "hunter2", sasl.jaas.config: "x required password=hunter2;"}')
    assert "hunter2" not in render(good) + repr(good) + str(good)
    assert '  ssl.key.password: "***"\n'.replace('"', "'") in render(good)


def test_no_property_is_in_two_tables_and_no_two_share_a_spelling() -> None:
    """Each known name leads to itself."""
    names = [*ACCEPTED, *OWNED, *UNSUPPORTED]

    assert len(names) == len(set(names))
    assert [canonical(name.replace(".", "_")) for name in names] == names


def test_a_spelling_given_twice_by_hand_is_refused_too() -> None:
    """Code that builds the model without a file gets the same answer."""
    kafka = {"client.id": "a", "clientId": "b"}
    channel = {"topics": ["a"], "group": "g", "processor": {"type": "simple"}}
    with pytest.raises(ValueError, match="given twice, in different spellings; keep one"):
        Config.model_validate({"kafka": kafka, "channels": {"a": channel}})
