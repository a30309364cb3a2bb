"""Continues the traces of incoming headers, and samples new traces.

It reads W3C's and B3's headers, and writes W3C's. Headers of a hop take precedence over the event's own extension, which names
the trace that the event began in. The extension counts if no hop is named; it is never written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opentelemetry.context import Context
from opentelemetry.propagators.b3 import B3MultiFormat
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    TraceState,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes


class FollowingSampler(Sampler):
    """Follows the sender's decision; samples new traces at a rate.

    A batch follows its first event.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._otherwise = ParentBased(TraceIdRatioBased(rate))

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        if links and not get_current_span(parent_context).get_span_context().is_valid:
            sampled = links[0].context.trace_flags.sampled
            return SamplingResult(Decision.RECORD_AND_SAMPLE if sampled else Decision.DROP, attributes)
        return self._otherwise.should_sample(parent_context, trace_id, name, kind, attributes, links)

    def get_description(self) -> str:
        return f"FollowingSampler({self._rate})"


_W3C, _B3 = TraceContextTextMapPropagator(), B3MultiFormat()
_HOP = ("traceparent", "tracestate", "b3", "x-b3-traceid", "x-b3-spanid", "x-b3-sampled", "x-b3-flags")
#: The headers of HTTP requests and of records that name a trace, by the names of `Propagation.context`.
_IN_HTTP = {name.encode(): name for name in _HOP} | {
    b"ce-traceparent": "ce_traceparent",
    b"ce-tracestate": "ce_tracestate",
}
_IN_RECORDS = {name: name for name in _HOP} | {"ce_traceparent": "ce_traceparent", "ce_tracestate": "ce_tracestate"}
#: A longer value is ignored.
_LONGEST = 1024
_NOT_SAMPLED = frozenset({"0", "false", "False"})


def in_record(headers: Iterable[tuple[str, bytes | None]] | None) -> dict[str, str]:
    """Return the trace headers of a record, by the names of `Propagation.context`."""
    found: dict[str, str] = {}
    for name, raw in headers or ():
        known = _IN_RECORDS.get(name) or _IN_RECORDS.get(name.lower())
        if known is not None and raw and len(raw) <= _LONGEST:
            found[known] = raw.decode("latin-1")
    return found


def in_request(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the trace headers of a request."""
    found: dict[str, str] = {}
    for name, raw in headers:
        known = _IN_HTTP.get(name) or _IN_HTTP.get(name.lower())
        if known is None or not raw or len(raw) > _LONGEST:
            continue
        text = raw.decode("latin-1")
        # A list may come in several lines, which are joined; of any other header the last line counts.
        found[known] = f"{found[known]},{text}" if known in found and known.endswith("tracestate") else text
    return found


def in_lines(lines: Iterable[bytes]) -> dict[str, str]:
    """Return the trace headers of our own header lines.

    An event's extension is called `traceparent` there.
    """
    found: dict[str, str] = {}
    for line in lines:
        for name in ("traceparent", "tracestate"):
            if line.startswith(name.encode() + b":"):
                found[f"ce_{name}"] = line.partition(b":")[2].strip().decode("latin-1")
    return found


class Propagation:
    """Makes contexts. Any thread."""

    def __init__(self, deferred: Sampler) -> None:
        """`deferred` decides on traces whose sender, as in B3, did not."""
        self._deferred = deferred
        self._ids = RandomIdGenerator()

    def context(self, found: dict[str, str]) -> Context:
        """Return the context, with a span if the headers name one."""
        if not found:
            return Context()
        context = _W3C.extract(found, Context())
        if _spans(context) is None:
            context = self._b3(found)
        if _spans(context) is None and "ce_traceparent" in found:
            started = {"traceparent": found["ce_traceparent"], "tracestate": found.get("ce_tracestate", "")}
            context = _W3C.extract(started, Context())
        return context

    def parent(self, found: dict[str, str]) -> SpanContext | None:
        """Return the span that these headers name."""
        return _spans(self.context(found))

    def _b3(self, found: dict[str, str]) -> Context:
        single = found.get("b3")
        sampled = found.get("x-b3-sampled")
        context = _B3.extract(found, Context())
        span = _spans(context)
        if span is None:
            # Headers without ids can still forbid recording.
            if (single if single is not None else sampled) in _NOT_SAMPLED:
                ids = self._ids.generate_trace_id(), self._ids.generate_span_id()
                return set_span_in_context(NonRecordingSpan(SpanContext(*ids, is_remote=True)), Context())
            return context
        deferred = single.count("-") == 1 if single is not None else sampled is None and "x-b3-flags" not in found
        if not deferred:
            return context
        decision = self._deferred.should_sample(None, span.trace_id, "").decision
        flags = TraceFlags(TraceFlags.SAMPLED if decision is Decision.RECORD_AND_SAMPLE else TraceFlags.DEFAULT)
        decided = SpanContext(span.trace_id, span.span_id, is_remote=True, trace_flags=flags)
        return set_span_in_context(NonRecordingSpan(decided), Context())


def outgoing(context: SpanContext) -> tuple[tuple[str, str], ...]:
    """Return the headers that name a span to the next receiver."""
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    state = context.trace_state.to_header() if context.trace_state else ""
    return (("traceparent", parent), ("tracestate", state)) if state else (("traceparent", parent),)


def _spans(context: Context) -> SpanContext | None:
    span = get_current_span(context).get_span_context()
    return span if span.is_valid else None
