"""The section `ingress` of the configuration."""

from __future__ import annotations

import pytest

from inbound.config import load
from inbound.errors import ConfigError


def test_an_ingress_alone_is_a_configuration() -> None:
    """It needs no channel; `{}` is one with all defaults."""
    config = load("ingress: {}", filename="f").config

    assert config.ingress is not None
    assert (config.ingress.host, config.ingress.port, config.channels) == ("127.0.0.1", 8080, {})


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{listen: 8080}", "f:1: ingress.listen: need text"),
        ("{listen: localhost}", "f:1: ingress.listen: need host:port such as"),
        ("{topics_pattern: '['}", "f:1: ingress.topics_pattern: need a regular expression"),
        ("{paths: {in: orders}}", "need a path that starts with /"),
        ("{hosts: {'shop.example:80': orders}}", "need the name of a host without a port"),
        ("{hosts: {shop: 'a b'}}", "f:1: ingress.hosts.shop: need a Kafka topic"),
        ("{create_partitions: 3}", "f:1: ingress.create_partitions: needs topics or topics_pattern"),
        ("{max_in_flight_bytes: 1MiB}", "f:1: ingress.max_in_flight_bytes: need at least max_request_bytes"),
        ("{client: java}", "ingress.client"),
        ("{tls: {}}", "ingress.tls.cert"),
        ("{tokenfile: x}", "f:1: ingress.tokenfile: unknown key"),
    ],
)
def test_what_cannot_be_meant_is_refused(section: str, said: str) -> None:
    """With the place, and what to do."""
    with pytest.raises(ConfigError) as refused:
        load(f"ingress: {section}", filename="f")

    assert said in str(refused.value)
