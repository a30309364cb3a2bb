"""Both clients on a real broker: all of the conformance suite, and what only real brokers can show."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import confluent_kafka
import pytest

from inbound.embedded import EmbeddedCluster
from integration.kafka_stage import CLIENTS, Publisher, RealStage
from tests.log_client_conformance import LogClientConformance
from tests.log_client_stage import Reading, values


@pytest.fixture(scope="module")
def publisher(embedded_cluster: EmbeddedCluster) -> Publisher:
    """What publishes to the shared broker."""
    return Publisher(embedded_cluster)


@pytest.fixture(params=CLIENTS)
def stage(
    request: pytest.FixtureRequest, embedded_cluster: EmbeddedCluster, publisher: Publisher
) -> Iterator[RealStage]:
    """A stage on the shared broker, which answers again afterwards whatever happened to it."""
    stage = RealStage(embedded_cluster, publisher, CLIENTS[request.param])
    yield stage
    stage.close()


class TestClients(LogClientConformance):
    """The suite."""


# -- records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read(stage: RealStage, codec: str) -> None:
    """In every kind that Kafka has, out of the box."""
    (tp,) = stage.topic()
    producer = confluent_kafka.Producer({**stage.publisher.settings, "compression.type": codec, "linger.ms": 50})
    for value in values(300):
        producer.produce(tp.topic, value * 20, partition=tp.partition)
    assert producer.flush(30) == 0
    reading = Reading(stage, stage.client())
    reading.client.read({tp: 0})
    reading.until((tp, 300))
    assert [record.value for record in reading.records(tp)] == [value * 20 for value in values(300)]


def test_records_of_an_open_transaction_wait_for_its_end(stage: RealStage) -> None:
    """Also what others published behind them; and who begins at the end begins before them."""
    (tp,) = stage.topic()
    stage.publish(tp, values(1))
    reading = Reading(stage, stage.client())
    reading.client.read({tp: 0})
    transactions = stage.publisher.transactions
    transactions.begin_transaction()
    transactions.produce(tp.topic, b"in", partition=tp.partition)
    assert transactions.flush(30) == 0
    stage.publish(tp, [b"behind"])
    reading.until((tp, 1))
    reading.rest()
    limits = stage.ranges(reading.client, [tp])[tp]
    open_, end = reading.offsets(tp), limits.end
    transactions.commit_transaction(30)
    reading.until((tp, 3))
    assert (open_, end, reading.offsets(tp)) == ([0], 1, [0, 1, 2])


def test_a_record_larger_than_every_fetch_is_read(stage: RealStage) -> None:
    """And what is before and behind it."""
    (tp,) = stage.topic()
    large = os.urandom(950_000)
    stage.publish(tp, [b"before", large, b"behind"], batched=False)
    client = stage.client()
    client.limit_fetches(16 * 1024)
    reading = Reading(stage, client)
    client.read({tp: 0})
    reading.until((tp, 3))
    assert [record.value for record in reading.records(tp)] == [b"before", large, b"behind"]


# -- time --------------------------------------------------------------------------------------------------------------


def test_a_poll_returns_when_something_arrives_or_when_its_time_is_up(stage: RealStage) -> None:
    """Not before, and not much later."""
    (tp,) = stage.topic()
    reading = Reading(stage, stage.client())
    reading.client.read({tp: 0})
    reading.rest()
    began = time.monotonic()
    assert not reading.client.poll(0.3).fetched
    nothing, nobody_ran = time.monotonic() - began, stage.heart.lost(began)
    stage.publish(tp, values(1))
    began = time.monotonic()
    assert reading.client.poll(5.0).fetched
    something = time.monotonic() - began
    assert 0.3 <= nothing < 0.6 + nobody_ran
    assert something < 1.0 + stage.heart.lost(began)


def test_a_partition_claimed_while_a_fetch_is_pending_does_not_wait_for_it_long(stage: RealStage) -> None:
    """The others have nothing to read: the broker keeps their fetch for as long as it may."""
    idle, claimed = stage.topic(2)
    stage.publish(claimed, values(1))
    reading = Reading(stage, stage.client())
    reading.client.read({idle: 0})
    reading.rest()
    took = []
    for _ in range(7):
        began = time.monotonic()
        reading.client.read({claimed: 0})
        reading.until_some()
        took.append(time.monotonic() - began - stage.heart.lost(began))
        reading.client.forget([claimed])
    assert sorted(took)[3] < 0.1


@pytest.mark.parametrize("gone", [False, True], ids=["with a broker", "with a broker that does not answer"])
def test_a_closed_client_leaves_nothing_behind(stage: RealStage, gone: bool) -> None:
    """No thread and no socket; and it takes a few seconds at most."""
    (tp,) = stage.topic()
    stage.publish(tp, values(3))
    before = _open()
    client = stage.client()
    reading = Reading(stage, client)
    client.read({tp: 0})
    reading.until((tp, 3))
    stage.topics(client, [tp.topic], None)
    stage.ranges(client, [tp])
    its = _open() - before
    if gone:
        stage.outage()
    began = time.monotonic()
    client.close()
    took = time.monotonic() - began - stage.heart.lost(began)
    stage.clients.remove(client)
    del client, reading
    if gone:
        stage.outage_over()  # what publishes has lost connections of its own
    stage.until(lambda: not its & _open())
    assert {name.partition(":")[0] for name in its} == {"socket", "thread"}
    assert took < 5


def _open() -> set[str]:
    """Return the sockets and threads that this process has, by names that no two share."""
    found = {f"thread:{number}" for number in os.listdir("/proc/self/task")}
    for entry in os.scandir("/proc/self/fd"):
        try:
            name = os.readlink(entry.path)
        except FileNotFoundError:  # closed since it was listed
            continue
        if name.startswith("socket:"):
            found.add(name)
    return found
