"""The `http` sink: what arrives, what counts as taken, and that every wait ends."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from inbound.errors import ConfigError, SinkError, UndecodableError
from inbound.processors.base import Context
from inbound.processors.batch import Batch, BatchResponse, PlainRecord
from inbound.processors.simple import SimpleProcessor
from inbound.processors.sinks.http import HttpBatchSink, HttpOptions, HttpSink
from inbound.processors.sinks.http_client import MOST_READ
from tests.http_receiver import CERTIFICATES, Dripping, Receiver, receiver

__all__ = ["receiver"]  # the fixture

EVENT = [("ce_specversion", b"1.0"), ("ce_source", b"/s"), ("ce_type", "größer".encode())]


def batch(*ids: str | None) -> Batch:
    """Return events with these ids from offset 10 on; None is a record that is no event."""
    records = [
        PlainRecord(10 + number, value=b"\x00\xff", headers=[*EVENT, ("ce_id", name.encode())] if name else [])
        for number, name in enumerate(ids)
    ]
    return Batch("orders", 3, 10, 10 + len(records), records)


Opener = Callable[..., HttpSink | HttpBatchSink]


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Open sinks; they are closed at the end."""
    sinks: list[HttpSink | HttpBatchSink] = []

    def open_one(url: str, **options: Any) -> HttpSink | HttpBatchSink:
        filled = HttpOptions(url=url, **options)
        sink = HttpSink.made_for(filled)
        sink.open(Context("c", "g", "me", options=filled))
        sinks.append(sink)
        return sink

    yield open_one
    for sink in sinks:
        sink.close()


def send(sink: HttpSink | HttpBatchSink, *ids: str) -> None:
    """Send these events, one by one or as one batch."""
    if isinstance(sink, HttpBatchSink):
        sink.send(batch(*ids))
        return
    for event in batch(*ids).events:
        sink.send(event)


def test_an_event_arrives_in_binary_mode(receiver: Receiver, opened: Opener) -> None:
    """Attributes as headers, data as it is; path and query of the URL."""
    send(opened(f"{receiver.url}/in?from=kafka"), "a b")
    (request,) = receiver.requests
    attributes = {name: value for name, value in request.headers.items() if name.startswith("ce-")}
    assert (request.method, request.target, request.body) == ("POST", "/in?from=kafka", b"\x00\xff")
    assert attributes == {
        "ce-specversion": "1.0", "ce-source": "/s", "ce-type": "gr%C3%B6%C3%9Fer", "ce-id": "a%20b",
    }  # fmt: skip


def test_an_event_arrives_in_structured_mode(receiver: Receiver, opened: Opener) -> None:
    """The whole of it as JSON."""
    send(opened(receiver.url, mode="structured"), "a")
    (request,) = receiver.requests
    event = {"specversion": "1.0", "source": "/s", "type": "größer", "id": "a", "data_base64": "AP8="}
    assert (request.target, request.headers["content-type"]) == ("/", "application/cloudevents+json")
    assert json.loads(request.body) == event


def test_a_batch_arrives_in_one_request(receiver: Receiver, opened: Opener) -> None:
    """In the order of the records."""
    send(opened(receiver.url, batch=True), "a", "b", "c")
    (request,) = receiver.requests
    assert request.headers["content-type"] == "application/cloudevents-batch+json"
    assert [event["id"] for event in json.loads(request.body)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (301, "answered 301 Moved Permanently; redirects are not followed: put the address itself in `url`"),
        (304, "answered 304 Not Modified; redirects are not followed: put the address itself in `url`"),
        (401, "answered 401 Unauthorized; correct the credentials in `headers`"),
        (404, "answered 404 Not Found; correct `url`"),
        (413, "send less at once: `batch: false`, or a smaller `reader.batch_bytes`"),
        (418, "answered 418 I'm a Teapot; see what the receiver wants"),
        (429, "answered 429 Too Many Requests; the receiver wants less: set `max_read_rate`"),
        (503, "answered 503 Service Unavailable; see to the receiver"),
        (599, "answered 599; see to the receiver"),
    ],
)
def test_only_2xx_is_success(receiver: Receiver, opened: Opener, status: int, said: str) -> None:
    """The error names URL, status and what to do; nothing is tried again, or elsewhere."""
    receiver.status = lambda number: status
    receiver.answer_headers = {"location": f"{receiver.url}/other"}
    with pytest.raises(SinkError) as caught:
        send(opened(f"{receiver.url}/in?token=hidden"), "a")
    assert str(caught.value).startswith(f"POST {receiver.url}/in: answered {status}")
    assert said in str(caught.value)
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    ("first", "drip"),
    [
        (b"", b""),  # nothing at all
        (b"HTTP/1.1 200 OK\r\nx: ", b"y"),  # a header that never ends
        (b"HTTP/1.1 200 OK\r\n\r\n", b"z"),  # a body that never ends
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nz\r\n"),
    ],
)
def test_an_answer_that_does_not_come_whole_in_time_is_an_error(opened: Opener, first: bytes, drip: bytes) -> None:
    """However the bytes come in: the time is for all of it."""
    with closing(Dripping(first, drip)) as dripping:
        sink = opened(dripping.url, timeout=0.15)
        with pytest.raises(SinkError, match=r"no whole answer within timeout \(150ms\)"):
            send(sink, "a")


def test_a_request_that_is_not_taken_in_time_is_an_error(opened: Opener) -> None:
    """The receiver accepts, and reads nothing; or is not there, which is an error at once."""
    large = PlainRecord(10, value=b"x" * 20_000_000, headers=[*EVENT, ("ce_id", b"a")])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sink = opened(f"http://127.0.0.1:{listener.getsockname()[1]}/", connect_timeout=0.1)
        assert isinstance(sink, HttpSink)
        with pytest.raises(SinkError, match=r"the request was not taken within connect_timeout \(100ms\)"):
            sink.send(Batch("orders", 3, 10, 11, [large]).events[0])


def test_a_connection_that_breaks_is_an_error(opened: Opener) -> None:
    """The receiver may have got the event: at least once. Without a listener the error comes at once."""
    with closing(Dripping(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab", b"c" * 100)) as dripping:
        send(opened(dripping.url), "a")  # more than was announced: what belongs to the answer came
    with (
        closing(Dripping(b"no http at all\r\n\r\n", b"")) as dripping,
        pytest.raises(SinkError, match="the connection broke"),
    ):
        send(opened(dripping.url), "a")
    with pytest.raises(SinkError, match="no connection: Connection refused; start the receiver, or correct `url`"):
        send(opened(dripping.url), "a")


@pytest.mark.parametrize(("answer", "connections"), [(b"thanks", 1), (b"x" * (MOST_READ * 50), 5)])
def test_every_2xx_is_success(receiver: Receiver, opened: Opener, answer: bytes, connections: int) -> None:
    """One connection serves all requests of a thread; one with a long answer that is not read to its end is given up."""
    statuses = [200, 201, 202, 203, 299]
    receiver.status, receiver.answer_body = statuses.__getitem__, answer
    send(opened(receiver.url), "a", "b", "c", "d", "e")
    assert (len(receiver.requests), len({request.port for request in receiver.requests})) == (5, connections)


def test_headers_go_with_every_request_secrets_from_files(receiver: Receiver, opened: Opener, tmp_path: Path) -> None:
    """And a secret is in no text about the sink."""
    file = tmp_path / "token"
    file.write_text("Bearer s3cret\n")
    receiver.status = lambda number: 500
    sink = opened(receiver.url, headers={"Authorization": {"file": file}, "x-plain": "p1"})
    with pytest.raises(SinkError) as caught:
        send(sink, "a")
    (request,) = receiver.requests
    assert (request.headers["authorization"], request.headers["x-plain"]) == ("Bearer s3cret", "p1")
    assert "s3cret" not in f"{caught.value!r} {sink!r} {HttpOptions(url=receiver.url, headers={'a': 's3cret'})!r}"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            None,
            r"http sink: header x-key: cannot read .*token \(No such file or directory\): correct the file, or `file`",
        ),
        (b"two\nlines", "token must hold one line of printable ASCII; correct it"),
        (b"", "token must hold one line of printable ASCII; correct it"),
        (b"\xff", r"token \(it is not ASCII\)"),
    ],
)
def test_a_secret_that_cannot_be_read_is_named_at_the_start(
    opened: Opener, tmp_path: Path, content: bytes | None, problem: str
) -> None:
    """The file, never what stands in it."""
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=problem):
        opened("http://127.0.0.1:1/", headers={"x-key": {"file": file}})


def test_over_tls_both_sides_show_who_they_are(opened: Opener) -> None:
    """The receiver by `ca_file` or what the system trusts; the sink by `client_cert`, without which it is hung up on."""
    ca, client = CERTIFICATES / "ca.pem", CERTIFICATES / "client.pem"
    with closing(Receiver(tls=True, client_certificate=True)) as receiver:
        with pytest.raises(SinkError, match=r"TLS: .*certificate verify failed.*; correct `ca_file` or `client_cert`"):
            send(opened(receiver.url, client_cert=client), "a")
        with pytest.raises(SinkError):
            send(opened(receiver.url, ca_file=ca), "b")
        send(opened(receiver.url, ca_file=ca, client_cert=client), "c")
        assert [request.headers["ce-id"] for request in receiver.requests] == ["c"]


@pytest.mark.parametrize("name", ["ca_file", "client_cert"])
def test_a_certificate_that_cannot_be_used_is_named_at_the_start(opened: Opener, tmp_path: Path, name: str) -> None:
    """Missing, or no PEM."""
    file = tmp_path / "some.pem"
    with pytest.raises(ConfigError, match=rf"http sink: {name}: cannot use .*some\.pem \(No such file"):
        opened("https://127.0.0.1:1/", **{name: file})
    file.write_text("no PEM")
    with pytest.raises(ConfigError, match=rf"http sink: {name}: cannot use .*some\.pem \(.*\): correct the file, or"):
        opened("https://127.0.0.1:1/", **{name: file})


def processor(*sinks: dict[str, Any], **options: Any) -> SimpleProcessor:
    """Open a simple processor."""
    made = SimpleProcessor()
    made.open(Context("c", "g", "me", options=SimpleProcessor.Options.model_validate({"sinks": sinks, **options})))
    return made


def test_a_receiver_that_refuses_the_third_event_gets_it_first_the_next_time(receiver: Receiver) -> None:
    """What is before it is committed. A batch is refused whole: the processor's error, which `on_error` counts."""
    receiver.status = lambda number: 503 if number == 2 else 204
    with closing(processor({"type": "http", "url": receiver.url})) as simple:
        assert simple.on_next_batch(batch("a", "b", "c", "d")) == BatchResponse.advance(12, wait=1.0)
    assert [request.headers["ce-id"] for request in receiver.requests] == ["a", "b", "c"]
    receiver.status = lambda number: 503
    with closing(processor({"type": "http", "url": receiver.url, "batch": True})) as simple, pytest.raises(SinkError):
        simple.on_next_batch(batch("a", "b"))


def test_records_that_are_no_events_stop_a_batch_before_them_or_are_passed_over(receiver: Receiver) -> None:
    """Only where that is configured; then a batch of nothing else makes no request."""
    options = {"type": "http", "url": receiver.url, "batch": True}
    with closing(processor(options)) as simple:
        assert simple.on_next_batch(batch("a", None, "c")) == BatchResponse.advance(11)
        with pytest.raises(UndecodableError):
            simple.on_next_batch(batch(None, "c"))
    with closing(processor(options, undecodable="skip")) as simple:
        assert simple.on_next_batch(batch("a", None, "c")) == BatchResponse.advance()
        assert simple.on_next_batch(batch(None)) == BatchResponse.advance()
    assert [len(json.loads(request.body)) for request in receiver.requests] == [1, 2]
