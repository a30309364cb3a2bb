"""Connects kafka-python with current credentials, and keeps brokers' refusals."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector

from inbound.errors import BrokerRefusedError, ConfigError, InboundError
from inbound.kafka.auth import access, tls
from inbound.kafka.auth.refusals import refusal
from inbound.kafka.auth.tokens import Tokens

log = logging.getLogger(__name__)

#: The retry interval after a refusal. Seconds. Some directories lock out a user who tries often.
REFUSED_AGAIN = 5.0


class Door:
    """Connects kafka-python's clients, as their setting `kafka_client`. Any thread.

    It reads passwords and certificates for each connection, so that the next one has rotated ones.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """`properties` are the configuration's.

        Raises:
            ConfigError: properties or their files cannot be used.
        """
        self._properties = dict(properties)
        self._source = access.source(properties)
        self._tokens = _Provider(Tokens(lambda: access.resolve(self._properties)))
        self._resolved: Mapping[str, Any] = {}
        self._made_of: Mapping[str, Any] = {}
        self._made: dict[str, Any] = {}
        #: The refusal of the last connection; None once one was accepted.
        self.refused: BrokerRefusedError | None = None
        self.settings()

    def settings(self) -> dict[str, Any]:
        """Return kafka-python's settings for the current credentials.

        Raises:
            ConfigError: files cannot be read or used.
        """
        contents = access.contents(self._properties)
        if contents != self._made_of:
            resolved = access.resolve(self._properties)
            made: dict[str, Any] = {"ssl_context": tls.context(resolved) if tls.uses_tls(resolved) else None}
            who = access.login(resolved)
            if who is not None and who.mechanism == "OAUTHBEARER":
                made["sasl_oauth_token_provider"] = self._tokens
            elif who is not None and who.user:
                # These two characters have a meaning in SCRAM's message (RFC 5802).
                scram = who.mechanism.startswith("SCRAM")
                user = who.user.replace("=", "=3D").replace(",", "=2C") if scram else who.user
                made |= {"sasl_plain_username": user, "sasl_plain_password": who.password}
            self._resolved, self._made, self._made_of = resolved, made, contents
        return dict(self._made)

    def __call__(self, **configs: Any) -> KafkaNetClient:
        """Make a client's network part."""
        net = NetworkSelector(**configs)
        return KafkaNetClient(net=net, manager=_Connections(net, self, configs))

    def note(self, error: BaseException, where: str) -> None:
        """Note why a connection to `where` failed."""
        if isinstance(error, ConfigError):
            self.refused = BrokerRefusedError(f"what lets us in at broker {where} cannot be used: {error}")
            return
        found = refusal(str(error), where, self._resolved, self._source)
        if found is not None:
            if str(found) != str(self.refused):
                log.debug("kafka: %s", found)
            self.refused = found

    def let_in(self) -> None:
        """Forget the refusal: a broker has accepted a connection."""
        self.refused = None

    def why(self, error: BaseException) -> str:
        """Return the last refusal, or a client's error, in words."""
        return str(self.refused) if self.refused is not None else described(error)


class _Connections(KafkaConnectionManager):  # type: ignore[misc]
    """Gives new connections current credentials, and notes why connections fail."""

    def __init__(self, net: NetworkSelector, door: Door, configs: Mapping[str, Any]) -> None:
        super().__init__(net, **configs)
        self._door = door

    def get_connection(self, node_id: Any, **options: Any) -> Any:
        known = self._conns.get(node_id)
        problem: Exception | None = None
        if known is None and self.connection_delay(node_id) == 0:  # else kafka-python makes no connection
            try:
                self.config.update(self._door.settings())
            except InboundError as error:
                problem = error
        connection = super().get_connection(node_id, **options)
        if connection is not known:
            node = self.cluster.broker_metadata(node_id)
            where = f"{node.host}:{node.port}"
            connection.init_future.add_errback(lambda error: self._failed(node_id, problem or error, where))
            connection.init_future.add_callback(lambda _: self._door.let_in())
        return connection

    def _failed(self, node_id: Any, error: BaseException, where: str) -> None:
        self._door.note(error, where)
        if self._door.refused is not None:
            failures, _, setup = self._backoff.get(node_id, (0, 0, self.config["socket_connection_setup_timeout_ms"]))
            self._backoff[node_id] = (failures + 1, time.monotonic() + REFUSED_AGAIN, setup)

    def update_backoff(self, node_id: Any) -> float:
        before = self._backoff.get(node_id)
        found: float = super().update_backoff(node_id)
        if before is not None and before[1] > self._backoff[node_id][1]:  # the backoff of a refusal is longer
            self._backoff[node_id] = before
        return found

    def reset_backoff(self, node_id: Any) -> None:
        # Also called when a broker accepts the connection and then refuses us.
        connection = self._conns.get(node_id)
        if connection is not None and connection.connected:
            super().reset_backoff(node_id)

    async def _build_transport(self, node: Any, **options: Any) -> Any:
        transport = await super()._build_transport(node, **options)
        receive = transport._sock_recv

        def received() -> tuple[bytes, Exception | None]:
            # A broker sends its reason and closes the connection. Without this the reason would be lost.
            data, error = receive()
            return (data, None) if data else (data, error)

        transport._sock_recv = received
        return transport


class _Provider(AbstractTokenProvider):  # type: ignore[misc]
    """Gives tokens to kafka-python."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens

    def token(self) -> str:
        return self._tokens.get()[0].text

    def extensions(self) -> dict[str, str]:
        return dict(self._tokens.get()[1].extensions)


def described(error: BaseException) -> str:
    """Return an error's name and text; most texts have the name."""
    said, name = str(error), type(error).__name__
    return said if name in said else f"{name}: {said}" if said else name
