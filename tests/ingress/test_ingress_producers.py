"""The ingress's producers over the client libraries themselves: what one refused event costs the others. Nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import kafka
import pytest

from inbound.config import IngressConfig
from inbound.ingress.confluent_producer import ConfluentProducer
from inbound.ingress.kafka_python_producer import KafkaPythonProducer
from inbound.ingress.producer import Failure, FailureCause
from inbound.processors.cloudevents_bridge import RecordParts
from tests.kafka.librdkafka_broker import LibrdkafkaBroker, librdkafka_broker
from tests.kafka.producer_broker import ProducerBroker, Topic
from tests.waiting import until

SMALL, LARGE = b"small", b"x" * 5000


def record(value: bytes | None, key: bytes | None = b"k", headers: Any = ()) -> RecordParts:
    return RecordParts(key, value, list(headers))


class Sent:
    """What became of records, by their numbers."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self.ended: dict[int, Failure | None] = {}
        self.partitions: list[int] = []
        self._count = 0

    def send(self, topic: str, *records: RecordParts, alone: bool = False) -> Failure | None:
        numbers = range(self._count, self._count + len(records))
        self._count += len(records)
        answers = [partial(self._end, number) for number in numbers]
        failure: Failure | None = self._producer.send(topic, records, answers, alone=alone)[1]
        return failure

    def causes(self) -> list[FailureCause | None]:
        """Wait for all of them."""
        until(
            lambda: self._producer.poll() or len(self.ended) == self._count, 20, "every record is answered", look=0.002
        )
        return [failure.cause if failure is not None else None for _, failure in sorted(self.ended.items())]

    def _end(self, number: int, error: Any, receipt: Any) -> None:
        if error is None:
            self.partitions.append(self._producer.partition(receipt))
        self.ended[number] = None if error is None else self._producer.failure(error)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> ProducerBroker:
    """Brokers that kafka-python finds wherever it connects to."""
    broker = ProducerBroker(
        orders=Topic(), small=Topic(max_bytes=1000), compacted=Topic(compacted=True), secret=Topic(forbidden=True)
    )
    monkeypatch.setitem(kafka.KafkaProducer.DEFAULT_CONFIG, "kafka_client", broker)
    return broker


@pytest.fixture
def producer(broker: ProducerBroker) -> Iterator[KafkaPythonProducer]:
    producer = KafkaPythonProducer(IngressConfig(), {"bootstrap.servers": "nowhere:1"})
    yield producer
    producer.close(5.0)


@pytest.mark.parametrize(
    ("topic", "poison", "cause"),
    [
        ("small", record(LARGE), FailureCause.TOO_LARGE),
        ("compacted", record(SMALL, key=None), FailureCause.INVALID),
        ("secret", record(SMALL), FailureCause.FORBIDDEN),
    ],
)
def test_an_event_that_is_refused_for_good_costs_no_other_one(
    broker: ProducerBroker, producer: KafkaPythonProducer, topic: str, poison: RecordParts, cause: FailureCause
) -> None:
    """Larger than the topic's limit, without a key on a compacted topic, to a topic that we may not write to."""
    sent = Sent(producer)
    sent.send("orders", record(b"before"))
    sent.send(topic, poison)
    sent.send("orders", record(b"beside"))
    first = sent.causes()
    sent.send("orders", record(b"after"))

    assert (first, sent.causes()[3], sent.partitions) == ([None, cause, None], None, [0, 0, 0])
    assert broker.values("orders") == [b"before", b"beside", b"after"]


def test_of_a_batch_only_the_event_that_is_too_large_is_refused(
    broker: ProducerBroker, producer: KafkaPythonProducer
) -> None:
    """Those beside it are written, once and in their order."""
    sent = Sent(producer)
    sent.send("small", *[record(b"%d" % number) for number in range(4)], record(LARGE), record(b"5"))

    assert sent.causes() == [None, None, None, None, FailureCause.TOO_LARGE, None]
    assert broker.values("small") == [b"0", b"1", b"2", b"3", b"5"]


def test_the_other_events_of_a_batch_are_told_from_the_invalid_one(producer: KafkaPythonProducer) -> None:
    """The brokers take none of it: only the event that they name is refused for good."""
    sent = Sent(producer)
    sent.send("compacted", record(b"0"), record(b"1", key=None), record(b"2"))

    assert sent.causes() == [FailureCause.BESIDE, FailureCause.INVALID, FailureCause.BESIDE]


def test_what_is_sent_alone_shares_no_batch(broker: ProducerBroker, producer: KafkaPythonProducer) -> None:
    """So it fails for itself alone."""
    sent = Sent(producer)
    sent.send("compacted", record(b"0"), record(b"1", key=None), record(b"2"), alone=True)

    assert (sent.causes(), broker.values("compacted")) == ([None, FailureCause.INVALID, None], [b"0", b"2"])


def test_what_kafka_python_stumbles_over_is_answered_and_its_thread_lives(
    broker: ProducerBroker, producer: KafkaPythonProducer
) -> None:
    """For any exception: a thread that has ended would leave every later event without an answer."""
    sent = Sent(producer)
    sent.send("orders", record(SMALL, headers=[("name", "text, not bytes")]), record(b"after"))

    assert sent.causes() == [FailureCause.REFUSED, None]
    assert [alive for alive, _ in producer.threads().values()] == [True]


def test_a_lost_acknowledgement_may_write_a_batch_twice_and_never_out_of_order(
    broker: ProducerBroker, producer: KafkaPythonProducer
) -> None:
    """What kafka-python costs here: see the documentation of the ingress."""
    broker.cut_after = 1
    sent = Sent(producer)
    sent.send("orders", record(b"1"))
    first = sent.causes()
    sent.send("orders", record(b"2"))

    assert (first, sent.causes()[1]) == ([None], None)
    assert broker.values("orders") == [b"1", b"1", b"2"]


# -- confluent-kafka, over librdkafka's own broker in memory ---------------------------------------------------------------

#: Kafka's codes.
_TOO_LARGE, _OUT_OF_ORDER = 10, 45


@pytest.fixture
def librdkafka() -> Iterator[LibrdkafkaBroker]:
    with librdkafka_broker() as broker:
        broker.create("orders")
        yield broker


@pytest.fixture
def confluent(librdkafka: LibrdkafkaBroker) -> Iterator[ConfluentProducer]:
    producer = ConfluentProducer(IngressConfig(linger=0.05), {"bootstrap.servers": librdkafka.address})
    sent = Sent(producer)
    sent.send("orders", record(SMALL))  # it has its connection and its id
    assert sent.causes() == [None]
    yield producer
    producer.close(5.0)


@pytest.mark.slow
def test_a_producer_that_can_write_nothing_more_is_replaced(
    librdkafka: LibrdkafkaBroker, confluent: ConfluentProducer, caplog: pytest.LogCaptureFixture
) -> None:
    """Its records are answered so that they are sent again, and later ones are written."""
    sent = Sent(confluent)
    librdkafka.refuse(_OUT_OF_ORDER)  # of the only request in flight: librdkafka's state and the broker's differ
    sent.send("orders", record(b"1"), record(b"2"))
    first = sent.causes()
    sent.send("orders", record(b"3"))

    assert (first, sent.causes()[2]) == ([FailureCause.GIVEN_UP, FailureCause.GIVEN_UP], None)
    assert "ingress: the producer can write nothing more" in caplog.text


@pytest.mark.slow
def test_a_producer_that_takes_nothing_more_is_replaced(
    librdkafka: LibrdkafkaBroker, confluent: ConfluentProducer
) -> None:
    """Also if it is `produce` that tells: with a code of its own, and not as a fatal error."""
    import confluent_kafka

    sent = Sent(confluent)
    old = confluent._producer
    librdkafka.refuse(_OUT_OF_ORDER)
    old.produce("orders", SMALL)
    with pytest.raises(confluent_kafka.KafkaException):
        old.flush(10)  # this reports the error, so `poll` does not

    refusal = sent.send("orders", record(b"1"), record(b"2"))
    sent.send("orders", record(b"3"))

    assert refusal is not None
    assert refusal.cause is FailureCause.GIVEN_UP
    assert confluent._producer is not old
