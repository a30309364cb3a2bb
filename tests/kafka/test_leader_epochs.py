"""Asking brokers whether logs were cut below a commit, as a proof does: kafka-python's requests, librdkafka's broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import confluent_kafka
import pytest

from inbound.errors import BrokerUnavailableError
from inbound.kafka.base import ReadTo
from inbound.spark.cluster_state import KafkaLogs
from inbound.topic_partition import TopicPartition
from tests.kafka.librdkafka_broker import librdkafka_broker

ORDERS, NONE = TopicPartition("orders", 0), TopicPartition("orders", 7)


@pytest.fixture
def brokers() -> Iterator[KafkaLogs]:
    """Brokers whose only topic has three records, of the first leader."""
    with librdkafka_broker() as broker:
        broker.create("orders")
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "log_level": 0})
        for n in range(3):
            producer.produce("orders", b"%d" % n)
        producer.flush(10)
        # That broker speaks no newer language.
        with closing(KafkaLogs({"bootstrap.servers": broker.address, "api.version": (2, 2)})) as brokers:
            assert brokers.topics(["orders"])["orders"].partitions == 1
            yield brokers


@pytest.mark.parametrize(
    ("read", "cut"),
    [(ReadTo(3, 0), None), (ReadTo(1, 0), None), (ReadTo(0, 7), None), (ReadTo(5, 0), 3), (ReadTo(3, 7), 0)],
    ids=["whole", "whole, read on", "nothing was read", "cut", "cut, the brokers cannot tell where"],
)
def test_a_log_that_was_cut_is_recognised_by_the_leader_that_wrote_what_was_read(
    brokers: KafkaLogs, read: ReadTo, cut: int | None
) -> None:
    """What that leader and those before it wrote ends before the commit; or the log knows of no leader so late."""
    assert brokers.cuts({ORDERS: read}, 10) == ({} if cut is None else {ORDERS: cut})


def test_a_leader_that_does_not_answer_is_no_log_that_is_whole(brokers: KafkaLogs) -> None:
    """A proof says then that it cannot be had."""
    with pytest.raises(BrokerUnavailableError, match=r"whether the logs of 1 partitions were cut, orders/7 among them"):
        brokers.cuts({ORDERS: ReadTo(3, 0), NONE: ReadTo(3, 0)}, 0.3)
