"""The settings of confluent-kafka's clients: Kafka's property names in librdkafka's words, credentials, and its log."""

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
#: Levels of syslog, which librdkafka has, for those of Python.
_SYSLOG = ((logging.DEBUG, 7), (logging.INFO, 6), (logging.WARNING, 4), (logging.ERROR, 3))


def log_settings() -> dict[str, Any]:
    """Return settings for a client that is made now: nothing is logged unless the level of `confluent_kafka` lets it."""
    level = _log.getEffectiveLevel()
    syslog = next((number for name, number in _SYSLOG if level <= name), 0)
    return {"log_level": syslog, "logger": _log} if syslog else {"log_level": 0}


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
    # The next fetch comes so soon after the queue was full. 1 s by default, in which the reader would be stalled.
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
    # How soon new leaders are known, and recreated topics.
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

#: librdkafka's own queue holds no more, in bytes: a message that lies in it for long has left the processor's cache
#: when it is used, and where it is too small the leader finds it empty. With 2 MiB a channel did 0.66 to 0.70 of the plain loop,
#: with this #: 0.72 to 0.85.
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
    """Return the settings that bound what librdkafka holds: half of `held_bytes` in its queue at most, half in flight."""
    half = held_bytes(prefetch_bytes) // 2
    return {
        "queued.max.messages.kbytes": max(1, min(half, LARGEST_QUEUE) // 1024),
        "fetch.max.bytes": min(max(SMALLEST_FETCH, half), LARGEST_FETCH),
    }


def held_bytes(prefetch_bytes: int) -> int:
    """Return how much of a channel's bound is librdkafka's: the rest is for the partitions' buffers."""
    return prefetch_bytes // 4


#: How soon a broker's certificate is looked at again, in seconds.
LOOK_AGAIN = 30.0

_WHERE = re.compile(r"://([^/\s]+)/")


class Credentials:
    """The settings of one generation of clients, and the refusals that those met. Any thread."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Raises ConfigError: librdkafka cannot use one of `properties`, or a file of theirs."""
        self.properties = properties
        self._contents = contents(properties)
        self.resolved = resolve(properties)
        #: librdkafka's; `error_cb` reports errors of the clients to this object.
        self.settings: dict[str, Any] = {**to_confluent(properties), "error_cb": self.note}
        self._looked: dict[str, tuple[float, str]] = {}
        self._last: tuple[str, str] | None = None  # the last refusal, as it was said, and where

    def note(self, error: confluent_kafka.KafkaError) -> None:
        """Take in an error of a client's connections; never waits."""
        said = f"{error.name()}: {error.str()}"
        found = _WHERE.search(said)
        where = found[1] if found is not None else str(self.resolved.get("bootstrap.servers", ""))
        if refusal(said, where, self.resolved) is not None:
            self._last = (said, where)

    @property
    def refused(self) -> BrokerRefusedError | None:
        """Why a broker refused us last; None once one has answered. May look at its certificate, and so wait."""
        last = self._last
        if last is None:
            return None
        said, where = last
        if "certificate verify failed" in said:
            said = self._look(where) or said
        return refusal(said, where, self.resolved, source(self.properties))

    def ready(self) -> None:
        """Get a token, if one is needed, before clients are made: without one they fail after 10 s.

        Raises:
            BrokerRefusedError: there is none.
        """
        callback = self.settings.get("oauth_cb")
        if callback is not None:
            try:
                callback("")
            except InboundError as error:
                raise BrokerRefusedError(str(error)) from None

    def answered(self) -> None:
        """A broker has accepted our credentials."""
        self._last = None

    def changed(self) -> bool:
        """Whether files have other usable contents by now; clients made before keep the old ones."""
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
    """Return librdkafka's settings for trying whether it takes them, with which it neither connects nor asks for tokens.

    Raises:
        ConfigError: files cannot be used.
    """
    resolved = resolve(properties)
    if tls.uses_tls(resolved):
        tls.context(resolved)  # it says better what is wrong with a certificate or key
    return {
        name: value for name, value in to_confluent(properties).items() if name not in ("bootstrap.servers", "oauth_cb")
    }
