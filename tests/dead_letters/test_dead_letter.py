"""What a dead letter says, of each of its writers, and the record that it goes back to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbound.dead_letters.letter import as_read, counted, letter_of
from inbound.processors.batch import PlainRecord, Record
from inbound.processors.cloudevents_bridge import RecordParts
from inbound.processors.dead_letters import Origin
from inbound.processors.dispatch.transport import Answer
from tests.dead_letters.dead_letter_stage import STRUCTURED, event, failed, knative, refused


def said(record: Record) -> tuple[object, ...]:
    """Return the reason and the origin of a letter."""
    letter = letter_of(0, record)
    return letter.kind, letter.group, letter.origin, letter.destination, letter.code, letter.reason


def test_a_letter_of_the_dispatcher_says_who_refused_what_and_why() -> None:
    """The URL, the code, the answer decoded; the record's place; the event."""
    letter = letter_of(0, refused(event("a1")))

    assert said(refused(event("a1"))) == (
        "event", "orders-svc.billing", Origin("orders", 3, 7), "http://billing/in", "503", "try later",
    )  # fmt: skip
    assert (letter.event_id, letter.event_type, letter.redrives, letter.why) == ("a1", "order", 0, "503 try later")


def test_a_letter_of_on_error_says_what_was_raised() -> None:
    """Knative's attributes in it are the record's own, from before."""
    once_refused = knative(event("a1"))

    assert said(failed(once_refused)) == (
        "failure", "stock-svc", Origin("orders", 3, 7), None, None, "ValueError: no such order 17",
    )  # fmt: skip


def test_a_refused_reply_is_another_kind_than_the_event_that_it_answers() -> None:
    """It names the place of that event."""
    letter = letter_of(0, refused(event("answer", 0), read=event("a1", 9), url="http://replies/"))

    assert (letter.kind, letter.origin, letter.event_id) == ("reply", Origin("orders", 3, 9), "answer")


def test_a_letter_of_another_writer_has_no_origin() -> None:
    """Its reason is shown."""
    assert said(knative(event("a1"))) == ("event", None, None, "http://other/", "500", "boom")


def test_the_last_of_several_sets_of_headers_counts() -> None:
    """A letter that a channel read from its dead letter topic, and gave up again."""
    again = failed(refused(event("a1", group=b"x"))._replace(offset=40))

    assert said(again)[:3] == ("failure", "stock-svc", Origin("orders", 3, 40))


BROKEN = [
    ("inbound-dead-letter-group", None),
    ("inbound-dead-letter-topic", b"orders"),
    ("inbound-dead-letter-partition", b"-1"),
    ("inbound-dead-letter-offset", "٣".encode()),
    ("inbound-redrives", b"many"),
]


def test_headers_that_say_nonsense_are_none() -> None:
    """No origin, no redrives, and nothing is raised."""
    letter = letter_of(0, PlainRecord(1, value=b"x", headers=[*BROKEN, ("knativeerrordata", b"no base64!")]))

    assert (letter.origin, letter.redrives, letter.reason, letter.group) == (None, 0, "no base64!", "")


# -- back ------------------------------------------------------------------------------------------------------------------

ENVELOPE = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":1.10}'
RECORDS = {
    "binary": event("a1", key=b"k", other=b"header"),
    "structured": PlainRecord(7, key=b"k", value=ENVELOPE, headers=[*STRUCTURED, ("ce_knativeerrorcode", b"own")]),
    "no event": PlainRecord(7, value=b"\xff", headers=[("some", b"header"), ("ce_knativeerrorcode", b"own")]),
    "no value": PlainRecord(7, key=b"k", headers=[]),
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_letter_goes_back_to_the_very_record_that_was_read(record: PlainRecord) -> None:
    """Byte for byte, from both writers, for any record."""
    parts = RecordParts(record.key, record.value, [(name, raw or b"") for name, raw in record.headers])

    assert (as_read(refused(record)), as_read(failed(record))) == (parts, parts)


def test_of_an_event_that_had_waited_the_headers_of_its_waiting_are_taken_out() -> None:
    """Where they are the same group's: others may mean something to who reads the topic."""
    waited = [("inbound-retry-group", b"orders-svc.billing"), ("inbound-retry-due", b"1")]
    others = [("inbound-retry-group", b"other"), ("inbound-retry-due", b"1")]

    kept = [list(as_read(refused(_with(event("a1"), added))).headers) for added in (waited, others)]

    assert kept == [list(event("a1").headers), [*event("a1").headers, *others]]


def _with(record: Record, headers: list[tuple[str, bytes]]) -> PlainRecord:
    return PlainRecord(record.offset, key=record.key, value=record.value, headers=[*record.headers, *headers])


def test_a_letter_of_a_letter_goes_back_to_the_letter() -> None:
    """Only the last set of headers is taken away: where the first came from is not forgotten."""
    first = refused(event("a1"))

    assert as_read(failed(first)) == RecordParts(first.key, first.value, list(first.headers))  # type: ignore[arg-type]


def test_the_counter_travels_with_the_record_through_both_writers() -> None:
    """So that a letter that comes back says how often it was redriven."""
    sent = counted(as_read(refused(event("a1"))), 2)
    record = PlainRecord(8, key=sent.key, value=sent.value, headers=sent.headers)
    structured = PlainRecord(8, value=ENVELOPE, headers=[*STRUCTURED, ("inbound-redrives", b"2")])

    assert [letter_of(0, one).redrives for one in (refused(record), failed(record), refused(structured))] == [2, 2, 2]
    again = counted(as_read(refused(record)), 3)
    assert [value for name, value in again.headers if name == "inbound-redrives"] == [b"3"]


names = st.sampled_from(
    ["ce_id", "ce_specversion", "content-type", "knativeerrordata", "ce_knativeerrordest", "inbound-dead-letter-group",
     "inbound-dead-letter-offset", "inbound-redrives", "x"]
)  # fmt: skip
records = st.builds(
    PlainRecord, st.integers(0, 99), key=st.none() | st.binary(max_size=3),
    value=st.none() | st.binary(max_size=9) | st.sampled_from([ENVELOPE, b'{"knativeerrordest":"x"}', b'{"a":[' * 50]),
    headers=st.lists(st.tuples(names, st.none() | st.binary(max_size=5)), max_size=6),
)  # fmt: skip


@given(records)
def test_any_record_is_a_letter(record: PlainRecord) -> None:
    """Nothing is raised: an operator sees what there is."""
    letter = letter_of(0, record)

    assert (letter.offset, as_read(record).key) == (record.offset, record.key)


@given(records)
def test_on_error_changes_no_record(record: PlainRecord) -> None:
    """Its letter goes back to it, but that null headers are empty."""
    assert as_read(failed(record)).headers == [(name, raw or b"") for name, raw in record.headers]


def test_an_answer_that_never_came_is_a_reason_too() -> None:
    """As Knative has it: code 500, and the data says why."""
    letter = letter_of(0, refused(event("a1"), answer=Answer(0, problem="no connection")))

    assert letter.why == "500 no connection"
