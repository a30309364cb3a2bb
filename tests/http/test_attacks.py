"""What stopped a process once, or could: each attack as it came, and that it costs nothing now but its own answer.

How their cost grows with their size: `test_growth.py`. Requests that are none: `test_malformed_requests.py`.
"""

from __future__ import annotations

import gc
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from inbound.config import IngressConfig
from inbound.config.secrets import KnownSecrets
from inbound.http.server.page import Page, text
from inbound.http.server.rights import Rights
from inbound.http.server.server import LIMITS, PageBounds, PageServer, Request
from inbound.observe.jmx.pages import JmxPages
from inbound.observe.logs.formats import ConsoleFormatter
from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_bridge import http_to_records
from inbound.processors.cloudevents_kafka import decode_record
from tests.ingress.ingress_stage import EVENT, Stage, request, statuses
from tests.observe.jmx.jmx_stage import CHANNEL, MakePort, Port, make_port, port
from tests.repository.growth import BATCH
from tests.waiting import until, wait_for

__all__ = ["make_port", "port"]  # the fixtures

#: What one input may take of the processor, in seconds: below what keeps a heartbeat out, above what a slow machine takes.
MOST = 0.25
MIB = 1024 * 1024


@contextmanager
def costing(seconds: float = MOST) -> Iterator[None]:
    """Fail when the body takes more of the processor, in any thread.

    Without a collection in its midst, which looks at all that the tests before have left: 0.3 s for three million objects.
    """
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        yield
        used = time.process_time() - began
    finally:
        gc.enable()
    assert used < seconds


# -- a query of stars -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stars", ["*" * 28 + "x", "*" * 60 + "x", "*" * 4000 + "x"])
def test_a_query_of_stars_is_answered_like_any_other(port: Port, stars: str) -> None:
    """42 characters in a GET were 8 s in which no thread went on; 60 stars had no end."""
    with costing():
        answer = port.ask(f"/jmx?qry=inbound:type={stars}")

    assert answer.code == 200


def test_a_pattern_that_is_too_long_is_refused_and_not_repeated(port: Port) -> None:
    """No name has so many characters."""
    answer = port.ask(f"/jmx?qry=inbound:type={'*' * 8000}")

    assert (answer.code, "8013 characters" in answer.text, len(answer.text) < 500) == (400, True, True)


@pytest.mark.parametrize("request_", [
    {"type": "read", "attribute": "Group"}, {"type": "write", "attribute": "MaxReadRate", "value": 1},
    {"type": "exec", "operation": "resume"},
], ids=lambda one: one["type"])  # fmt: skip
def test_who_may_not_ask_does_not_learn_what_there_is(make_port: MakePort, request_: dict[str, Any]) -> None:
    """Rights are checked before anything is looked for: of a bean that is there they hear what they hear of none."""
    port = make_port(policy="deny: [{bean: '*:*', read: ['*'], write: ['*'], exec: ['*']}]")
    answers = [port.jolokia(body={**request_, "mbean": bean}) for bean in (CHANNEL, "inbound:type=Channel,name=none")]
    said = [answer["error"].replace("name=none", "name=orders") for answer in answers]

    assert (said[0], [answer["status"] for answer in answers]) == (said[1], [403, 403])


# -- a header of a record ---------------------------------------------------------------------------------------------


def test_a_header_of_question_marks_is_refused_in_few_words() -> None:
    """40,000 of them were 6 s, in which the next owner of the partition was waiting for its turn to stop."""
    header = b"application/cloudevents" + b"?" * 40_000
    with costing():
        try:
            decode_record(PlainRecord(0, value=b"x", headers=[("content-type", header)]))
        except ValueError as error:
            said = str(error)
        line = ConsoleFormatter(KnownSecrets().hide).format(
            logging.LogRecord("inbound", logging.ERROR, "", 0, "%s: %s", ("orders/0", said), None)
        )

    assert (len(said) <= 500, len(line) < 700) == (True, True)


def test_a_long_line_of_the_log_is_cut_before_it_is_looked_through_and_hides_what_the_cut_goes_through() -> None:
    """1 MB of question marks was an hour; half of a secret would not be known for one."""
    known = KnownSecrets()
    secret = "hunter2-" * 12
    known.remember(secret)
    told = "x" * (32_768 - 40) + secret + "?" * MIB
    with costing(1.0):
        line = ConsoleFormatter(known.hide).format(logging.LogRecord("a", logging.ERROR, "", 0, told, None, None))

    assert ("hunter2" in line, len(line) < 40_000) == (False, True)


LONG = b"a" * 20_000
REFUSED: dict[str, Callable[[], object]] = {
    "content type of a record": lambda: decode_record(
        PlainRecord(0, value=b"x", headers=[("content-type", b"application/cloudevents+" + LONG)])),
    "attribute of a record": lambda: decode_record(PlainRecord(0, headers=[
        ("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"s"), ("ce_type", b"t"), ("ce_time", LONG)])),
    "name of an attribute": lambda: decode_record(PlainRecord(0, headers=[
        ("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"s"), ("ce_type", b"t"), (f"ce_{'A-' * 9000}", b"1")])),
    "version of a record": lambda: decode_record(PlainRecord(0, headers=[("ce_specversion", LONG)])),
    "attribute of a request": lambda: refusal([(b"ce-specversion", b"1.0"), (b"ce-id", b"1"), (b"ce-source", b"s"),
                                               (b"ce-type", b"t"), (b"ce-time", LONG)]),
    "structured event": lambda: refusal([(b"content-type", b"application/cloudevents+json")],
                                        b'{"specversion": "' + LONG + b'"}'),
    "batch": lambda: refusal([(b"content-type", BATCH)], b'[{"' + LONG + b'": 1}]'),
}  # fmt: skip


def refusal(headers: list[tuple[bytes, bytes]], body: bytes = b"x") -> None:
    """Raise what a message is refused with."""
    http_to_records(headers, body)


@pytest.mark.parametrize("attempt", REFUSED.values(), ids=REFUSED.keys())
def test_what_a_stranger_wrote_is_not_repeated_whole(attempt: Callable[[], object]) -> None:
    """Reasons go into logs, answers, headers of dead letters."""
    with pytest.raises(ValueError, match=r"^.{1,500}$"):
        attempt()


@pytest.mark.parametrize("target", [f"/{'a' * 30_000}", f"/topics/{'b' * 30_000}", f"/x?{'c' * 30_000}"])
def test_an_answer_of_the_ingress_does_not_repeat_its_target(target: str) -> None:
    """It would get its own request back, and a log would have it twice."""
    assert len(Stage().post(request(target))) < 2000


# -- the ingress ------------------------------------------------------------------------------------------------------


def first_names(count: int) -> bytes:
    """Return a batch of events that begin with a name each of its own."""
    event = b'"specversion":"1.0","id":"1","source":"s","type":"t"}'
    return b"[" + b",".join(b'{"x%d":"y",%b' % (number, event) for number in range(count)) + b"]"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({**EVENT, "ce-x": '"' + '\\"' * 20_000}, b"x"),
        ({"content-type": BATCH.decode()}, first_names(20_000)),
        ({**EVENT, "content-type": "text/plain; charset=punycode"}, b"a" * 400_000),
    ],
    ids=["header of quotes", "batch of other first names", "punycode"],
)
def test_a_request_that_kept_the_loop_for_seconds_is_answered(headers: dict[str, str], body: bytes) -> None:
    """5 s, 5 s, 27 s."""
    with costing(1.0):
        answer = Stage().post(request(headers=headers, body=body))

    assert statuses(answer)[0] in (202, 400, 431)


def test_the_size_of_a_body_is_looked_at_before_the_body() -> None:
    """Too large a body is not read first: here it is no event either, and nothing noticed."""
    stage = Stage(IngressConfig(max_event_bytes=1000))
    event = {"content-type": "application/cloudevents+json"}
    answers = [stage.post(request(headers=event, body=b"?" * size)) for size in (1000, 1001)]

    assert [statuses(answer) for answer in answers] == [[400], [413]]


def test_a_large_body_is_taken_apart_beside_the_loop() -> None:
    """While it is, others are answered; a small one takes no thread."""
    stage = Stage(IngressConfig(max_event_bytes=8 * MIB))
    aside: list[tuple[Callable[[], Any], Callable[[Callable[[], Any]], object]]] = []
    stage.receiver._aside = lambda work, done: aside.append((work, done))
    _, wire = stage.connect(request(body=b"x" * 100_000))
    others = statuses(stage.post(request()))
    before = wire.written
    (work, done), *more = aside
    done(work)
    stage.settle(2)

    assert (others, before, statuses(wire.written), more) == ([202], b"", [202], [])


# -- connections ------------------------------------------------------------------------------------------------------


def test_heads_alone_reserve_nothing() -> None:
    """Eight of 90 bytes, that promised bodies, kept everybody out for 30 s."""
    config = IngressConfig(max_in_flight_bytes=8 * MIB, max_request_bytes=4 * MIB, max_event_bytes=MIB)
    stage = Stage(config)
    for _ in range(8):
        connection, _ = stage.connect()
        connection.data_received(
            request(body=b"")[:-4].replace(b"content-length: 0", b"content-length: %d" % (4 * MIB)) + b"\r\n\r\n"
        )
    stage.loop.run()

    assert (statuses(stage.post(request())), stage.receiver.counters.in_flight_bytes) == ([202], 0)


def test_what_has_come_is_reserved_and_given_back() -> None:
    """A body that is never whole counts with what there is of it, until its time is over."""
    stage = Stage()
    stage.connect(request(body=b"x" * 100_000)[:50_000])
    reserved = stage.receiver.counters.in_flight_bytes
    stage.advance(31)
    stage.loop.run()

    assert (40_000 < reserved < 50_000, stage.receiver.counters.in_flight_bytes) == (True, 0)


# -- Jolokia ----------------------------------------------------------------------------------------------------------

VERSION = {"type": "version"}


def test_a_list_of_requests_is_bounded(port: Port) -> None:
    """25,575 of them in 1 MiB were a minute."""
    with costing():
        answer = port.ask("/jolokia", method="POST", body=[VERSION] * 25_575)

    assert (json.loads(answer.text)["status"], "25575 requests in one" in answer.text) == (400, True)


def test_all_answers_to_a_list_are_bounded(make_port: MakePort, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they are asked for is not kept until all of it is there."""
    monkeypatch.setattr("inbound.observe.jmx.pages._MOST_ANSWERED", 5000)
    answer = make_port().ask("/jolokia", method="POST", body=[VERSION] * 500)

    found = json.loads(answer.text)
    assert (found["status"], found["error"].endswith("of 500 requests are too long; ask for less")) == (400, True)


def test_nothing_more_is_looked_up_for_a_client_that_is_gone(port: Port) -> None:
    """Of 500 answers it will read none; or it has ended its side alone, and learns that these are not all."""
    looked: list[bool] = []

    def gone() -> bool:
        looked.append(True)
        return len(looked) > 3

    face = JmxPages(port.made.snapshot, None, Rights(None), None, logging.getLogger("test"))
    body = json.dumps([VERSION] * 500).encode()
    page = face.answer(
        Request("POST", "/jolokia", host="127.0.0.1", client="127.0.0.1", body=body, gone=gone), "127.0.0.1"
    )

    assert page is not None
    answer = json.loads(page.body)
    assert (answer["status"], len(looked)) == (400, 4)
    assert "the client hung up when 3 of its 500 requests were done" in answer["error"]


@pytest.mark.parametrize("name", ["a", "Group"])
def test_the_attributes_of_a_request_are_bounded(port: Port, name: str) -> None:
    """Each is looked for in each bean: 150,000 in 1 MiB were a minute of the processor with a thousand partitions."""
    with costing():
        answer = port.jolokia(body={"type": "read", "mbean": "inbound:*", "attribute": [name] * 100_000})

    assert (answer["status"], answer["error"]) == (
        400, "read: 100000 attributes; 200 are the most: leave them out for all that there are",
    )  # fmt: skip


def test_what_all_answers_to_a_list_cost_is_bounded(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that find nothing make a small answer of much work."""
    monkeypatch.setattr("inbound.observe.jmx.pages._MOST_SECONDS", 0.0)
    answer = port.jolokia(body=[{"type": "search", "mbean": "inbound:topic=*a*b,*"}] * 500)

    assert (answer["status"], answer["error"]) == (
        400, "the answers to 1 of 500 requests took too long; send fewer in one",
    )  # fmt: skip


class Pages:
    """A server whose pages are large, or take until they are let go; probes are answered at once."""

    def __init__(self, *, size: int = 10, held: bool = False, bounds: PageBounds | None = None) -> None:
        self.made = 0
        self.go_on = threading.Event()
        self._size, self._held = size, held
        log = logging.getLogger("test")
        limits = replace(LIMITS, tick_seconds=0.05)
        self.server = PageServer(self._page, log=log, limits=limits, bounds=bounds or PageBounds())
        self.server.start("127.0.0.1", [0])

    def _page(self, request: Request) -> Page:
        if request.path == "/healthz":
            return text(200, "ok")
        self.made += 1
        if self._held:
            wait_for(self.go_on, 20, "the test lets the page go")
        return text(200, "x" * self._size)

    def connect(self, sent: bytes = b"") -> socket.socket:
        client = socket.create_connection((self.server.host, self.server.port), timeout=10)
        client.sendall(sent)
        return client

    def ask(self, path: str) -> int:
        """Return the status of an answer."""
        with self.connect(f"GET {path} HTTP/1.0\r\n\r\n".encode()) as client:
            return int(client.recv(65536).split()[1])

    def close(self) -> None:
        self.go_on.set()
        self.server.close()


def test_probes_are_answered_while_all_pages_are_being_made() -> None:
    """Forty bulk requests made `/healthz` fail, so that a supervisor restarted the process."""
    bounds = PageBounds(threads=2, waiting=2)
    with closing(Pages(held=True, bounds=bounds)) as pages, ExitStack() as crowd:
        clients = [crowd.enter_context(pages.connect(b"GET /slow HTTP/1.0\r\n\r\n")) for _ in range(4)]
        until(lambda: pages.made == 2, 10, "two are being made", look=0.001)
        until(lambda: pages.ask("/slow") == 503, 10, "one more is refused", look=0.001)
        probe = pages.ask("/healthz")
        pages.go_on.set()

        assert (probe, {client.recv(100).split()[1] for client in clients}) == (200, {b"200"})


def test_a_crowd_of_one_address_keeps_no_probe_of_that_address_out() -> None:
    """Behind a proxy, and on loopback, all are one address."""
    with closing(Pages(held=True)) as pages, ExitStack() as crowd:
        for _ in range(40):
            crowd.enter_context(pages.connect(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"))
        until(lambda: pages.ask("/slow") == 503, 10, "no further page is made", look=0.001)

        assert pages.ask("/healthz") == 200


def test_answers_that_nobody_reads_are_bounded() -> None:
    """Ten slow readers were 500 MiB."""
    bounds = PageBounds(unread=4 * MIB)
    with closing(Pages(size=8 * MIB, bounds=bounds)) as pages, ExitStack() as crowd:
        for _ in range(10):
            crowd.enter_context(pages.connect(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n"))
            until(lambda: pages.server._server.unread > 0, 10, "an answer waits", look=0.001)
        refused = pages.ask("/large")

        assert (refused, pages.ask("/healthz"), pages.made <= 3) == (503, 200, True)
