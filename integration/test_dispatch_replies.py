"""Events in the subscriber's answers: posted to `replyUri`, under the rules of every delivery."""

from __future__ import annotations

from collections.abc import Callable

from integration.dispatching import Dispatching
from integration.sink import OK, Answer, Sink, reply, status
from tests.waiting import until

MakeScene = Callable[..., Dispatching]

FAST = {"backoffDelay": "PT0.05S", "backoffPolicy": "linear", "retry": 2, "timeout": "PT30S"}


def test_an_event_in_the_answer_is_posted_as_it_is_and_anything_else_is_not(dispatching: MakeScene, sink: Sink) -> None:
    """In binary and in structured mode; an empty answer, or one that is no event, is no reply."""
    s = dispatching()
    s.subscribe(subscriberUri=f"{sink.url}/", replyUri=f"{sink.url}/replies", delivery=FAST)
    structured = b'{"specversion":"1.0","id":"r-1","source":"/sink","type":"answer","data":{"a":1}}'
    answers = [
        reply("r-0", b'{"b": 2}', unicode="gr%C3%B6%C3%9Fe"),
        Answer(status=200, headers={"content-type": "application/cloudevents+json"}, body=structured),
        Answer(status=200, headers={"content-type": "text/plain"}, body=b"thanks"),
        OK,
    ]
    for id, answer in zip(s.send(len(answers)), answers, strict=True):
        sink.tell(answer, event=id, path="/")
    s.run()
    s.drained()
    common = {"specversion": "1.0", "source": "/sink", "type": "answer"}
    events = [event for request in sink.sent("/replies") for event in request.events]
    assert [{**e, "data": {"a": 1}} if e["id"] == "r-1" else e for e in events] == [
        {**common, "id": "r-0", "unicode": "größe", "datacontenttype": "application/json", "data": b'{"b": 2}'},
        {**common, "id": "r-1", "data": {"a": 1}}
        | ({"datacontenttype": events[1]["datacontenttype"]} if "datacontenttype" in events[1] else {}),
    ]
    assert b'{"a":1}' in sink.sent("/replies")[1].body
    assert sink.attempts("/") == dict.fromkeys(s.events, 1)


def test_a_reply_is_tried_again_without_the_event_that_it_answers(dispatching: MakeScene, sink: Sink) -> None:
    """The event was taken: sending it again would have it processed twice."""
    s = dispatching()
    s.subscribe(subscriberUri=f"{sink.url}/", replyUri=f"{sink.url}/replies", delivery=FAST)
    sink.tell(reply("r-0"), event="0-0", path="/")
    sink.tell(status(503), status(503), OK, path="/replies")
    s.send(2)
    s.run()
    s.drained()
    assert (sink.attempts("/"), sink.attempts("/replies"), sink.taken("/replies")) == (
        {"0-0": 1, "0-1": 1},
        {"r-0": 3},
        ["r-0"],
    )


def test_what_is_not_replied_goes_to_the_dead_letter_sink(dispatching: MakeScene, sink: Sink) -> None:
    """With the address that did not take it."""
    s = dispatching()
    delivery = {**FAST, "deadLetterSink": f"{sink.url}/dead"}
    s.subscribe(subscriberUri=f"{sink.url}/", replyUri=f"{sink.url}/replies", delivery=delivery)
    sink.tell(reply("r-0"), event="0-0", path="/")
    sink.tell(status(400), path="/replies")
    s.send(2)
    s.run()
    s.drained()
    (dead,) = sink.sent("/dead")
    assert (dead.events[0]["knativeerrordest"], dead.events[0]["knativeerrorcode"]) == (f"{sink.url}/replies", "400")
    assert (sink.attempts("/"), dead.ids[0] in ("r-0", "0-0")) == ({"0-0": 1, "0-1": 1}, True)


def test_while_the_reply_target_is_down_the_event_is_not_done(dispatching: MakeScene, sink: Sink) -> None:
    """It is not committed, and nothing is lost: the reply arrives when its target is back."""
    target = Sink()
    try:
        s = dispatching()
        s.subscribe(
            subscriberUri=f"{sink.url}/",
            replyUri=f"{target.url}/",
            delivery={**FAST, "retry": 1000},
            ordering="partition",
        )
        target.down()
        sink.tell(reply("r-0"), event="0-0")
        s.send(3)
        s.run()
        until(lambda: sink.taken(), 60, "the event is delivered")
        held = s.committed()
        target.up()
        s.drained()
        assert (held, target.taken(), sink.attempts()) == ({0: 0}, ["r-0"], dict.fromkeys(s.events, 1))
    finally:
        target.close()
