"""Which spans are recorded."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import Link, SpanKind, TraceState, get_current_span
from opentelemetry.util.types import Attributes


class FollowingSampler(Sampler):
    """Whoever began a trace decides; a batch goes by its first event; of what begins here, so many."""

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
