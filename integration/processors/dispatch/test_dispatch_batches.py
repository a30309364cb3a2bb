"""Batched mode: several events in one request, and poison events among them."""

from __future__ import annotations

from collections import Counter

import pytest

from integration.processors.dispatch.dispatching import Dispatching, MakeScene, offset_of, partition_of, repeats
from integration.processors.sink import HANG, OK, Answer, Request, Sink, status

FAST = {"backoffDelay": "PT0.05S", "backoffPolicy": "linear", "retry": 3}
#: One in each hundred: refused, or what the subscriber dies of.
POISON = {
    "0-37": status(400, b"no"),
    "0-137": status(413),
    "0-237": status(422),
    "0-337": status(500, b"crashed"),
    "0-437": Answer(cut_after=0, body=b"x"),
}


def subscribe(s: Dispatching, sink: Sink, *, timeout: str = "PT30S", **batch: object) -> None:
    """Have batches of 100 sent to `/`, and dead letters to `/dead`."""
    s.subscribe(
        subscriberUri=f"{sink.url}/",
        delivery={**FAST, "timeout": timeout, "deadLetterSink": f"{sink.url}/dead"},
        batch={"max_events": 100, "max_delay": "200ms", **batch},
    )


def test_poison_events_stand_alone_in_the_end(dispatching: MakeScene, sink: Sink) -> None:
    """They go to the dead letter sink; every other event is taken once. Batches that were refused are halved."""
    s = dispatching()
    subscribe(s, sink)
    for id, answer in POISON.items():
        sink.tell(answer, event=id, path="/")
    s.send(500)
    s.run()
    s.drained()
    others = [id for id in s.events if id not in POISON]
    assert (sorted(sink.taken("/")), sink.taken("/dead")) == (sorted(others), list(POISON))
    refused = [len(request.ids) for request in sink.sent("/") if {"0-37"} & set(request.ids)]
    assert (refused[-1], len(refused) <= 8) == (1, True), refused  # 100, 50, 25, 13, 7, 4, 2, 1
    codes = [str(request.events[0].get("knativeerrorcode")) for request in sink.sent("/dead")]
    assert codes[:4] == ["400", "413", "422", "500"]


@pytest.mark.thorough("the dispatcher's fast tests keep each key's order through a refusal")
def test_by_key_batches_keep_the_order_of_each_key(dispatching: MakeScene, sink: Sink) -> None:
    """Several batches of a partition are under way at once, some are refused at first, one holds a poison event."""
    s = dispatching(partitions=2)
    s.subscribe(
        subscriberUri=f"{sink.url}/",
        delivery={**FAST, "deadLetterSink": f"{sink.url}/dead"},
        ordering="key",
        max_in_flight=200,
        batch={"max_events": 20, "max_delay": "5ms"},
    )
    sink.tell(Answer(after=0.02))
    sink.tell(status(503), OK, each=True, where=lambda request: offset_of(request.ids[0]) % 7 == 3)
    sink.tell(status(400), event="0-237", path="/")
    s.send(600, key=lambda n: f"k{n % 30}")
    s.run()
    s.drained()
    keys: dict[tuple[int, int], list[int]] = {}
    for id in sink.taken("/"):
        keys.setdefault((partition_of(id), offset_of(id) % 30), []).append(offset_of(id))
    assert (sink.taken("/dead"), s.lost(sink.taken()), repeats(sink.taken())) == (["0-237"], set(), {})
    assert {key: offsets == sorted(offsets) for key, offsets in keys.items()} == dict.fromkeys(keys, True)
    assert max(len(request.ids) for request in sink.sent("/")) == 20


@pytest.mark.thorough(
    "the dispatcher's fast tests decide what goes into a batch; poison events in batches are in `make test`"
)
def test_batches_are_bounded_and_hold_the_events_as_they_were(dispatching: MakeScene, sink: Sink) -> None:
    """In order, with attributes and bytes; 413 for more than ten halves them, 503, 429 and a hang repeat them whole."""
    s = dispatching()
    subscribe(s, sink, timeout="PT5S", max_bytes="20KiB")  # longer than the machine may stall: else others hang, too

    def too_large(request: Request) -> bool:
        return len(request.ids) > 10 and offset_of(request.ids[0]) >= 200

    sink.tell(status(503), status(429, retry_after="0"), OK, path="/")
    sink.tell(HANG, OK, event="0-150")
    sink.tell(status(413), where=too_large)
    data = bytes(range(256)) * 4
    s.send(300, data=data, unicode="übergröße €")
    s.run()
    s.drained()
    s.send(3, data=data, unicode="übergröße €")  # a batch that is not full is sent, too
    s.drained()
    accepted = [request for request in sink.sent() if request.accepted]
    assert (sink.taken(), sink.sent("/dead")) == (list(s.events), [])
    assert Counter(tuple(one.ids) for one in sink.sent() if "0-150" in one.ids).most_common(1)[0][1] == 2
    assert {request.headers["content-type"].partition(";")[0] for request in accepted} == {
        "application/cloudevents-batch+json"
    }
    assert (max(len(request.body) for request in accepted) <= 20 * 1024, len(accepted) < 50) == (True, True)
    assert accepted[-1].ids == ["0-300", "0-301", "0-302"]
    expected = {"specversion": "1.0", "source": "/tests", "type": "order", "unicode": "übergröße €"}
    expected["datacontenttype"] = "application/octet-stream"
    assert [event for request in accepted for event in request.events] == [
        {**expected, "id": id, "data": data} for id in s.events
    ]
