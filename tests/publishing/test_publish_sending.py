"""The publisher: its pace, and that nothing undelivered goes unnoticed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import kafka.errors
import pytest

from inbound.clock import Clock, Flag
from inbound.errors import ConfigError
from inbound.publishing import Encoded, PublishError
from inbound.publishing.publisher import Publisher

RECORD: Encoded = (b"k", b"v", [])


class StepClock(Clock):
    """Time passes only during waits, which is noted, and by a little per question."""

    def __init__(self, per_question: float = 0.0) -> None:
        self.time = 100.0
        self.waits: list[float] = []
        self._per_question = per_question

    def now(self) -> float:
        self.time += self._per_question
        return self.time

    def wall(self) -> float:
        return self.time

    def wait(self, event: Flag, seconds: float | None) -> bool:
        self.waits.append(seconds or 0.0)
        self.time += seconds or 0.0
        return event.is_set()


class Delivery:
    """What kafka-python gives for a record."""

    def __init__(self, error: Exception | None, arrived: bool) -> None:
        self._error = error
        self.is_done = arrived

    def get(self, timeout: float | None = None) -> object:
        if self._error is not None:
            raise self._error
        assert self.is_done, "waited for a record that can't arrive before the flush"
        return None

    def add_callback(self, callback: Callable[[object], None]) -> None:
        if self._error is None:
            callback(object())

    def add_errback(self, callback: Callable[[object], None]) -> None:
        if self._error is not None:
            callback(self._error)


class FakeProducer:
    """Takes records and delivers them at the flush, or at once; chosen ones fail."""

    def __init__(self, clock: StepClock, *, at_once: bool = False) -> None:
        self.sent: list[float] = []
        self.records: list[tuple[Any, ...]] = []
        self.fail_delivery: dict[int, Exception] = {}
        self.fail_send: dict[int, Exception] = {}
        self.fail_flush: Exception | None = None
        self.closed = False
        self._clock = clock
        self._at_once = at_once
        self._deliveries: list[Delivery] = []

    def send(self, topic: str, value: Any, key: Any, headers: Any) -> Delivery:
        number = len(self.sent) + 1
        if number in self.fail_send:
            raise self.fail_send[number]
        self.sent.append(self._clock.time)
        self.records.append((topic, key, value, headers))
        self._deliveries.append(Delivery(self.fail_delivery.get(number), self._at_once))
        return self._deliveries[-1]

    def flush(self, timeout: float | None = None) -> None:
        if self.fail_flush is not None:
            raise self.fail_flush
        for delivery in self._deliveries:
            delivery.is_done = True

    def close(self, timeout: float | None = None) -> None:
        self.closed = True


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture
def producer(clock: StepClock) -> FakeProducer:
    return FakeProducer(clock)


@pytest.fixture
def sending(clock: StepClock, producer: FakeProducer) -> Publisher:
    return Publisher(producer, "orders", clock)


def test_all_records_are_sent_and_confirmed(producer: FakeProducer, sending: Publisher) -> None:
    """The answer counts what arrived, in which time."""
    published = sending.publish([RECORD] * 3)

    assert published.count == 3
    assert producer.records == [("orders", b"k", b"v", [])] * 3


def test_the_rate_is_kept_over_the_whole_run(producer: FakeProducer, sending: Publisher) -> None:
    """100 records at 50/s take 2 seconds, evenly."""
    published = sending.publish([RECORD] * 101, rate=50)

    assert published.seconds == pytest.approx(2.0, abs=0.01)
    assert producer.sent[50] - 100.0 == pytest.approx(1.0, abs=0.01)


def test_a_slow_producer_catches_up_instead_of_falling_behind() -> None:
    """The pace is that of the whole: what took too long is not waited for again."""
    clock = StepClock(per_question=0.005)
    producer = FakeProducer(clock)

    published = Publisher(producer, "orders", clock).publish([RECORD] * 101, rate=50)

    assert published.seconds == pytest.approx(2.0, abs=0.03)


@pytest.mark.parametrize(
    ("step", "number", "error", "said"),
    [
        ("delivery", 3, kafka.errors.NotEnoughReplicasError("1 of 2"), r".*1 of 2; 2 before it were\. Check"),
        (
            "send",
            2,
            kafka.errors.MessageSizeTooLargeError("2 MiB"),
            r".*2 MiB.*raise the topic's max.message.bytes",
        ),
        ("flush", 1, kafka.errors.KafkaTimeoutError("30 s"), r".*30 s; 0 before it were"),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_a_record_that_did_not_arrive_is_an_error_with_its_number(
    clock: StepClock, at_once: bool, step: str, number: int, error: Exception, said: str
) -> None:
    """Whether it turns out during the sending or at the end, at kafka-python or at the brokers, which may never answer."""
    producer = FakeProducer(clock, at_once=at_once and step != "flush")
    if step == "flush":
        producer.fail_flush = error
    else:
        getattr(producer, f"fail_{step}")[number] = error

    with pytest.raises(PublishError, match=f"topic orders: record {number} was not delivered: {said}"):
        Publisher(producer, "orders", clock).publish([RECORD] * 5)


def test_a_stop_ends_it_after_what_was_sent_has_arrived(producer: FakeProducer, sending: Publisher) -> None:
    """Only those sent before the stop count."""
    stop = threading.Event()

    def until_the_third() -> Any:
        for number in range(1, 10):
            if number == 3:
                stop.set()
            yield RECORD

    published = sending.publish(until_the_third(), stop=stop)

    assert published.count == len(producer.sent) == 2


def test_progress_is_reported_now_and_then_and_at_the_end() -> None:
    """Not for each record."""
    clock = StepClock(per_question=0.03)
    told: list[int] = []

    Publisher(FakeProducer(clock), "orders", clock).publish([RECORD] * 10, progress=told.append)

    assert told[-1] == 10
    assert 2 <= len(told) < 6


@pytest.mark.parametrize("end", [ConfigError("standard input:3: bad"), KeyboardInterrupt()], ids=["bad line", "Ctrl-C"])
def test_what_was_sent_before_the_source_broke_off_still_arrives(
    end: BaseException, producer: FakeProducer, sending: Publisher
) -> None:
    """The error names the line; a run that goes on from there must find those before it in the topic."""

    def records() -> Iterator[Encoded]:
        yield from [RECORD, RECORD]
        raise end

    with pytest.raises(type(end)) as raised:
        sending.publish(records())

    assert (raised.value, sending.delivered, len(producer.records)) == (end, 2, 2)


def test_what_did_not_arrive_before_the_source_broke_off_is_reported(
    producer: FakeProducer, sending: Publisher
) -> None:
    """It outweighs the bad line: going on from there would lose a record."""
    producer.fail_delivery[1] = kafka.errors.KafkaTimeoutError("late")

    def records() -> Iterator[Encoded]:
        yield RECORD
        raise ConfigError("standard input:2: bad")

    with pytest.raises(PublishError, match=r"record 1 was not delivered: .*late"):
        sending.publish(records())
