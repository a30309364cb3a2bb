"""What a client costs that has nothing to read, and that nobody waits for it: fetches that may wait long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from inbound.embedded import EmbeddedCluster
from inbound.kafka.base import LogClient
from inbound.kafka.kafka_python import PATIENT_WAIT
from integration.kafka_stage import Publisher, RealStage, make_kafka_python
from tests.log_client_stage import values


@pytest.fixture
def stage(embedded_cluster: EmbeddedCluster) -> Iterator[RealStage]:
    """A stage on the shared broker, for clients over kafka-python."""
    stage = RealStage(embedded_cluster, Publisher(embedded_cluster), make_kafka_python)
    yield stage
    stage.close()


@pytest.fixture
def woken() -> threading.Event:
    """What the client sets when there is something to poll for."""
    return threading.Event()


def leave_alone(client: LogClient, woken: threading.Event) -> None:
    """Poll until a fetch is under way that may wait long, and nothing has come."""
    deadline = time.monotonic() + 60  # a broker takes its time for a connection
    while time.monotonic() < deadline:
        woken.clear()
        polled = client.poll(0.0, woken.set)
        assert not polled.fetched
        if not polled.will_wake:
            client.poll(0.05)  # not connected yet
        elif not woken.wait(0.4):
            return
    raise AssertionError("no fetch waits for long")


def until_something(stage: RealStage, client: LogClient, woken: threading.Event) -> float:
    """Poll when woken, as the reader does, until something has come.

    Returns how long that took, in seconds, without those in which nobody ran on this machine.
    """
    began = time.monotonic()
    while not (polled := client.poll(0.0, woken.set)).fetched:
        assert time.monotonic() < began + PATIENT_WAIT * 10, "nothing came"
        if polled.will_wake:
            assert woken.wait(PATIENT_WAIT * 10), "it has not woken anybody"
        else:
            woken.wait(0.01)  # no fetch is under way: the connection is being made
        woken.clear()
    return time.monotonic() - began - stage.heart.lost(began)


def test_a_client_that_is_left_alone_says_when_a_record_comes(stage: RealStage, woken: threading.Event) -> None:
    """At once, although the fetch could have waited much longer."""
    (tp,) = stage.topic()
    client = stage.client()
    client.read({tp: 0})
    took = []
    for _ in range(3):
        leave_alone(client, woken)
        stage.publish(tp, values(1))
        took.append(until_something(stage, client, woken))
    assert sorted(took)[1] < PATIENT_WAIT / 4  # the broker may be held up once, while this process is not


def test_a_partition_that_is_claimed_meanwhile_is_read_at_once(stage: RealStage, woken: threading.Event) -> None:
    """It does not wait behind the fetch that waits for records of others: the broker answers one after the other."""
    idle, *others = stage.topic(4)
    for claimed in others:
        stage.publish(claimed, values(1))
    client = stage.client()
    client.read({idle: 0})
    took = []
    for claimed in others:
        leave_alone(client, woken)
        client.read({claimed: 0})
        took.append(until_something(stage, client, woken))
    assert sorted(took)[1] < PATIENT_WAIT / 4  # as above


def test_the_limits_of_a_log_are_known_at_once(stage: RealStage, woken: threading.Event) -> None:
    """The question for them goes the same way as the fetch."""
    idle, *others = stage.topic(4)
    client = stage.client()
    client.read({idle: 0})
    took = []
    for asked in others:
        leave_alone(client, woken)
        began = time.monotonic()
        stage.ranges(client, [asked])
        took.append(time.monotonic() - began - stage.heart.lost(began))
    assert sorted(took)[1] < PATIENT_WAIT / 4  # as above


def test_a_broker_that_is_frozen_meanwhile_costs_nothing(stage: RealStage, woken: threading.Event) -> None:
    """What is published as soon as it answers again comes, with the fetch that was under way or the next one."""
    (tp,) = stage.topic()
    client = stage.client()
    client.read({tp: 0})
    leave_alone(client, woken)
    stage.outage()
    time.sleep(PATIENT_WAIT)
    stage.outage_over()
    stage.publish(tp, values(3))
    came: list[int] = []

    def three() -> bool:
        woken.wait(0.1)
        woken.clear()
        for fetched in client.poll(0.0, woken.set).fetched.values():
            came.extend(record.offset for record in fetched.records)
        return len(came) >= 3

    stage.until(three, 30)
    assert came == [0, 1, 2]
