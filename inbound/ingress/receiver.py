"""Receives requests: checks them, writes their records, answers.

All runs on the event loop's thread. A request is answered with 202 when all its events are acknowledged, never before.
"""

from __future__ import annotations

import hmac
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from inbound.config import IngressConfig
from inbound.http.server.connection import Incoming, ServerConnection
from inbound.http.server.listener import RequestHandler
from inbound.http.server.page import ACCEPTED, ServerAnswer
from inbound.ingress.producer import Failure, FailureCause, IngressProducer
from inbound.ingress.request_head import ALLOW, RULES, Headers, NoTopicError, PassedHeaders, Router, Webhook, size_of
from inbound.ingress.topics import TopicWatch
from inbound.processors.cloudevents_bridge import RecordParts, Refused, UnreadFormatError, http_to_records
from inbound.processors.cloudevents_http import BATCH_CONTENT_TYPE
from inbound.processors.spans import NO_TRACING, Hop, Tracing, headers_with_hop
from inbound.runtime.instruments import Histogram


@dataclass
class IngressCounters:
    """The counters of the ingress; the event loop alone writes them."""

    answers: Counter[int] = field(default_factory=Counter)  # by status
    written_events: int = 0  # acknowledged by Kafka, also in requests that failed
    accepted_events: int = 0  # answered with 202
    failed_events: int = 0  # given to the producer, and not acknowledged
    received_bytes: int = 0  # of bodies
    in_flight_bytes: int = 0
    in_flight_events: int = 0
    in_flight_requests: int = 0  # complete, and not answered
    request_seconds: Histogram = field(default_factory=Histogram)  # from the last byte of a request to its answer
    #: Events that Kafka has acknowledged, by topic and partition.
    produced: defaultdict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))


#: Retry-After, in seconds, when too many bytes are in flight, and when Kafka is unavailable.
RETRY_PRESSED, RETRY_AWAY = 1, 2
#: Seconds after which a list of topics does not prove that one is missing.
FRESH = 1.0
#: Header of an answer to several events of which some are refused for good: their numbers, from 1. The others are written.
REFUSED_EVENTS = "Inbound-Refused"
#: Characters of that header: its readers have limits, too.
_LONGEST_REFUSED = 4096
#: Bounds of the remembered routes: they come from the network.
_ROUTES_KEPT, _LONGEST_KEPT = 4096, 512
#: Bytes above which another thread parses a body: that takes milliseconds, in which the loop could not answer.
ASIDE = 64 * 1024
#: Bytes above which a request's head counts as in flight, too: a connection may have many waiting requests.
SMALL_HEAD = 4096
_STATUS = {
    FailureCause.AWAY: (503, RETRY_AWAY),
    FailureCause.GIVEN_UP: (503, RETRY_AWAY),
    FailureCause.FULL: (429, RETRY_PRESSED),
    FailureCause.TOO_LARGE: (413, None),
    FailureCause.INVALID: (422, None),
    FailureCause.FORBIDDEN: (403, None),
    FailureCause.NO_TOPIC: (404, None),
    FailureCause.BESIDE: (503, RETRY_AWAY),
    FailureCause.REFUSED: (503, RETRY_AWAY),
}


#: Runs jobs on another thread, one after the other. Calls the second function on the loop's thread, in the same order, with a
#: function that returns the job's result, or raises.
Aside = Callable[[Callable[[], Any], Callable[[Callable[[], Any]], object]], object]
_BATCH = BATCH_CONTENT_TYPE.encode()
_PRESSED = ServerAnswer(429, "too much waits to be written (ingress.max_in_flight_bytes)", RETRY_PRESSED)


class Receiver(RequestHandler):
    """The handler of the connections."""

    def __init__(
        self,
        config: IngressConfig,
        producer: IngressProducer,
        watch: TopicWatch,
        begin_polling: Callable[[], None],
        aside: Aside,
        clock: Callable[[], float] = time.monotonic,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._config = config
        self._aside = aside
        self._router = Router(config)
        self.record_headers = PassedHeaders(config.pass_headers)
        self._webhook = Webhook(config.webhook_origins)
        self._producer = producer
        self._send, self.partition = producer.send, producer.partition
        self._watch = watch
        self._begin_polling = begin_polling
        self._clock = clock
        self._tracing = tracing
        self._routes: dict[tuple[bytes, bytes], tuple[str, ...]] = {}
        self._apart: Counter[ServerConnection] = Counter()  # its requests that another thread parses
        self._looking: list[tuple[Incoming, list[RecordParts]]] = []  # until the topics are read again
        self._coming: Counter[str] = Counter()  # bytes of incomplete bodies, by address
        self._trying: set[str] = set()  # doubted topics with an event in flight all the same
        #: None: none is required.
        self.token: str | None = None
        #: Whether a browser's page may post: only where a token or a certificate is required.
        self.from_pages = config.token_file is not None or (config.tls is not None and config.tls.client_ca is not None)
        self.draining = False
        self.counters = IngressCounters()

    # -- connection.Handler ------------------------------------------------------------------------------------------

    def head(self, request: Incoming) -> ServerAnswer | None:
        answer = self._check_head(request)
        if answer is None:
            if self._tracing.spans is not None:
                scheme = "http" if self._config.tls is None else "https"
                host = request.special.get("host", b"").decode("latin-1")
                target = request.target.decode("latin-1")
                request.span = self._tracing.spans.serve("POST", scheme, host, target, request.headers)
            answer = self._too_long(request.length) if request.length is not None else None
            if answer is None and request.head_size > SMALL_HEAD:
                answer = self._reserve(request)
        if answer is not None:
            self.count(answer)
        return answer

    def grows(self, request: Incoming, count: int) -> ServerAnswer | None:
        self.counters.received_bytes += count
        answer = self._reserve(request)
        if answer is not None:
            self.count(answer)
        return answer

    def count(self, answer: ServerAnswer) -> None:
        self.counters.answers[answer.status] += 1

    def complete(self, request: Incoming) -> None:
        request.complete_at = self._clock()
        self.counters.in_flight_requests += 1
        self._came(request)
        most = self._config.max_event_bytes
        if request.size > most and not _is_batch(request):
            reason = (
                f"the event has {request.size} bytes, more than ingress.max_event_bytes ({most}); nothing was written"
            )
            self._respond(request, ServerAnswer(413, reason))
            return
        work = partial(_parsed, request.headers, bytes(request.body), self._config.key)
        request.body = b""
        if request.size > ASIDE or request.connection in self._apart:  # none overtakes one before it
            self._apart[request.connection] += 1
            self._aside(work, partial(self._taken_apart, request))
        else:
            self._take(request, work())

    def _taken_apart(self, request: Incoming, result: Callable[[], list[RecordParts] | Refused]) -> None:
        self._apart[request.connection] -= 1
        if not self._apart[request.connection]:
            del self._apart[request.connection]
        try:
            records = result()
        except BaseException:
            self._respond(request, ServerAnswer(500, "it failed; see the log of the process"))
            raise  # a defect of ours, or no memory: the loop logs it
        self._take(request, records)

    def _take(self, request: Incoming, records: list[RecordParts] | Refused) -> None:
        """Handle the records of a body."""
        if isinstance(records, Refused):
            self._respond(request, ServerAnswer(415 if isinstance(records, UnreadFormatError) else 400, str(records)))
            return
        if not records:
            self._respond(request, ACCEPTED)
            return
        passed = self.record_headers.of(request.headers, request.head_size)
        refusal = self._pass(request, passed, records) if passed else None
        if refusal is None and request.size + request.head_size > self._config.max_event_bytes:
            refusal = self._too_large(records)
        if refusal is not None:
            self._respond(request, refusal)
            return
        self._route(request, records)

    def over(self, request: Incoming) -> None:
        self._came(request)
        self.counters.in_flight_bytes -= request.reserved
        request.reserved = 0
        if request.complete_at is not None:
            self.counters.in_flight_requests -= 1
            self.counters.request_seconds.observe(self._clock() - request.complete_at)
            request.complete_at = None
        if request.span is not None:
            request.span.end(request.answer.status if request.answer is not None else None)

    def drain(self) -> None:
        """Answer `/readyz` with 503 from now on: the process stops."""
        self.draining = True

    # -- the topics --------------------------------------------------------------------------------------------------

    def topics_changed(self) -> None:
        """Route the requests that waited for the list of topics."""
        waiting, self._looking = self._looking, []
        for request, records in waiting:
            self._route(request, records)

    def _route(self, request: Incoming, records: list[RecordParts]) -> None:
        candidates = request.candidates
        watch = self._watch
        if watch.away is not None:
            self._respond(request, _away(watch.away))
            return
        try:
            topic = self._router.choose(candidates, watch.existing)
        except NoTopicError as error:
            if self._clock() - watch.read_at > FRESH:
                self._looking.append((request, records))
                watch.miss(candidates[0])
            else:
                self._respond(request, ServerAnswer(404, str(error)))
            return
        if topic in watch.doubted:
            why, since = watch.doubted[topic]
            if topic in self._trying or not watch.answers_since(since):
                self._respond(request, _away(f"topic {topic}: {why}"))
                return
            self._trying.add(topic)
        self._write(request, topic, records)

    # -- writing -----------------------------------------------------------------------------------------------------

    def _write(self, request: Incoming, topic: str, records: list[RecordParts]) -> None:
        counters = self.counters
        hop: Hop | None = None
        if request.span is not None:
            hop = request.span.publish(topic, len(records))
            records = [record._replace(headers=headers_with_hop(record.headers, hop)) for record in records]
        writing = _Writing(self, request, topic, records, hop)
        if not counters.in_flight_events:
            self._begin_polling()
        counters.in_flight_events += len(records)
        taken, failure = self._send(topic, records, [partial(writing.delivered, n) for n in range(len(records))])
        if failure is not None:
            writing.refused(failure, taken)

    def sends_alone(self, writing: _Writing, number: int, error: Any) -> Any:
        """Send a record again alone, if another may have failed it.

        Returns the final error; None: it is sent.
        """
        if number in writing.alone or self._failure(error).cause not in self._producer.of_batches:
            return error
        writing.alone.add(number)
        answer = partial(writing.delivered, number)
        # If it is not taken, that is its error: the batch's may belong to another record.
        return self._send(writing.topic, [writing.records[number]], [answer], alone=True)[1]

    def written(self, writing: _Writing) -> None:
        """Answer a request whose events are all acknowledged, or have failed."""
        counters = self.counters
        count, failed = len(writing.records), len(writing.failures)
        counters.in_flight_events -= count
        counters.written_events += count - failed
        self._trying.discard(writing.topic)
        if failed < count:
            self._watch.trust(writing.topic)
        if not failed:
            if writing.hop is not None:
                writing.hop.end(problem=None)
            counters.accepted_events += count
            counters.answers[202] += 1
            writing.request.respond(ACCEPTED)
            return
        counters.failed_events += failed
        failures = [self._failure(error) for error in writing.failures.values()]
        causes = {failure.cause for failure in failures}
        if FailureCause.AWAY in causes:
            text = next(failure.text for failure in failures if failure.cause is FailureCause.AWAY)
            self._watch.doubt(writing.topic, text)
        if FailureCause.NO_TOPIC in causes:
            self._watch.miss(writing.topic)
        # The sender must retry the request even if one of its events is refused for good.
        failure = next((one for one in failures if _STATUS[one.cause][1] is not None), failures[0])
        told = f"{failure.cause.value} ({failure.text})"
        if writing.hop is not None:
            writing.hop.end(problem=told)
        status, retry_after = _STATUS[failure.cause]
        reason = f"topic {writing.topic}: {told}"
        headers: tuple[str, ...] = ()
        if count > 1 and retry_after is not None:
            reason += f"; {count - failed} of {count} events were written: sent again, they come twice"
        elif count > 1:
            refused = ", ".join(str(number + 1) for number in sorted(writing.failures))
            if len(refused) <= _LONGEST_REFUSED:
                which = f"that is number {refused}; the others are written: do not send them again"
                headers = (f"{REFUSED_EVENTS}: {refused}",)
            else:
                which = f"that is {failed}, too many to be named: to learn which, send fewer in one; {count - failed} are written"
            reason += f"; of its {count} events {which}"
        self._respond(writing.request, ServerAnswer(status, reason, retry_after, headers))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _failure(self, error: Any) -> Failure:
        return error if isinstance(error, Failure) else self._producer.failure(error)

    def _respond(self, request: Incoming, answer: ServerAnswer) -> None:
        self.count(answer)
        request.respond(answer)

    def _check_head(self, request: Incoming) -> ServerAnswer | None:
        special = request.special
        if request.method == b"OPTIONS":
            return self._preflight(request)
        if request.method != b"POST":
            return self._page(request)
        if self.token is not None and not _knows(self.token, special.get("authorization", b"")):
            reason = "this needs `Authorization: Bearer` with the token of ingress.token_file"
            return ServerAnswer(401, reason, headers=("WWW-Authenticate: Bearer",))
        if "origin" in special and not self.from_pages:
            return ServerAnswer(
                403, "events are not taken from pages in a browser, unless ingress.token_file or tls is set"
            )
        if special.get("content-encoding", b"identity").strip().lower() != b"identity":
            headers = ("Accept-Encoding: identity",)
            return ServerAnswer(415, "Content-Encoding is not taken: send the body as it is", headers=headers)
        return self._find(request)

    def _find(self, request: Incoming) -> ServerAnswer | None:
        """Set a request's possible topics; return a refusal: it has none."""
        host = request.special.get("host", b"")
        known = self._routes.get((host, request.target))
        if known is not None:
            request.candidates = known
            return None
        try:
            request.candidates = self._router.candidates(host.decode("latin-1"), request.target.decode("latin-1"))
        except NoTopicError as error:
            return ServerAnswer(404, str(error))
        if len(host) + len(request.target) <= _LONGEST_KEPT:
            if len(self._routes) >= _ROUTES_KEPT:
                self._routes.clear()
            self._routes[host, request.target] = request.candidates
        return None

    def _preflight(self, request: Incoming) -> ServerAnswer:
        """Answer a sender's OPTIONS; without the token it reveals no topics."""
        trusted = self.token is None or _knows(self.token, request.special.get("authorization", b""))
        refusal = self._find(request) if trusted and request.target != b"*" else None
        return refusal or self._webhook.answer(request.headers)

    def _page(self, request: Incoming) -> ServerAnswer:
        """Answer a request that is no POST."""
        path = request.target.partition(b"?")[0]
        if path not in (b"/healthz", b"/readyz") or request.method not in (b"GET", b"HEAD"):
            return ServerAnswer(405, f"CloudEvents are taken by POST: to {RULES}", headers=(ALLOW,))
        if path == b"/readyz" and (self.draining or self._watch.away is not None):
            return ServerAnswer(503, "stopping" if self.draining else f"Kafka is away: {self._watch.away}")
        return ServerAnswer(200, "ok")

    def _pass(self, request: Incoming, passed: Headers, records: list[RecordParts]) -> ServerAnswer | None:
        """Add the forwarded headers to the records; return a refusal: too large."""
        if len(records) > 1:  # each event of a batch has them: a small request is many bytes to Kafka
            more = size_of(passed) * (len(records) - 1)
            most = self._config.max_in_flight_bytes
            if request.reserved + more > most:
                reason = (
                    f"with the headers of ingress.pass_headers its {len(records)} events have more than "
                    f"ingress.max_in_flight_bytes ({most}); send fewer in one"
                )
                return ServerAnswer(413, reason)
            if self.counters.in_flight_bytes + more > most:
                return _PRESSED
            self.counters.in_flight_bytes += more
            request.reserved += more
        for record in records:
            record.headers.extend(passed)
        return None

    def _too_large(self, records: list[RecordParts]) -> ServerAnswer | None:
        most = self._config.max_event_bytes
        for number, record in enumerate(records, 1):
            if (size := _size(record)) > most:
                which = f"event {number} of {len(records)}" if len(records) > 1 else "the event"
                reason = f"{which} has {size} bytes, more than ingress.max_event_bytes ({most}); nothing was written"
                return ServerAnswer(413, reason)
        return None

    def _too_long(self, size: int) -> ServerAnswer | None:
        most = self._config.max_request_bytes
        if size <= most:
            return None
        return ServerAnswer(
            413, f"the request has more than ingress.max_request_bytes ({most}); send fewer events in one", last=True
        )

    def _reserve(self, request: Incoming) -> ServerAnswer | None:
        """Count the received bytes as in flight; return a refusal: too many."""
        answer = self._too_long(request.size)
        if answer is not None:
            return answer
        size = request.size + (request.head_size if request.head_size > SMALL_HEAD else 0)
        counters = self.counters
        more = size - request.reserved
        if counters.in_flight_bytes + more > self._config.max_in_flight_bytes:
            if self._watch.away is not None:
                return _away(self._watch.away)
            return _PRESSED
        address = request.connection.address
        if self._coming[address] + more > max(self._config.max_in_flight_bytes // 2, self._config.max_request_bytes):
            reason = (
                "too much of one address has come in part (half of ingress.max_in_flight_bytes); send fewer at a time"
            )
            return ServerAnswer(429, reason, RETRY_PRESSED)
        counters.in_flight_bytes += more
        request.reserved = size
        request.coming += more
        self._coming[address] += more
        return None

    def _came(self, request: Incoming) -> None:
        """Forget the incomplete bytes of a body that is complete, or dropped."""
        if request.coming:
            address = request.connection.address
            self._coming[address] -= request.coming
            request.coming = 0
            if not self._coming[address]:
                del self._coming[address]


class _Writing:
    """The events of one request in flight, numbered from 0."""

    __slots__ = ("alone", "failures", "hop", "left", "receiver", "records", "request", "topic")

    def __init__(
        self, receiver: Receiver, request: Incoming, topic: str, records: list[RecordParts], hop: Hop | None
    ) -> None:
        self.receiver = receiver
        self.request = request
        self.topic = topic
        self.records = records
        self.hop = hop
        self.left = len(records)
        self.failures: dict[int, Any] = {}  # each a Failure, or an error of the client
        self.alone: set[int] = set()  # sent again in a batch of their own

    def delivered(self, number: int, error: Any, receipt: Any) -> None:
        """Take the acknowledgement of an event, or its error."""
        if error is None:
            self.receiver.counters.produced[self.topic, self.receiver.partition(receipt)] += 1
        else:
            error = self.receiver.sends_alone(self, number, error)
            if error is None:
                return
            self.failures[number] = error
        self.left -= 1
        if not self.left:
            self.receiver.written(self)

    def refused(self, failure: Failure, first: int) -> None:
        """Take the failure of the unsent events, from `first` on."""
        refused = range(first, len(self.records))
        self.failures |= dict.fromkeys(refused, failure)
        self.left -= len(refused)
        if not self.left:
            self.receiver.written(self)


def _away(why: str) -> ServerAnswer:
    return ServerAnswer(503, f"Kafka is away: {why}", RETRY_AWAY)


def _knows(token: str, authorization: bytes) -> bool:
    scheme, _, given = authorization.partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), token.encode())


def _parsed(headers: list[tuple[bytes, bytes]], body: bytes, key: tuple[str, ...]) -> list[RecordParts] | Refused:
    try:
        return http_to_records(headers, body, key)
    except Refused as refused:
        return refused


def _is_batch(request: Incoming) -> bool:
    return any(
        name.lower() == b"content-type" and value.strip().lower().startswith(_BATCH) for name, value in request.headers
    )


def _size(record: RecordParts) -> int:
    key, value, headers = record
    return (len(key) if key else 0) + (len(value) if value else 0) + size_of(headers)
