"""Which topics a pattern means, and what confluent-kafka asks of them."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from inbound.kafka.confluent_entry import Entry
from inbound.kafka.confluent_questions import Topics
from inbound.topic_names import chooser

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
    topics = Topics(cast("AdminClient", Admin()), Entry({"bootstrap.servers": "127.0.0.1:1"}))
    found = topics.get(names, pattern)
    topics.close()
    assert set(found) == expected
