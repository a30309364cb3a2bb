"""Chooses the Kafka client that `reader.client` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

from inbound.clock import Clock
from inbound.config import ReaderConfig
from inbound.errors import BrokerRefusedError, BrokerUnavailableError, ConfigError, InboundError
from inbound.kafka.base import LogClient
from inbound.kafka.python import private_members as kafka_python_members
from inbound.kafka.python.client import KafkaPythonClient, to_kafka_python


def check_installed(client: str) -> None:
    """Raise ConfigError if a client's package is missing or unusable."""
    if client == "kafka-python":
        kafka_python_members.check()
    if client == "confluent-kafka" and find_spec("confluent_kafka") is None:
        raise ConfigError("confluent-kafka is not installed; install it with: pip install 'inbound-kafka[fast]'")


def check_properties(client: str, properties: Mapping[str, Any]) -> None:
    """Raise ConfigError if an installed client cannot use one of `properties`."""
    if client == "confluent-kafka":
        from inbound.kafka.confluent.settings import check  # an extra: it may not be installed

        check(properties)
    else:
        to_kafka_python(properties)


def connector(
    reader: ReaderConfig, properties: Mapping[str, Any], *, client_id: str, isolation: str
) -> Callable[[], LogClient]:
    """Return a function that connects the channel's client.

    It reads mounted credentials when it is called, and may raise BrokerUnavailableError.
    """
    common: dict[str, Any] = {
        "client_id": client_id,
        "isolation": isolation,
        "fetch_wait": reader.idle_wait,
        "fetch_bytes": reader.batch_bytes,
    }
    most = reader.max_decompressed_bytes
    make: Callable[[], LogClient] = partial(KafkaPythonClient, properties, max_decompressed_bytes=most, **common)
    if reader.client == "confluent-kafka":
        from inbound.kafka.confluent.client import ConfluentClient

        make = partial(ConfluentClient, properties, prefetch_bytes=reader.prefetch_bytes, **common)

    def connect() -> LogClient:
        try:
            return make()
        except ConfigError as error:
            # The properties were usable when the process began: a mounted file is gone, or has other contents.
            raise BrokerRefusedError(f"Kafka is not asked: {error}") from None

    return connect


#: The time limit for an answer with new settings, and the interval between attempts. Seconds.
KAFKA_SECONDS, ASK_AGAIN = 10.0, 0.5


def answers_in_time(ask: Callable[[], object], who: str, clock: Clock, ends_within: Callable[[float], bool]) -> None:
    """Call `ask` until it does not raise BrokerUnavailableError.

    `who` is part of the error; `ends_within` waits the seconds that it is given, and returns whether the process ends.

    Raises:
        InboundError: the brokers do not answer in time, or do not let us in.
    """
    deadline = clock.now() + KAFKA_SECONDS
    while True:
        try:
            ask()
            return
        except BrokerUnavailableError as error:
            if clock.now() >= deadline or ends_within(ASK_AGAIN):
                raise InboundError(f"Kafka does not answer with the new settings, {who}: {error}") from None
