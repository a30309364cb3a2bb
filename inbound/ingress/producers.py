"""Which client writes records for the ingress: confluent-kafka where it is installed, else kafka-python."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from inbound.config import IngressConfig
from inbound.errors import ConfigError
from inbound.ingress.confluent_producer import ConfluentProducer
from inbound.ingress.kafka_python_producer import KafkaPythonProducer
from inbound.ingress.producer_base import Producer


def chosen_client(config: IngressConfig) -> str:
    """Return which client is used. Raises ConfigError: a named one is not installed."""
    installed = find_spec("confluent_kafka") is not None
    if config.client == "confluent-kafka" and not installed:
        raise ConfigError(
            "ingress.client: confluent-kafka is not installed; install it with: pip install 'inbound-kafka[fast]'"
        )
    if config.client == "auto":
        return "confluent-kafka" if installed else "kafka-python"
    return config.client


def make_producer(config: IngressConfig, properties: Mapping[str, Any]) -> Producer:
    """Return the producer that `config` asks for; brokers need not be there yet for confluent-kafka.

    Raises:
        ConfigError: it is not installed, or cannot use one of `properties`.
    """
    if config.linger >= config.delivery_timeout:
        raise ConfigError("ingress.linger: need less than ingress.delivery_timeout")
    if chosen_client(config) == "confluent-kafka":
        return ConfluentProducer(config, properties)
    return KafkaPythonProducer(config, properties)
