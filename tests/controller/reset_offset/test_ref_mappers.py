"""From what a reset names to topic and group: the ready mappers, those made of parts, and configured ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from inbound.config import Loaded, load, parse_manifests
from inbound.controller.reset_offset.model import Ref, RefInfo
from inbound.controller.reset_offset.ref_mappers import Known, ReadyRefMapper, subscription_ref_mapper
from inbound.errors import ConfigError, UnknownRefError
from inbound.plan.resets import known_of, ref_mapper_of

CONFIG = """\
channels:
  orders: {topics: [orders], group: orders-svc, processor: {type: simple, options: {sinks: [log]}}}
  several: {topics: [orders, payments], group: both, processor: {type: simple, options: {sinks: [log]}}}
  all: {topics_pattern: "log-.*", group: logs, processor: {type: simple, options: {sinks: [log]}}}
  posted:
    topics: [orders]
    group: posted
    subscriptions:
      billing: {subscriberUri: "http://billing", uid: u-1}
      audit: {subscriberUri: "http://audit"}
manifests: {paths: [channels]}
"""
MANIFESTS = """\
apiVersion: messaging.knative.dev/v1beta1
kind: KafkaChannel
metadata: {name: shop, namespace: eu, labels: {app: shop}}
spec:
  subscribers:
    - {uid: a-1, name: search, subscriberUri: "http://search"}
---
apiVersion: messaging.knative.dev/v1beta1
kind: KafkaChannel
metadata: {name: mail, namespace: eu}
spec:
  subscribers:
    - {uid: b-1, name: daily, subscriberUri: "http://daily"}
    - {uid: b-2, name: weekly, subscriberUri: "http://weekly"}
    - {uid: b-3, subscriberUri: "http://nameless"}
---
apiVersion: messaging.knative.dev/v1
kind: Subscription
metadata: {name: late, namespace: eu, uid: c-1}
spec: {channel: {kind: KafkaChannel, name: shop, apiVersion: messaging.knative.dev/v1beta1}, subscriber: {uri: "http://x"}}
"""


def loaded(reset: str = "") -> Loaded:
    """Return the configuration with its manifests."""
    manifests = parse_manifests({"channels/all.yaml": MANIFESTS})
    return replace(
        load(CONFIG + reset, filename="inbound.yaml"),
        manifests=manifests.channels,
        subscriptions=manifests.subscriptions,
    )


def found(ref: Ref) -> tuple[str, str]:
    """Return topic and group, by the ready mapper."""
    info = ref_mapper_of(loaded()).map(ref)
    return info.topic, info.group


def refusal(ref: Ref) -> str:
    """Return what the ready mapper refuses with."""
    with pytest.raises(UnknownRefError) as caught:
        ref_mapper_of(loaded()).map(ref)
    return str(caught.value)


KNATIVE = "messaging.knative.dev/v1"


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        (Ref(kind="Channel", name="orders"), ("orders", "orders-svc")),
        (Ref(kind="Channel", name="several/payments"), ("payments", "both")),
        (Ref(kind="Channel", name="all/log-7"), ("log-7", "logs")),
        (Ref(kind="Channel", name="posted.audit"), ("orders", "posted.audit")),
        (Ref(kind="Subscription", name="u-1"), ("orders", "posted.billing")),
        (Ref(kind="Subscription", name="posted.billing"), ("orders", "posted.billing")),
        (Ref(kind="Subscription", name="b-3"), ("eu.mail", "kafka.b-3")),
        (Ref(kind="Subscription", name="weekly", namespace="eu", api_version=KNATIVE), ("eu.mail", "kafka.b-2")),
        (Ref(kind="Subscription", name="weekly", namespace="eu"), ("eu.mail", "kafka.b-2")),
        (Ref(kind="Subscription", name="late", namespace="eu"), ("eu.shop", "kafka.c-1")),  # in a manifest of its own
    ],
    ids=str,
)
def test_what_is_named_has_a_topic_and_a_group(ref: Ref, expected: tuple[str, str]) -> None:
    """Channels and subscriptions of the configuration, and Knative's as the manifests name them."""
    assert found(ref) == expected


def test_a_channel_with_one_subscription_stands_for_that() -> None:
    """Knative's KafkaChannels have no group of their own; of several subscriptions one has to be named."""
    assert "has search, late; each is a group of its own" in refusal(
        Ref(kind="KafkaChannel", name="shop", namespace="eu")
    )
    known = known_of(loaded())
    only = replace(known, subscriptions=tuple(one for one in known.subscriptions if one.name != "late"))
    info = ReadyRefMapper(only).map(Ref(kind="KafkaChannel", name="shop", namespace="eu"))
    assert (info.topic, info.group) == ("eu.shop", "kafka.a-1")


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        (
            Ref(kind="Channel", name="oders"),
            "Channel oders: no channel of this configuration is called 'oders'; did you mean orders? there are: orders, "
            "several, all, posted.billing, posted.audit, eu.shop.a-1, eu.mail.b-1, eu.mail.b-2, eu.mail.b-3",
        ),
        (
            Ref(kind="Channel", name="several"),
            "Channel several: channel several reads orders, payments; name one: several/orders",
        ),
        (
            Ref(kind="Channel", name="orders/payments"),
            "Channel orders/payments: channel orders does not read topic payments; it reads orders",
        ),
        (
            Ref(kind="Channel", name="all"),
            "Channel all: channel all reads all topics that match log-.*; name one: all/TOPIC",
        ),
        (
            Ref(kind="Subscription", name="u-2"),
            "Subscription u-2: no subscription of this configuration is called 'u-2'; did you mean u-1? there are: u-1, "
            "posted.audit, a-1, b-1, b-2, b-3, posted.billing, eu.shop.a-1, eu.mail.b-1, eu.mail.b-2, eu.mail.b-3",
        ),
        (
            Ref(kind="Subscription", name="montly", namespace="eu"),
            "Subscription eu/montly: no Subscription of the manifests is called 'eu/montly'; there are: eu/search, eu/daily, "
            "eu/weekly, eu/late",
        ),
        (
            Ref(kind="Trigger", name="x", api_version="eventing.knative.dev/v1"),
            "Trigger x: only a Channel or Subscription of the configuration, and a Subscription or KafkaChannel of the "
            "manifests can be named; name one of those, or give topic and group",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, Ref) else "",
)
def test_what_is_not_known_is_refused_with_what_there_is(ref: Ref, message: str) -> None:
    """A slip of the pen is named."""
    assert refusal(ref) == message


def test_a_subscription_whose_channel_is_missing_says_which() -> None:
    """Without it the topic is unknown."""
    known = replace(known_of(loaded()), kafka_channels=())
    with pytest.raises(UnknownRefError, match="its channel: no KafkaChannel of the manifests is called 'eu/shop'"):
        subscription_ref_mapper()(known).map(Ref(kind="Subscription", name="late", namespace="eu"))


def test_topics_groups_and_the_data_plane_can_be_named_otherwise() -> None:
    """All five mappers of eventing-kafka's, each a function; what is not given is as the configuration says."""
    factory = subscription_ref_mapper(
        topic_name=lambda channel: f"knative-{channel.metadata.namespace}-{channel.metadata.name}",
        group_id=lambda subscription: f"sub-{subscription.uid}",
        connection_pool_key=lambda channel: channel.metadata.name,
        data_plane_namespace=lambda channel: "knative-eventing",
        data_plane_labels=lambda channel: dict(channel.metadata.labels),
    )

    info = factory(known_of(loaded())).map(Ref(kind="Subscription", name="search", namespace="eu"))

    assert info == RefInfo(
        topic="knative-eu-shop",
        group="sub-a-1",
        connection_pool_key="shop",
        data_plane_namespace="knative-eventing",
        data_plane_labels={"app": "shop"},
    )


# -- one's own ---------------------------------------------------------------------------------------------------------


class Own:
    """Finds everything, in a group that its options name."""

    def __init__(self, known: Known) -> None:
        self._group = known.options["group"]

    def map(self, ref: Ref) -> RefInfo:
        return RefInfo(topic=ref.name, group=self._group)


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[None]:
    """A distribution that offers one."""
    info = tmp_path / "shop-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[inbound.ref_mappers]\nshop = {__name__}:Own\n")
    sys.path.insert(0, str(tmp_path))
    yield
    sys.path.remove(str(tmp_path))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", [f"{__name__}:Own", "shop"], ids=["by its path", "installed"])
def test_a_mapper_of_ones_own_takes_the_place_of_the_ready_one(name: str) -> None:
    """Found as processors are; it is given what there is, and its options."""
    mapper = ref_mapper_of(loaded(f"reset: {{ref_mapper: '{name}', options: {{group: mine}}}}\n"))
    assert mapper.map(Ref(kind="Trigger", name="t")) == RefInfo(topic="t", group="mine")


@pytest.mark.parametrize(
    ("reset", "message"),
    [
        (
            "{ref_mapper: absent}",
            "inbound.yaml:12: reset.ref_mapper: no RefMapper is called 'absent'; none is installed",
        ),
        ("{ref_mapper: 'missing_module:X'}", "inbound.yaml:12: reset.ref_mapper: no module 'missing_module'"),
        ("{ref_mapper: 'json:__doc__'}", "which cannot be called; name a class or function"),
        ("{ref_mapper: 'builtins:list'}", "cannot be made: TypeError"),
        ("{ref_mapper: 'builtins:repr'}", "which has no method map"),
        (f"{{ref_mapper: '{__name__}:Own'}}", "cannot be made: KeyError: 'group'"),
    ],
)
def test_one_that_cannot_be_used_is_refused_with_its_line(reset: str, message: str) -> None:
    """When the configuration is read, not when a reset is asked for."""
    with pytest.raises(ConfigError) as caught:
        ref_mapper_of(loaded(f"reset: {reset}\n"))
    assert message in str(caught.value)
