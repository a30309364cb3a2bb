"""Which topic a request is for."""

from __future__ import annotations

from typing import Any

import pytest

from inbound.config import IngressConfig
from inbound.ingress.request_head import NoTopicError, Router

EXISTING = {"orders", "shop.orders", "mynamespace.my-channel", "mynamespace.my-kafkachannel-service", "__internal"}


def topic(host: str = "ingress", target: str = "/", **config: Any) -> str:
    router = Router(IngressConfig(**config))
    return router.choose(router.candidates(host, target), EXISTING)


@pytest.mark.parametrize(
    ("host", "target", "expected"),
    [
        ("ingress", "/topics/orders", "orders"),
        ("ingress", "/topics/orders/", "orders"),
        ("ingress", "/topics/orders?x=1", "orders"),
        ("ingress", "/topics/shop%2Eorders", "shop.orders"),
        ("ingress", "/shop/orders", "shop.orders"),
        ("ingress", "http://other:80/topics/orders", "orders"),
        ("my-channel.mynamespace.svc.cluster.local", "/", "mynamespace.my-channel"),
        ("My-Channel.MyNamespace.svc.cluster.local:80", "/", "mynamespace.my-channel"),
        ("my-channel.mynamespace", "/", "mynamespace.my-channel"),
        ("my-channel-kn-channel.mynamespace.svc", "/", "mynamespace.my-channel"),
        ("my-kafkachannel-service.mynamespace.svc.cluster.local", "/", "mynamespace.my-kafkachannel-service"),
    ],
)
def test_path_and_host_name_the_topic(host: str, target: str, expected: str) -> None:
    """Without any configuration: as eventing-kafka does by the host, and two forms of paths."""
    assert topic(host, target) == expected


def test_what_is_configured_goes_before_the_rules() -> None:
    """Hosts and paths as they are written, in front of what the rules would make of them."""
    config: dict[str, Any] = {
        "hosts": {"Shop.Example.com": "orders"},
        "paths": {"/in": "orders", "/topics/x": "orders"},
    }

    found = [
        topic("shop.example.com:8080", "/", **config),
        topic("any", "/in", **config),
        topic(target="/topics/x", **config),
    ]

    assert found == ["orders"] * 3


@pytest.mark.parametrize(
    ("host", "target", "said"),
    [
        ("ingress", "/", "neither the path / nor the host ingress names a topic"),
        ("127.0.0.1:8080", "/", "neither the path / nor the host 127.0.0.1"),
        ("[::1]:8080", "/", "neither the path"),
        ("ingress", "/a/b/c", "neither the path /a/b/c"),
        ("ingress", "/topics/", "neither the path"),
        ("ingress", "/topics/missing", "topic missing: does not exist"),
        (
            "ingress",
            "/x://h/topics/orders",
            "neither the path /x://h/topics/orders",
        ),  # a proxy takes it for a path, too
        ("ingress", "/topics/__internal", "topic __internal: not one that may be posted to"),
        ("ingress", "/topics/a%2Fb", "topic a/b: not one that may be posted to"),
        ("ingress", "/topics%2forders", "neither the path"),
        ("ingress", "/topics/a%00b", "not one that may be posted to"),
        ("other.mynamespace.svc", "/", "topic mynamespace.other: does not exist"),
    ],
)
def test_a_request_without_a_topic_is_refused_with_the_reason(host: str, target: str, said: str) -> None:
    """Kafka's own topics are never written to, nor names that no topic can have."""
    with pytest.raises(NoTopicError, match=said.replace("[", r"\[")):
        topic(host, target)


def test_only_listed_topics_may_be_posted_to() -> None:
    """As soon as topics or a pattern are given, all others are closed, but for those that hosts and paths lead to."""
    config: dict[str, Any] = {
        "topics": ["orders"],
        "topics_pattern": r"shop\..*",
        "paths": {"/in": "mynamespace.my-channel"},
    }

    allowed = [topic(target=target, **config) for target in ("/topics/orders", "/shop/orders", "/in")]

    assert allowed == ["orders", "shop.orders", "mynamespace.my-channel"]
    with pytest.raises(NoTopicError, match=r"not one that may be posted to here; see ingress\.topics"):
        topic(target="/topics/returns", **config)
