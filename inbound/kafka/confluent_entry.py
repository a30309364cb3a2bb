"""What lets librdkafka's clients in, as it was when they were made, and why brokers refuse them."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

import confluent_kafka

from inbound.errors import BrokerRefusedError, ConfigError, InboundError
from inbound.kafka import access, tls
from inbound.kafka.confluent_settings import to_confluent
from inbound.kafka.connections import source
from inbound.kafka.refusals import looked_at, refusal

#: How soon a broker's certificate is looked at again, in seconds.
LOOK_AGAIN = 30.0

_WHERE = re.compile(r"://([^/\s]+)/")


class Entry:
    """The settings of one generation of clients, and what those say. Any thread."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Raises ConfigError: librdkafka cannot use one of `properties`, or a file of theirs."""
        self.properties = properties
        self._contents = access.contents(properties)
        self.resolved = access.resolve(properties)
        #: librdkafka's; what happens to the clients is told to this object.
        self.settings: dict[str, Any] = {**to_confluent(properties), "error_cb": self.note}
        self._looked: dict[str, tuple[float, str]] = {}
        self._last: tuple[str, str] | None = None  # the last refusal, as it was said, and where

    def note(self, error: confluent_kafka.KafkaError) -> None:
        """Take in what a client says of its connections; never waits."""
        said = f"{error.name()}: {error.str()}"
        found = _WHERE.search(said)
        where = found[1] if found is not None else str(self.resolved.get("bootstrap.servers", ""))
        if refusal(said, where, self.resolved) is not None:
            self._last = (said, where)

    @property
    def refused(self) -> BrokerRefusedError | None:
        """Why a broker did not let us in last; None once one has answered. May look at its certificate, and so wait."""
        last = self._last
        if last is None:
            return None
        said, where = last
        if "certificate verify failed" in said:
            said = self._look(where) or said
        return refusal(said, where, self.resolved, source(self.properties))

    def ready(self) -> None:
        """Have a token, where one is needed, before clients are made: without one that takes them 10 s, and they fail.

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
        """A broker has let us in."""
        self._last = None

    def changed(self) -> bool:
        """Whether files say something else by now that can be used; clients made before keep what they have."""
        try:
            return access.contents(self.properties) != self._contents
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
    resolved = access.resolve(properties)
    if tls.uses_tls(resolved):
        tls.context(resolved)  # it says better what is wrong with a certificate or key
    return {
        name: value for name, value in to_confluent(properties).items() if name not in ("bootstrap.servers", "oauth_cb")
    }
