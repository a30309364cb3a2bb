"""Sends ended spans to the collector, on a thread of its own, and holds nobody up: what it cannot send in time is dropped.

Why not the SDK's own processor and exporters: docs/decisions/0040-tracing.md.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from inbound.clock import Clock
from inbound.errors import SinkError
from inbound.processors.cloudevents_http import HttpMessage

log = logging.getLogger(__name__)

#: Spans that wait at most; further ones are dropped. And how many go in one request.
MOST_WAITING, MOST_AT_ONCE = 4096, 512
#: Spans are sent together so often, in seconds.
DELAY = 1.0
#: After a failure the same spans are sent again so much later, doubled up to the second. Seconds.
FIRST_WAIT, LONGEST_WAIT = 1.0, 15.0
#: Answers after which the same request may be taken; any other refusal is for good.
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})

Encode = Callable[[Sequence[ReadableSpan]], HttpMessage]


class Answer(Protocol):
    """What is read of the collector's answer."""

    @property
    def status(self) -> int: ...
    @property
    def body(self) -> bytes: ...


class Poster(Protocol):
    """Posts to the collector: see `inbound.processors.sinks.http_client.HttpClient`."""

    def post(self, message: HttpMessage) -> Answer:
        """Raises SinkError: there was no answer."""


class Exporting(SpanProcessor):
    """Keeps ended spans, and sends them: see `inbound.driver.Part`. Spans end on any thread."""

    def __init__(
        self, encode: Encode, client: Poster, shown: str, clock: Clock, wake: Callable[[], None] = lambda: None
    ) -> None:
        """`shown` names the collector in messages; `wake` has `run_once` called soon."""
        self._encode = encode
        self._client = client
        self._shown = shown
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: deque[ReadableSpan] = deque()
        self._closed = False
        self._wait = FIRST_WAIT
        self._not_before = 0.0
        self._lost_in_trouble = 0
        #: Why nothing can be sent; None while it can.
        self.problem: str | None = None
        self.sent_total = 0
        self.dropped_total = 0

    @property
    def waiting(self) -> int:
        """How many spans wait. Any thread."""
        return len(self._waiting)

    # -- SpanProcessor: any thread -----------------------------------------------------------------------------------

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do."""

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span that has ended; drop it if too many wait."""
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
        """Send what waits, one request; come back at once if more does."""
        now = self._clock.now()
        if now < self._not_before:
            return self._not_before
        more = self.send(self._client)
        return max(self._clock.now(), self._not_before) if more else self._clock.now() + DELAY

    def send(self, client: Poster) -> bool:
        """Send spans, one request. Returns whether more wait. One thread at a time."""
        with self._lock:
            spans = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
        if not spans:
            return False
        again, problem = self._post(client, spans)
        if problem is None:
            self.sent_total += len(spans)
            self._well()
        else:
            self._failed(spans, problem, again)
        return bool(self._waiting)

    def _post(self, client: Poster, spans: list[ReadableSpan]) -> tuple[bool, str | None]:
        """Return whether it may be tried again, and what went wrong."""
        try:
            answer = client.post(self._encode(spans))
        except SinkError as error:
            return True, str(error)
        except Exception as error:  # an attribute that the format does not take: these spans will never go
            log.debug("tracing: where spans could not be written", exc_info=True)
            return False, f"spans cannot be written for it: {type(error).__name__}: {error}"
        if 200 <= answer.status < 300:
            return False, None
        said = answer.body.decode(errors="replace").strip().partition("\n")[0][:200]
        return answer.status in _AGAIN, f"{self._shown} answered {answer.status}: {said or 'without a reason'}"

    def _failed(self, spans: list[ReadableSpan], problem: str, again: bool) -> None:
        with self._lock:
            room = MOST_WAITING - len(self._waiting) if again else 0
            kept = spans[max(0, len(spans) - room) :] if room > 0 else []
            self._waiting.extendleft(reversed(kept))
            self.dropped_total += len(spans) - len(kept)
            self._lost_in_trouble += len(spans) - len(kept)
        self._not_before = self._clock.now() + self._wait
        self._wait = min(2 * self._wait, LONGEST_WAIT)
        if self.problem is None:
            log.warning(
                "tracing: spans do not go to the collector: %s. Up to %d are kept and sent later, further ones dropped; "
                "nothing else is held up. See to the collector, or correct tracing.endpoint", problem, MOST_WAITING,
            )  # fmt: skip
        self.problem = problem

    def _well(self) -> None:
        self._wait = FIRST_WAIT
        with self._lock:
            lost, self._lost_in_trouble = self._lost_in_trouble, 0
        if self.problem is not None:
            log.info("tracing: the collector %s takes spans again; %d were dropped meanwhile", self._shown, lost)
            self.problem = None
        elif lost:
            log.warning("tracing: %d spans were dropped: more end than the collector %s takes", lost, self._shown)

    def end(self) -> None:
        """Take no more spans. Any thread."""
        with self._lock:
            self._closed = True

    def give_up(self) -> int:
        """Drop what waits. Returns how many that were."""
        with self._lock:
            count = len(self._waiting)
            self._waiting.clear()
            self.dropped_total += count
        return count
