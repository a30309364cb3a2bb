"""What subscribers answer, and what the dispatcher makes of it: on real servers, one event after the other of one partition."""

from __future__ import annotations

import pytest

from integration.processors.dispatch.dispatching import MakeScene, peak_memory, reset_peak
from integration.processors.sink import HANG, OK, Answer, Sink, status
from tests.waiting import Deadline

RETRIED = (404, 408, 409, 425, 429, 500, 501, 502, 503, 504, 507)
REFUSED = (300, 301, 302, 303, 304, 307, 308, 400, 401, 403, 405, 406, 410, 413, 415, 422)
FAST = {"backoffDelay": "PT0.05S", "backoffPolicy": "linear", "retry": 5, "timeout": "PT30S"}


def test_each_status_is_retried_or_given_up_as_knative_says(dispatching: MakeScene, sink: Sink) -> None:
    """Refused twice, then taken; or refused once, and dead-lettered. A redirect is a refusal: nothing is sent there."""
    s = dispatching()
    s.subscribe(
        subscriberUri=f"{sink.url}/",
        headers={"authorization": "Bearer s3cret"},
        delivery={**FAST, "deadLetterSink": f"{sink.url}/dead"},
        ordering="none",
    )
    ids = dict(zip(s.send(len(RETRIED + REFUSED)), RETRIED + REFUSED, strict=True))
    for id, code in ids.items():
        answer = status(code, location=f"{sink.url}/elsewhere")
        sink.tell(answer, answer, OK, event=id, path="/")
    s.run()
    s.drained()
    assert (
        {ids[id]: count for id, count in sink.attempts("/").items()},
        {ids[id]: count for id, count in sink.attempts("/dead").items()},
        sink.sent("/elsewhere"),
    ) == (dict.fromkeys(RETRIED, 3) | dict.fromkeys(REFUSED, 1), dict.fromkeys(REFUSED, 1), [])


def test_retry_after_is_waited_for_up_to_its_bound(dispatching: MakeScene, sink: Sink) -> None:
    """An hour of a busy subscriber is a second here; an hour of one that fails does not count, as in Knative."""
    s = dispatching()
    s.subscribe(subscriberUri=f"{sink.url}/", delivery={**FAST, "retryAfterMax": "PT1S"})
    busy, failing = s.send(2)
    sink.tell(status(429, retry_after="3600"), OK, event=busy)
    sink.tell(status(500, retry_after="3600"), OK, event=failing)
    s.run()
    s.drained()
    first, second, *others = sink.sent("/")
    assert (second.began - first.began >= 1.0, [one.ids for one in others]) == (True, [[failing], [failing]])


@pytest.mark.thorough("timeouts of 5 s each; the transports' fast tests have each of these answers, on real sockets")
@pytest.mark.parametrize("transport", ["http", "requests"])
def test_broken_answers_are_retried_and_cost_no_memory(dispatching: MakeScene, sink: Sink, transport: str) -> None:
    """A subscriber that hangs, breaks off, drips, or sends 10 GB, with a 503 or a 202; the next event is unharmed."""
    s = dispatching()
    # Longer than the machine may stall: else the second attempt, which is answered at once, could be too late.
    delivery = {**FAST, "timeout": "PT5S", "deadLetterSink": f"{sink.url}/dead"}
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
    *ids, taken = s.coming(len(wrong) + 1)
    for id, answer in zip(ids, wrong.values(), strict=True):
        sink.tell(answer, OK, event=id)
    sink.tell(Answer(filler=10 * 2**30), OK, event=taken)  # it was taken, or was not: what is behind 202 is not read
    before, time = reset_peak(process), Deadline(50)
    s.send(len(wrong) + 2)
    s.drained()
    assert ({name: sink.attempts("/")[id] for name, id in zip(wrong, ids, strict=True)}, sink.sent("/dead")) == (
        dict.fromkeys(wrong, 2),
        [],
    )
    assert (set(s.events) - set(sink.taken("/")) <= {taken}, sink.attempts("/")[taken] in (1, 2)) == (True, True)
    assert peak_memory(process) - before < 100
    assert not time.passed(), "not much longer than the timeouts"


def test_a_slow_subscriber_gets_each_event_once(dispatching: MakeScene, sink: Sink) -> None:
    """Slower than the session of ZooKeeper, but within the timeout: nothing is repeated."""
    s = dispatching(session=8.0)  # it outlives a machine that stalls: after another claim events would come again
    s.subscribe(subscriberUri=f"{sink.url}/", delivery={**FAST, "timeout": "PT100S"}, ordering="none", max_in_flight=4)
    sink.tell(Answer(after=0.3))
    sink.tell(Answer(after=10.0), event="0-3")
    s.send(10)
    s.run()
    s.drained()
    assert sink.attempts() == dict.fromkeys(s.events, 1)


@pytest.mark.thorough("the transports' fast tests keep and renew connections on real sockets")
@pytest.mark.parametrize(("transport", "retry"), [("http", 0), ("requests", 4)])
def test_connections_that_the_subscriber_has_closed_cost_nothing(
    dispatching: MakeScene, sink: Sink, transport: str, retry: int
) -> None:
    """As servers do after a while; our client sends such a request again, with requests it is an attempt."""
    s = dispatching()
    delivery = {**FAST, "retry": retry, "deadLetterSink": f"{sink.url}/dead"}
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=delivery, transport=transport)
    sink.tell(Answer(then_closes=True))
    s.run()
    for _ in range(5):
        s.send(20)
        s.drained()
    assert (sink.attempts("/"), sink.sent("/dead")) == (dict.fromkeys(s.events, 1), [])
