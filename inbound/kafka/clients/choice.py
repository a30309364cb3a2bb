"""The Kafka clients that a channel can read with, by the names of `reader.client`."""

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
    """Raise ConfigError if the package of an optional client is missing, or kafka-python lacks a private member."""
    if client == "kafka-python":
        kafka_python_members.check()
    if client == "confluent-kafka" and find_spec("confluent_kafka") is None:
        raise ConfigError("confluent-kafka is not installed; install it with: pip install 'inbound-kafka[fast]'")


def check_properties(client: str, properties: Mapping[str, Any]) -> None:
    """Raise ConfigError if a client, which is installed, cannot use one of `properties`. Connects to nothing."""
    if client == "confluent-kafka":
        from inbound.kafka.confluent.client import check  # an extra: it may not be installed

        check(properties)
    else:
        to_kafka_python(properties)


def connector(
    reader: ReaderConfig, properties: Mapping[str, Any], *, client_id: str, isolation: str
) -> Callable[[], LogClient]:
    """Return what makes the channel's client, with what lets it in as mounted files say it then.

    It may raise BrokerUnavailableError.
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
            # It could be used when the process began: a mounted file is gone, or holds something else now.
            raise BrokerRefusedError(f"Kafka is not asked: {error}") from None

    return connect


#: How long the brokers may take to answer with new settings, and how soon they are asked again, in seconds.
KAFKA_SECONDS, ASK_AGAIN = 10.0, 0.5


def answers_in_time(ask: Callable[[], object], who: str, clock: Clock, ends_within: Callable[[float], bool]) -> None:
    """Call `ask` until it does not raise BrokerUnavailableError.

    `who` is part of the error; `ends_within` waits so many seconds, and returns whether the process is to end.

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
