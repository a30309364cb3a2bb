"""Spans that end in memory, and what tells them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from inbound.observe.tracing.process import make_spans
from inbound.observe.tracing.settings import TracingSettings
from inbound.processors.spans import Spans

#: The trace and the span of the sender before us.
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
UNSAMPLED = f"00-{TRACE}-{SPAN}-00"
SETTINGS = TracingSettings("otlp", "http://collector/v1/traces", 1.0, "shop", {}, 1.0)


class Traced:
    """Who makes spans (see `inbound.processors.spans.Tracing`), and keeps those that have ended."""

    def __init__(self, rate: float = 1.0) -> None:
        self._memory = InMemorySpanExporter()
        self.made = make_spans(replace(SETTINGS, sample_rate=rate), SimpleSpanProcessor(self._memory))
        self.spans: Spans | None = self.made

    @property
    def ended(self) -> list[ReadableSpan]:
        """All spans, in the order of their ends."""
        return list(self._memory.get_finished_spans())

    def one(self, name: str) -> ReadableSpan:
        """Return the only span of this name."""
        (found,) = [span for span in self.ended if span.name == name]
        return found

    def names(self) -> list[str]:
        """Return what the spans are called, in the order of their beginnings."""
        return [span.name for span in sorted(self.ended, key=lambda span: span.start_time or 0)]


@pytest.fixture
def traced() -> Traced:
    """Record every span."""
    return Traced()


def ids(span: ReadableSpan) -> tuple[str, str]:
    """Return trace and span, as headers have them."""
    assert span.context is not None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def parent(span: ReadableSpan) -> tuple[str, str] | None:
    """Return trace and span of the one above; None: there is none."""
    above = span.parent
    return None if above is None else (f"{above.trace_id:032x}", f"{above.span_id:016x}")


def links(span: ReadableSpan) -> list[tuple[str, str]]:
    """Return trace and span of those it is linked to."""
    return [(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") for link in span.links]


def facts(span: ReadableSpan) -> dict[str, object]:
    """Return the attributes."""
    return dict(span.attributes or {})


def header(span: ReadableSpan) -> str:
    """Return the `traceparent` that names it, without the flags."""
    return "00-{}-{}-".format(*ids(span))
