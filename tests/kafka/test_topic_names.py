"""Which topics a pattern means, and what confluent-kafka asks of them."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from inbound.cli.inspect.explain import _channels
from inbound.config import load
from inbound.controller.reset_offset.model import Ref
from inbound.controller.reset_offset.ref_mappers import ChannelRefMapper, ReadChannel
from inbound.errors import ConfigError, UnknownRefError
from inbound.kafka.confluent.questions import TopicQuestions
from inbound.kafka.confluent.settings import Credentials
from inbound.offsets.gather import reads_of
from inbound.plan.plan import plan_channels
from inbound.runtime.patterns import chooser
from inbound.topic_partition import TopicPartition

TOPICS = ["orders", "orders.dead", "order", "__consumer_offsets", "_own", "x__"]


@pytest.mark.parametrize(
    ("names", "pattern", "expected"),
    [
        (["order", "__consumer_offsets"], None, ["order", "__consumer_offsets"]),
        ([], "ord.*", ["orders", "orders.dead", "order"]),
        ([], "orders|order", ["orders", "order"]),
        (["__consumer_offsets"], ".*", ["orders", "orders.dead", "order", "_own", "x__"]),
        ([], "__.*", []),
    ],
)
def test_a_pattern_means_whole_names_and_none_of_kafkas_own(
    names: list[str], pattern: str | None, expected: list[str]
) -> None:
    """Kafka's own topics are meant where they are named."""
    assert [topic for topic in TOPICS if chooser(names, pattern)(topic)] == expected


INNER = "__consumer_offsets"
ALL = 'channels: {all: {topics_pattern: ".*", group: g, processor: {type: simple}%s}}\n'


def test_commands_go_by_the_same_rule() -> None:
    """Which channel reads a topic: of explain, of offsets, of a reset that names a channel."""
    channels = load(ALL % "", filename="inbound.yaml").config.channels
    reads = reads_of(channels)["g"]
    with pytest.raises(ConfigError, match=f"no channel of this configuration reads topic {INNER}"):
        _channels(channels, TopicPartition(INNER, 0), None)
    with pytest.raises(UnknownRefError, match=f"channel all does not read topic {INNER}"):
        ChannelRefMapper([ReadChannel(name="all", group="g", pattern=".*")]).map(
            Ref(kind="Channel", name=f"all/{INNER}")
        )
    assert (reads.channel(INNER), reads.first([INNER, "orders"])) == ("", {"orders": "earliest"})


def test_partitions_that_are_listed_of_a_topic_that_no_pattern_means_are_refused() -> None:
    """No channel would read them."""
    text = ALL % f", coordinator: {{type: static, partitions: {{{INNER}: [0]}}}}"
    with pytest.raises(
        ConfigError, match=r"does not match topics_pattern \('\.\*'\), which means no topics that begin with __;"
    ):
        load(text, filename="inbound.yaml")


def test_events_do_not_wait_in_topics_that_no_pattern_means() -> None:
    """They would wait without end."""
    options = '{subscriberUri: "http://a", ordering: none, delayed_retry: {delays: [10s], topic: __retry}}'
    text = (ALL % "").replace("type: simple", f"type: dispatch, options: {options}")
    with pytest.raises(ConfigError, match=r"topics_pattern does not match __retry.10s"):
        plan_channels(load(text, filename="inbound.yaml"))


class Admin:
    """An admin client of a cluster with these topics, each of one partition."""

    def poll(self, timeout: float) -> None:
        """Say nothing of connections."""

    def list_topics(self, topic: str | None, timeout: float) -> Any:
        partitions = {0: SimpleNamespace(leader=1)}
        return SimpleNamespace(topics={name: SimpleNamespace(partitions=partitions) for name in TOPICS})

    def describe_topics(self, topics: TopicCollection, request_timeout: float) -> dict[str, Future[Any]]:
        futures: dict[str, Future[Any]] = {name: Future() for name in topics.topic_names}
        for future in futures.values():
            future.set_result(SimpleNamespace(topic_id="AAAAAAAAAAAAAAAAAAAAAQ"))
        return futures


@pytest.mark.parametrize(
    ("names", "pattern", "expected"),
    [([], ".*", {"orders", "orders.dead", "order", "_own", "x__"}), (["__consumer_offsets"], None, {TOPICS[3]})],
)
def test_confluent_kafka_reads_what_is_kafkas_own_only_where_it_is_named(
    names: list[str], pattern: str | None, expected: set[str]
) -> None:
    """librdkafka lists such topics with all others; kafka-python has never named `__consumer_offsets`."""
    topics = TopicQuestions(cast("AdminClient", Admin()), Credentials({"bootstrap.servers": "127.0.0.1:1"}))
    found = topics.get(names, pattern)
    topics.close()
    assert set(found) == expected
