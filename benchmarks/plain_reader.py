"""A plain consumer of each client library: a poll loop, and an asynchronous commit per poll that brought something.

    python -m benchmarks.plain_reader CLIENT BOOTSTRAP TOPIC PARTITIONS FOLDER [--fetch-wait-ms N] [--fetch-bytes N]

Reads all partitions from their ends, notes when records came (see `benchmarks.stamps`), and ends on SIGTERM.
"""

from __future__ import annotations

import argparse
import gc
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import kafka

from benchmarks.stamps import Stamps

#: Like a channel's: how long one poll waits for records, in seconds.
POLL = 0.1
CLIENTS = ("kafka-python", "confluent-kafka")
#: What a broker that has just started says of a group, until it has the group's part of the offsets' topic.
FINDS_ITS_COORDINATOR = (
    confluent_kafka.KafkaError.NOT_COORDINATOR,
    confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


class PlainReader(ABC):
    """A consumer with its partitions assigned by hand."""

    @abstractmethod
    def poll(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield what one poll brings: partition, values."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""


class KafkaPythonReader(PlainReader):
    """By kafka-python."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, wait_ms: int, fetch_bytes: int) -> None:
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id="plain-kafka-python",
            enable_auto_commit=False,
            auto_offset_reset="latest",
            max_poll_records=10_000,
            fetch_max_wait_ms=wait_ms,
            max_partition_fetch_bytes=fetch_bytes,
        )
        self._consumer.assign([kafka.TopicPartition(topic, p) for p in range(partitions)])

    def poll(self) -> Iterator[tuple[int, list[bytes]]]:
        polled = self._consumer.poll(timeout_ms=round(POLL * 1000))
        for key, records in polled.items():
            yield key.partition, [record.value for record in records]
        if polled:
            self._consumer.commit_async()

    def close(self) -> None:
        self._consumer.close(autocommit=False, timeout_ms=3000)


class ConfluentReader(PlainReader):
    """By confluent-kafka, whose poll returns one record."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, wait_ms: int, fetch_bytes: int) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "plain-confluent-kafka",
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "fetch.wait.max.ms": wait_ms,
                "max.partition.fetch.bytes": fetch_bytes,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition(topic, p) for p in range(partitions)])

    def poll(self) -> Iterator[tuple[int, list[bytes]]]:
        message = self._consumer.poll(POLL)
        if message is None:
            return
        if (error := message.error()) is not None:
            if error.code() in FINDS_ITS_COORDINATOR:
                return
            raise confluent_kafka.KafkaException(error)
        yield message.partition() or 0, [message.value() or b""]
        self._consumer.commit(asynchronous=True)

    def close(self) -> None:
        self._consumer.close()


def main() -> None:
    """Read until told to end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("partitions", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fetch-wait-ms", type=int, default=500)
    parser.add_argument("--fetch-bytes", type=int, default=2**20)
    options = parser.parse_args()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    stamps = Stamps(options.folder, options.partitions)
    cls = {"kafka-python": KafkaPythonReader, "confluent-kafka": ConfluentReader}[options.client]
    reader: PlainReader = cls(
        options.bootstrap, options.topic, options.partitions, options.fetch_wait_ms, options.fetch_bytes
    )
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    while not stopping.is_set():
        for partition, values in reader.poll():
            stamps.add(partition, values)
    stamps.save()
    reader.close()


if __name__ == "__main__":
    main()
