"""What subscribers answer, and what the dispatcher makes of it: on real servers, one event after the other of one partition."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from integration.dispatching import Dispatching, peak_memory, reset_peak
from integration.sink import HANG, OK, Answer, Sink, status

MakeScene = Callable[..., Dispatching]

RETRIED = (404, 408, 409, 425, 429, 500, 501, 502, 503, 504, 507)
REFUSED = (300, 304, 400, 401, 403, 405, 406, 410, 413, 415, 422)
FAST = {"backoffDelay": "PT0.05S", "backoffPolicy": "linear", "retry": 5, "timeout": "PT30S"}


def test_each_status_is_retried_or_given_up_as_knative_says(dispatching: MakeScene, sink: Sink) -> None:
    """Twice refused, then taken; or once refused, and dead."""
    s = dispatching()
    delivery = {**FAST, "deadLetterSink": f"{sink.url}/dead"}
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=delivery, ordering="none")
    ids = dict(zip(s.send(len(RETRIED + REFUSED)), RETRIED + REFUSED, strict=True))
    for id, code in ids.items():
        sink.tell(status(code), status(code), OK, event=id, path="/")
    s.run()
    s.drained()
    assert (
        {ids[id]: count for id, count in sink.attempts("/").items()},
        {ids[id]: count for id, count in sink.attempts("/dead").items()},
    ) == (dict.fromkeys(RETRIED, 3) | dict.fromkeys(REFUSED, 1), dict.fromkeys(REFUSED, 1))


def test_a_redirect_is_a_refusal_and_nobody_goes_there(dispatching: MakeScene, sink: Sink) -> None:
    """Another host would get the event and its credentials."""
    s = dispatching()
    s.subscribe(
        subscriberUri=f"{sink.url}/",
        headers={"authorization": "Bearer s3cret"},
        delivery={**FAST, "deadLetterSink": f"{sink.url}/dead"},
    )
    ids = s.send(5)
    for id, code in zip(ids, (301, 302, 303, 307, 308), strict=True):
        sink.tell(status(code, location=f"{sink.url}/elsewhere"), event=id, path="/")
    s.run()
    s.drained()
    assert (sink.taken("/"), sink.sent("/elsewhere"), sorted(sink.taken("/dead"))) == ([], [], sorted(ids))


def test_retry_after_is_waited_for_in_both_of_its_forms(dispatching: MakeScene, sink: Sink) -> None:
    """Seconds, or a date; longer than the backoff would be."""
    s = dispatching()
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST, ordering="none")
    s.run()
    seconds, dated, neither = s.coming(3)
    at = time.monotonic() + 11.0  # HTTP dates have no parts of a second
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=12), usegmt=True)
    sink.tell(status(429, retry_after="5"), OK, event=seconds)
    sink.tell(status(503, retry_after=date), OK, event=dated)
    sink.tell(status(503), OK, event=neither)
    s.send(3)
    s.drained()
    came: dict[str, list[float]] = {}
    for request in sink.sent():
        came.setdefault(request.ids[0], []).append(request.began)
    gaps = {id: times[1] - times[0] for id, times in came.items()}
    assert (
        5.0 <= gaps[seconds] < 9.0,
        at - 0.1 <= came[dated][1] < at + 6.0,
        gaps[neither] < 4.0,
        {len(times) for times in came.values()},
    ) == (True, True, True, {2}), (gaps, at - came[dated][1])


@pytest.mark.parametrize("transport", ["curl", "requests"])
def test_answers_that_are_none_are_tried_again_and_cost_no_memory(
    dispatching: MakeScene, sink: Sink, transport: str
) -> None:
    """A hanging subscriber, one that breaks off, one that drips, and one that sends 10 GB; the next event is unharmed."""
    if transport == "requests":
        pytest.importorskip("requests")
    s = dispatching()
    dead = f"{sink.url}/dead"
    # Longer than the machine may stand still: else the second attempt, which is answered at once, could be too late.
    delivery = {**FAST, "timeout": "PT5S", "deadLetterSink": dead}
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=delivery, transport=transport)
    (process,) = s.run()
    s.send(1)
    s.drained()
    wrong = {
        "hangs": HANG,
        "breaks off at once": Answer(body=b"0123456789", cut_after=0),
        "breaks off in the middle": Answer(body=b"0123456789", cut_after=4),
        "drips for longer than the timeout": Answer(body=b"x" * 100, byte_every=0.5),
        "refuses with 10 GB": Answer(status=503, filler=10 * 2**30),
    }
    ids = s.coming(len(wrong))
    for id, answer in zip(ids, wrong.values(), strict=True):
        sink.tell(answer, OK, event=id)
    before = reset_peak(process)
    began = time.monotonic()
    s.send(len(wrong) + 1)
    s.drained()
    assert ({name: sink.attempts("/")[id] for name, id in zip(wrong, ids, strict=True)}, sink.sent("/dead")) == (
        dict.fromkeys(wrong, 2),
        [],
    )
    assert sorted(set(sink.taken("/"))) == sorted(s.events)
    assert peak_memory(process) - before < 100
    assert time.monotonic() - began < 40, "not much longer than the timeouts"


def test_ten_gigabytes_behind_a_202_are_not_read(dispatching: MakeScene, sink: Sink) -> None:
    """The event was taken, or was not; either way memory is bounded and the partition goes on."""
    s = dispatching()
    s.subscribe(subscriberUri=f"{sink.url}/", delivery={**FAST, "timeout": "PT5S"})
    (process,) = s.run()
    s.send(1)
    s.drained()
    before = reset_peak(process)
    id, later = s.coming(2)
    sink.tell(Answer(filler=10 * 2**30), OK, event=id)
    s.send(2)
    s.drained(seconds=20)
    assert (sink.attempts()[id] in (1, 2), sink.taken()[-1], peak_memory(process) - before < 100) == (True, later, True)


def test_a_slow_subscriber_gets_each_event_once(dispatching: MakeScene, sink: Sink) -> None:
    """Slower than the session of ZooKeeper and the batch's deadline, but within the timeout: nothing is repeated."""
    s = dispatching(session=8.0)  # it outlives a machine that stands still: after another claim events would come again
    s.subscribe(subscriberUri=f"{sink.url}/", delivery={**FAST, "timeout": "PT30S"}, ordering="none", max_in_flight=4)
    sink.tell(Answer(after=0.3))
    sink.tell(Answer(after=12.0), event="0-3")
    s.send(40)
    s.run()
    s.drained()
    assert sink.attempts() == dict.fromkeys(s.events, 1)


@pytest.mark.parametrize(("transport", "retry"), [("curl", 0), ("requests", 4)])
def test_connections_that_the_subscriber_closed_meanwhile_cost_nothing(
    dispatching: MakeScene, sink: Sink, transport: str, retry: int
) -> None:
    """As servers do after a while; libcurl sends such a request again by itself, with requests it is an attempt."""
    if transport == "requests":
        pytest.importorskip("requests")
    s = dispatching()
    delivery = {**FAST, "retry": retry, "deadLetterSink": f"{sink.url}/dead"}
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=delivery, transport=transport)
    sink.tell(Answer(then_closes=True))
    s.run()
    for _ in range(5):
        s.send(20)
        s.drained()
    assert (sink.attempts("/"), sink.sent("/dead")) == (dict.fromkeys(s.events, 1), [])
