"""The first list of topics that a client of kafka-python gives, where the brokers are slow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError
from kafka.future import Future

from inbound.kafka.base import TopicMeta
from inbound.kafka.kafka_python import KafkaPythonClient


class SlowCluster:
    """Metadata as kafka-python keeps it: whoever asks while an answer is on its way is given that one."""

    def __init__(self, *answers: dict[str, int] | KafkaConnectionError) -> None:
        self._answers, self._known = list(answers), dict[str, int]()

    def request_update(self) -> Any:
        return Future()

    def run(self, wait_for: object, future: Any, milliseconds: float) -> None:
        answer = self._answers.pop(0)
        if isinstance(answer, KafkaConnectionError):
            raise answer
        self._known = answer
        future.success(self)

    def topics(self) -> set[str]:
        return set(self._known)

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self._known[topic]))

    def topic_id(self, topic: str) -> None:
        return None


class Asked:
    """Asks brokers, each time with the next answer: an error, or None."""

    def __init__(self, *answers: Exception | None) -> None:
        self._answers = list(answers)

    def ask(self) -> Any:
        answer = self._answers.pop(0)
        return Future().success(None) if answer is None else Future().failure(answer)


def test_a_question_for_topics_is_answered_although_kafka_pythons_own_refresh_has_ended() -> None:
    """Else what became of a log that was cut is never found out. A broker that does not answer is no answer."""
    client, cluster = KafkaPythonClient.__new__(KafkaPythonClient), SlowCluster()
    client._cluster = cluster  # a question to it is never answered
    client._brokers = Asked(KafkaConnectionError("it is dead"), KafkaConnectionError("this one, too"), None)  # type: ignore[assignment]

    answered = client.ask_topics()

    assert [answered() for _ in range(3)] == [False, True, True]


@pytest.mark.parametrize("failed", [(), (KafkaConnectionError("Connection timed out"),)], ids=["slow", "cut"])
def test_a_topic_is_known_although_the_first_answer_was_to_an_older_question(failed: Any) -> None:
    """Else a reset, or a proof, on a busy machine says that there is no such topic, or that nothing can be proven."""
    client, cluster = KafkaPythonClient.__new__(KafkaPythonClient), SlowCluster({}, *failed, {"orders": 3})
    client._cluster, client._update, client._settings, client._where = cluster, None, {}, "here"
    client._consumer = SimpleNamespace(_manager=SimpleNamespace(wait_for=None), _net=cluster)

    assert client.topics(["orders"], None) == {"orders": TopicMeta(3)}
