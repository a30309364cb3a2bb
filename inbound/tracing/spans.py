"""Makes the spans: see `inbound.processors.spans`, whose methods these are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from inspect import isawaitable
from typing import Any, TypeVar, cast

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)

from inbound.config.known_secrets import KNOWN
from inbound.processors.batch import Batch, BatchResponse, Record
from inbound.processors.spans import Consumer, Hop, Served, Shown, Work
from inbound.tracing import names
from inbound.tracing.propagation import Propagation, in_lines, in_record, in_request, outgoing

T = TypeVar("T")
#: A batch's span is linked to so many of its events' at most.
MOST_LINKS = 128
_NOWHERE = Context()


class OpenTelemetrySpans:
    """Makes spans with one tracer. Any thread."""

    def __init__(self, tracer: Tracer, propagation: Propagation) -> None:
        self._tracer = tracer
        self._propagation = propagation

    # -- a processor's batches ---------------------------------------------------------------------------------------

    def call(self, consumer: Consumer, batch: Batch, callback: Callable[[Batch], T]) -> T:
        span = self._of_many(consumer, batch.topic, batch.partition, batch.records)
        context = set_span_in_context(span)
        token = attach(context)
        try:
            response = callback(batch)
        except BaseException as error:
            _fail(span, error)
            raise
        finally:
            detach(token)
        if isawaitable(response):
            return cast(T, _awaited(span, context, response))
        _answered(span, response)
        return response

    def _of_many(self, consumer: Consumer, topic: str, partition: int, records: Sequence[Record]) -> Span:
        """Begin the span of records each of which may be of a trace of its own."""
        attributes = names.processing(consumer, topic, partition, records[0].offset, len(records))
        return self._linked(f"process {topic}", SpanKind.CONSUMER, attributes, records)

    def _linked(self, name: str, kind: SpanKind, attributes: dict[str, str | int], records: Sequence[Record]) -> Span:
        """Begin a span without a parent that is linked to those which the records name."""
        parent = self._propagation.parent(in_record(records[0].headers))
        first = [Link(parent)] if parent is not None else []
        span = self._start(name, _NOWHERE, kind, attributes, first)
        if span.is_recording():
            self._link(span, records[1:], MOST_LINKS - len(first))
        return span

    def _link(self, span: Span, records: Sequence[Record], most: int) -> None:
        left_out = 0
        for context in self._recorded(records):
            if most:
                span.add_link(context)
                most -= 1
            else:
                left_out += 1
        if left_out:
            span.set_attribute("inbound.links_left_out", left_out)

    def _recorded(self, records: Iterable[Record]) -> Iterator[SpanContext]:
        """Yield the contexts of the events whose traces are recorded: others there would be nothing to see of."""
        for record in records:
            found = in_record(record.headers)
            context = self._propagation.parent(found) if found else None
            if context is not None and context.trace_flags.sampled:
                yield context

    # -- events that are dispatched ----------------------------------------------------------------------------------

    def work(
        self, consumer: Consumer, topic: str, partition: int, records: Sequence[Record], lines: Sequence[bytes]
    ) -> Work:
        if len(records) != 1:
            return _Work(self, self._of_many(consumer, topic, partition, records))
        (record,) = records
        found = in_record(record.headers) or in_lines(lines)
        attributes = names.processing(consumer, topic, partition, record.offset, None)
        span = self._start(f"process {topic}", self._propagation.context(found), SpanKind.CONSUMER, attributes)
        if span.is_recording():
            span.set_attributes(names.event(record.headers))
        return _Work(self, span)

    # -- what comes in, and what is written --------------------------------------------------------------------------

    def serve(self, method: str, scheme: str, host: str, target: str, headers: Iterable[tuple[bytes, bytes]]) -> Served:
        headers = list(headers)
        context = self._propagation.context(in_request(headers))
        span = self._start(method, context, SpanKind.SERVER, {"http.request.method": method})
        if span.is_recording():
            span.set_attributes(names.serving(method, scheme, host, target, headers))
        return _Served(self, span)

    def publish(self, topic: str) -> Hop:
        return self.hop(f"send {topic}", _NOWHERE, SpanKind.PRODUCER, names.sending(topic))

    # -- requests by themselves --------------------------------------------------------------------------------------

    def deliver(self, target: Shown, records: Sequence[Record], lines: Sequence[bytes]) -> Hop:
        attributes = names.posting(target.shown, 0, "sink")
        batch = get_current_span().get_span_context()
        if len(records) != 1:
            if batch.is_valid:  # that one is linked to the records
                return self.hop("POST", get_current(), SpanKind.CLIENT, attributes)
            return _Hop(self._linked("POST", SpanKind.CLIENT, attributes, records), True)
        (record,) = records
        context = self._propagation.context(in_record(record.headers) or in_lines(lines))
        links = [Link(batch)] if batch.is_valid and batch.trace_flags.sampled else []
        if not get_current_span(context).get_span_context().is_valid:
            context, links = get_current(), []
        span = self._start("POST", context, SpanKind.CLIENT, attributes, links)
        if span.is_recording():
            span.set_attributes(names.event(record.headers))
        return _Hop(span, True)

    def post(self, target: Shown, attempt: int, former: Hop | None) -> Hop:
        attributes = names.posting(target.shown, attempt, "ingress")
        before = self._propagation.parent(dict(former.headers)) if former is not None else None
        links = [Link(before)] if before is not None else []
        return _Hop(self._start("POST", _NOWHERE, SpanKind.CLIENT, attributes, links), True)

    # -- inside ------------------------------------------------------------------------------------------------------

    def hop(self, name: str, context: Context, kind: SpanKind, attributes: dict[str, str | int]) -> Hop:
        """Begin a span that somebody else carries on."""
        return _Hop(self._start(name, context, kind, attributes), kind is SpanKind.CLIENT)

    def _start(
        self,
        name: str,
        context: Context,
        kind: SpanKind,
        attributes: dict[str, str | int],
        links: Sequence[Link] = (),
    ) -> Span:
        return self._tracer.start_span(name, context, kind, attributes, links)


class _Hop:
    __slots__ = ("_http", "_span", "headers")

    def __init__(self, span: Span, http: bool) -> None:
        """`http`: it is a request, and not the publishing of records."""
        self._span = span
        self._http = http
        self.headers = outgoing(span.get_span_context())

    def end(self, status: int = 0, problem: str | None = None) -> None:
        span = self._span
        if span.is_recording():
            if status and self._http:
                span.set_attribute("http.response.status_code", status)
            if problem is not None:
                _failed(span, "no_answer", problem)
            elif status >= 400:
                _failed(span, str(status), "")
        span.end()


class _Known:
    """A hop of a trace that is not recorded: it is told so, and nothing is made."""

    __slots__ = ("headers",)

    def __init__(self, headers: Sequence[tuple[str, str]]) -> None:
        self.headers = headers

    def end(self, status: int = 0, problem: str | None = None) -> None:
        """Nothing to end."""


class _Carrying:
    """A span below which others are made."""

    __slots__ = ("_context", "_known", "_span", "_spans")

    def __init__(self, spans: OpenTelemetrySpans, span: Span) -> None:
        self._spans = spans
        self._span = span
        recording = span.is_recording()
        self._known = None if recording else _Known(outgoing(span.get_span_context()))
        self._context = set_span_in_context(span, _NOWHERE) if recording else _NOWHERE

    def _write(self, topic: str, count: int) -> Hop:
        if self._known is not None:
            return self._known
        return self._spans.hop(f"send {topic}", self._context, SpanKind.PRODUCER, names.sending(topic, count))


class _Work(_Carrying):
    __slots__ = ()

    def post(self, target: Shown, receiver: str, attempt: int) -> Hop:
        if self._known is not None:
            return self._known
        return self._spans.hop("POST", self._context, SpanKind.CLIENT, names.posting(target.shown, attempt, receiver))

    def publish(self, topic: str) -> Hop:
        return self._write(topic, 1)

    def failed(self, kind: str, text: str) -> None:
        _failed(self._span, kind, text)

    def end(self) -> None:
        self._span.end()


class _Served(_Carrying):
    __slots__ = ("_ended",)

    def __init__(self, spans: OpenTelemetrySpans, span: Span) -> None:
        super().__init__(spans, span)
        self._ended = False

    def publish(self, topic: str, count: int) -> Hop:
        return self._write(topic, count)

    def end(self, status: int | None) -> None:
        if self._ended:
            return
        self._ended = True
        span = self._span
        if span.is_recording():
            if status is None:
                _failed(span, "incomplete", "the request did not come to its end")
            else:
                span.set_attribute("http.response.status_code", status)
                if status >= 500:  # what a client does wrong is no error of the server's
                    _failed(span, str(status), "")
        span.end()


async def _awaited(span: Span, context: Context, response: Awaitable[object]) -> object:
    token = attach(context)
    try:
        answer = await response
    except BaseException as error:
        _fail(span, error)
        raise
    finally:
        detach(token)
    _answered(span, answer)
    return answer


def _answered(span: Span, answer: Any) -> None:
    if span.is_recording():
        if isinstance(answer, BatchResponse):
            span.set_attribute("inbound.response", answer.verb.value)
        else:
            _failed(span, "BadResponseError", f"on_next_batch returned {type(answer).__name__}")
    span.end()


def _fail(span: Span, error: BaseException) -> None:
    _failed(span, type(error).__qualname__, str(error))
    span.end()


def _failed(span: Span, kind: str, text: str) -> None:
    if span.is_recording():
        span.set_attribute("error.type", kind)
        span.set_status(StatusCode.ERROR, KNOWN.hide(text)[: names.LONGEST] or None)
