"""What becomes of events that nobody takes, and of records that are no events: never counted as done before somebody has them."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from typing import Any

from integration.dispatching import Dispatching, channel_status, event_headers, metrics
from integration.sink import OK, Sink, status
from tests.waiting import until

MakeScene = Callable[..., Dispatching]

FAST: dict[str, Any] = {"backoffDelay": "PT0.05S", "backoffPolicy": "linear", "retry": 2, "timeout": "PT30S"}
BYTES = bytes(range(256))


def decoded(text: str) -> bytes:
    """Return what an answer's body was, of `knativeerrordata`."""
    return base64.b64decode(text)


def test_a_dead_letter_says_who_refused_it_and_with_what(dispatching: MakeScene, sink: Sink) -> None:
    """As the event that it was, with three attributes more."""
    s = dispatching()
    s.subscribe(subscriberUri=f"{sink.url}/in?a=b", delivery={**FAST, "deadLetterSink": f"{sink.url}/dead"})
    sink.tell(status(422, b"no such customer\n"), path="/in?a=b")
    s.send(1, data=BYTES, unicode="größe €")
    s.run()
    s.drained()
    (dead,) = sink.sent("/dead")
    event = dict(dead.events[0])
    assert decoded(event.pop("knativeerrordata")) == b"no such customer\n"
    assert event == {
        "specversion": "1.0", "id": "0-0", "source": "/tests", "type": "order", "unicode": "größe €",
        "datacontenttype": "application/octet-stream", "data": BYTES,
        "knativeerrordest": f"{sink.url}/in?a=b", "knativeerrorcode": "422",
    }  # fmt: skip


def test_a_dead_letter_topic_gets_the_record_with_its_key(dispatching: MakeScene, sink: Sink) -> None:
    """After the retries of a status that is retried; the body of the answer is cut to what a header may hold."""
    s = dispatching()
    topic = s.make_topic("dead")
    s.subscribe(subscriberUri=f"{sink.url}/", delivery={**FAST, "deadLetterSink": {"topic": topic}})
    sink.tell(status(503, b"x" * 100_000))
    s.send(3, data=BYTES, key=lambda n: f"k{n}")
    s.run()
    s.drained()
    records = s.read(topic, 3)
    assert [(record.key, record.value) for record in records] == [(b"k0", BYTES), (b"k1", BYTES), (b"k2", BYTES)]
    headers = [dict(record.headers) for record in records]
    data = {found.pop("ce_knativeerrordata") for found in headers}
    assert headers == [
        dict(event_headers(id))
        | {"ce_knativeerrordest": f"{sink.url}/".encode(), "ce_knativeerrorcode": b"503"}
        for id in s.events
    ]  # fmt: skip
    assert {len(value) <= 1024 and decoded(value.decode()).strip(b"x") == b"" for value in data} == {True}
    assert sink.attempts() == dict.fromkeys(s.events, 3)


def test_an_event_that_is_larger_than_most_topics_take_is_dead_lettered_where_its_topic_takes_it(
    dispatching: MakeScene, sink: Sink
) -> None:
    """The broker decides what is too large, not the client's default of 1 MiB."""
    s = dispatching(topic_configs={"max.message.bytes": "8000000"})
    topic = s.make_topic("dead")
    s.subscribe(subscriberUri=f"{sink.url}/", delivery={**FAST, "deadLetterSink": {"topic": topic}})
    sink.tell(status(400), event="0-0")
    s.send(1, data=b"x" * 3_000_000)
    s.send(1)
    s.run()
    s.drained()
    assert ([len(record.value) for record in s.read(topic, 1)], sink.taken()) == ([3_000_000], ["0-1"])


def test_while_the_dead_letter_sink_is_down_the_partition_does_not_advance_and_says_so(
    dispatching: MakeScene, sink: Sink
) -> None:
    """Nothing is committed that was neither delivered nor dead-lettered; other partitions go on; it goes on by itself."""
    s = dispatching(partitions=2)
    s.subscribe(subscriberUri=f"{sink.url}/", delivery={**FAST, "deadLetterSink": f"{sink.url}/dead"})
    sink.tell(status(400, b"no"), event="0-2", path="/")
    sink.tell(status(503, b"dead too"), path="/dead")
    (process,) = s.run()
    s.send(6)
    until(lambda: len(sink.sent("/dead")) >= 4, 60, lambda: f"the dead letter is tried again: {s.log(process)[-1500:]}")
    until(
        lambda: s.committed() == {0: 2, 1: 6},
        30,
        lambda: f"what is before it is committed, and all of the other partition: {s.committed()}",
    )
    time.sleep(1.0)
    held = (s.committed(), sorted(set(sink.taken("/"))))
    until(  # at a look that comes while it is tried again, the partition waits for nothing but that answer
        lambda: "dead letter" in str(channel_status(s, process)).lower(),
        30,
        lambda: f"the status says what the partition waits for: {channel_status(s, process)}",
    )
    counted = {name: value for name, value in metrics(s, process).items() if "dead" in name or "held" in name}
    sink.tell(OK, path="/dead")
    s.drained()
    assert held == ({0: 2, 1: 6}, ["0-0", "0-1", *(f"1-{n}" for n in range(6))])
    assert any(value > 0 for value in counted.values()), counted
    assert "dead letter" in s.log(process).lower()
    assert (sorted(set(sink.taken("/dead"))), s.lost(sink.taken())) == (["0-2"], set())


def test_a_record_that_is_no_event_goes_to_the_dead_letter_sink(dispatching: MakeScene, sink: Sink) -> None:
    """With its bytes, and why; the events around it are delivered."""
    s = dispatching()
    topic = s.make_topic("dead")
    s.subscribe(subscriberUri=f"{sink.url}/", delivery={**FAST, "deadLetterSink": {"topic": topic}})
    s.send(1)
    s.send_raw(BYTES, [("some", b"header")])
    s.send(1)
    s.run()
    s.drained()
    (record,) = s.read(topic, 1)
    assert (sink.taken(), record.value) == (["0-0", "0-2"], BYTES)
    assert b"specversion" in base64.b64decode(dict(record.headers)["knativeerrordata"]), record.headers
    assert ("some", b"header") in record.headers


def test_a_record_that_is_no_event_stops_its_partition_where_nothing_else_was_said(
    dispatching: MakeScene, sink: Sink
) -> None:
    """Its offset and the reason are in the status; what is before it is delivered and committed, other partitions go on."""
    s = dispatching(partitions=2)
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST)
    s.send(3)
    s.send_raw(b"no event")
    s.send(3)
    (process,) = s.run()
    until(lambda: s.committed() == {0: 3, 1: 6}, 60, lambda: f"all but what is behind it: {s.committed()}")
    time.sleep(0.5)
    said = str(channel_status(s, process))
    assert (s.committed(), sorted(sink.taken())) == (
        {0: 3, 1: 6},
        sorted(id for id in s.events if id not in ("0-4", "0-5", "0-6")),
    )
    assert ("3" in said, "specversion" in said) == (True, True), said
    assert "specversion" in s.log(process)


def test_a_record_that_is_no_event_can_be_skipped(dispatching: MakeScene, sink: Sink) -> None:
    """Counted, and logged with its place."""
    s = dispatching()
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST, on_undecodable="skip")
    s.send(3)
    s.send_raw(b"no event")
    s.send_raw(None)
    s.send(3)
    (process,) = s.run()
    s.drained()
    counted = [value for name, value in metrics(s, process).items() if "undecodable" in name or "skipped" in name]
    assert (sink.taken(), set(counted)) == (list(s.events), {2.0}), metrics(s, process)
    assert f"{s.topic}/0" in s.log(process)
    assert "specversion" in s.log(process)
