"""kafka-python's connections where brokers ask who we are: with current credentials, and the reason for a refusal."""

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

#: How soon a broker that did not let us in is asked again, in seconds: who asks often is locked out by some directories.
REFUSED_AGAIN = 5.0


class Door:
    """Makes the connections of kafka-python's clients, as their setting `kafka_client`. Any thread.

    Passwords and certificates are read for each connection, so that the next one has rotated ones.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """`properties` are the configuration's. Raises ConfigError: they cannot be used, or files of theirs."""
        self._properties = dict(properties)
        self._source = access.source(properties)
        self._tokens = _Provider(Tokens(lambda: access.resolve(self._properties)))
        self._resolved: Mapping[str, Any] = {}
        self._made_of: Mapping[str, Any] = {}
        self._made: dict[str, Any] = {}
        #: Why the last connection was refused; None once one was not.
        self.refused: BrokerRefusedError | None = None
        self.settings()

    def settings(self) -> dict[str, Any]:
        """Return kafka-python's settings that let us in, as files say them now.

        Raises:
            ConfigError: files cannot be read, or not be used.
        """
        contents = access.contents(self._properties)
        if contents != self._made_of:
            resolved = access.resolve(self._properties)
            made: dict[str, Any] = {"ssl_context": tls.context(resolved) if tls.uses_tls(resolved) else None}
            who = access.login(resolved)
            if who is not None and who.mechanism == "OAUTHBEARER":
                made["sasl_oauth_token_provider"] = self._tokens
            elif who is not None and who.user:
                # The name is part of a message in which these two have a meaning (RFC 5802).
                scram = who.mechanism.startswith("SCRAM")
                user = who.user.replace("=", "=3D").replace(",", "=2C") if scram else who.user
                made |= {"sasl_plain_username": user, "sasl_plain_password": who.password}
            self._resolved, self._made, self._made_of = resolved, made, contents
        return dict(self._made)

    def __call__(self, **configs: Any) -> KafkaNetClient:
        """Make the part of a client that connects."""
        net = NetworkSelector(**configs)
        return KafkaNetClient(net=net, manager=_Connections(net, self, configs))

    def note(self, error: BaseException, where: str) -> None:
        """A connection to `where` was not made."""
        if isinstance(error, ConfigError):
            self.refused = BrokerRefusedError(f"what lets us in at broker {where} cannot be used: {error}")
            return
        found = refusal(str(error), where, self._resolved, self._source)
        if found is not None:
            if str(found) != str(self.refused):
                log.debug("kafka: %s", found)
            self.refused = found

    def let_in(self) -> None:
        """A connection was made."""
        self.refused = None

    def why(self, error: BaseException) -> str:
        """Return what to say of an error that a client raised: why it was refused, if it was."""
        return str(self.refused) if self.refused is not None else described(error)


class _Connections(KafkaConnectionManager):  # type: ignore[misc]
    """kafka-python's own, but for what a new connection is given, and what is learnt of one that fails."""

    def __init__(self, net: NetworkSelector, door: Door, configs: Mapping[str, Any]) -> None:
        super().__init__(net, **configs)
        self._door = door

    def get_connection(self, node_id: Any, **options: Any) -> Any:
        known = self._conns.get(node_id)
        problem: Exception | None = None
        if known is None and self.connection_delay(node_id) == 0:  # else there is none to be made
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
        if before is not None and before[1] > self._backoff[node_id][1]:  # a refusal's is the longer one
            self._backoff[node_id] = before
        return found

    def reset_backoff(self, node_id: Any) -> None:
        # Also called where a broker has taken the connection and then not let us in.
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
    """Tokens as kafka-python asks for them."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens

    def token(self) -> str:
        return self._tokens.get()[0].text

    def extensions(self) -> dict[str, str]:
        return dict(self._tokens.get()[1].extensions)


def described(error: BaseException) -> str:
    """Return an error of kafka-python's in words; its texts mostly begin with its name."""
    said, name = str(error), type(error).__name__
    return said if name in said else f"{name}: {said}" if said else name
