"""Events in the subscriber's answers: posted to `replyUri`, under the rules of every delivery."""

from __future__ import annotations

from collections.abc import Callable

from integration.processors.dispatch.dispatching import Dispatching
from integration.processors.sink import OK, Answer, Sink, reply, status
from tests.waiting import until

FAST = {"backoffDelay": "PT0.05S", "backoffPolicy": "linear", "retry": 2, "timeout": "PT30S"}


def test_an_event_in_the_answer_is_posted_as_it_is_and_anything_else_is_not(
    dispatching: Callable[..., Dispatching], sink: Sink
) -> None:
    """It is retried without the event that it answers, dead-lettered like one, and the event is not done before it."""
    s = dispatching()
    delivery = {**FAST, "deadLetterSink": f"{sink.url}/dead"}
    s.subscribe(subscriberUri=f"{sink.url}/", replyUri=f"{sink.url}/replies", delivery=delivery, ordering="partition")
    structured = b'{"specversion":"1.0","id":"r-1","source":"/sink","type":"answer","data":{"a":1}}'
    answers = [
        reply("r-0", b'{"b": 2}', unicode="gr%C3%B6%C3%9Fe"),
        Answer(status=200, headers={"content-type": "application/cloudevents+json"}, body=structured),
        Answer(status=200, headers={"content-type": "text/plain"}, body=b"thanks"),
        OK,
        reply("r-retried"),
        reply("r-dead"),
        reply("r-late"),
        OK,
    ]
    for id, answer in zip(s.send(len(answers)), answers, strict=True):
        sink.tell(answer, event=id, path="/")
    sink.tell(status(503), status(503), OK, path="/replies", event="r-retried")
    sink.tell(status(400), path="/replies", event="r-dead")
    sink.tell(Answer(status=503, held="late"), OK, path="/replies", event="r-late")
    s.run()
    until(lambda: "r-late" in sink.attempts("/replies"), 60, "the last reply is under way")
    until(lambda: s.committed() == {0: 6}, 60, lambda: f"what is before it is done: {s.committed()}")
    sink.let_go("late")
    s.drained()
    common = {"specversion": "1.0", "source": "/sink", "type": "answer"}
    first, second = [request.events[0] for request in sink.sent("/replies")[:2]]
    assert first == {
        **common, "id": "r-0", "unicode": "größe", "datacontenttype": "application/json", "data": b'{"b": 2}',
    }  # fmt: skip
    second.pop("datacontenttype", None)
    assert second == {**common, "id": "r-1", "data": second["data"]}
    assert b'{"a":1}' in sink.sent("/replies")[1].body
    assert sink.attempts("/") == dict.fromkeys(s.events, 1)
    times = {"r-0": 1, "r-1": 1, "r-retried": 3, "r-dead": 1, "r-late": 2}
    assert (sink.attempts("/replies"), set(sink.taken("/replies"))) == (times, set(times) - {"r-dead"})
    (dead,) = sink.sent("/dead")
    assert (dead.events[0]["knativeerrordest"], dead.events[0]["knativeerrorcode"]) == (f"{sink.url}/replies", "400")
    assert dead.ids[0] in ("r-dead", "0-5")
