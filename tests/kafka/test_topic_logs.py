"""What a reset asks the brokers: by a client of its own on another thread, and by the fake cluster, the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from inbound.controller.reset_offset.model import TopicLog, TopicLogs
from inbound.errors import BrokerUnavailableError
from inbound.kafka.clients import topic_logs
from inbound.kafka.clients.topic_logs import KafkaTopicLogs, milliseconds
from inbound.testing.kafka import FakeKafka
from inbound.testing.topic_logs import FakeTopicLogs
from tests.waiting import wait_for


@pytest.fixture
def kafka() -> FakeKafka:
    """A topic with a log that retention has cut, and an empty one."""
    kafka = FakeKafka()
    kafka.create_topic("orders", 2)
    for time in (1000, 2000, 3000):
        kafka.publish("orders", 0, [b"x", b"y"], timestamp=time)
    kafka.retain("orders", 0, 1)
    return kafka


@pytest.fixture(params=["real", "fake"])
def logs(request: pytest.FixtureRequest, kafka: FakeKafka) -> Iterator[TopicLogs]:
    """Both, over the same cluster."""
    if request.param == "fake":
        yield FakeTopicLogs(kafka)
        return
    real = KafkaTopicLogs(kafka.client)
    yield real
    real.close()


def answer(logs: TopicLogs, topic: str, time: float | None = None) -> TopicLog | None:
    """Ask, and wait for the answer."""
    call, done = logs.ask(topic, time), threading.Event()
    call.when_done(done.set)
    wait_for(done, 5, "no answer")
    return call.result()


def test_all_partitions_are_told(logs: TopicLogs) -> None:
    """Where each log begins and ends, and which topic it is."""
    assert answer(logs, "orders") == TopicLog("orders", "topic-1", {0: (1, 6), 1: (0, 0)}, {})


@pytest.mark.parametrize(("time", "offset"), [(0.0, 1), (2.0, 2), (2.001, 4), (3.0, 4), (3.001, 6)])
def test_a_time_without_record_begins_at_the_end(logs: TopicLogs, time: float, offset: int) -> None:
    """Said for each partition, so that a missing answer is not taken for one."""
    log = answer(logs, "orders", time)
    assert log is not None
    assert log.at_time == {0: offset, 1: 0}


def test_an_unknown_topic_is_none(logs: TopicLogs) -> None:
    """And no error: the caller reports it."""
    assert answer(logs, "missing") is None


def test_a_leader_that_is_away_fails_the_whole_answer(
    logs: TopicLogs, kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reset of some partitions only is not what was asked for."""
    monkeypatch.setattr(topic_logs, "ANSWER_TIMEOUT", 0.0)
    kafka.lose_leader("orders", 1)
    with pytest.raises(BrokerUnavailableError, match="orders"):
        answer(logs, "orders")
    kafka.elect_leader("orders", 1)
    assert answer(logs, "orders") is not None


def test_no_broker_is_no_answer(logs: TopicLogs, kafka: FakeKafka) -> None:
    """The caller asks again."""
    kafka.down()
    with pytest.raises(BrokerUnavailableError):
        answer(logs, "orders")


def test_each_question_has_a_client_that_is_closed(kafka: FakeKafka) -> None:
    """Its memory would be of the time before."""
    logs = KafkaTopicLogs(kafka.client)
    answer(logs, "orders")
    answer(logs, "missing")
    logs.close()
    assert [client.closed for client in kafka.clients] == [True, True]


def test_closed_it_answers_nothing_more(kafka: FakeKafka) -> None:
    """No caller waits without end."""
    logs = KafkaTopicLogs(kafka.client)
    logs.close()
    with pytest.raises(BrokerUnavailableError, match="this process stops"):
        answer(logs, "orders")


def test_a_time_is_the_millisecond_that_is_not_before_it() -> None:
    """As Kafka counts; what floats make of it is not more."""
    assert [milliseconds(s) for s in (0.0, 0.001, 1_800_000_000.123, 1_800_000_000.1231)] == [
        0,
        1,
        1_800_000_000_123,
        1_800_000_000_124,
    ]
