"""What a reset asks the brokers, of real ones: with either client."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from inbound.controller.reset_offset.model import TopicLog
from inbound.embedded import EmbeddedCluster
from inbound.kafka.topic_logs import KafkaTopicLogs
from integration.kafka_stage import CLIENTS, Publisher, RealStage
from tests.log_client_stage import values


@pytest.fixture(params=CLIENTS)
def stage(request: pytest.FixtureRequest, embedded_cluster: EmbeddedCluster) -> Iterator[RealStage]:
    """A stage on the shared broker."""
    stage = RealStage(embedded_cluster, Publisher(embedded_cluster), CLIENTS[request.param])
    yield stage
    stage.close()


@pytest.fixture
def logs(stage: RealStage) -> Iterator[KafkaTopicLogs]:
    """As resets have it."""
    logs = KafkaTopicLogs(stage.client)
    yield logs
    logs.close()


def answer(logs: KafkaTopicLogs, topic: str, time: float | None = None) -> TopicLog | None:
    """Ask, and wait for the answer."""
    call, done = logs.ask(topic, time), threading.Event()
    call.when_done(done.set)
    assert done.wait(30)
    return call.result()


def test_a_whole_topic_is_told(stage: RealStage, logs: KafkaTopicLogs) -> None:
    """Ranges, where a time between two records begins, where one behind the last, and the topic's id."""
    empty, filled, trimmed = partitions = stage.topic(3)
    for tp in (filled, trimmed):
        for time in (1000, 2000, 3000):
            stage.publish(tp, values(2), timestamp=time)
    stage.trim(trimmed, 5)
    log = answer(logs, filled.topic, 1.5)
    assert log is not None
    assert log.topic_id is not None
    assert (log.ranges, log.at_time) == ({0: (0, 0), 1: (0, 6), 2: (5, 6)}, {0: 0, 1: 2, 2: 5})
    late = answer(logs, empty.topic, 3.001)
    assert late is not None
    assert late.at_time == {tp.partition: late.ranges[tp.partition][1] for tp in partitions}


def test_a_log_ends_where_an_open_transaction_begins(stage: RealStage, logs: KafkaTopicLogs) -> None:
    """As for a consumer that has read everything; what is in it, and behind, is read once it is committed."""
    (tp,) = stage.topic()
    stage.publish(tp, values(2), timestamp=1000)
    transactions = stage.publisher.transactions
    transactions.begin_transaction()
    transactions.produce(tp.topic, b"in", partition=tp.partition, timestamp=2000)
    assert transactions.flush(10) == 0
    log = answer(logs, tp.topic, 2.0)
    transactions.abort_transaction(10)
    assert log is not None
    assert (log.ranges, log.at_time) == ({0: (0, 2)}, {0: 2})


def test_a_topic_made_anew_is_another_one(stage: RealStage, logs: KafkaTopicLogs) -> None:
    """Nothing is remembered from one question to the next."""
    (tp,) = stage.topic()
    before = answer(logs, tp.topic)
    stage.delete_topic(tp.topic)
    gone = answer(logs, tp.topic)
    stage.create_topic(tp.topic, 2)
    after = answer(logs, tp.topic)
    assert before is not None
    assert after is not None
    assert (gone, len(before.ranges), len(after.ranges)) == (None, 1, 2)
    assert before.topic_id != after.topic_id
