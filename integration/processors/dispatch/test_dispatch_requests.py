"""What goes over the wire: bytes and attributes as they were published, the trace, certificates."""

from __future__ import annotations

import json
from contextlib import closing
from itertools import count
from typing import Any

from integration.harness import both_clients
from integration.processors.dispatch.dispatching import MakeScene, channel_status, event_headers
from integration.processors.sink import CERTIFICATES, Sink
from tests.waiting import until

FAST = {"backoffDelay": "PT0.05S", "backoffPolicy": "linear", "retry": 1000, "timeout": "PT30S"}
#: What a header cannot hold as it is, and what goes out as a header, too.
SAID: dict[str, Any] = {
    "unicode": 'größe € "100%" 日本 😀',
    "time": "2026-01-02T03:04:05.123456789Z",
    "subject": "a/b c",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "empty": "",
}
BYTES = bytes(range(256)) * 2
JSON_DATA = b'{ "b": 1.50,\n "a": "\\u00e9" }'
#: Beyond what a socket takes in one go.
LARGE = [100_000, 3_000_000]


@both_clients
def test_bytes_and_attributes_arrive_as_they_were_published(dispatching: MakeScene, sink: Sink) -> None:
    """In both modes and over both transports: nothing is invented, nothing is lost; large events go out at once."""
    s = dispatching(topic_configs={"max.message.bytes": "8000000"})
    s.subscribe(subscriberUri=f"{sink.url}/binary", delivery=FAST)
    s.subscribe(
        "structured", subscriberUri=f"{sink.url}/structured", delivery=FAST, mode="structured", transport="requests"
    )
    s.send(1, data=BYTES, **SAID)
    s.send(1, data=b"")
    s.send(1, data=None, key=lambda n: "a key")
    s.send(1, data=JSON_DATA)
    event = {"specversion": "1.0", "id": "0-4", "source": "/tests", "type": "order", "data": {"b": 1.5, "a": "é"}}
    s.send_raw(json.dumps(event).encode(), [("content-type", b"application/cloudevents+json")])
    (process,) = s.run()
    s.drained()
    s.drained("structured")
    for size in LARGE:
        s.send(1, data=b"x" * size)
    for name in ("orders", "structured"):
        s.drained(name, seconds=25)  # in pieces, one a second, it takes more than a minute

    assert [len(request.body) for request in sink.sent("/binary")][-2:] == LARGE, s.log(process)
    common = {"specversion": "1.0", "source": "/tests", "type": "order", "datacontenttype": "application/octet-stream"}
    for path, kind in (("/binary", "application/octet-stream"), ("/structured", "application/cloudevents+json")):
        first, empty, none, json_data, whole, *large = sink.sent(path)
        assert first.events == [{**common, **SAID, "id": "0-0", "data": BYTES}]
        assert [(one.ids, one.events[0].get("data", b"")) for one in (empty, none, json_data)] == [
            (["0-1"], b""),
            (["0-2"], b""),
            (["0-3"], JSON_DATA),
        ]
        assert (whole.ids, [len(one.events[0]["data"]) for one in large]) == (["0-4"], LARGE)
        assert (first.headers.get("traceparent"), empty.headers.get("traceparent")) == (SAID["traceparent"], None)
        assert (first.method, first.headers["content-type"].partition(";")[0]) == ("POST", kind)
    assert json.loads(sink.sent("/binary")[4].body) == event["data"]


def test_headers_of_a_record_arrive_and_credentials_do_not(dispatching: MakeScene, sink: Sink) -> None:
    """In both modes; with attributes of the options in the event, and a token that is renewed while it runs."""
    s = dispatching()
    token = s.folder / "token"
    token.write_text("first-token")
    common: dict[str, Any] = {
        "delivery": FAST,
        "token_file": str(token),
        "ceOverrides": {"extensions": {"tenant": "größe"}},
    }
    s.subscribe(subscriberUri=f"{sink.url}/binary", **common)
    s.subscribe("structured", subscriberUri=f"{sink.url}/structured", mode="structured", **common)
    others = {"x-request-id": b"r-1", "X-B3-TraceId": b"4bf92f35", "authorization": b"Bearer stolen",
              "x_api_key": b"stolen", "x-forwarded-for": b"10.0.0.1", "x-bad": b"a\r\nx-injected: 1"}  # fmt: skip
    s.send_raw(b"x", [*event_headers("0-0"), *others.items()])
    (process,) = s.run()
    s.drained()
    s.drained("structured")
    token.write_text("second-token")
    numbers = count(1)

    def is_renewed() -> bool:
        s.send_raw(b"x", event_headers(f"0-{next(numbers)}"))
        return sink.sent("/binary")[-1].headers["authorization"] == "Bearer second-token"

    until(is_renewed, 60, lambda: s.log(process))
    s.drained()
    s.drained("structured")

    for path in ("/binary", "/structured"):
        request = sink.sent(path)[0]
        arrived = {name.lower(): value for name, value in request.headers.items()}
        assert (arrived["x-request-id"], arrived["x-b3-traceid"]) == ("r-1", "4bf92f35"), s.log(process)
        assert (arrived["authorization"], arrived["prefer"]) == ("Bearer first-token", "reply")
        assert {"x_api_key", "x-api-key", "x-forwarded-for", "x-bad", "x-injected"} & set(arrived) == set()
        assert request.events[0]["tenant"] == "größe"
        assert "stolen" not in str(request)
    assert channel_status(s, process)["processor"]["headers_left_out_total"] == 1
    assert [word for word in ("first-token", "second-token") if word in s.log(process)] == []


def test_over_tls_both_sides_show_their_certificates(dispatching: MakeScene) -> None:
    """A subscriber whose certificate is of an unknown authority gets nothing: the events wait, and the status says why."""
    with closing(Sink(tls=True, client_certificate=True)) as known, closing(Sink(tls=True)) as unknown:
        s = dispatching()
        certificates: dict[str, Any] = {
            "ca_file": str(CERTIFICATES / "ca.pem"),
            "client_cert": str(CERTIFICATES / "client.pem"),
        }
        s.subscribe(subscriberUri=f"{known.url}/", delivery=FAST, **certificates)
        s.subscribe("unknown", subscriberUri=f"{unknown.url}/", delivery=FAST)
        s.send(20)
        (process,) = s.run()
        s.drained()
        until(
            lambda: "certificate" in str(channel_status(s, process, "unknown")),
            60,
            lambda: str(channel_status(s, process, "unknown")),
        )
        assert (known.taken(), {request.connection for request in known.sent()}) == (list(s.events), {1})
        assert (unknown.requests, s.committed("unknown")) == ([], {0: 0})
