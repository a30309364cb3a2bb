"""What confluent-kafka is told: Kafka's own property names in librdkafka's words, and the settings of our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inbound.kafka.access import login, resolve
from inbound.kafka.tokens import Tokens

#: Properties of the Java client whose names are others in librdkafka.
RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
#: They say that files are PEM, and librdkafka reads nothing else; or who we are, which `login` reads.
_IMPLIED = ("ssl.truststore.type", "ssl.keystore.type", "sasl.jaas.config", "sasl.login.callback.handler.class")

#: librdkafka's own settings, where its defaults are not for us; a property of the user's wins. See decision 16.
DEFAULTS: Mapping[str, Any] = {
    # The next fetch is decided on anew so soon after the queue was full. 1 s by default: the reader would stand still.
    "fetch.queue.backoff.ms": 5,
    # After an error, such as a leader's new epoch when a replica of its partition has died; 500 ms by default.
    "fetch.error.backoff.ms": 50,
    # The bytes bound the queue; the number never should.
    "queued.min.messages": 1_000_000,
    "check.crcs": True,
    # A frozen broker is given up after so long; 60 s by default.
    "socket.timeout.ms": 6000,
    "socket.connection.setup.timeout.ms": 5000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    # How soon new leaders are known, and topics that were created anew.
    "topic.metadata.refresh.interval.ms": 1000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 250,
}

#: What the reader relies on, whatever else is set.
FIXED: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": False,
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
}

#: librdkafka's own queue holds no more, in bytes: what lies in it for long has left the processor's cache before it is looked
#: at, and where it is too small the leader finds it empty. With 2 MiB a channel did 0.66 to 0.70 of the plain loop, with this
#: 0.72 to 0.85.
LARGEST_QUEUE = 8 * 2**20

#: librdkafka wants its fetches to be able to hold the largest request; there is no need for such a bound here.
SMALLEST_FETCH = 1_000_000
#: It takes no more. A channel may read ahead more than one answer of a broker holds.
LARGEST_FETCH = 2_147_483_135


def to_confluent(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the configuration's Kafka properties to librdkafka's settings, with what mounted files say now.

    Raises:
        ConfigError: librdkafka has no counterpart of one, or files cannot be used.
    """
    resolved = resolve(properties)
    settings: dict[str, Any] = {}
    for name, value in resolved.items():
        if name == "ssl.keystore.location":
            settings |= {"ssl.certificate.location": value, "ssl.key.location": value}
        elif name == "ssl.endpoint.identification.algorithm":
            settings[name] = value or "none"
        elif name in ("receive.buffer.bytes", "send.buffer.bytes"):
            settings[RENAMED[name]] = max(0, value)  # -1 is the system's choice for Java, and 0 is for librdkafka
        elif name not in _IMPLIED and not name.startswith("sasl.oauthbearer."):
            settings[RENAMED.get(name, name)] = value
    who = login(resolved)
    if who is not None and who.mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = _TokenCallback(properties)
    elif who is not None and who.user:
        settings |= {"sasl.username": who.user, "sasl.password": who.password}
    return settings


class _TokenCallback:
    """Tokens as confluent-kafka asks for them, on a thread of its own."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._tokens = Tokens(lambda: resolve(properties))

    def __call__(self, _: str) -> tuple[str, float, str, dict[str, str]]:
        token, who = self._tokens.get()
        return token.text, token.ends_at, token.subject or who.user, dict(who.extensions)


def memory(prefetch_bytes: int) -> dict[str, int]:
    """Return the settings that bound what librdkafka holds: half of `held_bytes` in its queue at most, half on the way."""
    half = held_bytes(prefetch_bytes) // 2
    return {
        "queued.max.messages.kbytes": max(1, min(half, LARGEST_QUEUE) // 1024),
        "fetch.max.bytes": min(max(SMALLEST_FETCH, half), LARGEST_FETCH),
    }


def held_bytes(prefetch_bytes: int) -> int:
    """Return how much of a channel's bound is librdkafka's: the rest is for the partitions' buffers."""
    return prefetch_bytes // 4
