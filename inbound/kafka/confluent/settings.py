"""Translates Kafka's properties and credentials to librdkafka's settings."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import Any

import confluent_kafka

from inbound.errors import BrokerRefusedError, ConfigError, InboundError
from inbound.kafka.auth import tls
from inbound.kafka.auth.access import contents, login, resolve, source
from inbound.kafka.auth.refusals import looked_at, refusal
from inbound.kafka.auth.tokens import Tokens

_log = logging.getLogger("confluent_kafka")
#: librdkafka's syslog levels for Python's.
_SYSLOG = ((logging.DEBUG, 7), (logging.INFO, 6), (logging.WARNING, 4), (logging.ERROR, 3))


def log_settings() -> dict[str, Any]:
    """Return log settings for the current level of the logger `confluent_kafka`."""
    level = _log.getEffectiveLevel()
    syslog = next((number for name, number in _SYSLOG if level <= name), 0)
    return {"log_level": syslog, "logger": _log} if syslog else {"log_level": 0}


#: Properties of the Java client with other names in librdkafka.
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
#: Not for librdkafka: it reads PEM files alone, and `login` reads our identity.
_IMPLIED = ("ssl.truststore.type", "ssl.keystore.type", "sasl.jaas.config", "sasl.login.callback.handler.class")

#: Our defaults of librdkafka's settings (decision 16); the user's properties override them.
DEFAULTS: Mapping[str, Any] = {
    # The delay of the next fetch after the queue was full. 1 s by default, in which the reader would be stalled.
    "fetch.queue.backoff.ms": 5,
    # After an error, for example a leader's new epoch when a replica of its partition has died; 500 ms by default.
    "fetch.error.backoff.ms": 50,
    # The queue is bounded in bytes, never in messages.
    "queued.min.messages": 1_000_000,
    "check.crcs": True,
    # The timeout of a frozen broker; 60 s by default.
    "socket.timeout.ms": 6000,
    "socket.connection.setup.timeout.ms": 5000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    # These detect new leaders and recreated topics soon.
    "topic.metadata.refresh.interval.ms": 1000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 250,
}

#: The reader relies on these; they override all others.
FIXED: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": False,
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
}

#: The largest queue of librdkafka, in bytes: messages that wait long have left the CPU's cache, and a queue that is too small
#: runs empty. With 2 MiB a channel reached 0.66 to 0.70 of the plain loop's speed, with 8 MiB 0.72 to 0.85.
LARGEST_QUEUE = 8 * 2**20

#: librdkafka's bounds of `fetch.max.bytes`: not below the largest request, and at most 2 GiB.
SMALLEST_FETCH = 1_000_000
LARGEST_FETCH = 2_147_483_135
#: The settings of an admin client, by prefix: servers, credentials, connections.
_ADMIN = ("bootstrap.servers", "client.id", "security.", "sasl.", "ssl.", "socket.", "reconnect.", "client.dns", "oauth_cb",
          "error_cb")  # fmt: skip


def to_confluent(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the configuration's Kafka properties, with mounted files' current contents.

    Raises:
        ConfigError: librdkafka has no such setting, or files cannot be used.
    """
    resolved = resolve(properties)
    settings: dict[str, Any] = {}
    for name, value in resolved.items():
        if name == "ssl.keystore.location":
            settings |= {"ssl.certificate.location": value, "ssl.key.location": value}
        elif name == "ssl.endpoint.identification.algorithm":
            settings[name] = value or "none"
        elif name in ("receive.buffer.bytes", "send.buffer.bytes"):
            settings[RENAMED[name]] = max(0, value)  # the system's choice is -1 in Java, 0 in librdkafka
        elif name not in _IMPLIED and not name.startswith("sasl.oauthbearer."):
            settings[RENAMED.get(name, name)] = value
    who = login(resolved)
    if who is not None and who.mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = _TokenCallback(properties)
    elif who is not None and who.user:
        settings |= {"sasl.username": who.user, "sasl.password": who.password}
    return settings


class _TokenCallback:
    """Gives tokens to confluent-kafka, on its thread."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._tokens = Tokens(lambda: resolve(properties))

    def __call__(self, _: str) -> tuple[str, float, str, dict[str, str]]:
        token, who = self._tokens.get()
        return token.text, token.ends_at, token.subject or who.user, dict(who.extensions)


def memory(prefetch_bytes: int) -> dict[str, int]:
    """Return settings that bound librdkafka's memory to `held_bytes`.

    At most half is in its queue, half in flight.
    """
    half = held_bytes(prefetch_bytes) // 2
    return {
        "queued.max.messages.kbytes": max(1, min(half, LARGEST_QUEUE) // 1024),
        "fetch.max.bytes": min(max(SMALLEST_FETCH, half), LARGEST_FETCH),
    }


def held_bytes(prefetch_bytes: int) -> int:
    """Return librdkafka's share of a channel's bound; buffers get the rest."""
    return prefetch_bytes // 4


def admin_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a client's settings that an admin client takes."""
    return {name: value for name, value in settings.items() if name.startswith(_ADMIN)} | {"log_level": 0}


#: The interval of looks at a broker's certificate. Seconds.
LOOK_AGAIN = 30.0

_WHERE = re.compile(r"://([^/\s]+)/")


class Credentials:
    """Settings of one generation of clients, and brokers' refusals. Any thread."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Raises ConfigError: librdkafka cannot use a property or its file."""
        self.properties = properties
        self._contents = contents(properties)
        self.resolved = resolve(properties)
        #: librdkafka's; `error_cb` reports errors of the clients to this object.
        self.settings: dict[str, Any] = {**to_confluent(properties), "error_cb": self.note}
        self._looked: dict[str, tuple[float, str]] = {}
        self._last: tuple[str, str] | None = None  # the text of the last refusal, and the broker

    def note(self, error: confluent_kafka.KafkaError) -> None:
        """Note an error of a client's connections; never waits."""
        said = f"{error.name()}: {error.str()}"
        found = _WHERE.search(said)
        where = found[1] if found is not None else str(self.resolved.get("bootstrap.servers", ""))
        if refusal(said, where, self.resolved) is not None:
            self._last = (said, where)

    @property
    def refused(self) -> BrokerRefusedError | None:
        """The last refusal; None once a broker has answered.

        May wait for a look at the broker's certificate.
        """
        last = self._last
        if last is None:
            return None
        said, where = last
        if "certificate verify failed" in said:
            said = self._look(where) or said
        return refusal(said, where, self.resolved, source(self.properties))

    def ready(self) -> None:
        """Get a token, if needed, before clients are made.

        Without one they fail after 10 s.

        Raises:
            BrokerRefusedError: there is no token.
        """
        callback = self.settings.get("oauth_cb")
        if callback is not None:
            try:
                callback("")
            except InboundError as error:
                raise BrokerRefusedError(str(error)) from None

    def answered(self) -> None:
        """Forget the refusal: a broker has accepted our credentials."""
        self._last = None

    def changed(self) -> bool:
        """Whether files have new, usable contents; existing clients keep the old."""
        try:
            return contents(self.properties) != self._contents
        except ConfigError:
            return False

    def _look(self, where: str) -> str:
        now = time.monotonic()
        at, said = self._looked.get(where, (float("-inf"), ""))
        if now - at > LOOK_AGAIN:
            said = looked_at(where, self.resolved)
            self._looked[where] = (now, said)
        return said


def check_entry(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for a check that neither connects nor gets tokens.

    Raises:
        ConfigError: files cannot be used.
    """
    resolved = resolve(properties)
    if tls.uses_tls(resolved):
        tls.context(resolved)  # its errors explain better what is wrong with a certificate or key
    return {
        name: value for name, value in to_confluent(properties).items() if name not in ("bootstrap.servers", "oauth_cb")
    }


def check(properties: Mapping[str, Any]) -> None:
    """Raise ConfigError if librdkafka cannot use one of `properties`."""
    try:
        confluent_kafka.Consumer(
            {**DEFAULTS, **check_entry(properties), **FIXED, "group.id": "check", "log_level": 0}
        ).close()
    except confluent_kafka.KafkaException as error:
        raise ConfigError(unusable(error)) from None


def unusable(error: confluent_kafka.KafkaException) -> str:
    """Return the message about settings that librdkafka does not take."""
    return f"kafka: the confluent-kafka reader cannot use this: {error.args[0].str().strip()}"
