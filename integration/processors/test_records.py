"""Every shape that records come in: compressed, transactional, huge, null, repeated headers, CloudEvents."""

from __future__ import annotations

import json
import os
from typing import Any

import confluent_kafka
import pytest

from inbound.embedded import EmbeddedCluster
from integration.harness import Scene, Scenes, both_clients
from tests.waiting import until

CODECS = ("gzip", "snappy", "lz4", "zstd")
LARGE = 900_000


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
        """Return the delivered records, by offset."""
        # What stands behind the last end of a line is still being written.
        lines = [line for path in self.seen_folder.glob("*.jsonl") for line in path.read_text().split("\n")[:-1]]
        return sorted((json.loads(line) for line in lines), key=lambda record: int(record["offset"]))

    def consume(self, count: int) -> list[dict[str, Any]]:
        """Start a consumer, wait for `count` records, stop it gracefully, return them."""
        process = self.start()
        until(lambda: len(self.collected()) >= count, 60, lambda: f"{count} records: {self.log(process)[-2000:]}")
        assert self.stop(process) == 0
        return self.collected()

    def producer(self, **settings: Any) -> confluent_kafka.Producer:
        """Return a producer for the scene's brokers."""
        return confluent_kafka.Producer({"bootstrap.servers": self.bootstrap_servers, "log_level": 0, **settings})


def publish_transactions(s: Collecting) -> None:
    """Publish offsets 0 to 2 committed, 3 marker, 4 to 6 aborted, 7 marker."""
    sending = s.producer(**{"transactional.id": f"tx-{s.folder.name}"})
    sending.init_transactions(60)
    for commit in (True, False):
        sending.begin_transaction()
        for _ in range(3):
            sending.produce(s.topic, b"in a transaction")
        assert sending.flush(60) == 0
        (sending.commit_transaction if commit else sending.abort_transaction)(60)


@both_clients
def test_every_shape_of_records_comes_through_unchanged_and_once(scenes: Scenes) -> None:
    """Of transactions what was committed; what no batch may hold, alone; nulls, repeated headers, events; every codec.

    Aborted records and markers take offsets: the commit goes past them, and a restart repeats nothing.
    """
    s = scenes(Collecting, partitions=1)
    s.write_config(reader="{batch_bytes: 100KiB, max_batch_bytes: 200KiB}")
    publish_transactions(s)
    event = [("ce_specversion", b"1.0"), ("ce_id", b"e-1"), ("ce_source", b"/s"), ("ce_type", b"t")]
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, Any]]]] = [
        (b"k", os.urandom(LARGE), []),
        (b"k", None, []),
        (None, b"v", [("h", b"1"), ("h", b"2"), ("n", None)]),
        (b"k", b"v", list(event)),
        (b"k", None, list(event)),
    ]
    sending = s.producer(**{"message.max.bytes": 4_000_000})
    for key, value, headers in rows:
        sending.produce(s.topic, value, key=key, headers=headers)
        assert sending.flush(60) == 0
    for codec in CODECS:
        sending = s.producer(**{"compression.type": codec, "linger.ms": 50})
        for number in range(50):
            sending.produce(s.topic, b"%05d" % number * 20)
        assert sending.flush(60) == 0
    last = 13 + 50 * len(CODECS)

    records = s.consume(3 + len(rows) + 50 * len(CODECS))

    assert [r["offset"] for r in records] == [0, 1, 2, *range(8, last)]
    assert [(r["key"], r["value"], r["event"]) for r in records[3:8]] == [
        ("k", LARGE, None),
        ("k", None, None),
        (None, 1, None),
        ("k", 1, "e-1"),
        ("k", None, "e-1"),
    ]
    assert (records[3]["batch"], records[5]["headers"]) == (1, [["h", "1"], ["h", "2"], ["n", None]])
    assert {r["value"] for r in records[8:]} == {100}
    alone = f"offset 8 has {LARGE + 1} bytes, more than max_batch_bytes (204800); it is delivered alone"
    assert alone in s.log(s.processes[0])
    assert s.offset(0) == last

    publish_transactions(s)
    assert [r["offset"] for r in s.consume(len(records) + 3)[len(records) :]] == [last, last + 1, last + 2]


@pytest.mark.thorough("stops both servers; test_survival.py and test_brokers.py take them away from a running group")
def test_servers_that_are_not_there_are_waited_for(mortal_cluster: EmbeddedCluster, scenes: Scenes) -> None:
    """Started before ZooKeeper and Kafka, a consumer says why it waits and begins when they come; a stop works too."""
    s = scenes(Collecting, partitions=1)
    s.publish(5)
    mortal_cluster.zookeepers[0].stop()
    mortal_cluster.brokers[0].stop()
    both = impatient, patient = s.start(), s.start()
    # Both: one that has not come so far does not listen to SIGTERM yet.
    until(lambda: all("does not answer" in s.log(p) for p in both), 60, "they say that Kafka does not answer")
    until(lambda: all("ZooKeeper" in s.log(p) for p in both), 60, "they say that ZooKeeper does not answer")
    assert s.stop(impatient) == 0
    mortal_cluster.zookeepers[0].start()
    mortal_cluster.brokers[0].start()
    until(lambda: len(s.collected()) == 5, 60, lambda: f"it consumes: {s.log(patient)[-1500:]}")
    assert s.stop_all() == [0]
    assert "Traceback" not in s.log(patient) + s.log(impatient)
