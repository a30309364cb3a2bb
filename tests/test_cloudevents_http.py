"""CloudEvents as HTTP messages, and the CloudEvents SDK as the judge where it follows the binding."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pytest
from cloudevents.core.bindings import http as sdk
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.processors.cloudevents_http import encode_batch, encode_binary, encode_structured, percent_encoded
from tests.test_cloudevents_encode import ENVELOPE, events, same, texts

MOMENT = datetime(2018, 4, 5, 17, 31, tzinfo=UTC)


@settings(max_examples=60)
@given(events())
def test_the_sdk_reads_what_we_write(event: CloudEvent) -> None:
    """Binary and structured, attributes and data."""
    for message in (encode_binary(event), encode_structured(event)):
        same(sdk.from_http_event(sdk.HTTPMessage(message.headers, message.body)), event)


@settings(max_examples=60)
@given(events())
def test_headers_are_those_of_the_sdk(event: CloudEvent) -> None:
    """Names, percent-encoding and time, byte for byte."""
    assert encode_binary(event).headers == sdk.to_binary_event(event).headers


@settings(max_examples=60)
@given(st.lists(events(), max_size=4))
def test_a_batch_is_the_array_of_its_events_in_json(batch: list[CloudEvent]) -> None:
    """Each as in structured mode; none is an empty array, which the binding allows."""
    message = encode_batch(batch)
    assert message.headers == {"content-type": "application/cloudevents-batch+json"}
    assert json.loads(message.body) == [json.loads(encode_structured(event).body) for event in batch]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_text_comes_back_from_its_header(text: str) -> None:
    """And what stands in the header is printable ASCII without blank or quote."""
    written = percent_encoded(text)
    assert unquote(written, errors="strict") == text
    assert all("!" <= character <= "~" and character != '"' for character in written)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("Euro € 😀", "Euro%20%E2%82%AC%20%F0%9F%98%80"),  # the binding's own example
        ('a "b" 100%', "a%20%22b%22%20100%25"),
        ("!#$&'()*+,-./:;<=>?@[\\]^_`{|}~", "!#$&'()*+,-./:;<=>?@[\\]^_`{|}~"),
        ("", ""),
    ],
)
def test_what_is_encoded_and_what_is_not(text: str, written: str) -> None:
    """Blank, quote, percent sign and all but printable ASCII, with upper-case digits; nothing else."""
    assert percent_encoded(text) == written


@given(st.binary())
def test_bytes_are_sent_as_they_are(data: bytes) -> None:
    """Also bytes that are no JSON although they are declared as such."""
    message = encode_binary(CloudEvent({**ENVELOPE, "datacontenttype": "application/json"}, data))
    assert (message.body, message.headers["content-type"]) == (data, "application/json")


@given(texts)
def test_the_content_type_is_the_one_header_that_is_not_percent_encoded(text: str) -> None:
    """It is no attribute's header; what it cannot carry is refused."""
    declared = f'text/plain; note="{text}"'
    event = CloudEvent({**ENVELOPE, "datacontenttype": declared}, b"x")
    if declared.isascii():
        assert encode_binary(event).headers["content-type"] == declared
    else:
        with pytest.raises(ValueError, match="cannot stand in a header: use encode_structured"):
            encode_binary(event)


def test_a_binary_message_has_one_header_per_attribute() -> None:
    """Canonical texts: booleans in lower case, bytes in Base64, time with Z; None is not written."""
    extensions = {"flag": True, "number": -5, "raw": b"\x00", "unset": None, "when": MOMENT}
    event = CloudEvent({**ENVELOPE, **extensions, "time": MOMENT, "datacontenttype": "text/plain"}, "größe")
    assert encode_binary(event) == (
        {
            "content-type": "text/plain",
            "ce-specversion": "1.0",
            "ce-id": "1",
            "ce-source": "/s",
            "ce-type": "t",
            "ce-flag": "true",
            "ce-number": "-5",
            "ce-raw": "AA==",
            "ce-when": "2018-04-05T17:31:00Z",
            "ce-time": "2018-04-05T17:31:00Z",
        },
        "größe".encode(),
    )


@pytest.mark.parametrize(
    ("data", "declared", "body", "content_type"),
    [
        (None, None, b"", None),
        (None, "application/json", b"", "application/json"),
        (b"x", None, b"x", None),
        ([1, 2, {"x": None}], "application/json", b'[1,2,{"x":null}]', "application/json"),
        ({"a": 1}, None, b'{"a":1}', "application/json"),
        ("größe", "text/plain; charset=iso-8859-1", b"gr\xf6\xdfe", "text/plain; charset=iso-8859-1"),
    ],
)
def test_data_is_written_as_its_content_type_says(
    data: Any, declared: str | None, body: bytes, content_type: str | None
) -> None:
    """Where the SDK writes str() of a list, and JSON without a content type."""
    optional = {"datacontenttype": declared} if declared else {}
    message = encode_binary(CloudEvent({**ENVELOPE, **optional}, data))
    assert (message.body, message.headers.get("content-type")) == (body, content_type)


@pytest.mark.parametrize(
    ("members", "data", "problem"),
    [
        ({"datacontenttype": "application/cloudevents+json"}, b"{}", "use encode_structured"),
        ({"datacontenttype": "application/cloudevents-batch+json"}, b"[]", "use encode_structured"),
        ({"x": "a\r\nx-evil: 1"}, None, "U\\+000D"),
        ({"x": "\ud800"}, None, "U\\+D800"),
        ({"x": 1.5}, None, "attribute x is a float"),
        ({"datacontenttype": "text/plain"}, {"a": 1}, "data is a dict"),
        ({"datacontenttype": "text/plain\r\nx: 1"}, b"", "cannot stand in a header"),
    ],
)
def test_what_cannot_be_written_is_refused(members: dict[str, Any], data: Any, problem: str) -> None:
    """Above all what would be another header, or another event."""
    with pytest.raises(ValueError, match=problem):
        encode_binary(CloudEvent({**ENVELOPE, **members}, data))


def test_a_name_that_is_no_attributes_cannot_become_a_header() -> None:
    """The SDK refuses such names; an event made past it is looked at again."""
    event = CloudEvent(dict(ENVELOPE))
    event._attributes["x\r\ny"] = "1"
    with pytest.raises(ValueError, match="cannot be a header"):
        encode_binary(event)
