"""HTTP as the ingress speaks it: what is read, what is bounded, and the order of answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbound.config import IngressConfig
from inbound.http.server.listener import ServerLimits
from tests.ingress.ingress_stage import EVENT, Stage, request, statuses


def test_a_request_is_read_in_any_pieces() -> None:
    """Byte by byte, it is the same event."""
    stage = Stage()
    connection, wire = stage.connect()

    for byte in request(body=b"in pieces"):
        connection.data_received(bytes([byte]))
    stage.settle(2)

    assert statuses(wire.written) == [202]
    ((topic, record),) = stage.producer.written
    assert (topic, record.value) == ("orders", b"in pieces")


def test_pipelined_requests_are_answered_in_order_once_kafka_has_them() -> None:
    """202 says that the event is in the log. The answer to a refused request waits for those before it."""
    stage = Stage(held=True)
    _, wire = stage.connect(request() + request(target="/") + request())
    stage.settle()
    before = wire.written
    stage.acknowledge()

    assert before == b""
    assert statuses(wire.written) == [202, 404, 202]


def test_who_has_ended_his_side_is_answered_however_slowly_he_took_the_answer_before() -> None:
    """The time that he had for that one is not over the next one's."""
    stage = Stage(held=True)
    connection, wire = stage.connect(request())
    connection.eof_received()
    connection.pause_writing()
    connection.resume_writing()
    stage.advance(40.0)
    stage.acknowledge(2)

    assert (statuses(wire.written), wire.closed, wire.aborted) == ([202], True, False)


def test_a_small_event_does_not_overtake_a_large_one_before_it() -> None:
    """The large one is taken apart by another thread: what comes behind it on the same connection waits for it."""
    stage = Stage()
    aside: list[tuple[Callable[[], Any], Callable[[Callable[[], Any]], object]]] = []
    stage.receiver._aside = lambda work, done: aside.append((work, done))
    connection, wire = stage.connect(request(body=b"x" * 70_000) + request(body=b"second") + request(body=b"third"))
    stage.settle(2)
    for work, done in aside:
        done(work)
    connection.data_received(request(body=b"fourth"))
    stage.settle(2)

    assert [len(record.value or b"") for _, record in stage.producer.written] == [70_000, 6, 5, 6]
    assert (statuses(wire.written), len(aside)) == ([202] * 4, 3)


def test_a_body_that_cannot_be_taken_apart_beside_the_loop_is_answered() -> None:
    """Such as for want of memory: else the connection would wait without end, and hold its bytes."""
    stage = Stage()

    def fails(work: Callable[[], Any], done: Callable[[Callable[[], Any]], object]) -> None:
        def ends() -> Any:
            raise MemoryError

        with pytest.raises(MemoryError):  # the loop logs it
            done(ends)

    stage.receiver._aside = fails
    answer = stage.post(request(body=b"x" * 70_000))

    assert (statuses(answer), stage.receiver.counters.in_flight_bytes) == ([500], 0)


def test_many_pipelined_requests_are_not_read_before_the_first_are_answered() -> None:
    """What one connection can have in memory is bounded."""
    stage = Stage(limits=ServerLimits(pipelined=3), held=True)
    _, wire = stage.connect(request() * 3)
    paused = not wire.reading
    stage.acknowledge()

    assert (paused, wire.reading, statuses(wire.written)) == (True, True, [202] * 3)


def test_a_chunked_body_is_put_together() -> None:
    """Trailers do not change the event: they come behind the body."""
    stage = Stage()
    head = request(headers=CHUNKED, body=b"")

    answer = stage.post(head + b"3\r\nabc\r\n2\r\nde\r\n0\r\nce-id: other\r\n\r\n")

    assert statuses(answer) == [202]
    ((_, record),) = stage.producer.written
    assert (record.value, dict(record.headers)["ce_id"]) == (b"abcde", b"1")


def test_a_declared_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    """The client learns it at once, and may read the answer although it goes on sending for a while."""
    stage = Stage(IngressConfig(max_request_bytes=100))
    connection, wire = stage.connect(request(headers={**EVENT, "content-length": "101"}, body=b"x" * 50))
    stage.loop.run()
    connection.data_received(b"x" * 51)

    assert (statuses(wire.written), wire.ended, wire.closed) == ([413], True, False)
    stage.advance(10)
    assert wire.closed


CHUNKED = {**EVENT, "transfer-encoding": "chunked", "content-length": "-"}
ASKS = {**EVENT, "expect": "100-continue", "content-length": "5"}


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\nhost: b\r\ncontent-length: 0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\nce id: 1\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n" + b"".join(b"x-%d: %b\r\n" % (n, b"y" * 50) for n in range(100)), 431),
        # A chunked body does not announce its size.
        (request(headers=CHUNKED, body=b"64\r\n" + b"x" * 100 + b"\r\n1\r\nx\r\n0\r\n\r\n"), 413),
        # A client that asks before it sends, and is refused, may send the body all the same.
        (request(target="/", headers=ASKS, body=b""), 404),
        (request().replace(b"HTTP/1.1", b"HTTP/1.0"), 202),
    ],
)
def test_an_answer_after_which_nothing_more_is_read_ends_the_connection(message: bytes, status: int) -> None:
    """TLS on the plain port, two lengths, two hosts: nothing of it is guessed at."""
    answer = Stage(IngressConfig(max_request_bytes=100), ServerLimits(head_bytes=1000)).post(message)

    assert (statuses(answer), b"Connection: close" in answer) == ([status], True)
    assert status != 413 or b"more than ingress.max_request_bytes (100)" in answer


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=20))
def test_no_bytes_are_too_much_for_it(pieces: list[bytes]) -> None:
    """For any bytes, in any pieces: an answer or none, and never an error."""
    stage = Stage()
    connection, wire = stage.connect()

    for piece in pieces:
        connection.data_received(piece)
    stage.settle()
    connection.connection_lost(None)
    stage.settle()

    assert all(status >= 400 for status in statuses(wire.written))
    assert (stage.receiver.counters.in_flight_bytes, stage.listener.connections) == (0, {})


def test_what_an_answer_quotes_of_a_request_stays_on_its_line() -> None:
    """A target's `%0d%0a` would else be a separate line in the answer, or in a log."""
    answer = Stage().post(request(target="/topics/a%0d%0aX-Injected:%20yes%E2%80%A8b"))

    assert answer.endswith(b"topic a??X-Injected: yes?b: not one that may be posted to here; see ingress.topics\n")


def test_the_body_of_a_refused_request_is_read_however_it_comes() -> None:
    """A client that gets a 404, or a retry later, may send all of it, and ask again on the same connection."""
    stage = Stage()
    connection, wire = stage.connect()
    refused = request(target="/", body=b"x" * 800_000)
    for at in range(0, len(refused), 20_000):
        connection.data_received(refused[at : at + 20_000])
        stage.settle()
    connection.data_received(request())
    stage.settle(2)

    assert (statuses(wire.written), wire.closed) == ([404, 202], False)


def test_an_upgrade_is_ignored() -> None:
    """As Java's client asks for HTTP/2 with its first request: it is served in HTTP/1.1, and so are those after it."""
    stage = Stage()
    connection, wire = stage.connect()
    asked = {
        **EVENT,
        "connection": "Upgrade, HTTP2-Settings",
        "upgrade": "h2c",
        "http2-settings": "AAMAAABkAAQCAAAAAAIAAAAA",
    }

    connection.data_received(request(headers=asked))
    stage.settle(2)
    connection.data_received(request())
    stage.settle(2)

    assert statuses(wire.written) == [202, 202]
    assert [record.value for _, record in stage.producer.written] == [b"hello"] * 2


def test_a_client_that_asks_whether_to_send_gets_a_yes() -> None:
    """curl does so with larger bodies."""
    stage = Stage()
    connection, wire = stage.connect(request(headers=ASKS, body=b""))
    told = wire.written
    connection.data_received(b"hello")
    stage.settle(2)

    assert (told, statuses(wire.written)) == (b"HTTP/1.1 100 Continue\r\n\r\n", [100, 202])


def test_a_slow_client_gets_a_408() -> None:
    """408 for half a request; without a request the connection just ends."""
    stage = Stage(limits=ServerLimits(request_seconds=30, idle_seconds=75))
    slow, slow_wire = stage.connect()
    _, silent_wire = stage.connect()
    slow.data_received(request()[:60])

    stage.advance(31)
    stage.loop.run()

    assert (statuses(slow_wire.written), silent_wire.written, silent_wire.closed) == ([408], b"", True)
    assert stage.receiver.counters.answers == {408: 1}


def test_a_kept_connection_ends_when_nothing_comes() -> None:
    """But not while an answer is under way, however long Kafka takes."""
    stage = Stage(limits=ServerLimits(idle_seconds=75), held=True)
    _, wire = stage.connect(request())

    stage.advance(1000)
    waits = not wire.closed
    stage.acknowledge()
    stage.advance(76)

    assert (waits, statuses(wire.written), wire.closed) == (True, [202], True)


def test_a_client_that_takes_no_answers_is_not_read_and_ends() -> None:
    """Its answers would fill the memory."""
    stage = Stage(limits=ServerLimits(answer_seconds=30))
    connection, wire = stage.connect()

    connection.pause_writing()
    reading = wire.reading
    stage.advance(31)

    assert (reading, wire.closed) == (False, True)


def test_too_many_connections_are_refused_while_all_others_are_answered() -> None:
    """And counted."""
    stage = Stage(limits=ServerLimits(connections=1), held=True)
    _, first = stage.connect(request())
    _, second = stage.connect()

    assert (first.closed, statuses(second.written), second.closed, stage.listener.refused) == (False, [503], True, 1)


def test_who_has_the_most_connections_and_waits_longest_makes_room() -> None:
    """However many silent connections one client opens, others get in; one address has half of all at most."""
    stage = Stage(limits=ServerLimits(connections=4))
    wires = []
    for address in ("10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.3", "10.0.0.4"):
        stage.advance(1)
        wires.append(stage.connect(address=address)[1])

    assert [wire.closed for wire in wires] == [True, False, True, False, False, False]


def test_who_is_being_answered_makes_no_room_though_it_has_begun_to_ask_again() -> None:
    """Its event is written; without the answer it would be sent again."""
    stage = Stage(limits=ServerLimits(connections=1), held=True)
    _, first = stage.connect(request() + b"POST /topics")
    _, second = stage.connect()
    stage.acknowledge()

    assert (statuses(first.written), statuses(second.written)) == ([202], [503])


@pytest.mark.parametrize("then", [b"POST /topics", b"no HTTP\r\n\r\n"], ids=["half a request", "no request"])
def test_what_was_read_is_answered_however_long_kafka_takes(then: bytes) -> None:
    """The time of what came behind it, and will never be a request, is not its own."""
    stage = Stage(limits=ServerLimits(request_seconds=30), held=True)
    connection, wire = stage.connect(request() + then)
    connection.eof_received()
    stage.advance(31)
    stage.acknowledge(2)

    assert statuses(wire.written)[:1] == [202]


def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    """Half a request or one under way: what has come is counted, not what was announced, and is free again."""
    stage = Stage()
    half, _ = stage.connect(request(headers={**EVENT, "content-length": "100"}))
    whole, wire = stage.connect(request())
    reserved = stage.receiver.counters.in_flight_bytes

    half.connection_lost(None)
    whole.connection_lost(None)
    wire.closed = True
    stage.settle()

    assert (reserved, stage.receiver.counters.in_flight_bytes) == (10, 0)
    assert len(stage.producer.written) == 1


def test_large_heads_are_in_flight_too() -> None:
    """A connection may have 128 requests that wait, of 64 KiB each, with next to no body."""
    stage = Stage(held=True)
    connection, _ = stage.connect()
    for size in (100, 50_000):
        connection.data_received(request(headers={**EVENT, "x-a": "a" * size}, body=b"x"))
    held = stage.receiver.counters.in_flight_bytes
    stage.acknowledge(2)

    assert (50_000 < held < 50_300, stage.receiver.counters.in_flight_bytes) == (True, 0)


def test_one_address_that_sends_bodies_in_part_keeps_no_other_one_out() -> None:
    """64 MiB are sent in no time, and could be held for 30 s, again and again."""
    stage = Stage(IngressConfig(max_in_flight_bytes=4000, max_request_bytes=1000, max_event_bytes=1000))
    for _ in range(5):
        stage.connect(request(body=b"x" * 999, headers={**EVENT, "content-length": "1000"}), "10.0.0.1")
    stage.settle()
    held = stage.receiver.counters.in_flight_bytes
    _, wire = stage.connect(request(body=b"x" * 900), "10.0.0.2")
    stage.settle(2)

    assert (held, statuses(wire.written)) == (1998, [202])


@pytest.mark.parametrize("headers", [{"connection": "close"}, {}], ids=["last answer", "idle"])
def test_a_client_that_does_not_take_the_end_of_an_answer_is_hung_up_on(headers: dict[str, str]) -> None:
    """What is left of it is too little to be waited for as an answer is, and the connection stayed closed."""
    stage = Stage()
    _, wire = stage.connect(request(headers={**EVENT, **headers}))
    stage.settle(2)

    stage.advance(75)  # by then it is closed, when what is written is taken
    closed = wire.closed, wire.aborted
    stage.advance(30)

    assert (closed, wire.aborted) == ((True, bool(headers)), True)


def test_a_client_may_end_its_side_and_wait_for_the_answer() -> None:
    """As `nc` does."""
    stage = Stage()
    connection, wire = stage.connect(request())

    stays = connection.eof_received()
    stage.settle()

    assert (stays, statuses(wire.written), wire.closed) == (True, [202], True)


def test_draining_answers_what_is_under_way_and_ends_the_rest() -> None:
    """Who was served before may ask once more within the grace: its request may be on the wire already."""
    stage = Stage()
    served, served_wire = stage.connect()
    _, fresh_wire = stage.connect()
    busy, busy_wire = stage.connect()
    served.data_received(request())
    stage.settle(2)
    stage.producer.held = True
    busy.data_received(request())

    stage.listener.drain(grace=1.0)
    ended_at_once = fresh_wire.closed
    stage.producer.held = False
    served.data_received(request())
    stage.settle(2)

    assert (ended_at_once, statuses(served_wire.written), statuses(busy_wire.written)) == (True, [202, 202], [202])
    assert (served_wire.closed, busy_wire.closed) == (True, True)
    assert b"Connection: close" in busy_wire.written
