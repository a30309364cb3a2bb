"""Events that wait in topics to be sent again, while their partitions go on: what a record there says, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from inbound.config import load
from inbound.config.values import WRITTEN
from inbound.dead_letters.letter import as_read, letter_of
from inbound.errors import BrokerUnavailableError, ConfigError
from inbound.observe.explain.detector import StallDetector
from inbound.plan.plan import plan_channels
from inbound.plan.subscriptions import channels_of
from inbound.processors.batch import PlainRecord
from inbound.processors.dead_letters import Origin
from inbound.processors.dispatch.delayed_retry import RetryTopics
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.processor import DispatchProcessor
from inbound.processors.dispatch.transport import Answer
from inbound.topic_partition import TopicPartition
from tests.processors.dispatch.dispatch_stage import DEAD, OK, SUBSCRIBER, Stage, event_headers
from tests.processors.dispatch.test_dispatch import names, refusing, to

FIRST, SECOND = "orders.retry.10s", "orders.retry.20s"
DELAYED: dict[str, Any] = {"delays": ["10s", "20s"], "topic": "orders.retry", "out_of_order": True}
#: Two attempts each time.
TWICE: dict[str, Any] = {"retry": 1, "backoffDelay": "100ms", "deadLetterSink": DEAD}
BROKEN = Answer(500, body=b"no!")
WALL = 1_800_000_000.0


class Writer:
    """Publishes to the fake Kafka, to the partition of the record's key; or fails."""

    def __init__(self, stage: Delayed, topic: str) -> None:
        self._stage, self._topic = stage, topic

    def send(self, records: Sequence[tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]]) -> None:
        if self._stage.away:
            raise BrokerUnavailableError(f"topic {self._topic}: no broker answers; bring one back")
        for key, value, headers in records:
            partition = sum(key or b"") % self._stage.retry_partitions
            self._stage.world.kafka.publish(self._topic, partition, [value], key=key, headers=list(headers))


class Delayed(Stage):
    """A stage whose subscription has retry topics."""

    def __init__(self, *, retry_partitions: int = 1, **options: Any) -> None:
        super().__init__(**{"delayed_retry": DELAYED, "delivery": TWICE, **options})
        self.retry_partitions = retry_partitions
        self.away = False
        for topic in (FIRST, SECOND):
            self.world.kafka.create_topic(topic, retry_partitions)

    def start(self, name: str = "a", **settings: Any) -> DispatchProcessor:
        return super().start(
            name, **{"topics": ["orders", FIRST, SECOND], "open_topic": lambda topic: Writer(self, topic), **settings}
        )

    def times(self, one: str) -> list[float]:
        """Return when the subscriber was posted an event."""
        return [request.at for request in self.requests if request.url == SUBSCRIBER and one in request.ids]

    def waiting(self, topic: str = FIRST) -> Sequence[PlainRecord]:
        """Return the records of a retry topic's first partition."""
        return self.world.kafka.records(TopicPartition(topic, 0))


# -- pure -------------------------------------------------------------------------------------------------------------


def topics(group: str = "g", **options: Any) -> RetryTopics:
    given = {"subscriberUri": SUBSCRIBER, "delayed_retry": DELAYED, "delivery": TWICE, **options}
    return RetryTopics(DispatchOptions.model_validate(given, context=WRITTEN), group)


def test_a_record_that_waits_is_the_same_event_and_says_whose_it_is_and_until_when() -> None:
    """Null headers cannot be written: those that stand for an attribute are left out, others become empty."""
    headers = [*event_headers("e"), ("ce_subject", None), ("mine", None), ("inbound-retry-due", b"forged")]
    record = PlainRecord(17, key=b"k", value=b"v", headers=headers)
    delay = topics().next("orders", record)
    assert delay is not None
    message = topics().message(TopicPartition("orders", 3), record, delay, WALL)
    assert (delay, message.key, message.value, list(message.headers)) == (
        (1, 10.0, FIRST), b"k", b"v",
        [
            *event_headers("e"), ("mine", b""), ("inbound-retry-group", b"g"), ("inbound-retry-delay", b"1"),
            ("inbound-retry-due", b"1800000010000"), ("inbound-retry-topic", b"orders"),
            ("inbound-retry-partition", b"3"), ("inbound-retry-offset", b"17"),
        ],
    )  # fmt: skip


def test_the_second_time_it_waits_longer_and_still_says_where_it_was_first() -> None:
    """After the last delay it does not wait any more; without a dead letter sink the last one is repeated."""
    record = PlainRecord(17, headers=event_headers("e"))
    found, tp = topics(), TopicPartition("orders", 3)
    seen: list[Any] = []
    for _ in range(3):
        delay = found.next(tp.topic, record)
        seen.append(delay and delay.number)
        if delay is not None:
            message = found.message(tp, record, delay, WALL)
            tp, record = TopicPartition(delay.topic, 0), PlainRecord(0, headers=list(message.headers))
    endless = topics(delivery={"retry": 1}).next(tp.topic, record)
    assert (seen, found.origin(tp, record), endless and endless.number) == ([1, 2, None], ("orders", 3, 17), 2)


@pytest.mark.parametrize(
    ("due", "wait"),
    [
        (b"1800000004000", 4.0),
        (b"1799999999000", 0.0),
        (b"1900000000000", 10.0),
        (b"soon", 0.0),
        (b"", 0.0),
        (b"9" * 400, 0.0),
    ],
)
def test_it_waits_until_it_is_due_and_never_longer_than_the_delay(due: bytes, wait: float) -> None:
    """Clocks of different machines do not agree; what says nothing that can be read is due."""
    record = PlainRecord(0, headers=[("inbound-retry-due", due)])
    assert topics().wait(FIRST, record, WALL) == wait


def test_headers_count_in_retry_topics_only() -> None:
    """Elsewhere anybody may have written them."""
    headers: list[tuple[str, bytes | None]] = [
        ("inbound-retry-group", b"another"), ("inbound-retry-delay", b"2"), ("inbound-retry-due", b"1900000000000"),
    ]  # fmt: skip
    record, found = PlainRecord(5, headers=headers), topics()
    delay = found.next("orders", record)
    assert (found.is_others("orders", record), found.wait("orders", record, WALL), delay and delay.number) == (
        False, 0.0, 1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"delayed_retry": {**DELAYED, "out_of_order": False}}, "needs to be true with ordering: partition"),
        (
            {"delayed_retry": {**DELAYED, "out_of_order": False}, "ordering": "key"},
            "needs to be true with ordering: key",
        ),
        ({"delayed_retry": {**DELAYED, "delays": []}}, "need at least one delay"),
        ({"delayed_retry": {**DELAYED, "delays": ["0s"]}}, "need more than 0s"),
        ({"delayed_retry": {**DELAYED, "delays": [10]}}, "need a duration such as 10s"),
        ({"delayed_retry": {**DELAYED, "topic": "a" * 246}}, "need a Kafka topic"),
        ({"delayed_retry": DELAYED, "delivery": {"deadLetterSink": FIRST}}, "is where events wait to be sent again"),
        ({"limits": {"rate": 0}}, "need more than"),
        ({"limits": {"in_flight": 0}}, "need at least 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], problem: str) -> None:
    """Order is given up only where the options allow it."""
    with pytest.raises(ValidationError) as refused:
        DispatchOptions.model_validate({"subscriberUri": SUBSCRIBER, **given}, context=WRITTEN)
    assert problem.removeprefix("is ") in str([error["msg"] for error in refused.value.errors()])


# -- which topics are read --------------------------------------------------------------------------------------------

HEAD = 'zookeeper: {hosts: "a:1"}\nkafka: {bootstrap.servers: "a:1"}\n'
OPTIONS = '{subscriberUri: "http://a", ordering: none, delayed_retry: {delays: [10s, 10s, 20s], topic: orders.retry}}'


@pytest.mark.parametrize(
    "channel",
    [
        f"topics: [orders], group: g, processor: {{type: dispatch, options: {OPTIONS}}}",
        f"topics: [orders, {FIRST}], group: g, processor: {{type: dispatch, options: {OPTIONS}}}",
        f"topics: [orders], group: g, subscriptions: {{a: {OPTIONS}}}",
    ],
)
def test_a_channel_reads_its_retry_topics_too(channel: str) -> None:
    """What runs, and what commands know of the configuration without its code."""
    loaded = load(f"{HEAD}channels:\n  orders: {{{channel}}}\n", filename="inbound.yaml")
    (planned,), (known,) = plan_channels(loaded).values(), channels_of(loaded).values()
    assert planned.config.topics == known.topics == ("orders", FIRST, SECOND)


@pytest.mark.parametrize(
    "processor", [f"processor: {{type: dispatch, options: {OPTIONS}}}", f"subscriptions: {{a: {OPTIONS}}}"]
)
def test_a_pattern_must_match_the_retry_topics(processor: str) -> None:
    """Else events would wait where no member reads them."""
    text = HEAD + 'channels:\n  orders: {topics_pattern: "%s", group: g, ' + processor + "}\n"
    plan_channels(load(text % "orders.*", filename="inbound.yaml"))
    with pytest.raises(
        ConfigError, match=r"inbound.yaml:4: topics_pattern does not match orders.retry.10s, orders.retry.20s"
    ):
        plan_channels(load(text % "orders", filename="inbound.yaml"))


# -- stories ----------------------------------------------------------------------------------------------------------


def test_an_event_that_is_not_taken_waits_elsewhere_and_its_partition_goes_on() -> None:
    """When it is taken later, the subscriber has got the same request as before."""
    stage = Delayed()
    broken = [True]
    stage.behaviour = lambda request: BROKEN if broken and request.ids == ("bad",) else OK
    stage.publish("bad", "good", keys=["k", "k"])
    stage.start()
    stage.run(2)
    early = (stage.got(), stage.commits(), [(record.key, record.value) for record in stage.waiting()])
    broken.clear()
    stage.run(10)
    requests = [request for request in stage.requests if request.ids == ("bad",)]
    waited = requests[2].at - requests[1].at
    assert early == (["bad", "bad", "good"], {0: 2}, [(b"k", b"data of bad")])
    assert {(tuple(r.headers.items()), r.body) for r in requests} == {
        (tuple(requests[0].headers.items()), b"data of bad")
    }
    assert (10.0 <= waited < 10.3, stage.world.commits(FIRST), stage.got(DEAD)) == (True, {0: 1}, [])


def test_after_the_last_delay_it_goes_to_the_dead_letter_sink() -> None:
    """Sent `retry` times more after each delay; the letter says who refused it, and is the event."""
    stage = Delayed()
    stage.behaviour = to(SUBSCRIBER, BROKEN)
    stage.dispatch("bad", seconds=35)
    at = stage.times("bad")
    gaps = [round(b - a) for a, b in zip(at[1::2], at[2::2], strict=False)]
    (letter,) = [request for request in stage.requests if request.url == DEAD]
    assert (len(at), gaps, letter.ids, letter.headers["ce-knativeerrorcode"]) == (6, [10, 20], ("bad",), "500")
    assert [name for name in letter.headers if "retry" in name] == []
    assert [stage.world.commits(topic) for topic in ("orders", FIRST, SECOND)] == [{0: 1}] * 3


def test_a_dead_letter_in_a_topic_says_where_its_event_was_first() -> None:
    """Redriven to where it came from it goes there, and not to the topic where it waited last."""
    stage = Delayed(
        delivery={"retry": 0, "deadLetterSink": "orders.dead"}, delayed_retry={**DELAYED, "delays": ["10s"]}
    )
    stage.world.kafka.create_topic("orders.dead", 1)
    stage.behaviour = refusing("bad", answer=BROKEN)
    stage.dispatch("good", "bad", seconds=15)
    (letter,) = stage.waiting("orders.dead")
    said = letter_of(0, letter)
    assert (said.origin, said.event_id, said.code) == (Origin("orders", 0, 1), "bad", "500")
    assert [name for name, _ in as_read(letter).headers if name.startswith("inbound-")] == []


def test_the_age_of_an_event_counts_from_its_first_record() -> None:
    """And not from the one in the topic where it waited last."""
    stage = Delayed()
    stage.behaviour = lambda request: BROKEN if len(stage.times("bad")) < 5 else OK
    began, wall = stage.world.clock.now(), stage.world.clock.wall()
    stage.world.kafka.publish("orders", 0, [b"x"], headers=event_headers("bad"), timestamp=round(1000 * wall))
    stage.start()
    stage.run(40)
    age, at = stage.status()["event_seconds"], stage.times("bad")
    assert (sum(age["counts"]), len(at), at[-1] - began > 30) == (1, 5, True)
    assert age["sum"] == pytest.approx(at[-1] - began, abs=0.1)


def test_what_is_refused_for_good_does_not_wait() -> None:
    """It is no use."""
    stage = Delayed()
    stage.behaviour = refusing("bad", answer=Answer(400))
    stage.dispatch("bad", "good", seconds=5)
    assert (stage.got(), stage.got(DEAD), list(stage.waiting())) == (["bad", "good"], ["bad"], [])


def test_without_a_dead_letter_sink_the_last_delay_repeats_without_end() -> None:
    """Also for what is refused for good: nothing is given up, and nothing else is held up."""
    stage = Delayed(delivery={"retry": 0}, delayed_retry={**DELAYED, "delays": ["10s"]})
    stage.behaviour = refusing("bad", answer=Answer(400))
    stage.dispatch("bad", "good", seconds=21)
    gaps = [round(b - a) for a, b in zip(stage.times("bad"), stage.times("bad")[1:], strict=False)]
    assert (gaps, stage.commits()) == ([10, 10], {0: 2})


def test_a_batch_is_taken_apart_before_one_of_its_events_waits() -> None:
    """The others are taken."""
    stage = Delayed(batch={"max_events": 8, "max_delay": "50ms"})
    stage.behaviour = refusing("e3", answer=BROKEN)
    stage.dispatch(*names(8), seconds=5)
    taken = {one for request in stage.requests if "e3" not in request.ids for one in request.ids}
    assert (taken, len(stage.waiting()), stage.commits()) == ({*names(8)} - {"e3"}, 1, {0: 8})


def test_each_event_goes_when_it_is_due_though_one_before_it_fails_again() -> None:
    """Their keys are different ones; those of one key keep their order."""
    stage = Delayed(ordering="key", delivery={**TWICE, "retry": 0})
    stage.behaviour = to(SUBSCRIBER, BROKEN)
    stage.publish("a1", "a2", keys=["a", "a"])
    stage.start()
    stage.run(2)
    stage.publish("b1", keys=["b"])
    stage.run(2)
    stage.behaviour = lambda request: OK
    stage.run(20)
    gaps = {one: round(stage.times(one)[1] - stage.times(one)[0], 1) for one in ("a1", "a2", "b1")}
    assert (stage.got()[3:], {10.0 <= gap < 10.3 for gap in gaps.values()}) == (["a1", "a2", "b1"], {True})


def test_who_comes_after_a_crash_waits_as_long_as_was_left() -> None:
    """The time stands in the record."""
    stage = Delayed()
    broken = [True]
    stage.behaviour = lambda request: BROKEN if broken else OK
    stage.dispatch("bad", seconds=2)
    stage.world.leave("a")
    broken.clear()
    stage.start("b")
    stage.run(12)
    at = stage.times("bad")
    assert (10.0 <= at[2] - at[1] < 10.3, stage.world.commits(FIRST)) == (True, {0: 1})


def test_an_event_is_not_finished_before_the_retry_topic_has_it() -> None:
    """Its partition waits and says so, and goes on without help."""
    stage = Delayed()
    stage.away = True
    stage.behaviour = refusing("bad", answer=BROKEN)
    processor = stage.dispatch("bad", "good", seconds=5)
    before = (stage.commits(), stage.got(), processor.waits()[TopicPartition("orders", 0)])
    stage.away = False
    stage.run(6)
    kind, text = before[2]
    assert (before[:2], kind) == (({0: 0}, ["bad", "bad"]), "retry-topic")
    assert text.startswith(f"offset 0: the retry topic {FIRST} does not take it: topic {FIRST}: no broker answers")
    assert (stage.commits(), stage.got()[2:], len(stage.waiting())) == ({0: 2}, ["good"], 1)


def test_a_partition_that_waits_says_until_when_and_does_not_count_as_stalled() -> None:
    """For as long as it takes."""
    stage = Delayed(delayed_retry={**DELAYED, "delays": ["1h"]})
    stage.world.kafka.create_topic("orders.retry.1h", 1)
    stage.behaviour = to(SUBSCRIBER, BROKEN)
    stage.publish("bad", "worse")
    processor = stage.start(topics=["orders", "orders.retry.1h"])
    detector = StallDetector(lambda: [stage.world.consumers["a"].channel], stage.world.clock, 2.0)
    for _ in range(30):
        stage.run(1)
        detector.run_once()
    tp = TopicPartition("orders.retry.1h", 0)
    (partition,) = [p for p in stage.world.consumers["a"].channel.parts.schedule.held() if p.tp == tp]
    said = processor.waits()[tp]
    assert (partition.stall.cause, partition.stall.since) == ("delayed-retry", None)
    assert (said, stage.status()["delayed"], stage.status()["standing"]) == (
        ("delayed", "offset 0 is sent again at 2026-01-01T01:00:03Z"), {str(tp): said[1]}, None,
    )  # fmt: skip


def test_events_of_another_subscription_in_the_same_topic_are_passed_over() -> None:
    """They wait for the other one, which reads the topic for itself."""
    stage = Delayed()
    stage.start()
    for group in (b"another", b"group"):
        headers = [*event_headers(group.decode()), ("inbound-retry-group", group)]
        stage.world.kafka.publish(FIRST, 0, [b"x"], headers=headers)
    stage.world.kafka.publish(FIRST, 0, [b"x"], headers=[*event_headers("last"), ("inbound-retry-group", b"another")])
    stage.run(3)
    assert (stage.got(), stage.world.commits(FIRST), stage.status()["passed_over_total"]) == (["group"], {0: 3}, 2)


def test_retry_topics_are_read_from_their_start_where_others_begin_at_the_end() -> None:
    """An event may wait before the group has read there for the first time: another one could not be found again."""
    stage = Delayed()
    stage.publish("old")
    headers = [*event_headers("waits"), ("inbound-retry-group", b"group")]
    stage.world.kafka.publish(FIRST, 0, [b"x"], headers=headers)
    stage.start(auto_offset_reset="latest")
    stage.run(3)
    assert (stage.got(), stage.world.commits(FIRST)) == (["waits"], {0: 1})


def test_an_event_whose_delays_were_taken_out_of_the_options_goes_to_the_subscriber() -> None:
    """And not in a topic that is read no more."""
    stage = Delayed()
    stage.away = True
    stage.behaviour = to(SUBSCRIBER, BROKEN)
    processor = stage.dispatch("bad", seconds=5)
    stage.behaviour = lambda request: OK
    processor.reconfigure(processor.Options.model_validate({"subscriberUri": SUBSCRIBER}), wait=0.0)
    stage.run(2)
    assert (stage.got(), stage.commits()) == (["bad"] * 3, {0: 1})
