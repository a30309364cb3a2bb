"""Sends ended spans to the collector; drops spans that cannot be sent.

docs/decisions/0040-tracing.md has the reasons against the SDK's own processor and exporters.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from inbound.clock import Clock
from inbound.errors import SinkError
from inbound.processors.cloudevents_http import HttpAnswer, HttpMessage
from inbound.runtime.backoff import Backoff

log = logging.getLogger(__name__)

#: Spans in the queue at most; further ones are dropped. And spans in one request.
MOST_WAITING, MOST_AT_ONCE = 4096, 512
#: Seconds between two requests.
DELAY = 1.0
#: Before the same spans are sent again.
BACKOFF = Backoff(1.0, 15.0)
#: Answers after which the request is retried; any other refusal is final.
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})

Encode = Callable[[Sequence[ReadableSpan]], HttpMessage]
#: Posts to the collector. Raises SinkError: there was no answer.
Post = Callable[[HttpMessage], HttpAnswer]


class CollectorExporter(SpanProcessor):
    """Queues ended spans, and sends them: a `Part` of the process."""

    def __init__(
        self, encode: Encode, post: Post, shown: str, clock: Clock, wake: Callable[[], None] = lambda: None
    ) -> None:
        """`shown` names the collector in messages; `wake` makes `run_once` run soon."""
        self._encode = encode
        self._post = post
        self._shown = shown
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: deque[ReadableSpan] = deque()
        self._closed = False
        self._failures = 0
        self._not_before = 0.0
        self._lost_in_trouble = 0
        #: Why nothing can be sent; None while it can.
        self.problem: str | None = None
        self.sent_total = 0
        self.dropped_total = 0

    @property
    def waiting(self) -> int:
        """The spans in the queue. Any thread."""
        return len(self._waiting)

    # -- SpanProcessor: any thread -----------------------------------------------------------------------------------

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queue an ended span; drop it if the queue is full."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._lock:
            if self._closed or len(self._waiting) >= MOST_WAITING:
                self.dropped_total += 1
                self._lost_in_trouble += 1
                return
            self._waiting.append(span)
            full = len(self._waiting) == MOST_AT_ONCE
        if full:
            self._wake()

    # -- the part ----------------------------------------------------------------------------------------------------

    def run_once(self) -> float | None:
        """Send one request; come back at once if more spans wait."""
        now = self._clock.now()
        if now < self._not_before:
            return self._not_before
        more = self.send(self._post)
        return max(self._clock.now(), self._not_before) if more else self._clock.now() + DELAY

    def send(self, post: Post) -> bool:
        """Send one request; return whether more spans wait.

        One thread at a time.
        """
        with self._lock:
            spans = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
        if not spans:
            return False
        retry, problem = self._sent(post, spans)
        if problem is None:
            self._succeeded(spans)
        else:
            self._failed(spans, problem, retry)
        return bool(self._waiting)

    def _sent(self, post: Post, spans: list[ReadableSpan]) -> tuple[bool, str | None]:
        """Return whether to retry, and the problem."""
        try:
            answer = post(self._encode(spans))
        except SinkError as error:
            return True, str(error)
        except Exception as error:  # an attribute that the format does not take: these spans cannot be sent
            log.debug("tracing: where spans could not be written", exc_info=True)
            return False, f"spans cannot be written for it: {type(error).__name__}: {error}"
        if 200 <= answer.status < 300:
            return False, None
        said = answer.body.decode(errors="replace").strip().partition("\n")[0][:200]
        return answer.status in _RETRIED, f"{self._shown} answered {answer.status}: {said or 'without a reason'}"

    def _failed(self, spans: list[ReadableSpan], problem: str, retry: bool) -> None:
        with self._lock:
            room = MOST_WAITING - len(self._waiting) if retry else 0
            kept = spans[max(0, len(spans) - room) :] if room > 0 else []
            self._waiting.extendleft(reversed(kept))
            self.dropped_total += len(spans) - len(kept)
            self._lost_in_trouble += len(spans) - len(kept)
        self._failures += 1
        self._not_before = self._clock.now() + BACKOFF.delay(self._failures)
        if self.problem is None:
            log.warning(
                "tracing: spans do not go to the collector: %s. Up to %d are kept and sent later, further ones dropped; "
                "nothing else is held up. See to the collector, or correct tracing.endpoint", problem, MOST_WAITING,
            )  # fmt: skip
        self.problem = problem

    def _succeeded(self, spans: list[ReadableSpan]) -> None:
        self.sent_total += len(spans)
        self._failures = 0
        with self._lock:
            lost, self._lost_in_trouble = self._lost_in_trouble, 0
        if self.problem is not None:
            log.info("tracing: the collector %s takes spans again; %d were dropped", self._shown, lost)
            self.problem = None
        elif lost:
            log.warning("tracing: %d spans were dropped: more end than the collector %s takes", lost, self._shown)

    def end(self) -> None:
        """Queue no more spans. Any thread."""
        with self._lock:
            self._closed = True

    def give_up(self) -> int:
        """Drop the queue; return the number of its spans."""
        with self._lock:
            count = len(self._waiting)
            self._waiting.clear()
            self.dropped_total += count
        return count


#: Zipkin knows no links: a tag names so many linked traces instead.
NAMED_LINKS = 16


def encoder(backend: str, service_name: str) -> Encode:
    """Return the encoder for a backend."""
    if backend == "zipkin":
        return _zipkin(service_name)
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    protobuf = {"content-type": "application/x-protobuf"}
    return lambda spans: HttpMessage(protobuf, encode_spans(spans).SerializeToString())


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
            """Never set the debug flag: it forces sampling."""
            return False

    node = NodeEndpoint()
    node.service_name = service_name
    made: Any = Encoder()  # Any: its `serialize` is typed for spans, and takes a ReadableSpan
    return lambda spans: HttpMessage({"content-type": "application/json"}, made.serialize(spans, node).encode())
