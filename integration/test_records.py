"""Every shape that records come in: compressed, transactional, huge, null, repeated headers, CloudEvents."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest

from inbound.embedded import EmbeddedCluster
from integration.harness import Scene, both_clients
from tests.waiting import until


class Collecting(Scene):
    """A scene whose consumers write down what records look like."""

    def write_config(self, **channel: str) -> None:
        super().write_config(**channel)
        text = self.config.read_text()
        head, _ = text.split("    processor:")
        self.config.write_text(
            f'{head}    processor: {{type: "collector:Collector", options: {{folder: {self.seen_folder}}}}}\n'
        )

    def collected(self) -> list[dict[str, Any]]:
        """Return what was handed out, by offset."""
        # What stands behind the last end of a line is still being written.
        lines = [line for path in self.seen_folder.glob("*.jsonl") for line in path.read_text().split("\n")[:-1]]
        return sorted((json.loads(line) for line in lines), key=lambda record: int(record["offset"]))

    def consume(self, count: int, **channel: str) -> list[dict[str, Any]]:
        """Start a consumer, wait for `count` records, stop it in good order, return them."""
        self.write_config(**channel)
        process = self.start()
        until(lambda: len(self.collected()) >= count, 60, lambda: f"{count} records: {self.log(process)[-2000:]}")
        assert self.stop(process) == 0
        return self.collected()


@pytest.fixture
def scene(embedded_cluster: EmbeddedCluster, tmp_path: Path, client: str) -> Iterator[Callable[..., Collecting]]:
    """Make scenes with one partition."""
    scenes: list[Collecting] = []

    def make(**settings: Any) -> Collecting:
        folder = tmp_path / f"scene-{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        # A machine that is busy for seconds is not what is looked at.
        scenes.append(Collecting(embedded_cluster, folder, partitions=1, client=client, session=15.0, **settings))
        return scenes[-1]

    yield make
    for one in scenes:
        one.close()


def producer(scene: Scene, **settings: Any) -> kafka.KafkaProducer:
    """A producer for the scene's cluster."""
    return kafka.KafkaProducer(bootstrap_servers=scene.cluster.bootstrap_servers, acks="all", **settings)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read(scene: Callable[..., Collecting], codec: str) -> None:
    """Out of the box, in every kind that Kafka has."""
    s = scene()
    sending = producer(s, compression_type=codec, linger_ms=50)
    for number in range(200):
        sending.send(s.topic, b"%05d" % number * 20)
    sending.close(timeout=60)
    assert [r["offset"] for r in s.consume(200)] == list(range(200))


@both_clients
def test_of_transactions_only_what_was_committed_is_read_and_the_rest_is_no_loss(
    scene: Callable[..., Collecting],
) -> None:
    """Aborted records and markers take offsets; the commit goes past them, and a restart repeats nothing."""
    s = scene()
    sending = producer(s, transactional_id=f"tx-{s.folder.name}")
    sending.init_transactions()
    for commit in (True, False, True):
        sending.begin_transaction()
        for _ in range(3):
            sending.send(s.topic, b"yes" if commit else b"no")
        sending.flush()
        if commit:
            sending.commit_transaction()
        else:
            sending.abort_transaction()
    sending.close(timeout=60)
    # 0-2 committed, 3 marker, 4-6 aborted, 7 marker, 8-10 committed, 11 marker
    assert [r["offset"] for r in s.consume(6)] == [0, 1, 2, 8, 9, 10]
    assert s.offset(0) in (11, 12)
    again = producer(s)
    again.send(s.topic, b"later").get(timeout=60)
    again.close(timeout=60)
    assert [r["offset"] for r in s.consume(7)] == [0, 1, 2, 8, 9, 10, 12]


@both_clients
def test_a_record_larger_than_a_batch_may_be_is_delivered_alone_with_a_warning(
    scene: Callable[..., Collecting],
) -> None:
    """It would else stop its partition for ever."""
    s = scene()
    sending = producer(s, max_request_size=4_000_000)
    for size in (10, 900_000, 10):
        sending.send(s.topic, os.urandom(size)).get(timeout=60)
    sending.close(timeout=60)
    records = s.consume(3, reader="{batch_bytes: 100KiB, max_batch_bytes: 200KiB}")
    assert [(r["value"], r["batch"]) for r in records if r["value"] > 10] == [(900_000, 1)]
    assert [r["offset"] for r in records] == [0, 1, 2]
    assert (
        "the record at offset 1 has 900000 bytes, more than max_batch_bytes (204800); it is delivered alone"
        in s.log(s.processes[0])
    )


@both_clients
def test_nulls_repeated_headers_and_cloudevents_come_through_unchanged(scene: Callable[..., Collecting]) -> None:
    """A tombstone, a null key, a null header, a header given twice; and an event among them."""
    s = scene()
    sending = confluent_kafka.Producer({"bootstrap.servers": s.cluster.bootstrap_servers})  # sends null headers too
    event = [("ce_specversion", b"1.0"), ("ce_id", b"e-1"), ("ce_source", b"/s"), ("ce_type", b"t")]
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, Any]]]] = [
        (b"k", None, []),
        (None, b"v", [("h", b"1"), ("h", b"2"), ("n", None)]),
        (b"k", b"v", list(event)),
        (b"k", None, list(event)),
    ]
    for key, value, headers in rows:
        sending.produce(s.topic, value, key=key, headers=headers)
    assert sending.flush(60) == 0
    assert [(r["key"], r["value"], r["event"]) for r in s.consume(4)] == [
        ("k", None, None),
        (None, 1, None),
        ("k", 1, "e-1"),
        ("k", None, "e-1"),
    ]
    assert s.collected()[1]["headers"] == [["h", "1"], ["h", "2"], ["n", None]]


@both_clients
def test_a_topic_that_does_not_exist_is_waited_for_and_said(scene: Callable[..., Collecting]) -> None:
    """The consumer is up and says what is missing; once the topic is there, it consumes."""
    s = scene()
    s.topic = f"{s.topic}-late"
    s.write_config()
    process = s.start()
    until(lambda: f"topic {s.topic} does not exist on these brokers" in s.log(process), 60, "it says what is missing")
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=s.cluster.bootstrap_servers)
    admin.create_topics([NewTopic(s.topic, 1, 1)])
    admin.close()
    s.publish(3)
    until(lambda: len(s.collected()) == 3, 60, "it consumes")
    assert s.stop(process) == 0


@both_clients
def test_servers_that_are_not_there_are_waited_for(
    cluster_factory: Callable[..., EmbeddedCluster], tmp_path: Path, client: str
) -> None:
    """Started before ZooKeeper and Kafka, a consumer says what it waits for and begins when they come; a stop works too."""
    cluster = cluster_factory()
    folder = tmp_path / "early"
    folder.mkdir()
    s = Collecting(cluster, folder, partitions=1, client=client)
    try:
        s.publish(5)
        cluster.zookeepers[0].stop()
        cluster.brokers[0].stop()
        both = impatient, patient = s.start(), s.start()
        # Both: one that has not come so far does not listen to SIGTERM yet.
        until(lambda: all("does not answer" in s.log(p) for p in both), 60, "they say that Kafka does not answer")
        until(lambda: all("ZooKeeper" in s.log(p) for p in both), 60, "they say that ZooKeeper does not answer")
        assert s.stop(impatient) == 0
        cluster.zookeepers[0].start()
        cluster.brokers[0].start()
        until(lambda: len(s.collected()) == 5, 60, lambda: f"it consumes: {s.log(patient)[-1500:]}")
        assert s.stop(patient) == 0
        assert "Traceback" not in s.log(patient) + s.log(impatient)
    finally:
        s.close()
