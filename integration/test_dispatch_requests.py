"""What goes over the wire: bytes and attributes as they were published, the trace, certificates."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing

import pytest

from integration.dispatching import Dispatching, channel_status
from integration.harness import both_clients
from integration.sink import CERTIFICATES, Sink
from tests.waiting import until

MakeScene = Callable[..., Dispatching]

FAST = {"backoffDelay": "PT0.05S", "backoffPolicy": "linear", "retry": 1000, "timeout": "PT30S"}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
#: Everything that a header cannot hold as it is, and bytes that are no text.
UNICODE = 'größe € "100%" 日本 😀'
BYTES = bytes(range(256)) * 2


@both_clients
@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_bytes_and_attributes_arrive_as_they_were_published(dispatching: MakeScene, sink: Sink, mode: str) -> None:
    """Nothing is invented, nothing is lost: no new id or time; the trace goes on as a header too."""
    s = dispatching()
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST, mode=mode)
    s.send(
        1,
        data=BYTES,
        unicode=UNICODE,
        time="2026-01-02T03:04:05.123456789Z",
        subject="a/b c",
        traceparent=TRACE,
        empty="",
    )
    s.send(1, data=b"")
    s.send(1, data=None, key=lambda n: "a key")
    s.run()
    s.drained()
    first, empty, none = sink.sent()
    common = {"specversion": "1.0", "source": "/tests", "type": "order", "datacontenttype": "application/octet-stream"}
    said = {
        "unicode": UNICODE,
        "time": "2026-01-02T03:04:05.123456789Z",
        "subject": "a/b c",
        "traceparent": TRACE,
        "empty": "",
    }
    assert first.events == [{**common, **said, "id": "0-0", "data": BYTES}]
    assert (empty.ids, none.ids, empty.events[0].get("data", b""), none.events[0].get("data", b"")) == (
        ["0-1"],
        ["0-2"],
        b"",
        b"",
    )
    assert (first.headers.get("traceparent"), empty.headers.get("traceparent")) == (TRACE, None)
    assert (first.method, first.headers["content-type"].partition(";")[0]) == (
        "POST",
        "application/octet-stream" if mode == "binary" else "application/cloudevents+json",
    )


@pytest.mark.parametrize("transport", ["curl", "requests"])
def test_large_events_go_out_at_once(dispatching: MakeScene, sink: Sink, transport: str) -> None:
    """Beyond what a socket takes in one go: not a piece now and a piece then."""
    if transport == "requests":
        pytest.importorskip("requests")
    s = dispatching(topic_configs={"max.message.bytes": "8000000"})
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST, transport=transport)
    (process,) = s.run()
    s.send(1)
    s.drained()
    sizes = [100_000, 300_000, 1_000_000, 3_000_000]
    for size in sizes:
        s.send(1, data=b"x" * size)
    s.drained(seconds=25)  # in pieces, one a second, it takes more than a minute
    assert [len(request.body) for request in sink.sent()] == [4, *sizes], s.log(process)


def test_json_data_passes_through_byte_by_byte(dispatching: MakeScene, sink: Sink) -> None:
    """Its blanks and the order of its members too; also of an event that is structured in the record."""
    s = dispatching()
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST)
    data = b'{ "b": 1.50,\n "a": "\\u00e9" }'
    s.send(1, data=data)
    event = {"specversion": "1.0", "id": "0-1", "source": "/tests", "type": "order", "data": {"b": 1.5, "a": "é"}}
    s.send_raw(json.dumps(event).encode(), [("content-type", b"application/cloudevents+json")])
    s.run()
    s.drained()
    assert (sink.sent()[0].body, sink.taken(), json.loads(sink.sent()[1].body)) == (
        data,
        ["0-0", "0-1"],
        event["data"],
    )


def test_over_tls_both_sides_show_their_certificates(dispatching: MakeScene) -> None:
    """An authority of one's own, and a certificate of the client."""
    with closing(Sink(tls=True, client_certificate=True)) as sink:
        s = dispatching()
        s.subscribe(
            subscriberUri=f"{sink.url}/",
            delivery=FAST,
            ca_file=str(CERTIFICATES / "ca.pem"),
            client_cert=str(CERTIFICATES / "client.pem"),
        )
        s.send(20)
        s.run()
        s.drained()
        assert (sink.taken(), {request.connection for request in sink.sent()}) == (list(s.events), {1})


def test_a_subscriber_whose_certificate_nobody_knows_gets_nothing(dispatching: MakeScene) -> None:
    """The events wait; the status says why."""
    with closing(Sink(tls=True)) as sink:
        s = dispatching()
        s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST)
        s.send(2)
        (process,) = s.run()
        until(lambda: "certificate" in str(channel_status(s, process)), 60, lambda: str(channel_status(s, process)))
        assert (sink.requests, s.committed()) == ([], {0: 0})
