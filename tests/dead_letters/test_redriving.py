"""Sending letters once more: to topics over kafka-python's own producer, and to a subscriber on a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import kafka
import pytest

from inbound.clock import SystemClock
from inbound.dead_letters.redrive import Done, LetterSender, Parcel, RedriveAccount, redrive
from inbound.dead_letters.redrive_ledger import RedriveLedger
from inbound.dead_letters.senders import SubscriberSender, TopicSender
from inbound.errors import BrokerUnavailableError, LedgerError
from inbound.processors.cloudevents_bridge import RecordParts
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.transport import Answer
from tests.kafka.producer_broker import ProducerBroker, Topic
from tests.processors.dispatch.dispatch_stage import OK, REPLIES, SUBSCRIBER, Receivers, Request, event_headers

FAST = {"retry": 2, "backoffDelay": "PT0.001S"}


def parcel(
    number: int, *, value: bytes = b"x", key: bytes | None = None, topic: str | None = "orders", reply: bool = False
) -> Parcel:
    """Return the parcel of a letter at 0/`number`."""
    headers = [(name, raw or b"") for name, raw in event_headers(str(number))]
    return Parcel(0, number, RecordParts(key, value, headers), topic, None, reply, f"topic {topic}")


class Stage:
    """One redrive: what is done with parcels, and what the ledger and the account say then."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.jsonl"
        self.stop = threading.Event()
        self.account = RedriveAccount(0)

    def redrive(self, sender: LetterSender, parcels: Iterable[Parcel], planned: int = 0) -> None:
        self.account = RedriveAccount(planned)
        ledger = RedriveLedger(self.path, "orders.dead", None, SystemClock(), write=True)
        with closing(ledger):
            redrive(parcels, sender, ledger, self.account, stop=self.stop)

    def noted(self) -> list[int]:
        """Return the offsets of the letters that count as sent."""
        return sorted(
            offset for _, offset in RedriveLedger(self.path, "orders.dead", None, SystemClock(), write=False).done
        )


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


# -- to topics -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> ProducerBroker:
    broker = ProducerBroker(orders=Topic(max_bytes=2000), compacted=Topic(compacted=True))
    monkeypatch.setitem(kafka.KafkaProducer.DEFAULT_CONFIG, "kafka_client", broker)
    return broker


@pytest.fixture
def to_topics(broker: ProducerBroker) -> Iterator[TopicSender]:
    with closing(TopicSender({"bootstrap.servers": "nowhere:1"})) as sender:
        yield sender


def test_letters_go_to_their_topics_in_order_and_are_noted(
    stage: Stage, broker: ProducerBroker, to_topics: TopicSender
) -> None:
    """Key, value and headers as they are."""
    sent = [parcel(n, value=b"%d" % n, key=b"k") for n in range(5)]
    stage.redrive(to_topics, sent)

    assert (broker.logs["orders"], stage.noted()) == ([tuple(one.parts) for one in sent], [0, 1, 2, 3, 4])


def test_one_that_the_topic_does_not_take_costs_no_other(stage: Stage, to_topics: TopicSender) -> None:
    """It is named with what to do, and tried again the next time; others are sent."""
    stage.redrive(to_topics, [parcel(0), parcel(1, value=b"x" * 5000), parcel(2), parcel(3, topic="compacted")], 4)

    account = stage.account
    assert (stage.noted(), account.sent, account.refused, account.left) == ([0, 2], 2, 2, 0)
    large, keyless = account.named
    assert large.startswith("0/1: topic orders: ")
    assert large.endswith("raise the topic's max.message.bytes")
    assert keyless.startswith("0/3: topic compacted: ")


def test_a_ledger_that_cannot_be_written_any_more_ends_it(
    stage: Stage, to_topics: TopicSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing more is sent: what is sent without a note is sent again."""
    taken: list[int] = []

    def note(self: RedriveLedger, *facts: Any) -> None:
        raise LedgerError("no space left")

    def parcels() -> Iterator[Parcel]:
        for number in range(100):
            taken.append(number)
            yield parcel(number)

    monkeypatch.setattr("inbound.dead_letters.senders.WINDOW", 5)
    monkeypatch.setattr(RedriveLedger, "note", note)
    with pytest.raises(LedgerError, match="no space left"):
        stage.redrive(to_topics, parcels())

    assert len(taken) <= 7


def test_brokers_that_do_not_answer_end_it_with_the_letter_that_was_not_acknowledged(
    stage: Stage, broker: ProducerBroker
) -> None:
    """What was acknowledged before is noted."""

    class Unanswered:
        is_done = True

        def get(self, timeout: float) -> Any:
            raise kafka.errors.KafkaTimeoutError("no answer")

    class Producer(kafka.KafkaProducer):  # type: ignore[misc]
        def send(self, *args: Any, **kwargs: Any) -> Any:
            if kwargs["value"] == b"lost":
                return Unanswered()
            return super().send(*args, **kwargs)

    sender = TopicSender({"bootstrap.servers": "nowhere:1"}, Producer)
    with closing(sender), pytest.raises(BrokerUnavailableError, match="letter 0/1 was not acknowledged"):
        stage.redrive(sender, [parcel(0), parcel(1, value=b"lost"), parcel(2)], 3)

    assert 0 in stage.noted()
    assert 1 not in stage.noted()


def test_a_stopped_redrive_begins_nothing_more(stage: Stage, to_topics: TopicSender) -> None:
    """What was sent is noted; the rest is left for the next time."""

    def parcels() -> Iterator[Parcel]:
        yield parcel(0)
        stage.stop.set()
        yield parcel(1)

    stage.redrive(to_topics, parcels(), 3)

    assert (stage.noted(), stage.account.left) == ([0], 2)


# -- to a subscriber -------------------------------------------------------------------------------------------------------


class Subscriber:
    """A sender to receivers that answer as told, almost at once."""

    def __init__(self, *, parallel: int = 4, **options: Any) -> None:
        self.behaviour: Callable[[Request], Answer] = lambda request: OK
        given = DispatchOptions.model_validate({"subscriberUri": SUBSCRIBER, "delivery": FAST, **options})
        self.receivers: list[Receivers] = []
        self.sender = SubscriberSender(given, parallel, self._make)

    def _make(self, loop: asyncio.AbstractEventLoop) -> Receivers:
        made = Receivers(loop, loop.time, lambda request: self.behaviour(request), lambda request: 0.001)
        self.receivers.append(made)
        return made

    @property
    def requests(self) -> list[Request]:
        return [request for one in self.receivers for request in one.requests]

    def got(self, url: str = SUBSCRIBER) -> list[str]:
        return [id for request in self.requests if request.url == url for id in request.ids]


def test_letters_are_posted_with_the_subscriptions_options(stage: Stage) -> None:
    """Its headers and mode, so many at a time; each is noted."""
    to = Subscriber(parallel=3, headers={"x-tenant": "a"}, mode="structured")
    stage.redrive(to.sender, [parcel(n, topic=None) for n in range(9)])

    (receivers,) = to.receivers
    assert (sorted(to.got()), stage.noted(), receivers.most[SUBSCRIBER]) == ([*"012345678"], [*range(9)], 3)
    assert {request.headers["content-type"].split(";")[0] for request in to.requests} == {
        "application/cloudevents+json"
    }
    assert receivers.closed


def test_a_letter_is_the_request_that_the_dispatcher_would_send(stage: Stage) -> None:
    """With the record's own headers, and what the options change in the event; none of what a letter has beside them."""
    to = Subscriber(ceOverrides={"extensions": {"tenant": "a"}})
    one = parcel(0, topic=None)
    headers = [*one.parts.headers, ("x-shop", b"7"), ("authorization", b"x"), ("inbound-redrives", b"1")]
    stage.redrive(to.sender, [one._replace(parts=one.parts._replace(headers=headers))])

    (request,) = to.requests
    assert (request.headers["ce-tenant"], request.headers["x-shop"]) == ("a", "7")
    assert [name for name in request.headers if name.startswith(("auth", "inbound-r", "inbound-dead"))] == []


def test_the_subscriptions_limits_hold(stage: Stage) -> None:
    """So many at a time and in a second, with any `--parallel`."""
    to = Subscriber(parallel=8, limits={"in_flight": 2, "rate": "200/s"})
    stage.redrive(to.sender, [parcel(n, topic=None) for n in range(30)])

    (receivers,) = to.receivers
    times = [request.at for request in to.requests]
    assert (stage.noted(), receivers.most[SUBSCRIBER]) == ([*range(30)], 2)
    assert times[-1] - times[0] >= 9 / 200


def test_letters_of_one_key_go_one_after_the_other(stage: Stage) -> None:
    """Also where one of them is tried again; other keys do not wait."""
    to = Subscriber(parallel=8)
    seen: list[str] = []

    def behaviour(request: Request) -> Answer:
        (id,) = request.ids
        seen.append(id)
        return Answer(503) if id == "0" and seen.count("0") < 3 else OK

    to.behaviour = behaviour
    stage.redrive(to.sender, [parcel(n, key=b"k%d" % (n % 2), topic=None) for n in range(6)])

    assert ([id for id in seen if int(id) % 2 == 0], [id for id in seen if int(id) % 2]) == ([*"00024"], [*"135"])


def test_a_letter_that_is_refused_stays_where_it_is(stage: Stage) -> None:
    """For good at once, or as often as the delivery spec says; others go on."""
    to = Subscriber()
    answers = {"0": Answer(400), "1": Answer(503), "2": OK}
    to.behaviour = lambda request: answers[request.ids[0]]
    stage.redrive(to.sender, [parcel(n, topic=None) for n in range(3)], 3)

    assert [to.got().count(id) for id in "012"] == [1, 3, 1]
    assert (stage.noted(), sorted(stage.account.named)) == (
        [2], ["0/0: http://subscriber/: answered 400", "0/1: http://subscriber/: answered 503"],
    )  # fmt: skip


def test_a_subscriber_that_asks_for_batches_gets_batches(stage: Stage) -> None:
    """Of one event each."""
    to = Subscriber(batch={"max_events": 10})
    stage.redrive(to.sender, [parcel(0, topic=None)])

    (request,) = to.requests
    assert request.headers["content-type"].startswith("application/cloudevents-batch+json")


def reply(request: Request) -> Answer:
    headers = [(b"ce-specversion", b"1.0"), (b"ce-id", b"re"), (b"ce-source", b"/s"), (b"ce-type", b"reply")]
    return Answer(200, headers, b"{}") if request.url == SUBSCRIBER else OK


def test_what_the_subscriber_answers_is_posted_as_a_reply(stage: Stage) -> None:
    """And a letter that is a reply itself goes there alone."""
    to = Subscriber(replyUri=REPLIES)
    to.behaviour = reply
    stage.redrive(to.sender, [parcel(0, topic=None), parcel(1, topic=None, reply=True)])

    assert (to.got(), sorted(to.got(REPLIES)), stage.noted()) == (["0"], ["1", "re"], [0, 1])


def test_an_event_whose_reply_is_refused_says_so(stage: Stage) -> None:
    """It does not count as sent: redriven again, the subscriber gets it once more."""
    to = Subscriber(replyUri=REPLIES)
    to.behaviour = lambda request: reply(request) if request.url == SUBSCRIBER else Answer(400)
    stage.redrive(to.sender, [parcel(0, topic=None)])

    assert (stage.noted(), stage.account.named) == (
        [], ["0/0: http://subscriber/: it was taken, but http://replies/ did not take its reply: answered 400"],
    )  # fmt: skip


def test_what_is_no_event_is_not_posted(stage: Stage) -> None:
    """A dispatcher could not, either."""
    to = Subscriber()
    raw = Parcel(0, 0, RecordParts(None, b"\xff", []), None, None, False, "subscription s")
    stage.redrive(to.sender, [raw])

    assert (to.requests, stage.account.named[0].split(": ")[2]) == ([], "it is no CloudEvent that could be posted")


def test_told_to_stop_it_waits_for_answers_and_for_no_backoff(stage: Stage) -> None:
    """A letter that was to be tried again has no outcome."""
    to = Subscriber(parallel=2, delivery={"retry": 5, "backoffDelay": "PT60S"})

    def behaviour(request: Request) -> Answer:
        if request.ids == ("1",):
            stage.stop.set()
        return Answer(503) if request.ids == ("0",) else OK

    to.behaviour = behaviour
    stage.redrive(to.sender, [parcel(n, topic=None) for n in range(5)], 5)

    assert (sorted(to.got()), stage.noted(), stage.account.refused) == (["0", "1"], [1], 0)


def test_a_ledger_that_cannot_be_written_ends_posting(stage: Stage) -> None:
    """The error comes out; what is under way is given up."""

    class Unwritable(SubscriberSender):
        def send(self, parcels: Iterable[Parcel], done: Done, stop: threading.Event) -> None:
            def failing(*facts: Any) -> None:
                raise LedgerError("no space left")

            super().send(parcels, failing, stop)

    to = Subscriber(parallel=2)
    to.sender.__class__ = Unwritable
    with pytest.raises(LedgerError, match="no space left"):
        stage.redrive(to.sender, [parcel(n, topic=None) for n in range(50)])

    assert len(to.requests) <= 4
