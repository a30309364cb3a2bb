"""Publishing to an ingress: what is sent again, what is given up, and which lines were refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from inbound.config import IngressConfig
from inbound.errors import SinkError
from inbound.processors.cloudevents_http import HttpAnswer, HttpMessage
from inbound.publishing import NumberedEvent, Posting, PublishError, with_key
from inbound.publishing.posting import RefusedEvent
from inbound.publishing.sources import read_ahead
from tests.cli.test_publish_command import run
from tests.ingress.ingress_stage import running
from tests.publishing.test_publish_sending import StepClock
from tests.waiting import wait_for


def reply(status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> HttpAnswer:
    """Return what the ingress answers."""
    return HttpAnswer(status, headers or {}, body)


def event(line: int, data: bytes = b"d") -> NumberedEvent:
    headers: list[tuple[str, bytes | None]] = [("ce_specversion", b"1.0"), ("ce_id", b"%d" % line)]
    return NumberedEvent(
        line, (None, data, [*headers, ("ce_source", b"/s"), ("ce_type", b"t"), ("content-type", b"text/plain")])
    )


def posting(
    answer: Callable[[HttpMessage, int], HttpAnswer], batch: int = 3
) -> tuple[Posting, list[HttpMessage], StepClock]:
    """Return a posting whose messages are kept and answered by `answer`, which gets the number of each, from 0."""
    sent: list[HttpMessage] = []
    clock = StepClock()

    def post(message: HttpMessage, attempt: int) -> HttpAnswer:
        sent.append(message)
        return answer(message, len(sent) - 1)

    return Posting(post, "http://ingress", batch, clock=clock), sent, clock


def ids(message: HttpMessage) -> list[str]:
    return [element["id"] for element in json.loads(message.body)]


def test_events_go_in_batches_in_their_order() -> None:
    """One request after the other."""
    sending, sent, _ = posting(lambda message, number: reply(202))

    published = sending.publish(event(number) for number in range(1, 8))

    assert [ids(message) for message in sent] == [["1", "2", "3"], ["4", "5", "6"], ["7"]]
    assert (published.count, sending.refused) == (7, [])


def test_events_go_alone_in_binary_mode() -> None:
    """Attributes as headers, and the data as it is."""
    sending, sent, _ = posting(lambda message, number: reply(202), batch=1)

    sending.publish([event(1, b"data")])

    (message,) = sent
    assert (message.headers["ce-id"], message.headers["content-type"], message.body) == ("1", "text/plain", b"data")


def test_a_busy_ingress_is_asked_again_when_it_says() -> None:
    """Retry-After goes before our own waits, which double; a connection that breaks is no end either."""
    answers: list[HttpAnswer | None] = [reply(429, headers={"retry-after": "7"}), reply(503), None, reply(202)]

    def answer(message: HttpMessage, number: int) -> HttpAnswer:
        found = answers[number]
        if found is None:
            raise SinkError("the connection broke")
        return found

    sending, sent, clock = posting(answer)
    published = sending.publish([event(1)])

    assert (len(sent), published.count, clock.waits) == (4, 1, [7.0, 0.4, 0.8])


def test_an_ingress_that_stays_away_is_given_up() -> None:
    """The message repeats the answer, and says how many were accepted, and where to go on."""
    sending, _, clock = posting(lambda m, number: reply(202) if number == 0 else reply(503, b"Kafka is away: x\n"))

    with pytest.raises(PublishError) as raised:
        sending.publish(event(number) for number in range(1, 7))

    assert "answered 503: Kafka is away: x; 3 events before it were accepted" in str(raised.value)
    assert "publish from line 4 on" in str(raised.value)
    assert 20 < sum(clock.waits) <= 30


def test_an_event_that_is_refused_is_found_and_the_others_go_on() -> None:
    """The batch is cut in halves until it stands alone."""
    sending, _, _ = posting(
        lambda message, number: reply(413, b"too large\n") if "5" in ids(message) else reply(202), batch=8
    )

    published = sending.publish(event(number) for number in range(1, 9))

    assert (published.count, sending.refused) == (7, [RefusedEvent(5, "too large")])


def test_events_that_an_answer_names_are_not_looked_for() -> None:
    """The ingress has written the others: posted again, they would come twice."""
    sending, sent, _ = posting(lambda message, number: reply(413, b"too large\n", {"inbound-refused": "2, 4"}), batch=5)

    published = sending.publish(event(number) for number in range(11, 16))

    assert (len(sent), published.count) == (1, 3)
    assert sending.refused == [RefusedEvent(12, "too large"), RefusedEvent(14, "too large")]


def test_what_is_about_all_events_ends_it() -> None:
    """A token that is wrong is wrong for all."""
    sending, sent, _ = posting(lambda message, number: reply(401, b"this needs a token\n"))

    with pytest.raises(PublishError, match="answered 401: this needs a token; 0 events before it"):
        sending.publish(event(number) for number in range(1, 9))

    assert len(sent) == 1


def test_the_rate_is_kept() -> None:
    """Requests are as small as evenness needs."""
    sending, sent, clock = posting(lambda message, number: reply(202), batch=100)

    sending.publish((event(number) for number in range(1, 41)), rate=100.0)

    assert len(sent) == 4
    assert sum(clock.waits) == pytest.approx(0.3)


def test_what_a_slow_pipe_brought_is_sent_at_once() -> None:
    """The request that it stands in does not wait until it is full."""
    gate = threading.Event()

    def answer(message: HttpMessage, number: int) -> HttpAnswer:
        gate.set()
        return reply(202)

    def slow() -> Iterator[NumberedEvent]:
        yield event(1)
        wait_for(gate, 10, "the first event was not sent before the second came")
        yield event(2)

    sending, sent, _ = posting(answer)
    sending.publish(read_ahead(slow(), 10))

    assert [ids(message) for message in sent] == [["1"], ["2"]]


def test_a_key_is_the_partition_key_of_the_event() -> None:
    """Of which the ingress makes the key again."""
    key, _, headers = with_key(event(1).record, b"anna")

    assert (key, dict(headers)["ce_partitionkey"]) == (b"anna", b"anna")


def test_a_file_goes_to_an_ingress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole command against a listening ingress: what is refused is named by its line, and all else is written."""
    file = tmp_path / "events.jsonl"
    lines = [
        {"specversion": "1.0", "id": str(n), "source": "/s", "type": "t", "data": "x" * (300 * (n == 2))}
        for n in range(4)
    ]
    file.write_text("\n\n".join(json.dumps(line) for line in lines))

    with running(IngressConfig(max_event_bytes=250)) as (ingress, producer):
        code = run("orders", "--file", str(file), "--to", ingress.url, "--key", "k")

    said = capsys.readouterr()
    assert (code, [record.key for _, record in producer.written]) == (1, [b"k"] * 3)
    assert said.out.startswith("published 3 events to orders in ")
    assert f"{file}:5: refused: the event has " in said.err
    assert "error: 1 events were refused by the ingress; all others were published" in said.err
