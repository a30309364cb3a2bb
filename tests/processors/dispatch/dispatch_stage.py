"""A world with one dispatching consumer, and a subscriber whose answers are told by verbs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inbound.processors.dispatch.processor import DispatchProcessor
from inbound.processors.dispatch.transport import Answer, Done, Target, Transport
from inbound.testing.world import World

SUBSCRIBER, REPLIES, DEAD = "http://subscriber/", "http://replies/", "http://dead/"
OK = Answer(202)

Behaviour = Callable[["Request"], Answer]


@dataclass(frozen=True)
class Request:
    """One request as it arrived."""

    url: str
    at: float
    ids: tuple[str, ...]
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Receivers(Transport):
    """Everybody who can be posted to: answers as told, after so many seconds, and remembers all requests."""

    loop: asyncio.AbstractEventLoop
    now: Callable[[], float]
    behaviour: Behaviour = lambda request: OK
    seconds: Callable[[Request], float] = lambda request: 0.02
    requests: list[Request] = field(default_factory=list)
    under_way: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)  # requests at once, by url
    closed: bool = False

    def post(self, target: Target, lines: list[bytes], body: bytes, done: Done) -> None:
        headers = dict(line.decode().split(": ", 1) for line in lines)
        request = Request(target.url, self.now(), ids_of(headers, body), headers, body)
        self.requests.append(request)
        self.under_way[target.url] += 1
        self.most[target.url] = max(self.most[target.url], self.under_way[target.url])

        def answered() -> None:
            self.under_way[target.url] -= 1
            done(self.behaviour(request))

        self.loop.call_later(self.seconds(request), answered)

    def retire(self, target: Target) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def ids_of(headers: Mapping[str, str], body: bytes) -> tuple[str, ...]:
    """Return the ids of the events that a request carries, in their order."""
    if "ce-id" in headers:
        return (headers["ce-id"],)
    found = json.loads(body)
    return tuple(event["id"] for event in (found if isinstance(found, list) else [found]))


class Stage:
    """One consumer that dispatches `orders`, and what its subscriber got."""

    def __init__(self, partitions: int = 1, **options: Any) -> None:
        self.world = World()
        self.world.kafka.create_topic("orders", partitions)
        self.options = {"subscriberUri": SUBSCRIBER, **options}
        self.receivers: list[Receivers] = []
        self.behaviour: Behaviour = lambda request: OK
        self.seconds: Callable[[Request], float] = lambda request: 0.02
        self.processors: dict[str, DispatchProcessor] = {}

    def start(self, name: str = "a", **settings: Any) -> DispatchProcessor:
        """Start a consumer and let it come to its partitions."""

        def make(loop: asyncio.AbstractEventLoop) -> Receivers:
            made = Receivers(loop, self.world.clock.now, lambda r: self.behaviour(r), lambda r: self.seconds(r))
            self.receivers.append(made)
            return made

        processor = self.processors[name] = DispatchProcessor(make)
        self.world.join(name, processor, options=self.options, **settings)
        self.world.run(4)
        return processor

    def publish(self, *ids: str, partition: int = 0, keys: Sequence[str | None] | None = None) -> None:
        """Publish events with these ids."""
        for one, key in zip(ids, keys or [None] * len(ids), strict=True):
            self.world.kafka.publish(
                "orders",
                partition,
                [b"data of " + one.encode()],
                key=None if key is None else key.encode(),
                headers=event_headers(one),
            )

    def dispatch(self, *ids: str, seconds: float, keys: Sequence[str | None] | None = None) -> DispatchProcessor:
        """Publish events, start a consumer and let it dispatch for so long."""
        self.publish(*ids, keys=keys)
        processor = self.start()
        self.run(seconds)
        return processor

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.world.run(seconds)

    @property
    def requests(self) -> list[Request]:
        """All requests to anybody, in their order."""
        return sorted((r for one in self.receivers for r in one.requests), key=lambda r: r.at)

    def got(self, url: str = SUBSCRIBER) -> list[str]:
        """Return the ids that a receiver was posted, in their order."""
        return [one for request in self.requests if request.url == url for one in request.ids]

    def commits(self) -> dict[int, int | None]:
        """Return the group's offsets."""
        return self.world.commits()

    def most(self, url: str = SUBSCRIBER) -> int:
        """Return how many requests a receiver had at once."""
        return max(one.most[url] for one in self.receivers)

    def status(self, name: str = "a") -> dict[str, Any]:
        """Return what the processor says of itself."""
        return dict(self.processors[name].status())


def event_headers(one: str) -> list[tuple[str, bytes | None]]:
    """Return the headers of a binary event with this id."""
    return [
        ("ce_specversion", b"1.0"), ("ce_id", one.encode()), ("ce_source", b"/tests"), ("ce_type", b"order"),
        ("content-type", b"text/plain"),
    ]  # fmt: skip
