"""Batched mode: several events in one request, and a poison event among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from integration.dispatching import Dispatching, offset_of, partition_of, repeats
from integration.sink import HANG, OK, Answer, Request, Sink, status

MakeScene = Callable[..., Dispatching]

FAST = {"backoffDelay": "PT0.05S", "backoffPolicy": "linear", "retry": 3}
POISON = "0-237"


def subscribe(s: Dispatching, sink: Sink, *, timeout: str = "PT30S", **batch: object) -> None:
    """Have batches of 100 sent to `/`, and dead letters to `/dead`."""
    s.subscribe(
        subscriberUri=f"{sink.url}/",
        delivery={**FAST, "timeout": timeout, "deadLetterSink": f"{sink.url}/dead"},
        batch={"max_events": 100, "max_delay": "200ms", **batch},
    )


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_poison_event_among_five_hundred_stands_alone_in_the_end(
    dispatching: MakeScene, sink: Sink, code: int
) -> None:
    """It goes to the dead letter sink; the others are taken once. Repeated are only those that were refused with it."""
    s = dispatching()
    subscribe(s, sink)
    sink.tell(status(code, b"no"), event=POISON, path="/")
    s.send(500)
    s.run()
    s.drained()
    others = [id for id in s.events if id != POISON]
    assert (sorted(sink.taken("/")), sink.taken("/dead")) == (sorted(others), [POISON])
    refused = [len(request.ids) for request in sink.sent("/") if not request.accepted]
    assert (refused[-1], len(refused) <= 8) == (1, True), refused  # 100, 50, 25, 13, 7, 4, 2, 1
    assert {request.events[0]["knativeerrorcode"] for request in sink.sent("/dead")} <= {code, str(code)}


@pytest.mark.parametrize(
    "answer",
    [status(500, b"crashed"), status(503), Answer(cut_after=0, body=b"x")],
    ids=["answers 500", "answers 503", "breaks the connection"],
)
def test_a_poison_event_that_the_subscriber_dies_of_stands_alone_too(
    dispatching: MakeScene, sink: Sink, answer: Answer
) -> None:
    """After the retries of the whole batch: nobody else pays for it, neither with a dead letter nor by going twice."""
    s = dispatching()
    subscribe(s, sink)
    sink.tell(answer, event=POISON, path="/")
    s.send(500)
    s.run()
    s.drained()
    assert (sorted(set(sink.taken("/dead"))), s.lost(sink.taken("/")), repeats(sink.taken())) == (
        [POISON],
        {POISON},
        {},
    )


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
    sink.tell(status(400), event=POISON, path="/")
    s.send(600, key=lambda n: f"k{n % 30}")
    s.run()
    s.drained()
    keys: dict[tuple[int, int], list[int]] = {}
    for id in sink.taken("/"):
        keys.setdefault((partition_of(id), offset_of(id) % 30), []).append(offset_of(id))
    assert (sink.taken("/dead"), s.lost(sink.taken()), repeats(sink.taken())) == ([POISON], set(), {})
    assert {key: offsets == sorted(offsets) for key, offsets in keys.items()} == dict.fromkeys(keys, True)
    assert max(len(request.ids) for request in sink.sent("/")) == 20


def test_a_subscriber_that_takes_ten_at_a_time_gets_them_all(dispatching: MakeScene, sink: Sink) -> None:
    """413 for whatever is larger: halves, until they are small enough; nothing is given up."""
    s = dispatching()
    subscribe(s, sink)

    def too_large(request: Request) -> bool:
        return len(request.ids) > 10

    sink.tell(status(413), where=too_large, path="/")
    s.send(200)
    s.run()
    s.drained()
    assert (sorted(sink.taken("/")), sink.sent("/dead")) == (sorted(s.events), [])


def test_batches_are_bounded_and_hold_the_events_as_they_were(dispatching: MakeScene, sink: Sink) -> None:
    """In order, with the attributes and bytes that were published; a 503, a hang and a cut are tried again as a whole."""
    s = dispatching()
    subscribe(s, sink, max_bytes="20KiB")
    sink.tell(status(503), status(429, retry_after="0"), OK, path="/")
    data = bytes(range(256)) * 4
    s.send(300, data=data, unicode="übergröße €")
    s.run()
    s.drained()
    accepted = [request for request in sink.sent() if request.accepted]
    assert sink.taken() == list(s.events)
    assert {request.headers["content-type"].partition(";")[0] for request in accepted} == {
        "application/cloudevents-batch+json"
    }
    assert (max(len(request.body) for request in accepted) <= 20 * 1024, len(accepted) < 50) == (True, True)
    expected = {"specversion": "1.0", "source": "/tests", "type": "order", "unicode": "übergröße €"}
    expected["datacontenttype"] = "application/octet-stream"
    assert [event for request in accepted for event in request.events] == [
        {**expected, "id": id, "data": data} for id in s.events
    ]


def test_a_batch_that_is_not_full_does_not_wait_for_longer_than_it_may(dispatching: MakeScene, sink: Sink) -> None:
    """And a batch whose request hangs is sent again, in order, when its time is over."""
    s = dispatching()
    subscribe(s, sink, timeout="PT5S")  # longer than the machine may stand still: else the second one could hang, too
    s.run()
    sink.tell(HANG, OK, event="0-0")
    s.send(3)
    s.drained()
    counts = Counter(tuple(request.ids) for request in sink.sent())
    assert (sink.taken(), max(counts.values())) == (["0-0", "0-1", "0-2"], 2)
