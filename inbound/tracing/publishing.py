"""What `inbound publish` sends with, where traces are made: one begins with each record, or with each request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inbound.processors.cloudevents_http import HttpMessage
from inbound.processors.spans import Hop, Shown, Spans, headers_with_hop, posted
from inbound.publishing.posting import Answer, Post
from inbound.publishing.publisher import Delivery, Producer


class TracedProducer:
    """What `inbound publish` writes with: see `inbound.publishing.publisher.Producer`. A span ends when its record is there."""

    def __init__(self, producer: Producer, spans: Spans) -> None:
        self._producer = producer
        self._spans = spans

    def send(self, topic: str, value: Any, key: Any, headers: Any) -> Delivery:
        hop = self._spans.publish(topic)
        try:
            delivery = self._producer.send(topic, value, key, headers_with_hop(headers, hop))
        except BaseException as error:
            hop.end(problem=f"{type(error).__name__}: {error}")
            raise
        _when_done(delivery, hop)
        return delivery

    def flush(self, timeout: float | None = None) -> None:
        self._producer.flush(timeout=timeout)

    def close(self, timeout: float | None = None) -> None:
        self._producer.close(timeout=timeout)


class TracedPost:
    """What `inbound publish --to` posts with: see `inbound.publishing.posting.Post`. One thread at a time.

    Each attempt has a span, linked to the attempt before.
    """

    def __init__(self, post: Post, spans: Spans, target: Shown) -> None:
        self._post = post
        self._spans = spans
        self._target = target
        self._former: Hop | None = None

    def __call__(self, message: HttpMessage, attempt: int) -> Answer:
        self._former = hop = self._spans.post(self._target, attempt, self._former if attempt else None)
        return posted(lambda carrying: self._post(carrying, attempt), message, hop)


def _when_done(delivery: Any, hop: Hop) -> None:
    """End the span with the delivery, on the producer's thread."""

    def arrived(_: object) -> None:
        hop.end()

    def failed(error: object) -> None:
        hop.end(problem=f"{type(error).__name__}: {error}")

    done: Callable[..., object] = delivery.add_callback
    done(arrived)
    delivery.add_errback(failed)
