"""The ingress under seeded faults: many events to several topics, over a producer that fails in every way it can.

Its promise: each event that was taken (202) is in its topic; the answer to each refused one says why; none is refused
for another one's sake, or for a fault that is over; and every request is answered.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from inbound.config import IngressConfig
from inbound.http.server.connection import ServerConnection
from inbound.http.server.listener import ConnectionTable, ServerLimits
from inbound.ingress.confluent_producer import ConfluentProducer
from inbound.ingress.kafka_python_producer import KafkaPythonProducer
from inbound.ingress.receiver import REFUSED_EVENTS
from inbound.ingress.server import Ingress
from inbound.testing import ManualClock
from inbound.testing.clock import FakeLoop
from tests.ingress.ingress_stage import EVENT, Wire, request
from tests.simulation.ingress_brokers import Brokers, Topic, confluent_library, kafka_python_library

CLIENTS = ("confluent-kafka", "kafka-python")
#: An event may be answered with 503 so long after it came, and no later. Seconds.
TIMEOUT = 4.0
#: How long the storm lasts, and how long after it everything must be as before. Seconds.
STORM, CALM = 5.0, 9.0
#: Time passes in such steps. Seconds.
STEP = 0.01
#: What the topic `small` takes, and what is more.
LIMIT, LARGE = 500, 600
FAULTS = ("lose answers", "fatal", "down", "unled", "slow", "unnamed", "full", "gone")


@dataclass(eq=False)
class Event:
    """One event; `wrong` is the status that it deserves for itself, if it is no good."""

    text: str
    topic: str
    key: str | None
    wrong: int | None


@dataclass(eq=False)
class Posted:
    """One request."""

    events: list[Event]
    at: float
    status: int | None = None
    refused: str = ""  # the numbers of the events that are refused, as the answer has them
    answered_at: float = 0.0


@dataclass(frozen=True)
class Seed:
    """What is played, all of it; in the place of a plan."""

    seed: int


@dataclass
class Outcome:
    """What came of a seed."""

    seed: int
    client: str
    faults: tuple[str, ...]
    answers: dict[int, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)  # promises

    @property
    def failed(self) -> bool:
        return bool(self.broken)

    @property
    def why(self) -> str:
        """The first promise that is broken."""
        return self.broken[0]


class Client:
    """A connection over which requests are posted, also before the one before is answered."""

    def __init__(self, listener: ConnectionTable, clock: ManualClock) -> None:
        self.connection, self.wire = ServerConnection(listener), Wire()
        self.connection.connection_made(self.wire)
        self.posted: list[Posted] = []
        self._clock = clock
        self._answered = 0

    def post(self, posted: Posted, message: bytes) -> None:
        self.posted.append(posted)
        self.connection.data_received(message)

    def read(self) -> None:
        """Take in what was answered."""
        while b"\r\n\r\n" in self.wire.written:
            head, _, rest = self.wire.written.partition(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            posted = self.posted[self._answered]
            self._answered += 1
            posted.status, posted.answered_at = int(first.split()[1]), self._clock.now()
            posted.refused = headers.get(REFUSED_EVENTS.lower(), "")
            self.wire.written = rest[int(headers.get("content-length", "0")) :]


class Play:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"ingress {seed}")
        self.client = CLIENTS[seed % 2]
        self.clock = ManualClock()
        self.brokers = Brokers(
            self.clock, orders=Topic(), returns=Topic(), small=Topic(max_bytes=LIMIT), compacted=Topic(compacted=True),
            secret=Topic(forbidden=True),
        )  # fmt: skip
        self.outcome = Outcome(seed, self.client, tuple(self.rng.sample(FAULTS, self.rng.choice((0, 1, 1, 2, 3)))))
        config = IngressConfig(delivery_timeout=TIMEOUT, linger=0.0)
        where = {"bootstrap.servers": "nowhere:1"}
        self.producer: Any
        if self.client == "confluent-kafka":
            self.producer = ConfluentProducer(
                config, where, library=confluent_library(self.brokers), clock=self.clock.now
            )
        else:
            self.producer = KafkaPythonProducer(
                config, where, library=kafka_python_library(self.brokers), threaded=False
            )
        self.loop = FakeLoop(self.clock)
        self.ingress = Ingress(config, {}, producer=self.producer, clock=self.clock.now)
        self.ingress._server._loop = self.loop
        self.watch = self.ingress._watch
        self.listener = ConnectionTable(self.ingress.receiver, ServerLimits(), self.loop)
        self.clients = [Client(self.listener, self.clock) for _ in range(4)]
        self._actions: list[tuple[float, Callable[[], None]]] = []
        self._looks_at = 0.0
        #: When events of a topic (None: of all) may be refused for a while, with these answers.
        self._excused: list[tuple[float, float, str | None, tuple[int, ...]]] = []
        self._number = 0

    def run(self) -> Outcome:
        start = self.clock.now() + 0.1
        for _ in range(self.rng.randint(20, 60)):
            self._at(start + self.rng.uniform(0, STORM), self._post)
        for fault in self.outcome.faults:
            for _ in range(self.rng.randint(1, 3)):
                self._at(start + self.rng.uniform(0, STORM), lambda fault=fault: self._fault(fault))  # type: ignore[misc]
        self._actions.sort(key=lambda action: action[0])
        end = start + STORM
        while self.clock.now() < end:
            self._step()
        self._calm()
        end = self.clock.now() + CALM
        while self.clock.now() < end:
            self._step()
        self._judge(posted for client in self.clients for posted in client.posted)
        self._judge_after()
        self.loop.close()
        return self.outcome

    # -- time ----------------------------------------------------------------------------------------------------------

    def _at(self, when: float, what: Callable[[], None]) -> None:
        self._actions.append((when, what))

    def _step(self) -> None:
        self.clock.advance(STEP)
        while self._actions and self._actions[0][0] <= self.clock.now():
            self._actions.pop(0)[1]()
        if self.clock.now() >= self._looks_at or (
            self.watch._wake.is_set() and self.clock.now() >= self._looks_at - 29.5
        ):
            self.watch._wake.clear()
            self.watch._look()
            self.watch._changed()
            self._looks_at = self.clock.now() + (0.5 if self.watch.away is not None else 30.0)
        self.brokers.step()
        if isinstance(self.producer, KafkaPythonProducer):
            while self.producer._waiting.qsize():
                self.producer.step(0)
        self.loop.run_forever()
        for client in self.clients:
            client.read()

    # -- what happens --------------------------------------------------------------------------------------------------

    def _event(self, topic: str | None = None) -> Event:
        rng = self.rng
        self._number += 1
        topic = topic or rng.choice(
            ("orders", "orders", "returns", "small", "small", "compacted", "compacted", "secret")
        )
        key = None if rng.random() < 0.3 else f"k{self._number % 3}"
        text = f"event {self._number} "
        if rng.random() < 0.25:
            text += "x" * LARGE
        wrong = {"small": 413 if len(text) > LIMIT else None, "compacted": 422 if key is None else None, "secret": 403}
        return Event(text, topic, key, wrong.get(topic))

    def _post(self) -> None:
        first = self._event()
        count = self.rng.choice((1, 1, 1, 2, 4))
        events = [first, *(self._event(first.topic) for _ in range(count - 1))]
        client = self.rng.choice(self.clients)
        posted = Posted(events, self.clock.now())
        self.loop.call_soon(client.post, posted, self._message(events))

    def _message(self, events: list[Event]) -> bytes:
        target = f"/topics/{events[0].topic}"
        if len(events) == 1:
            key = {"ce-partitionkey": events[0].key} if events[0].key is not None else {}
            return request(target, {**EVENT, **key}, events[0].text.encode())
        body = [
            {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": event.text}
            | ({"partitionkey": event.key} if event.key is not None else {})
            for event in events
        ]
        return request(target, {"content-type": "application/cloudevents-batch+json"}, json.dumps(body).encode())

    def _fault(self, fault: str) -> None:
        brokers, now, lasts = self.brokers, self.clock.now(), self.rng.choice((0.05, 0.5, 2.0, 6.0))
        match fault:
            case "lose answers":
                brokers.lose_answers = 2  # of one batch: a third time would take longer than it may
            case "fatal" if self.client == "confluent-kafka":
                brokers.fatal += 1
                self._excuse(now, STORM + CALM, None)  # until a batch comes that is out of order, and a second after
            case "down":
                brokers.down = True
                self._until(lasts, lambda: setattr(brokers, "down", False))
                self._excuse(now, lasts, None)
            case "unled":
                topic = brokers.topics["returns"]
                topic.led = False
                self._until(lasts, lambda: setattr(topic, "led", True))
                self._excuse(now, lasts, "returns")
            case "slow":
                brokers.takes = 0.1
                self._until(lasts, lambda: setattr(brokers, "takes", 0.002))
            case "unnamed":
                brokers.name_records = False
            case "full" if self.client == "confluent-kafka":
                brokers.queues_are_full = True
                self._until(lasts, lambda: setattr(brokers, "queues_are_full", False))
                self._excuse(now, lasts, None, 429)
            case "gone" if "orders" in brokers.topics:
                gone = brokers.topics.pop("orders")
                self._until(lasts, lambda: brokers.topics.update(orders=gone))
                self._excuse(now, lasts, "orders", 404, 503)

    def _until(self, seconds: float, end: Callable[[], None]) -> None:
        self._actions.append((self.clock.now() + seconds, end))
        self._actions.sort(key=lambda action: action[0])

    def _excuse(self, since: float, seconds: float, topic: str | None, *statuses: int) -> None:
        # Until the news is that it is over: an event that came just before the end, and the question that it led to.
        self._excused.append((since - TIMEOUT, since + seconds + TIMEOUT + 1.5, topic, statuses or (503,)))

    def _calm(self) -> None:
        """All that is wrong ends."""
        for _, what in self._actions:
            what()
        self._actions = []
        self.brokers.lose_answers = self.brokers.fatal = 0

    # -- what must be --------------------------------------------------------------------------------------------------

    def _judge(self, posted: Iterable[Posted]) -> None:
        for one in posted:
            status = one.status if one.status is not None else 0
            self.outcome.answers[status] = self.outcome.answers.get(status, 0) + 1
            self.outcome.broken += [f"{_told(one)}: {what}" for what in self._about(one)]

    def _about(self, posted: Posted) -> Iterable[str]:
        bad = {number: event.wrong for number, event in enumerate(posted.events, 1) if event.wrong is not None}
        status = posted.status
        missing = [number for number, event in enumerate(posted.events, 1) if not self._is_written(event)]
        if status is None:
            yield "never answered"
        elif posted.answered_at > posted.at + TIMEOUT + 2.5:
            yield f"answered after {posted.answered_at - posted.at:.1f} s"
        elif status == 202:
            if missing:
                yield f"taken, and {missing} are in no topic"
        elif status in (429, 503, 404):
            if not self._is_excused(posted, status):
                yield "refused, and nothing was wrong"
        elif status not in bad.values():
            yield f"none of its events deserves that: {bad}"
        elif len(posted.events) > 1:
            named = [int(number) for number in posted.refused.split(",") if number]
            if named != list(bad):
                yield f"{named} are named, and {list(bad)} are no good"
            if set(missing) - set(bad):
                yield f"{missing} are in no topic, and {list(bad)} are no good"

    def _is_written(self, event: Event) -> bool:
        topic = self.brokers.topics.get(event.topic)
        return topic is not None and any(event.text.encode() in value for value in topic.log)

    def _is_excused(self, posted: Posted, status: int) -> bool:
        return any(
            since <= posted.at <= until and topic in (None, posted.events[0].topic) and status in statuses
            for since, until, topic, statuses in self._excused
        )

    def _judge_after(self) -> None:
        """What is good is taken again, at once; and nothing is left of what was."""
        counters = self.ingress.receiver.counters
        if counters.in_flight_events or counters.in_flight_bytes:
            self.outcome.broken.append(f"in flight without end: {counters.in_flight_events} events")
        for topic in ("orders", "returns", "small", "compacted"):
            self._number += 1
            event = Event(f"event {self._number} after all", topic, "k", None)
            posted = Posted([event], self.clock.now())
            client = Client(self.listener, self.clock)
            self.clients.append(client)
            self.loop.call_soon(client.post, posted, self._message([event]))
            for _ in range(round(1.0 / STEP)):
                self._step()
            if posted.status != 202 or not self._is_written(event):
                self.outcome.broken.append(f"a good event to {topic} after all is over: {posted.status}")


def _told(posted: Posted) -> str:
    events = ", ".join(
        f"{event.text[:9].strip()}{f' ({event.wrong})' if event.wrong else ''}" for event in posted.events
    )
    return f"{posted.at:.2f} {events} to {posted.events[0].topic} got {posted.status}"


def play(seed: int) -> Outcome:
    """Play one seed."""
    return Play(seed).run()
