"""Spans as a request to the collector: OTLP in protobuf, or Zipkin's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from opentelemetry.sdk.trace import ReadableSpan

from inbound.processors.cloudevents_http import HttpMessage
from inbound.tracing.exporting import Encode

#: Zipkin knows no links: of so many the traces are named in a tag instead.
NAMED_LINKS = 16


def encoder(backend: str, service_name: str) -> Encode:
    """Return what writes spans for a backend."""
    return _otlp() if backend == "otlp" else _zipkin(service_name)


def _otlp() -> Encode:
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    def encode(spans: Sequence[ReadableSpan]) -> HttpMessage:
        return HttpMessage({"content-type": "application/x-protobuf"}, encode_spans(spans).SerializeToString())

    return encode


def _zipkin(service_name: str) -> Encode:
    from opentelemetry.exporter.zipkin.json.v2 import JsonV2Encoder
    from opentelemetry.exporter.zipkin.node_endpoint import NodeEndpoint

    class Encoder(JsonV2Encoder):
        def _extract_tags_from_span(self, span: Any) -> dict[str, str]:
            tags: dict[str, str] = super()._extract_tags_from_span(span)
            if span.links:
                traces = dict.fromkeys(f"{link.context.trace_id:032x}" for link in span.links)
                tags["inbound.linked_traces"] = ",".join(list(traces)[:NAMED_LINKS])
            return tags

        @staticmethod
        def _encode_debug(span_context: Any) -> bool:
            """Never: to Zipkin that says that nobody may leave the span out, not that it is sampled."""
            return False

    node = NodeEndpoint()
    node.service_name = service_name
    made = Encoder()

    def encode(spans: Sequence[ReadableSpan]) -> HttpMessage:
        text = made.serialize(cast(Any, spans), node)  # it takes what is readable of a span
        return HttpMessage({"content-type": "application/json"}, text.encode())

    return encode
