"""The interface of tracing for processors and channels.

`inbound.observe.tracing` implements it; nothing here needs OpenTelemetry. A trace follows one event; a span is one piece of work
on it, and a hop one request to, or publish for, another program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from inbound.processors.batch import Batch, Record

if TYPE_CHECKING:
    from inbound.processors.cloudevents_http import HttpAnswer, HttpMessage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConsumerName:
    """The consumer that spans name."""

    group: str
    consumer_id: str


class Shown(Protocol):
    """The receiver of a request."""

    @property
    def shown(self) -> str:
        """The URL without its secrets."""


class Hop(Protocol):
    """One request or publish that carries the trace to a receiver."""

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        """The headers to send: `traceparent`, and perhaps `tracestate`."""

    def end(self, status: int = 0, problem: str | None = None) -> None:
        """End the hop with an HTTP status (0: none) or a problem."""


class Work(Protocol):
    """The work on some events, from arrival to end; in one thread."""

    def post(self, target: Shown, receiver: str, attempt: int) -> Hop:
        """Begin a POST to `subscriber`, `reply` or `dead-letter`; attempts count from 0."""

    def publish(self, topic: str) -> Hop:
        """Begin to write the events to a topic."""

    def failed(self, kind: str, text: str) -> None:
        """Note a failure: one of few kinds, and a sentence."""

    def end(self) -> None:
        """End the work."""


class ServedRequest(Protocol):
    """One incoming request."""

    def publish(self, topic: str, count: int) -> Hop:
        """Begin to write its `count` events to a topic."""

    def end(self, status: int | None) -> None:
        """End it with this status; None: it broke. Repeatable."""


class Spans(Protocol):
    """Makes spans. Any thread."""

    def call(self, consumer: ConsumerName, batch: Batch, callback: Callable[[Batch], T]) -> T:
        """Call a processor with a batch, in OpenTelemetry's current span.

        If it returns an awaitable, so does this, and that ends the span. Its errors are raised.
        """

    def work(
        self, consumer: ConsumerName, topic: str, partition: int, records: Sequence[Record], lines: Sequence[bytes]
    ) -> Work:
        """Begin the work on records of one request with header `lines`."""

    def serve(
        self, method: str, scheme: str, host: str, target: str, headers: Iterable[tuple[bytes, bytes]]
    ) -> ServedRequest:
        """Begin to serve an HTTP request."""

    def publish(self, topic: str) -> Hop:
        """Begin to write a record outside of other work."""

    def deliver(self, target: Shown, records: Sequence[Record], lines: Sequence[bytes]) -> Hop:
        """Begin a sink's POST of these records; `lines` as in `work`.

        Inside of `call`, on the thread of its callback, it is part of that batch's span too.
        """

    def post(self, target: Shown, attempt: int, former: Hop | None) -> Hop:
        """Begin a POST to an ingress outside of work, after attempt `former`."""


class Tracing(Protocol):
    """Whether a process makes spans now, which can change."""

    @property
    def spans(self) -> Spans | None:
        """The maker of spans; None: tracing is off."""


class _NoTracing:
    spans: Final = None


#: Tracing that is always off.
NO_TRACING: Final[Tracing] = _NoTracing()

_TRACE = (b"traceparent:", b"tracestate:")
_NAMES = ("traceparent", "tracestate")
#: Headers of records that name the previous hop, in W3C's and in B3's form.
_HOPS = frozenset((*_NAMES, "b3", "x-b3-traceid", "x-b3-spanid", "x-b3-parentspanid", "x-b3-sampled", "x-b3-flags"))


def with_hop(lines: Iterable[bytes], hop: Hop) -> list[bytes]:
    """Return a request's header lines with the trace of `hop`."""
    kept = [line for line in lines if not line.lower().startswith(_TRACE)]
    return kept + [f"{name}: {value}".encode() for name, value in hop.headers]


def headers_with_hop(headers: Iterable[tuple[str, bytes]], hop: Hop) -> list[tuple[str, bytes]]:
    """Return a record's headers with the trace of `hop`, and unchanged extensions."""
    kept = [(name, value) for name, value in headers if name.lower() not in _HOPS]
    return kept + [(name, value.encode()) for name, value in hop.headers]


def posted(post: Callable[[HttpMessage], HttpAnswer], message: HttpMessage, hop: Hop) -> HttpAnswer:
    """Post a message with the trace of `hop`, and end the hop."""
    headers = {name: value for name, value in message.headers.items() if name not in _NAMES}
    try:
        answer = post(message._replace(headers={**headers, **dict(hop.headers)}))
    except BaseException as error:
        hop.end(problem=str(error) or type(error).__name__)
        raise
    hop.end(answer.status)
    return answer
