"""Questions for topics through kafka-python: slow, dead or young brokers hold up no other, and late answers count."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.errors import KafkaConnectionError, KafkaTimeoutError, MetadataEmptyBrokerList, NodeNotReadyError
from kafka.future import Future

from inbound.errors import BrokerUnavailableError
from inbound.kafka.base import TopicMeta
from inbound.kafka.python.client import KafkaPythonClient
from inbound.kafka.python.metadata import MetadataQuestions


class Net:
    """kafka-python's loop and manager, with a clock of its own, and brokers that take as long to answer as they are told.

    `answers`: of one question after the other, after how many seconds, and the topics, None for no brokers, or an error.
    """

    def __init__(self, *answers: tuple[float, object]) -> None:
        self._answers = list(answers)
        self._due: list[tuple[float, Any]] = []
        self.now, self.sent, self.topics = 0.0, 0, set[str]()
        self.bootstrapped = True
        self.cluster = self

    # -- what MetadataQuestions uses --------------------------------------------------------------------------------------------

    def call_soon(self, work: Any) -> Any:
        done = Future()
        self._step(work(), done)
        return done

    def _step(self, work: Coroutine[Any, None, None], done: Any) -> None:
        try:
            waits_for = work.send(None)
        except StopIteration as end:
            done.success(end.value)
        except Exception as error:
            done.failure(error)
        else:
            waits_for.add_both(lambda _: self._step(work, done))

    async def wait_for(self, future: Any, milliseconds: float) -> None:
        until = Future()
        self._later(milliseconds / 1000, lambda: until.is_done or until.failure(KafkaTimeoutError()))
        future.add_both(lambda _: until.is_done or until.success(None))
        await cast(Awaitable[None], _Waits(until))

    def send(self, request: object, node: int) -> Any:
        self.sent += 1
        answer = Future()
        seconds, outcome = self._answers.pop(0)
        if isinstance(outcome, Exception):
            self._later(seconds, lambda: answer.failure(outcome))
        else:
            brokers = [node] if outcome is not None else []
            self._later(seconds, lambda: answer.success(SimpleNamespace(brokers=brokers, topics=outcome)))
        return answer

    def metadata_request(self) -> object:
        return "all topics"

    def update_metadata(self, answer: Any) -> None:
        self.topics = answer.topics

    # -- what a test does ----------------------------------------------------------------------------------------------

    def metadata(self, *, nodes: int = 1) -> MetadataQuestions:
        """Return what asks; of several brokers each is the best one in turn."""
        turn = iter(range(1000))
        consumer = SimpleNamespace(_manager=self)
        return MetadataQuestions(consumer, lambda: next(turn) % nodes if nodes else None)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + seconds
        while due := sorted((d for d in self._due if d[0] <= until), key=lambda d: d[0])[:1]:
            self._due.remove(due[0])
            self.now = due[0][0]
            due[0][1]()
        self.now = until

    def _later(self, seconds: float, call: Any) -> None:
        self._due.append((self.now + seconds, call))


class _Waits:
    """Awaits a future as kafka-python's loop does."""

    def __init__(self, future: Any) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, None]:
        return self._future.__await__()  # type: ignore[no-any-return]


@pytest.mark.parametrize("seconds", [0.01, 1.5, 20.0])
def test_an_answer_counts_however_late_it_is(seconds: float) -> None:
    """Many topics, a long way, a throttle: it is asked once, and then it is known. Else it is never."""
    net = Net((seconds, {"orders"}))
    asked = net.metadata().ask()
    net.run(seconds - 0.001)
    before = (asked.is_done, net.topics)
    net.run(0.002)
    assert (before, asked.succeeded(), net.topics, net.sent) == ((False, set()), True, {"orders"}, 1)


def test_a_broker_that_does_not_answer_holds_up_nobody() -> None:
    """A second later another one is asked."""
    net = Net((1e9, {"old"}), (0.1, {"orders"}))
    asked = net.metadata(nodes=2).ask()
    net.run(1.2)
    assert (asked.succeeded(), net.topics) == (True, {"orders"})


def test_an_answer_that_is_older_than_what_is_known_is_none() -> None:
    """Else a recreated topic is taken for the one that was deleted."""
    net = Net((5.0, {"old"}), (0.1, {"new"}))
    asked = net.metadata(nodes=2).ask()
    net.run(6)
    assert (asked.succeeded(), net.topics) == (True, {"new"})


def test_one_that_cannot_be_asked_leaves_it_to_the_others() -> None:
    """The first is frozen, the second is dead, the third answers."""
    net = Net((1e9, {"old"}), (0.1, KafkaConnectionError("it is dead")), (0.1, {"orders"}))
    asked = net.metadata(nodes=3).ask()
    net.run(3)
    assert (asked.succeeded(), net.topics) == (True, {"orders"})


@pytest.mark.parametrize(
    ("nodes", "answer", "error"),
    [
        (1, KafkaConnectionError("it is dead"), KafkaConnectionError),
        (1, None, MetadataEmptyBrokerList),
        (0, None, NodeNotReadyError),
    ],
    ids=["dead", "young", "none"],
)
def test_where_nobody_can_answer_that_is_reported(nodes: int, answer: object, error: type[Exception]) -> None:
    """And asked again at the next question. A broker that has just started knows of no brokers: that is no answer."""
    net = Net((0.1, answer))
    asked = net.metadata(nodes=nodes).ask()
    net.run(1.1)
    assert (type(asked.exception), net.topics) == (error, set())


# -- the client -----------------------------------------------------------------------------------------------------------


class Listed:
    """The answers to a client, one for each question; and kafka-python's cluster, which has them then."""

    def __init__(self, *answers: object) -> None:
        self._answers, self._known = list(answers), dict[str, int]()
        self.metadata = self
        self.wait_for = None

    def ask(self) -> Any:
        return Future()

    def any_answers(self) -> bool:
        return True

    def run(self, wait_for: object, future: Any, milliseconds: float) -> None:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        self._known = cast(dict[str, int], answer)
        future.success(None)

    def topics(self) -> set[str]:
        return set(self._known)

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self._known[topic]))

    def topic_id(self, topic: str) -> None:
        return None


def client_of(brokers: Any) -> KafkaPythonClient:
    """Return a client that is connected to nothing."""
    client = KafkaPythonClient.__new__(KafkaPythonClient)
    client._cluster, client._brokers, client._update, client._listed = brokers, brokers, None, False
    client._settings, client._where = {}, "here"
    client._consumer = SimpleNamespace(_manager=brokers)
    return client


def test_a_question_for_topics_that_failed_is_asked_again() -> None:
    """A broker that does not answer is no answer: else what became of a log that was cut is never found out."""
    dead = KafkaConnectionError("it is dead")
    net = Net((0.1, dead), (0.1, dead), (0.1, {"orders"}))
    client = client_of(SimpleNamespace(metadata=net.metadata()))
    answered, said = client.ask_topics(), []
    for _ in range(4):
        said.append(answered())
        net.run(0.2)
    assert said == [False, False, False, True]


def test_the_first_list_is_waited_for_over_connections_that_fail() -> None:
    """Else a reset, or a proof, on a busy machine says that there is no such topic, or that nothing can be proven."""
    client = client_of(Listed(KafkaConnectionError("Connection timed out"), {"orders": 3}))

    assert client.topics(["orders"], None) == {"orders": TopicMeta(3)}


def test_a_first_list_that_never_came_is_waited_for_again() -> None:
    """That it is not known yet does not say that there is no such topic."""
    client = client_of(Listed(KafkaTimeoutError("Timed out"), {"orders": 3}))
    with pytest.raises(BrokerUnavailableError, match="did not answer a question for the list of topics"):
        client.topics(["orders"], None)

    assert client.topics(["orders"], None) == {"orders": TopicMeta(3)}
