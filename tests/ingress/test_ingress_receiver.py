"""What becomes of an event: written, then answered; or refused, with the reason."""

from __future__ import annotations

import json

import pytest

from inbound.config import IngressConfig
from inbound.ingress.producer import Failure, FailureCause
from tests.ingress.ingress_stage import AWAY, EVENT, Stage, request, statuses

BATCH = {"content-type": "application/cloudevents-batch+json"}
STRUCTURED = {"content-type": "application/cloudevents+json"}


def event(number: int, **more: object) -> dict[str, object]:
    return {"specversion": "1.0", "id": str(number), "source": "/tests", "type": "t", "data": number, **more}


def batch(count: int) -> bytes:
    return request(headers=BATCH, body=json.dumps([event(number) for number in range(count)]).encode())


def test_every_mode_is_taken() -> None:
    """A binary, a structured and a batched request; the partition key becomes the record's key."""
    stage = Stage()
    structured = json.dumps(event(2, partitionkey="anna")).encode()
    both = json.dumps([event(3), event(4, partitionkey="ben")]).encode()

    answers = stage.post(
        request(headers={**EVENT, "ce-partitionkey": "carl"})
        + request(headers=STRUCTURED, body=structured)
        + request(headers=BATCH, body=both)
        + request(headers=BATCH, body=b"[]")
    )

    assert statuses(answers) == [202] * 4
    assert [record.key for _, record in stage.producer.written] == [b"carl", b"anna", None, b"ben"]
    assert stage.receiver.counters.accepted_events == 4


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        (("partitionkey",), [b"p", None, b"p", b"7", None]),
        (("partitionkey", "subject"), [b"p", b"s", b"p", b"7", b"s"]),
        (("subject", "id"), [b"s", b"s", b"s", b"4", b"s"]),
        ((), [None] * 5),
    ],
)
def test_the_key_is_the_first_attribute_that_an_event_has(key: tuple[str, ...], keys: list[bytes | None]) -> None:
    """In every mode; an empty one is none, a number is its digits."""
    stage = Stage(IngressConfig(key=key))
    three = [event(3, partitionkey="p", subject="s"), event(4, partitionkey=7), event(5, partitionkey="", subject="s")]

    stage.post(request(headers={**EVENT, "ce-partitionkey": "p", "ce-subject": "s"}))
    stage.post(request(headers={**EVENT, "ce-subject": "s"}))
    stage.post(request(headers=BATCH, body=json.dumps(three).encode()))

    assert [record.key for _, record in stage.producer.written] == keys


@pytest.mark.parametrize("name", ["data", "partitionKey", "", "datacontenttype"])
def test_a_key_that_is_no_attribute_is_refused(name: str) -> None:
    """Names of attributes are a-z and 0-9."""
    with pytest.raises(ValueError, match="need an attribute of events such as subject"):
        IngressConfig(key=(name,))


def test_requests_are_timed_until_they_are_answered() -> None:
    """From their last byte on; those refused before are not."""
    stage = Stage()
    counters = stage.receiver.counters
    stage.producer.held = True
    stage.connect(request() + request(target="/nowhere") + request(headers={}))
    stage.loop.now += 3.0
    waiting = counters.in_flight_requests
    stage.acknowledge(2)

    seen = counters.request_seconds.status()
    assert (waiting, counters.in_flight_requests, seen.count, seen.sum) == (2, 0, 2, 6.0)


def test_events_are_counted_by_where_they_are() -> None:
    """Those that failed are not there."""
    stage = Stage(fails=[None, Failure(FailureCause.TOO_LARGE, "1 MB"), None, None])
    stage.post(batch(3))
    stage.post(request(target="/topics/returns"))

    assert stage.receiver.counters.produced == {("orders", 0): 2, ("returns", 0): 1}


def test_what_a_subscription_sends_is_taken() -> None:
    """A subscriber may be the ingress, here or elsewhere: chains of channels are legal."""
    stage = Stage()
    assert statuses(stage.post(request(headers={**EVENT, "inbound-dispatched": "1"}))) == [202]


@pytest.mark.parametrize(
    ("message", "status", "said"),
    [
        (request(headers={}), 400, "no CloudEvent"),
        (request(headers={**EVENT, "ce-id": ""}), 400, "id"),
        (request(headers={**EVENT, "ce-specversion": "2.0"}), 400, "specversion"),
        (request(headers=STRUCTURED, body=b"{"), 400, "JSON"),
        (request(headers=BATCH, body=b'[{"specversion": "1.0"}]'), 400, "event 1 of 1"),
        (request(headers={"content-type": "application/cloudevents+avro"}), 415, "of the event formats only"),
        (
            request(headers={"content-type": f"application/cloudevents+avro;x={'a' * 600}"}),
            415,
            "of the event formats only",
        ),
        (request(headers={**EVENT, "ce-time": "of the event formats only"}), 400, "no RFC 3339 timestamp"),
        (request(headers={**EVENT, "content-encoding": "gzip"}), 415, "send the body as it is"),
        (request(target="/nowhere"), 404, "neither the path /nowhere"),
        (request(method="PUT"), 405, "by POST"),
        (request(method="GET"), 405, "by POST"),
        (b"CONNECT orders:80 HTTP/1.1\r\nhost: orders:80\r\n\r\n", 405, "by POST"),
        (request(headers={**EVENT, "origin": "http://evil.example"}), 403, "pages in a browser"),
    ],
)
def test_a_refusal_says_why(message: bytes, status: int, said: str) -> None:
    """In one line of text; the connection stays, and nothing is written."""
    stage = Stage()

    answer = stage.post(message + request())

    assert (statuses(answer), len(stage.producer.written)) == ([status, 202], 1)
    assert said in answer.decode()


def test_an_event_too_large_for_a_record_is_refused() -> None:
    """413 names the event; none of its batch is written."""
    stage = Stage(IngressConfig(max_event_bytes=200))
    both = json.dumps([event(1), event(2, data="x" * 200)]).encode()

    answer = stage.post(request(headers=BATCH, body=both))

    assert (statuses(answer), stage.producer.written) == ([413], [])
    assert b"event 2 of 2 has " in answer


def test_a_topic_that_was_just_made_is_found() -> None:
    """The request waits until the topics are read again, and only then is the answer 404."""
    stage = Stage()
    stage.loop.now += 5
    connection, wire = stage.connect()
    other, other_wire = stage.connect()

    connection.data_received(request(target="/topics/new"))
    other.data_received(request(target="/topics/missing"))
    stage.settle()
    before = wire.written
    stage.producer.existing.add("new")
    stage.look()
    stage.settle(2)

    assert (before, statuses(wire.written), statuses(other_wire.written)) == (b"", [202], [404])
    assert b"topic missing: does not exist; create it, or check the name" in other_wire.written


def test_a_missing_topic_is_made_only_where_that_is_configured() -> None:
    """And only one that may be posted to."""
    stage = Stage(IngressConfig(topics_pattern="new-.*", create_partitions=3))
    stage.loop.now += 5
    _, wire = stage.connect(request(target="/topics/new-one") + request(target="/topics/other"))
    stage.settle()
    stage.look()
    stage.settle(2)

    assert (statuses(wire.written), stage.producer.made) == ([202, 404], [("new-one", 3)])


def test_kafka_away_is_503_until_it_is_back() -> None:
    """Each event is tried once; then it is known, and no request waits for it."""
    stage = Stage(fails=[AWAY])

    first = stage.post(request())
    second = stage.post(request())
    stage.producer.is_away = "no broker answers"
    stage.look()
    ready = stage.post(request("/readyz", method="GET", body=b""))
    third = stage.post(request("/topics/returns"))
    stage.producer.is_away = None
    stage.loop.now += 1
    stage.look()
    fourth = stage.post(request())

    assert [statuses(answer) for answer in (first, second, ready, third, fourth)] == [[503], [503], [503], [503], [202]]
    assert all(b"Retry-After: 2" in answer for answer in (first, second, third))
    assert b"Kafka is away: no broker answers" in third


def test_a_topic_that_does_not_acknowledge_costs_no_other_one() -> None:
    """A partition without a leader, say: Kafka answers. One event at a time tries whether it is over."""
    stage = Stage(fails=[AWAY])
    stage.post(request())
    stage.loop.now += 1
    other = stage.post(request("/topics/returns"))
    stage.look()
    stage.producer.held = True
    _, wire = stage.connect(request())
    beside = stage.post(request())
    ready = stage.post(request("/readyz", method="GET", body=b""))
    doubts = stage.watch.doubts()
    stage.acknowledge()
    after = stage.post(request())

    assert (list(doubts), stage.watch.doubts()) == (["orders"], {})
    assert [statuses(answer) for answer in (other, beside, ready, wire.written, after)] == [
        [202], [503], [200], [202], [202],
    ]  # fmt: skip
    assert b"topic orders: timed out" in beside


def test_what_the_client_gave_up_is_no_reason_to_doubt() -> None:
    """It can write nothing more, and another one takes its place: later events are written."""
    stage = Stage(fails=[Failure(FailureCause.GIVEN_UP, "_FATAL")])

    assert [statuses(stage.post(request())) for _ in range(2)] == [[503], [202]]


def test_a_batch_of_which_a_part_is_written_says_so() -> None:
    """503: sent again, nothing is lost, and that part comes twice."""
    stage = Stage(fails=[None, AWAY, None])

    answer = stage.post(batch(3))

    assert (statuses(answer), len(stage.producer.written)) == ([503], 2)
    assert b"2 of 3 events were written: sent again, they come twice" in answer
    counters = stage.receiver.counters
    assert (counters.accepted_events, counters.written_events, counters.failed_events) == (0, 2, 1)


def test_a_batch_of_which_an_event_is_refused_for_good_names_it() -> None:
    """The others are written, and need not come again."""
    stage = Stage(fails=[None, Failure(FailureCause.TOO_LARGE, "MSG_SIZE_TOO_LARGE"), None])

    answer = stage.post(batch(3))

    assert (statuses(answer), len(stage.producer.written)) == ([413], 2)
    assert b"of its 3 events that is number 2; the others are written: do not send them again" in answer
    assert b"Inbound-Refused: 2\r\n" in answer


def test_so_many_refused_events_that_a_header_cannot_name_them_are_counted() -> None:
    """Clients and proxies end at headers of 8 to 64 KiB: a request of 8 MiB has more events than that has room for."""
    stage = Stage(fails=[*[Failure(FailureCause.FORBIDDEN, "TOPIC_AUTHORIZATION_FAILED")] * 2000, None])

    answer = stage.post(batch(2001))

    assert (statuses(answer), len(stage.producer.written)) == ([403], 1)
    assert (
        b"; of its 2001 events that is 2000, too many to be named: to learn which, send fewer in one; 1 are written"
        in answer
    )
    assert (b"Inbound-Refused" in answer, len(answer) < 1000) == (False, True)


def test_what_is_to_come_again_goes_before_what_is_refused_for_good() -> None:
    """Else an event that Kafka did not acknowledge would be given up for the one beside it."""
    stage = Stage(fails=[Failure(FailureCause.TOO_LARGE, "MSG_SIZE_TOO_LARGE"), AWAY, None])

    answer = stage.post(batch(3))

    assert statuses(answer) == [503]
    assert b"Inbound-Refused" not in answer


@pytest.mark.parametrize(
    ("beside", "cause", "status"),
    [(FailureCause.TOO_LARGE, FailureCause.TOO_LARGE, 413), (FailureCause.BESIDE, FailureCause.INVALID, 422)],
)
def test_who_shares_a_batch_with_an_event_that_is_refused_is_written(
    beside: FailureCause, cause: FailureCause, status: int
) -> None:
    """The client fails the whole batch, of which nothing is written: each of it goes again in one of its own."""
    stage = Stage()
    refused = Failure(cause, "refused")
    stage.producer.of_batches = frozenset({beside, cause})
    stage.producer.fails = [Failure(beside, "beside"), refused, None, refused]  # together, then one after the other
    _, wire = stage.connect(request() + request(body=b"poison"))
    stage.settle(2)

    assert (statuses(wire.written), len(stage.producer.alone)) == ([202, status], 2)


def test_who_cannot_be_sent_again_alone_is_not_refused_for_good() -> None:
    """The client takes nothing more just then: whether the event is too large is not known."""
    stage = Stage()
    stage.producer.of_batches = frozenset({FailureCause.TOO_LARGE})
    stage.producer.fails = [Failure(FailureCause.TOO_LARGE, "MSG_SIZE_TOO_LARGE")]
    stage.producer.refuses = [None, Failure(FailureCause.GIVEN_UP, "_FATAL")]

    assert statuses(stage.post(request())) == [503]


def test_when_the_client_takes_no_more_the_rest_is_not_sent() -> None:
    """Later events must not overtake the one that was not taken."""
    stage = Stage()
    stage.producer.refuses = [None, Failure(FailureCause.FULL, "the client's queue is full")]

    answer = stage.post(batch(5))

    assert (statuses(answer), len(stage.producer.written)) == ([429], 1)
    assert stage.receiver.counters.in_flight_events == 0


def test_what_is_in_flight_is_bounded() -> None:
    """429 as soon as the declared length does not fit; what is answered makes room."""
    stage = Stage(IngressConfig(max_request_bytes=100, max_in_flight_bytes=150), held=True)
    stage.connect(request(body=b"x" * 100))

    refused = stage.post(request(body=b"x" * 51))
    stage.acknowledge()
    taken = stage.post(request(body=b"x" * 51))

    assert (statuses(refused), statuses(taken)) == ([429], [202])
    assert b"Retry-After: 1" in refused
    assert stage.receiver.counters.in_flight_bytes == 0


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (Failure(FailureCause.TOO_LARGE, "MSG_SIZE_TOO_LARGE"), 413),
        (Failure(FailureCause.NO_TOPIC, "UNKNOWN_TOPIC_OR_PART"), 404),
        (Failure(FailureCause.INVALID, "INVALID_RECORD"), 422),
        (Failure(FailureCause.FORBIDDEN, "TOPIC_AUTHORIZATION_FAILED"), 403),
        (Failure(FailureCause.REFUSED, "THROTTLING_QUOTA_EXCEEDED"), 503),
    ],
)
def test_a_refusal_of_the_brokers_says_why(failure: Failure, status: int) -> None:
    """With what they said."""
    stage = Stage(fails=[failure])

    answer = stage.post(request())

    assert statuses(answer) == [status]
    assert failure.text.encode() in answer


def test_a_token_is_asked_for() -> None:
    """Before the body is read; health needs no token."""
    stage = Stage()
    stage.receiver.token = "sesame"

    answers = stage.post(
        request()
        + request(headers={**EVENT, "authorization": "Bearer wrong"})
        + request(headers={**EVENT, "authorization": "Basic sesame"})
        + request(headers={**EVENT, "authorization": "bearer sesame"})
        + request("/healthz", method="GET", body=b"")
    )

    assert statuses(answers) == [401, 401, 401, 202, 200]
    assert b"WWW-Authenticate: Bearer" in answers
    assert b"sesame" not in answers


def test_health_and_readiness() -> None:
    """For probes: the second one is 503 while the ingress stops."""
    stage = Stage()
    ask = request("/healthz", method="GET", body=b"") + request("/readyz", method="GET", body=b"")

    well = stage.post(ask)
    stage.receiver.draining = True
    stopping = stage.post(ask)

    assert (statuses(well), statuses(stopping)) == ([200, 200], [200, 503])
