"""Names of the objects of KafkaChannels: for any channel's name, Kubernetes accepts them, and no two are the same."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.config import ChannelManifest, parse_manifests
from inbound.errors import ConfigError
from inbound.kubernetes.objects import LONGEST, object_name, object_names

#: What Kubernetes itself takes for the name of a KafkaChannel.
NAMES = st.from_regex(r"\A[a-z0-9]([-a-z0-9.]{0,80}[a-z0-9])?\Z")
#: A Service's name.
LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


TEXT = "apiVersion: messaging.knative.dev/v1\nkind: KafkaChannel\nmetadata: {name: a, namespace: b}\n"


def channel(name: str, namespace: str = "shop", file: str = "f") -> ChannelManifest:
    """Return a channel of that name."""
    made = parsed(file)
    metadata = made.channel.metadata.model_copy(update={"name": name, "namespace": namespace})
    return replace(made, channel=made.channel.model_copy(update={"metadata": metadata}))


@cache
def parsed(file: str) -> ChannelManifest:
    """Return a channel of another name; reading YAML in each of hypothesis' examples takes seconds."""
    return parse_manifests({file: TEXT}).channels[0]


@settings(max_examples=40)  # a name made of a regular expression takes milliseconds
@given(NAMES, NAMES, st.booleans())
def test_every_name_is_a_dns_label(name: str, namespace: str, with_namespace: bool) -> None:
    """Short enough for the label of a StatefulSet's revision, too; and the same at each run."""
    found = object_name(channel(name, namespace), with_namespace=with_namespace)

    assert LABEL.fullmatch(found)
    assert len(found) <= LONGEST
    assert found == object_name(channel(name, namespace), with_namespace=with_namespace)


@settings(max_examples=40)
@given(NAMES, NAMES)
def test_two_channels_of_a_namespace_have_two_names(one: str, other: str) -> None:
    """Also where what tells them apart had to be cut off, or written otherwise."""
    names = [object_name(channel(name), with_namespace=False) for name in (one, other)]

    assert (names[0] == names[1]) == (one == other)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders", "inbound-orders"),
        ("1-orders", "inbound-1-orders"),
        ("orders.v2", "inbound-orders-v2-c57098c1"),
        ("a" * 60, f"inbound-{'a' * 35}-afc4277c"),
    ],
)
def test_names_are_those_of_the_channels_where_they_can_be(name: str, expected: str) -> None:
    """They are what operators look for; and they stay, or an upgrade would delete and recreate."""
    assert object_name(channel(name), with_namespace=False) == expected


def test_names_that_would_be_the_same_are_refused() -> None:
    """With both places; without --namespace each has its own."""
    channels = [channel("c", "a-b", "one.yaml"), channel("b-c", "a", "two.yaml")]

    with pytest.raises(ConfigError) as caught:
        object_names(channels, "eventing")

    assert str(caught.value) == (
        "two.yaml:3: metadata.name: the objects of a.b-c would be called inbound-a-b-c, like those of a-b.c (one.yaml:3); leave "
        "out --namespace, or rename one of the two"
    )
    assert object_names(channels, None) == {"a-b.c": ("a-b", "inbound-c"), "a.b-c": ("a", "inbound-b-c")}
