"""The first list of topics that a client of kafka-python gives, where the brokers are slow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafka.future import Future

from inbound.kafka.base import TopicMeta
from inbound.kafka.kafka_python import KafkaPythonClient


class SlowCluster:
    """Metadata as kafka-python keeps it: whoever asks while an answer is on its way is given that one."""

    def __init__(self) -> None:
        self._answers: list[dict[str, int]] = [
            {},
            {"orders": 3},
        ]  # first to the question of a new consumer: of no topic
        self._known: dict[str, int] = {}

    def request_update(self) -> Any:
        return Future()

    def run(self, wait_for: object, future: Any, milliseconds: float) -> None:
        self._known = self._answers.pop(0)
        future.success(self)

    def topics(self) -> set[str]:
        return set(self._known)

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self._known[topic]))

    def topic_id(self, topic: str) -> None:
        return None


def test_a_topic_is_known_although_the_first_answer_was_to_an_older_question() -> None:
    """Else a reset, or a proof, on a busy machine says that there is no such topic."""
    client, cluster = KafkaPythonClient.__new__(KafkaPythonClient), SlowCluster()
    client._cluster, client._update, client._settings, client._where = cluster, None, {}, "here"
    client._consumer = SimpleNamespace(_manager=SimpleNamespace(wait_for=None), _net=cluster)

    assert client.topics(["orders"], None) == {"orders": TopicMeta(3)}
