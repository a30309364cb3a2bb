"""Makes spans for the protocols of `inbound.processors.spans`, and for `inbound publish`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

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

from inbound.config.secrets import KNOWN
from inbound.observe.tracing.propagation import Propagation, in_lines, in_record, in_request, outgoing
from inbound.processors.batch import Batch, BatchResponse, Record
from inbound.processors.cloudevents_http import HttpAnswer, HttpMessage
from inbound.processors.spans import ConsumerName, Hop, ServedRequest, Shown, Spans, Work, headers_with_hop, posted

if TYPE_CHECKING:  # it imports a Kafka client
    from inbound.publishing.posting import Post
    from inbound.publishing.publisher import RecordProducer, SentRecord

#: Attributes of events, by the headers of a record and of a request that hold them.
_OF_RECORDS = {
    f"ce_{attribute}": f"cloudevents.event_{name}"
    for attribute, name in (
        ("id", "id"), ("source", "source"), ("specversion", "spec_version"), ("subject", "subject"), ("type", "type"),
    )
}  # fmt: skip
_OF_REQUESTS = {name.replace("_", "-", 1).encode(): attribute for name, attribute in _OF_RECORDS.items()}
#: Longer values are cut. Characters.
LONGEST = 256


def _processing_attributes(
    consumer: ConsumerName, topic: str, partition: int, offset: int, count: int | None
) -> dict[str, str | int]:
    """Return the attributes of a span `process`.

    It is for a batch of `count` records; None: for one record.
    """
    found = {
        **_messaging("process", topic),
        "messaging.destination.partition.id": str(partition),
        "messaging.consumer.group.name": consumer.group,
        "messaging.client.id": consumer.consumer_id,
        "messaging.kafka.offset": offset,
    }
    if count is not None:
        found["messaging.batch.message_count"] = count
    return found


def _sending_attributes(topic: str, count: int = 1) -> dict[str, str | int]:
    batch = {"messaging.batch.message_count": count} if count != 1 else {}
    return {**_messaging("send", topic), **batch}


def _messaging(operation: str, topic: str) -> dict[str, str | int]:
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


def _posting_attributes(shown: str, attempt: int, receiver: str) -> dict[str, str | int]:
    """Return the attributes of `POST`; `shown` is the URL without secrets."""
    resent = {"http.request.resend_count": attempt} if attempt else {}
    return {**_whereto(shown), "inbound.receiver": receiver, **resent}


@lru_cache(256)
def _whereto(shown: str) -> Mapping[str, str | int]:
    url = urlsplit(shown)
    return {
        "http.request.method": "POST",
        "server.address": url.hostname or "",
        "server.port": url.port or (443 if url.scheme == "https" else 80),
        "url.full": shown,
    }


def _serving_attributes(
    method: str, scheme: str, host: str, target: str, headers: Iterable[tuple[bytes, bytes]]
) -> dict[str, str | int]:
    """Return the attributes of an incoming request's span, without its query."""
    found: dict[str, str | int] = {
        "http.request.method": method,
        "url.path": target.partition("?")[0][:LONGEST],
        "url.scheme": scheme,
    }
    name, colon, port = host.rpartition(":")
    if colon and port.isdecimal() and len(port) < 6:
        found |= {"server.address": name.strip("[]")[:LONGEST], "server.port": int(port)}
    elif host:
        found["server.address"] = host.strip("[]")[:LONGEST]
    for header, raw in headers:
        attribute = _OF_REQUESTS.get(header) or _OF_REQUESTS.get(header.lower())
        if attribute is not None:
            found[attribute] = raw[:LONGEST].decode("latin-1")
    return found


def _event_attributes(headers: Iterable[tuple[str, bytes | None]] | None) -> dict[str, str]:
    """Return the attributes of a record's event in binary mode."""
    found = {}
    for header, raw in headers or ():
        attribute = _OF_RECORDS.get(header)
        if attribute is not None and raw:
            found[attribute] = raw[:LONGEST].decode("utf-8", "replace")
    return found


T = TypeVar("T")
#: Links of a batch's span at most.
MOST_LINKS = 128
_NOWHERE = Context()


class OpenTelemetrySpans:
    """Makes spans with one tracer. Any thread."""

    def __init__(self, tracer: Tracer, propagation: Propagation) -> None:
        self._tracer = tracer
        self._propagation = propagation

    # -- a processor's batches ---------------------------------------------------------------------------------------

    def call(self, consumer: ConsumerName, batch: Batch, callback: Callable[[Batch], T]) -> T:
        span = self._of_many(consumer, batch.topic, batch.partition, batch.records)
        with _current(span):
            response = callback(batch)
        if isawaitable(response):
            return cast(T, _awaited(span, response))
        _answered(span, response)
        return response

    def _of_many(self, consumer: ConsumerName, topic: str, partition: int, records: Sequence[Record]) -> Span:
        """Begin the span of several records, perhaps of several traces."""
        attributes = _processing_attributes(consumer, topic, partition, records[0].offset, len(records))
        return self._linked(f"process {topic}", SpanKind.CONSUMER, attributes, records)

    def _linked(self, name: str, kind: SpanKind, attributes: dict[str, str | int], records: Sequence[Record]) -> Span:
        """Begin a span without a parent, linked to the records' spans."""
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
        """Yield the contexts of the events whose traces are recorded."""
        for record in records:
            found = in_record(record.headers)
            context = self._propagation.parent(found) if found else None
            if context is not None and context.trace_flags.sampled:
                yield context

    # -- events that are dispatched ----------------------------------------------------------------------------------

    def work(
        self, consumer: ConsumerName, topic: str, partition: int, records: Sequence[Record], lines: Sequence[bytes]
    ) -> Work:
        if len(records) != 1:
            return _Work(self, self._of_many(consumer, topic, partition, records))
        (record,) = records
        found = in_record(record.headers) or in_lines(lines)
        attributes = _processing_attributes(consumer, topic, partition, record.offset, None)
        span = self._start(f"process {topic}", self._propagation.context(found), SpanKind.CONSUMER, attributes)
        if span.is_recording():
            span.set_attributes(_event_attributes(record.headers))
        return _Work(self, span)

    # -- incoming requests, and written records --------------------------------------------------------------------------

    def serve(
        self, method: str, scheme: str, host: str, target: str, headers: Iterable[tuple[bytes, bytes]]
    ) -> ServedRequest:
        headers = list(headers)
        context = self._propagation.context(in_request(headers))
        span = self._start(method, context, SpanKind.SERVER, {"http.request.method": method})
        if span.is_recording():
            span.set_attributes(_serving_attributes(method, scheme, host, target, headers))
        return _Served(self, span)

    def publish(self, topic: str) -> Hop:
        return self.hop(f"send {topic}", _NOWHERE, SpanKind.PRODUCER, _sending_attributes(topic))

    # -- requests without a work --------------------------------------------------------------------------------------

    def deliver(self, target: Shown, records: Sequence[Record], lines: Sequence[bytes]) -> Hop:
        attributes = _posting_attributes(target.shown, 0, "sink")
        batch = get_current_span().get_span_context()
        if len(records) != 1:
            if batch.is_valid:  # it is linked to the records
                return self.hop("POST", get_current(), SpanKind.CLIENT, attributes)
            return _Hop(self._linked("POST", SpanKind.CLIENT, attributes, records), True)
        (record,) = records
        context = self._propagation.context(in_record(record.headers) or in_lines(lines))
        links = [Link(batch)] if batch.is_valid and batch.trace_flags.sampled else []
        if not get_current_span(context).get_span_context().is_valid:
            context, links = get_current(), []
        span = self._start("POST", context, SpanKind.CLIENT, attributes, links)
        if span.is_recording():
            span.set_attributes(_event_attributes(record.headers))
        return _Hop(span, True)

    def post(self, target: Shown, attempt: int, former: Hop | None) -> Hop:
        attributes = _posting_attributes(target.shown, attempt, "ingress")
        before = self._propagation.parent(dict(former.headers)) if former is not None else None
        links = [Link(before)] if before is not None else []
        return _Hop(self._start("POST", _NOWHERE, SpanKind.CLIENT, attributes, links), True)

    # -- inside ------------------------------------------------------------------------------------------------------

    def hop(self, name: str, context: Context, kind: SpanKind, attributes: dict[str, str | int]) -> Hop:
        """Begin a span whose trace the receiver continues."""
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
        """`http`: a request, not the publishing of records."""
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


class _ParentSpan:
    """A span with spans below it."""

    __slots__ = ("_context", "_span", "_spans", "_unrecorded")

    def __init__(self, spans: OpenTelemetrySpans, span: Span) -> None:
        self._spans = spans
        self._span = span
        recording = span.is_recording()
        # Without recording no further span is made; this one, whose `end` does nothing, tells the receiver.
        self._unrecorded = None if recording else _Hop(span, False)
        self._context = set_span_in_context(span, _NOWHERE) if recording else _NOWHERE

    def publish(self, topic: str, count: int = 1) -> Hop:
        if self._unrecorded is not None:
            return self._unrecorded
        return self._spans.hop(f"send {topic}", self._context, SpanKind.PRODUCER, _sending_attributes(topic, count))


class _Work(_ParentSpan):
    __slots__ = ()

    def post(self, target: Shown, receiver: str, attempt: int) -> Hop:
        if self._unrecorded is not None:
            return self._unrecorded
        return self._spans.hop(
            "POST", self._context, SpanKind.CLIENT, _posting_attributes(target.shown, attempt, receiver)
        )

    def failed(self, kind: str, text: str) -> None:
        _failed(self._span, kind, text)

    def end(self) -> None:
        self._span.end()


class _Served(_ParentSpan):
    __slots__ = ("_ended",)

    def __init__(self, spans: OpenTelemetrySpans, span: Span) -> None:
        super().__init__(spans, span)
        self._ended = False

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
                if status >= 500:  # a client's mistake is no error of the server
                    _failed(span, str(status), "")
        span.end()


@contextmanager
def _current(span: Span) -> Iterator[None]:
    """Make `span` the current one; an exception ends it."""
    token = attach(set_span_in_context(span))
    try:
        yield
    except BaseException as error:
        _failed(span, type(error).__qualname__, str(error))
        span.end()
        raise
    finally:
        detach(token)


async def _awaited(span: Span, response: Awaitable[object]) -> object:
    with _current(span):
        answer = await response
    _answered(span, answer)
    return answer


def _answered(span: Span, answer: Any) -> None:
    if span.is_recording():
        if isinstance(answer, BatchResponse):
            span.set_attribute("inbound.response", answer.verb.value)
        else:
            _failed(span, "BadResponseError", f"on_next_batch returned {type(answer).__name__}")
    span.end()


def _failed(span: Span, kind: str, text: str) -> None:
    if span.is_recording():
        span.set_attribute("error.type", kind)
        span.set_status(StatusCode.ERROR, KNOWN.hide(text)[:LONGEST] or None)


class TracedProducer:
    """The `Producer` of `inbound publish`; a span ends with its record's acknowledgement."""

    def __init__(self, producer: RecordProducer, spans: Spans) -> None:
        self._producer = producer
        self._spans = spans

    def send(self, topic: str, value: Any, key: Any, headers: Any) -> SentRecord:
        hop = self._spans.publish(topic)
        try:
            delivery = self._producer.send(topic, value, key, headers_with_hop(headers, hop))
        except BaseException as error:
            hop.end(problem=f"{type(error).__name__}: {error}")
            raise

        def arrived(_: object) -> None:  # on the producer's thread, as `failed`
            hop.end()

        def failed(error: object) -> None:
            hop.end(problem=f"{type(error).__name__}: {error}")

        callbacks: Any = delivery
        callbacks.add_callback(arrived)
        callbacks.add_errback(failed)
        return delivery

    def flush(self, timeout: float | None = None) -> None:
        self._producer.flush(timeout=timeout)

    def close(self, timeout: float | None = None) -> None:
        self._producer.close(timeout=timeout)


class TracedPost:
    """The sender of `inbound publish --to`: see `inbound.publishing.posting.Post`.

    Each attempt has a span, linked to the attempt before. One thread at a time.
    """

    def __init__(self, post: Post, spans: Spans, target: Shown) -> None:
        self._post = post
        self._spans = spans
        self._target = target
        self._former: Hop | None = None

    def __call__(self, message: HttpMessage, attempt: int) -> HttpAnswer:
        self._former = hop = self._spans.post(self._target, attempt, self._former if attempt else None)
        return posted(lambda carrying: self._post(carrying, attempt), message, hop)
