"""What the confluent client asks of librdkafka itself; no broker is needed for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException

from inbound.kafka.confluent.client import ConfluentClient
from inbound.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def client() -> Iterator[ConfluentClient]:
    """A client whose broker does not answer."""
    one = ConfluentClient({"bootstrap.servers": "127.0.0.1:1"}, client_id="test")
    yield one
    one.close()


def read_from(client: ConfluentClient) -> int:
    """Return the offset from which librdkafka reads the partition."""
    (assigned,) = client._consumer.assignment()
    return assigned.offset


def test_a_partition_of_which_no_leader_epoch_is_known_is_read(client: ConfluentClient) -> None:
    """A new group, one after a reset, or one whose commits are of an earlier release."""
    client.read({ORDERS: 7})
    assert read_from(client) == 7


def test_a_read_that_librdkafka_refuses_is_asked_for_again(client: ConfluentClient) -> None:
    """It would else hold the partition for one that it has, and could never give it up."""
    with pytest.raises(KafkaException):
        client.read({ORDERS: -77})
    client.read({ORDERS: 7})
    assert read_from(client) == 7
