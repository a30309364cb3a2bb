"""Which trace goes on here: W3C's headers and B3's in, W3C's out.

Headers of a hop come before the event's own extension, which names the trace that the event began in: it is followed where
nobody on the way has said more, and never written.
"""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.context import Context
from opentelemetry.propagators.b3 import B3MultiFormat
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_W3C, _B3 = TraceContextTextMapPropagator(), B3MultiFormat()
_HOP = ("traceparent", "tracestate", "b3", "x-b3-traceid", "x-b3-spanid", "x-b3-sampled", "x-b3-flags")
#: Headers of HTTP requests and of records that say something, by what they are known as.
_IN_HTTP = {name.encode(): name for name in _HOP} | {
    b"ce-traceparent": "ce_traceparent",
    b"ce-tracestate": "ce_tracestate",
}
_IN_RECORDS = {name: name for name in _HOP} | {"ce_traceparent": "ce_traceparent", "ce_tracestate": "ce_tracestate"}
#: A longer value is not looked at.
_LONGEST = 1024
_NOT_SAMPLED = frozenset({"0", "false", "False"})


def in_record(headers: Iterable[tuple[str, bytes | None]] | None) -> dict[str, str]:
    """Return what a record's headers say about traces, by names as `Propagation.context` takes them."""
    found: dict[str, str] = {}
    for name, raw in headers or ():
        known = _IN_RECORDS.get(name) or _IN_RECORDS.get(name.lower())
        if known is not None and raw and len(raw) <= _LONGEST:
            found[known] = raw.decode("latin-1")
    return found


def in_request(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return what the headers of a request say about traces."""
    found: dict[str, str] = {}
    for name, raw in headers:
        known = _IN_HTTP.get(name) or _IN_HTTP.get(name.lower())
        if known is None or not raw or len(raw) > _LONGEST:
            continue
        text = raw.decode("latin-1")
        # A list may come in several lines, and then is one; of anything else there is one.
        found[known] = f"{found[known]},{text}" if known in found and known.endswith("tracestate") else text
    return found


def in_lines(lines: Iterable[bytes]) -> dict[str, str]:
    """Return what header lines of ours say: an event's extension stands there as `traceparent`."""
    found: dict[str, str] = {}
    for line in lines:
        for name in ("traceparent", "tracestate"):
            if line.startswith(name.encode() + b":"):
                found[f"ce_{name}"] = line.partition(b":")[2].strip().decode("latin-1")
    return found


class Propagation:
    """Makes contexts. Any thread."""

    def __init__(self, deferred: Sampler) -> None:
        """`deferred` decides for whoever has begun a trace and left that to us, as B3 allows."""
        self._deferred = deferred
        self._ids = RandomIdGenerator()

    def context(self, found: dict[str, str]) -> Context:
        """Return the context that these headers stand for; without a span where they name none."""
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
        """Return the span that these headers name; None: none."""
        return _spans(self.context(found))

    def _b3(self, found: dict[str, str]) -> Context:
        single = found.get("b3")
        sampled = found.get("x-b3-sampled")
        context = _B3.extract(found, Context())
        span = _spans(context)
        if span is None:
            # Without ids it can still be said that nothing is to be recorded.
            if (single if single is not None else sampled) in _NOT_SAMPLED:
                return set_span_in_context(NonRecordingSpan(self._unsampled()), Context())
            return context
        deferred = single.count("-") == 1 if single is not None else sampled is None and "x-b3-flags" not in found
        if not deferred:
            return context
        decision = self._deferred.should_sample(None, span.trace_id, "").decision
        flags = TraceFlags(TraceFlags.SAMPLED if decision is Decision.RECORD_AND_SAMPLE else TraceFlags.DEFAULT)
        decided = SpanContext(span.trace_id, span.span_id, is_remote=True, trace_flags=flags)
        return set_span_in_context(NonRecordingSpan(decided), Context())

    def _unsampled(self) -> SpanContext:
        ids = self._ids
        return SpanContext(ids.generate_trace_id(), ids.generate_span_id(), is_remote=True, trace_flags=TraceFlags(0))


def outgoing(context: SpanContext) -> tuple[tuple[str, str], ...]:
    """Return the headers that name a span to whoever is next."""
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    state = context.trace_state.to_header() if context.trace_state else ""
    return (("traceparent", parent), ("tracestate", state)) if state else (("traceparent", parent),)


def _spans(context: Context) -> SpanContext | None:
    span = get_current_span(context).get_span_context()
    return span if span.is_valid else None
