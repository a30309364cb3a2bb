"""What publishes goes on with other settings: whoever is sending ends with the old ones, which are closed after that."""

from __future__ import annotations

from collections.abc import Iterator

import kafka
import pytest

from inbound.channel.failure_policy import describe
from inbound.errors import BrokerUnavailableError
from inbound.kafka.dead_letters import DeadLetterTopic
from inbound.kafka.outlets import Held
from inbound.processors.batch import PlainRecord
from tests.producer_broker import ProducerBroker, Topic


class Writer:
    """Notes whether it is closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_one_that_nobody_uses_is_closed_when_another_takes_its_place() -> None:
    """At once; and whoever sends next gets the new one."""
    old, new = Writer(), Writer()
    held = Held(old)
    held.replace(new)
    assert (old.closed, held.take(), new.closed) == (1, new, 0)


def test_one_that_is_sending_is_closed_by_the_last_who_gives_it_back() -> None:
    """However many have taken its place meanwhile."""
    old, newer, newest = Writer(), Writer(), Writer()
    held = Held(old)
    first, second = held.take(), held.take()
    held.replace(newer)
    held.replace(newest)
    held.give_back(first)
    assert (old.closed, newer.closed) == (0, 1)
    held.give_back(second)
    held.close()
    assert (old.closed, newer.closed, newest.closed) == (1, 1, 1)


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
    """Larger than the topic takes: it is said what to do, and those of other partitions go on."""
    with pytest.raises(BrokerUnavailableError) as raised:
        dead.send("orders", 0, [PlainRecord(7, value=b"x" * 5000)], "poison")
    dead.send("orders", 1, [PlainRecord(8, value=b"next")], "poison")

    assert str(raised.value).startswith("topic dead: [Error 10] MessageSizeTooLargeError: ")
    assert str(raised.value).endswith("; raise the topic's max.message.bytes")
    assert broker.values("dead") == [b"next"]


def test_whatever_an_error_says_its_record_becomes_a_dead_letter(broker: ProducerBroker, dead: DeadLetterTopic) -> None:
    """Half of a surrogate pair, which has no encoding; and more than is kept of it, cut between two characters."""
    dead.send("orders", 0, [PlainRecord(7, value=b"v")], describe(ValueError("\ud83d" + "\u00e4" * 1000)))

    reason = dict(broker.logs["dead"][0][2])["inbound-dead-letter-reason"].decode()
    assert reason == "ValueError: \\ud83d" + "\u00e4" * 503
