"""What makes spans, as processors and channels see it.

`inbound.observe.tracing` implements it; nothing here needs OpenTelemetry.

A trace follows one event on all its ways; a span is one piece of work on it, and a hop one request or publish to elsewhere.
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
class Consumer:
    """Who reads, as spans name it."""

    group: str
    consumer_id: str


class Shown(Protocol):
    """Whom a request goes to."""

    @property
    def shown(self) -> str:
        """The URL without what may be secret in it."""


class Hop(Protocol):
    """One request or publish to a receiver that carries the trace on."""

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        """What goes with it: `traceparent`, and `tracestate` if there is one."""

    def end(self, status: int = 0, problem: str | None = None) -> None:
        """It is answered, with this HTTP status (0: none), or has failed for this reason."""


class Work(Protocol):
    """The work on some events, from their arrival to the end.

    One thread at a time.
    """

    def post(self, target: Shown, receiver: str, attempt: int) -> Hop:
        """Begin a POST to `target`, which is the `subscriber`, `reply` or `dead-letter`; `attempt` counts from 0."""

    def publish(self, topic: str) -> Hop:
        """Begin to write the events to a topic."""

    def failed(self, kind: str, text: str) -> None:
        """Say what was wrong: a kind of which there are few, and a sentence."""

    def end(self) -> None:
        """Nothing more is done."""


class Served(Protocol):
    """One request that has come in."""

    def publish(self, topic: str, count: int) -> Hop:
        """Begin to write its `count` events to a topic."""

    def end(self, status: int | None) -> None:
        """It is answered with this status; None: it never came to its end. May be called again."""


class Spans(Protocol):
    """Makes spans. Any thread."""

    def call(self, consumer: Consumer, batch: Batch, callback: Callable[[Batch], T]) -> T:
        """Call a processor with a batch, in a span that the processor's code finds as OpenTelemetry's current one.

        Where it returns an awaitable, one is returned that ends the span. Its errors come through.
        """

    def work(
        self, consumer: Consumer, topic: str, partition: int, records: Sequence[Record], lines: Sequence[bytes]
    ) -> Work:
        """Begin the work on records that go on together; `lines` are the headers of their request so far."""

    def serve(self, method: str, scheme: str, host: str, target: str, headers: Iterable[tuple[bytes, bytes]]) -> Served:
        """Begin to serve an HTTP request."""

    def publish(self, topic: str) -> Hop:
        """Begin to write a record that no other work has led to."""

    def deliver(self, target: Shown, records: Sequence[Record], lines: Sequence[bytes]) -> Hop:
        """Begin a sink's POST of these records' events, at least one; `lines` are header lines as in `work`.

        Inside of `call`, on the thread of its callback, it is part of that batch's span too.
        """

    def post(self, target: Shown, attempt: int, former: Hop | None) -> Hop:
        """Begin a POST to an ingress that no other work has led to; `former` is the attempt before this one."""


class Tracing(Protocol):
    """Whether a process makes spans now: that can change while it runs."""

    @property
    def spans(self) -> Spans | None:
        """None: it makes none."""


class _NoTracing:
    spans: Final = None


#: Of who makes none, and never will.
NO_TRACING: Final[Tracing] = _NoTracing()

_TRACE = (b"traceparent:", b"tracestate:")
_NAMES = ("traceparent", "tracestate")
#: Headers of records that name the hop before, in either way of writing.
_HOPS = frozenset((*_NAMES, "b3", "x-b3-traceid", "x-b3-spanid", "x-b3-parentspanid", "x-b3-sampled", "x-b3-flags"))


def with_hop(lines: Iterable[bytes], hop: Hop) -> list[bytes]:
    """Return the header lines of a request with those of a hop in place of its own."""
    kept = [line for line in lines if not line.lower().startswith(_TRACE)]
    return kept + [f"{name}: {value}".encode() for name, value in hop.headers]


def headers_with_hop(headers: Iterable[tuple[str, bytes]], hop: Hop) -> list[tuple[str, bytes]]:
    """Return the headers of a record with those of a hop in place of its own; the event's extensions stay as they are."""
    kept = [(name, value) for name, value in headers if name.lower() not in _HOPS]
    return kept + [(name, value.encode()) for name, value in hop.headers]


def posted(post: Callable[[HttpMessage], HttpAnswer], message: HttpMessage, hop: Hop) -> HttpAnswer:
    """Post a message with a hop's headers in place of its own, and end the hop. Returns the answer, raises what `post` does."""
    headers = {name: value for name, value in message.headers.items() if name not in _NAMES}
    try:
        answer = post(message._replace(headers={**headers, **dict(hop.headers)}))
    except BaseException as error:
        hop.end(problem=str(error) or type(error).__name__)
        raise
    hop.end(answer.status)
    return answer
