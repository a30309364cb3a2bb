"""Events that are refused, and records that are no events: never counted as done before a sink has them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from inbound.processors.dead_letters import origin_headers
from integration.processors.dispatch.dispatching import MakeScene, channel_status, event_headers, metrics
from integration.processors.sink import OK, Sink, status
from tests.waiting import until

FAST: dict[str, Any] = {"backoffDelay": "PT0.05S", "backoffPolicy": "linear", "retry": 2, "timeout": "PT30S"}
BYTES = bytes(range(256))


def test_a_dead_letter_is_the_event_and_says_who_refused_it_and_with_what(dispatching: MakeScene, sink: Sink) -> None:
    """To a URL as the event with three attributes more; to a topic as the record with its key, however large."""
    s = dispatching(topic_configs={"max.message.bytes": "8000000"})
    topic = s.make_topic("dead")
    s.subscribe(subscriberUri=f"{sink.url}/in?a=b", delivery={**FAST, "deadLetterSink": f"{sink.url}/dead"})
    s.subscribe("topical", subscriberUri=f"{sink.url}/", delivery={**FAST, "deadLetterSink": {"topic": topic}})
    sink.tell(status(422, b"no such customer\n"), path="/in?a=b")
    sink.tell(status(503, b"x" * 100_000), path="/")
    large = b"x" * 3_000_000  # beyond 1 MiB, the client's default: the broker decides what is too large
    s.send(1, data=BYTES, unicode="größe €", key=lambda n: "k0")
    s.send(1, data=large, key=lambda n: "k1")
    s.run()
    s.drained()
    s.drained("topical")
    event = dict(sink.sent("/dead")[0].events[0])
    assert base64.b64decode(event.pop("knativeerrordata")) == b"no such customer\n"
    assert event == {
        "specversion": "1.0", "id": "0-0", "source": "/tests", "type": "order", "unicode": "größe €",
        "datacontenttype": "application/octet-stream", "data": BYTES,
        "knativeerrordest": f"{sink.url}/in", "knativeerrorcode": "422",
    }  # fmt: skip
    records = s.read(topic, 2)
    assert [(record.key, record.value) for record in records] == [(b"k0", BYTES), (b"k1", large)]
    headers = [dict(record.headers) for record in records]
    data = {found.pop("ce_knativeerrordata") for found in headers}
    why = {"ce_knativeerrordest": f"{sink.url}/".encode(), "ce_knativeerrorcode": b"503"}
    assert headers == [
        dict(event_headers(f"0-{n}", **more)) | why | dict(origin_headers(s.group_of("topical"), s.topic, 0, n))
        for n, more in enumerate(({"unicode": "größe €"}, {}))
    ]
    assert {len(value) <= 1024 and base64.b64decode(value).strip(b"x") == b"" for value in data} == {True}
    assert sink.attempts("/") == dict.fromkeys(s.events, 3)


def test_while_the_dead_letter_sink_is_down_the_partition_does_not_advance_and_says_so(
    dispatching: MakeScene, sink: Sink
) -> None:
    """Nothing is committed that was neither delivered nor dead-lettered; other partitions go on; it goes on without help."""
    s = dispatching(partitions=2)
    s.subscribe(subscriberUri=f"{sink.url}/", delivery={**FAST, "deadLetterSink": f"{sink.url}/dead"})
    sink.tell(status(400, b"no"), event="0-2", path="/")
    sink.tell(status(503, b"dead too"), path="/dead")
    (process,) = s.run()
    s.send(6)
    until(
        lambda: s.committed() == {0: 2, 1: 6},
        60,
        lambda: f"what is before it is committed, and all of the other partition: {s.committed()}",
    )
    tried = len(sink.sent("/dead"))
    until(lambda: len(sink.sent("/dead")) >= tried + 4, 60, lambda: f"it is tried again: {s.log(process)[-1500:]}")
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


@pytest.mark.thorough("the dispatcher's fast tests hold, pass over and dead-letter what is no event")
def test_a_record_that_is_no_event_is_dead_lettered_skipped_or_stops_its_partition(
    dispatching: MakeScene, sink: Sink
) -> None:
    """As three subscriptions of one topic say: with its bytes and why, counted, or held; other events are delivered."""
    s = dispatching(partitions=2)
    topic = s.make_topic("dead")
    s.subscribe(subscriberUri=f"{sink.url}/dead", delivery={**FAST, "deadLetterSink": {"topic": topic}})
    s.subscribe("passing", subscriberUri=f"{sink.url}/skip", delivery=FAST, on_undecodable="skip")
    s.subscribe("held", subscriberUri=f"{sink.url}/held", delivery=FAST)
    s.send(3)
    s.send_raw(BYTES, [("some", b"header")])
    s.send_raw(None)
    s.send(3)
    (process,) = s.run()
    s.drained()
    s.drained("passing")
    until(lambda: s.committed("held") == {0: 3, 1: 6}, 60, lambda: f"all but what is behind it: {s.committed('held')}")
    until(lambda: "specversion" in str(channel_status(s, process, "held")), 30, "the status says why it is held")
    all_events = sorted(s.events)
    assert (sorted(sink.taken("/dead")), sorted(sink.taken("/skip"))) == (all_events, all_events)
    assert sorted(sink.taken("/held")) == sorted(set(all_events) - {"0-5", "0-6", "0-7"})
    record, empty = s.read(topic, 2)
    assert (record.value, empty.value, ("some", b"header") in record.headers) == (BYTES, None, True)
    assert b"specversion" in base64.b64decode(dict(record.headers)["knativeerrordata"]), record.headers
    found = metrics(s, process).items()
    ours = {name.partition("{")[0]: value for name, value in found if 'channel="passing"' in name}
    counted = {value for family, value in ours.items() if "undecodable" in family or "skipped" in family}
    assert counted == {2.0}, ours
    assert (f"{s.topic}/0" in s.log(process), "3" in str(channel_status(s, process, "held"))) == (True, True)
    assert s.committed("held") == {0: 3, 1: 6}
