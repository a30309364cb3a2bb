"""Writers change their settings: calls in flight end with the old ones, which are closed after that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import kafka
import pytest

from inbound.errors import BrokerUnavailableError
from inbound.kafka.clients.dead_letter_topic import DeadLetterTopic
from inbound.kafka.python.producer import KafkaTopicWriter, Message, TopicOutlet
from inbound.processors.batch import PlainRecord
from inbound.runtime.text import describe
from tests.kafka.producer_broker import ProducerBroker, Topic


class Writer(KafkaTopicWriter):
    """Notes whether it is closed; the first `send` does something in its midst."""

    def __init__(self, during: Callable[[], object] = lambda: None) -> None:
        super().__init__({}, "topic", "test")
        self.closed = self.sent = 0
        self._during = during

    def send(self, records: Sequence[Message]) -> None:
        self.sent += 1
        if self.sent == 1:
            self._during()

    def close(self) -> None:
        self.closed += 1


def test_an_unused_writer_is_closed_when_it_is_replaced() -> None:
    """At once; and the next call gets the new one."""
    old, new = Writer(), Writer()
    outlet = TopicOutlet(old)
    outlet.replace(new)
    outlet.send([])
    assert (old.closed, old.sent, new.sent, new.closed) == (1, 0, 1, 0)


def test_a_writer_that_sends_is_closed_after_its_last_send() -> None:
    """However many have replaced it by then."""
    newer, newest = Writer(), Writer()
    closed_in_between = list[int]()

    def replaced_twice() -> None:
        outlet.send([])  # a second one that sends with the old writer
        outlet.replace(newer)
        outlet.replace(newest)
        closed_in_between.extend((old.closed, newer.closed))

    old = Writer(replaced_twice)
    outlet = TopicOutlet(old)
    outlet.send([])
    outlet.close()
    assert closed_in_between == [0, 1]
    assert (old.sent, old.closed, newer.closed, newest.closed) == (2, 1, 1, 1)


class SteppedLock:
    """Holds each of two threads where it leaves the lock next after its send, until the other has left it, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._both_left = threading.Barrier(2, timeout=30)
        self.sent: set[threading.Thread] = set()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if (thread := threading.current_thread()) in self.sent:
            self.sent.remove(thread)
            self._both_left.wait()


def test_one_thread_closes_a_replaced_writer_that_two_send_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. A and B send. 2. The writer is replaced. 3. Both have sent, and left the lock once. 4. Only one of them closes."""
    both_send, replaced = threading.Barrier(3, timeout=30), threading.Event()
    lock = SteppedLock()

    class SlowWriter(Writer):
        def send(self, records: Sequence[Message]) -> None:
            both_send.wait()
            assert replaced.wait(30)
            lock.sent.add(threading.current_thread())

    old, new = SlowWriter(), Writer()
    outlet = TopicOutlet(old)
    monkeypatch.setattr(outlet, "_lock", lock)
    threads = [threading.Thread(target=outlet.send, args=([],), daemon=True) for _ in "AB"]
    for thread in threads:
        thread.start()
    both_send.wait()
    outlet.replace(new)
    closed_while_sending = old.closed
    replaced.set()
    for thread in threads:
        thread.join(30)

    assert not any(thread.is_alive() for thread in threads)
    assert (closed_while_sending, old.closed, new.closed) == (0, 1, 0)


# -- dead letters, over kafka-python's own producer ------------------------------------------------------------------------


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> ProducerBroker:
    """Brokers that kafka-python finds wherever it connects to."""
    broker = ProducerBroker(dead=Topic(max_bytes=2000))
    monkeypatch.setitem(kafka.KafkaProducer.DEFAULT_CONFIG, "kafka_client", broker)
    return broker


@pytest.fixture
def dead(broker: ProducerBroker) -> Iterator[DeadLetterTopic]:
    topic = DeadLetterTopic({"bootstrap.servers": "nowhere:1"}, "dead", "group", "consumer")
    yield topic
    topic.close()


def test_a_dead_letter_that_is_refused_for_good_costs_no_other_one(
    broker: ProducerBroker, dead: DeadLetterTopic
) -> None:
    """Larger than the topic takes: the error has advice, and those of other partitions go on."""
    with pytest.raises(BrokerUnavailableError) as raised:
        dead.send("orders", 0, [PlainRecord(7, value=b"x" * 5000)], "poison")
    dead.send("orders", 1, [PlainRecord(8, value=b"next")], "poison")

    assert str(raised.value).startswith("topic dead: [Error 10] MessageSizeTooLargeError: ")
    assert str(raised.value).endswith("; raise the topic's max.message.bytes")
    assert broker.values("dead") == [b"next"]


def test_any_error_makes_its_record_a_dead_letter(broker: ProducerBroker, dead: DeadLetterTopic) -> None:
    """Half of a surrogate pair, which has no encoding; and more than is kept of it, cut between two characters."""
    dead.send("orders", 0, [PlainRecord(7, value=b"v")], describe(ValueError("\ud83d" + "\u00e4" * 1000)))

    reason = dict(broker.logs["dead"][0][2])["inbound-dead-letter-reason"].decode()
    assert reason == "ValueError: \\ud83d" + "\u00e4" * 503
