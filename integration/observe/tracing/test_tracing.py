"""One trace from the ingress through Kafka to the subscriber and its reply, as the servers that keep traces have it."""

from __future__ import annotations

import http.client
import json
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from integration.kubernetes.mounted import mount
from integration.observe.tracing.zipkin import ZipkinServer, zipkin_server
from integration.processors.dispatch.dispatching import Dispatching, MakeScene
from integration.processors.sink import Sink, reply
from tests.waiting import until

EVENT = {"ce-specversion": "1.0", "ce-source": "/tests", "ce-type": "order", "content-type": "text/plain"}


@pytest.fixture(scope="module")
def zipkin(inbound_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZipkinServer]:
    with zipkin_server(inbound_jars, tmp_path_factory.mktemp("zipkin")) as server:
        yield server


def configured(s: Dispatching, sink: Sink, **sections: Any) -> None:
    """Write a configuration with an ingress, a subscription that replies, and these sections."""
    s.subscribe(subscriberUri=f"{sink.url}/", replyUri=f"{sink.url}/replies", delivery={"timeout": "PT30S"})
    body = json.loads(s.config.read_text())
    s.config.write_text(json.dumps({**body, "ingress": {"listen": "127.0.0.1:0"}, **sections}))


def post(s: Dispatching, process: subprocess.Popen[bytes], id: str, headers: dict[str, str] | None = None) -> None:
    """Post an event to the ingress of a process; it is in Kafka then."""
    until(lambda: "ingress: http" in s.log(process), 60, "it says where its ingress is")
    found = re.search(r"ingress: http://127\.0\.0\.1:(\d+)", s.log(process))
    assert found is not None

    def answered() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
        try:
            connection.request("POST", f"/topics/{s.topic}", b"x", {**EVENT, "ce-id": id, **(headers or {})})
            return connection.getresponse().status == 202
        finally:
            connection.close()

    until(answered, 60, "the ingress takes the event")


def span_of(sink: Sink, path: str, id: str) -> str:
    """Return the trace and the span that the request with an event named."""
    (request,) = [one for one in sink.sent(path) if one.ids == [id]]
    return "-".join(request.headers["traceparent"].split("-")[1:3])


@pytest.mark.thorough("starts a Zipkin; a collector of OTLP is sent the whole way of an event in `make test`")
def test_zipkin_has_the_whole_way_of_an_event(dispatching: MakeScene, sink: Sink, zipkin: ZipkinServer) -> None:
    """From a sender that speaks B3 to the reply; what a sender does not want recorded is not."""
    s = dispatching()
    mounted = s.folder / "config-tracing"
    mount(mounted, {"_example": "", "backend": "zipkin", "zipkin-endpoint": zipkin.spans_url, "sample-rate": "0"})
    configured(s, sink, tracing={"folder": str(mounted)})
    (process,) = s.run()
    trace, sender, other = secrets.token_hex(16), secrets.token_hex(8), secrets.token_hex(16)
    sink.tell(reply("r-1"), path="/", event="1")
    post(s, process, "2", {"b3": f"{other}-{sender}-0"})
    post(s, process, "1", {"X-B3-TraceId": trace, "X-B3-SpanId": sender, "X-B3-Sampled": "1"})
    until(
        lambda: len(zipkin.trace(trace)) >= 5, 120, lambda: f"5 spans: {zipkin.trace(trace)}, {s.log(process)[-2000:]}"
    )

    spans = {(span["kind"], span["tags"].get("inbound.receiver", "")): span for span in zipkin.trace(trace)}
    server, send = spans["SERVER", ""], spans["PRODUCER", ""]
    work = spans["CONSUMER", ""]
    to_subscriber, to_reply = spans["CLIENT", "subscriber"], spans["CLIENT", "reply"]
    assert len(zipkin.trace(trace)) == 5
    assert [one["parentId"] for one in (server, send, work, to_subscriber, to_reply)] == [
        sender, server["id"], send["id"], work["id"], work["id"],
    ]  # fmt: skip
    assert [one["name"] for one in (server, send, work, to_subscriber, to_reply)] == [
        "post", f"send {s.topic}", f"process {s.topic}", "post", "post",
    ]  # fmt: skip
    assert span_of(sink, "/", "1") == f"{trace}-{to_subscriber['id']}"
    assert span_of(sink, "/replies", "r-1") == f"{trace}-{to_reply['id']}"
    assert work["tags"]["messaging.consumer.group.name"] == s.group
    assert {one["localEndpoint"]["serviceName"] for one in zipkin.trace(trace)} == {"inbound"}
    assert zipkin.trace(other) == []
    assert span_of(sink, "/", "2").startswith(other)
    assert s.stop(process) == 0


def spans_at(collector: Sink) -> set[str]:
    """Return the names of the spans that a Zipkin was sent."""
    return {span["name"] for request in list(collector.requests) for span in json.loads(request.body)}


def otlp_spans(collector: Sink) -> list[Any]:
    """Return the spans that a collector was sent."""
    requests = [ExportTraceServiceRequest.FromString(one.body) for one in collector.sent("/v1/traces")]
    return [
        span
        for request in requests
        for resource in request.resource_spans
        for part in resource.scope_spans
        for span in part.spans
    ]


def test_an_event_is_one_trace_from_its_publisher_through_the_ingress_to_the_subscriber(
    dispatching: MakeScene, sink: Sink
) -> None:
    """`inbound publish` begins it: to Kafka, or with `--to` to the ingress; all send OTLP."""
    s = dispatching()
    configured(s, sink, tracing={"backend": "otlp", "endpoint": sink.url, "sample_rate": 1})
    (process,) = s.run()
    until(lambda: "ingress: http" in s.log(process), 60, "it says where its ingress is")
    where = re.search(r"ingress: (http://127\.0\.0\.1:\d+)", s.log(process))
    assert where is not None
    for count, way in enumerate(((), ("--to", where[1])), 1):
        command = [sys.executable, "-m", "inbound", "publish", s.topic, *way, "-c", str(s.config), "--generate", "1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        until(lambda: len(sink.taken("/")) == count, 60, lambda: f"it is delivered: {s.log(process)[-2000:]}")  # noqa: B023

    def found(trace: str) -> list[Any]:
        spans = [span for span in otlp_spans(sink) if span.trace_id.hex() == trace]
        return sorted(spans, key=lambda span: int(span.start_time_unix_nano))

    wholes = (
        [f"send {s.topic}", f"process {s.topic}", "POST"],
        ["POST", "POST", f"send {s.topic}", f"process {s.topic}", "POST"],
    )
    for request, names in zip(sink.sent("/"), wholes, strict=True):
        trace = request.headers["traceparent"].split("-")[1]
        until(lambda: len(found(trace)) >= len(names), 60, lambda: f"{names}: {found(trace)}")  # noqa: B023
        spans = found(trace)
        assert [span.name for span in spans] == names
        assert [span.parent_span_id for span in spans] == [b"", *[span.span_id for span in spans[:-1]]]
        assert request.headers["traceparent"].split("-")[2] == spans[-1].span_id.hex()
    assert s.stop(process) == 0
