"""The sink that the dispatcher's tests judge by follows its instructions."""

from __future__ import annotations

import http.client
import time

import pytest

from integration.processors.sink import HANG, OK, Answer, Sink, reply, status
from tests.waiting import until


def post(sink: Sink, id: str, path: str = "/", timeout: float = 60.0) -> tuple[int, dict[str, str], bytes]:
    """Post an event; returns status, headers and body of the answer."""
    client = http.client.HTTPConnection(sink.url.removeprefix("http://"), timeout=timeout)
    try:
        client.request("POST", path, b"data", {"ce-id": id, "ce-source": "/", "content-type": "text/plain"})
        answer = client.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        client.close()


def test_answers_come_in_the_order_in_which_they_were_told(sink: Sink) -> None:
    """For all events together, or for each alone, also in a batch; the latest rule wins, and only 2xx counts as taken."""
    sink.tell(status(503, b"later", retry_after="3"), OK)
    sink.tell(status(400), OK, each=True, path="/each")
    sink.tell(status(422), event="7")
    answers = [post(sink, "a")[0], post(sink, "b")[0], *(post(sink, id, "/each")[0] for id in ("a", "a", "b"))]
    for ids in (["6", "7"], ["6"]):
        client = http.client.HTTPConnection(sink.url.removeprefix("http://"), timeout=60)
        body = "[" + ",".join(f'{{"id": "{id}", "data_base64": "AAE="}}' for id in ids) + "]"
        client.request("POST", "/", body, {"content-type": "application/cloudevents-batch+json"})
        answers.append(answered(client))
        client.close()
    assert (answers, sink.taken()) == ([503, 202, 400, 202, 400, 422, 202], ["b", "a", "6"])
    assert (sink.attempts("/each"), sink.requests[5].events[1]["data"]) == ({"a": 2, "b": 1}, b"\0\1")


def test_a_sink_that_hangs_cuts_drips_or_is_down_has_not_taken_the_event(sink: Sink) -> None:
    """The client sees what a broken server does; one that was down is up again on its port."""
    sink.tell(HANG, Answer(body=b"0123456789", cut_after=4), Answer(body=b"0123456789", byte_every=0.1), reply("r-1"))
    for problem, timeout in ((TimeoutError, 0.2), (http.client.IncompleteRead, 60.0)):
        before = len(sink.sent())
        with pytest.raises(problem):
            post(sink, "a", timeout=timeout)
        until(lambda before=before: len(sink.sent()) > before, 30, "it has come")  # type: ignore[misc]
    began = time.monotonic()
    assert post(sink, "a")[2] == b"0123456789"
    assert (time.monotonic() - began > 0.9, sink.taken()) == (True, ["a"])
    sink.down()
    with pytest.raises(ConnectionRefusedError):
        post(sink, "b")
    sink.up()
    code, headers, body = post(sink, "b")
    assert (code, headers["ce-id"], body, sink.attempts()) == (200, "r-1", b"{}", {"a": 3, "b": 1})


def answered(client: http.client.HTTPConnection) -> int:
    """Return the status of an answer, read to its end."""
    answer = client.getresponse()
    answer.read()
    return answer.status


def test_an_answer_that_is_held_is_given_when_it_is_let_go(sink: Sink) -> None:
    """On a connection that is used again afterwards; a client that goes away is not waited for."""
    sink.tell(Answer(held="it"), Answer(held="it"), Answer(held="another"), OK)
    address = sink.url.removeprefix("http://")
    headers = {"ce-id": "a", "ce-source": "/", "content-type": "text/plain"}
    patient, hasty = (http.client.HTTPConnection(address, timeout=60) for _ in range(2))
    for number, client in enumerate((patient, hasty), 1):
        client.request("POST", "/", b"data", headers)
        until(lambda number=number: len(sink.sent()) == number, 30, "it has come")  # type: ignore[misc]
    hasty.close()
    until(lambda: sink.sent()[1].ended, 30, "it is noticed that the client has gone")
    held = sink.sent()[0].ended
    sink.let_go("it")
    codes = [answered(patient)]
    sink.let_go("another")
    for _ in range(2):
        patient.request("POST", "/", b"data", headers)
        codes.append(answered(patient))
    patient.close()
    assert (held, codes, [request.accepted for request in sink.sent()]) == (None, [202] * 3, [True, False, True, True])
    assert sink.sent()[0].connection == sink.sent()[3].connection


def test_how_many_were_under_way_at_once(sink: Sink) -> None:
    """Counted for each group, from the times of arrival and answer."""
    sink.tell(HANG, path="/slow")
    clients = [http.client.HTTPConnection(sink.url.removeprefix("http://"), timeout=60) for _ in range(4)]
    for number, client in enumerate(clients):
        client.request("POST", "/slow", b"data", {"ce-id": str(number), "ce-source": "/", "content-type": "text/plain"})
    until(lambda: len(sink.sent("/slow")) == 4, 30, "all have come")
    for client in clients:
        client.close()
    until(lambda: all(request.ended for request in sink.sent("/slow")), 30, "all are over")
    post(sink, "x", "/fast")
    post(sink, "y", "/fast")
    assert sink.most_at_once(lambda request: request.path) == {"/slow": 4, "/fast": 1}
