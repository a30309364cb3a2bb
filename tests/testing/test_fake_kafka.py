"""The fake cluster does what a real one does: all of the conformance suite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Unpack

import pytest

from inbound.testing.kafka import FakeKafka, FakeLogClient
from inbound.topic_partition import TopicPartition
from tests.kafka.log_client_conformance import LogClientConformance
from tests.kafka.log_client_stage import Parts, Stage


class FakeStage(Stage):
    """The fake cluster; nothing in it takes time."""

    def __init__(self) -> None:
        self.kafka = FakeKafka()

    def client(self, *, max_poll_records: int = 1000) -> FakeLogClient:
        return self.kafka.client(max_poll_records=max_poll_records)

    def name(self, suffix: str) -> str:
        return f"conformance-{suffix}"

    def create_topic(self, name: str, partitions: int) -> None:
        self.kafka.create_topic(name, partitions)

    def add_partitions(self, name: str, partitions: int) -> None:
        self.kafka.create_topic(name, partitions)

    def delete_topic(self, name: str) -> None:
        self.kafka.delete_topic(name)

    def publish(
        self, tp: TopicPartition, values: Iterable[bytes | None], *, batched: bool = True, **parts: Unpack[Parts]
    ) -> None:
        self.kafka.publish(*tp, values, **parts)

    def publish_committed(self, tp: TopicPartition, values: Sequence[bytes]) -> None:
        self.kafka.publish(*tp, values)
        self.kafka.skip(*tp, 1)

    def publish_aborted(self, tp: TopicPartition, values: Sequence[bytes]) -> None:
        self.kafka.skip(*tp, len(values) + 1)

    def trim(self, tp: TopicPartition, start: int) -> None:
        self.kafka.retain(*tp, start)

    def outage(self) -> None:
        self.kafka.down()

    def outage_over(self) -> None:
        self.kafka.up()

    def turns(self, seconds: float) -> Iterator[None]:
        yield from [None] * 20


@pytest.fixture
def stage() -> FakeStage:
    """An empty cluster."""
    return FakeStage()


class TestFakeKafka(LogClientConformance):
    """The suite."""
