"""Sends records at a pace, and makes sure that each has arrived."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import kafka
import kafka.errors

from inbound.clock import Clock, SystemClock
from inbound.errors import ConfigError, InboundError, SinkError
from inbound.kafka.python.client import unavailable
from inbound.kafka.python.topics import settings_for
from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_bridge import (
    record_to_binary,
    record_to_json,
    record_to_structured,
    record_with_extensions,
)
from inbound.processors.cloudevents_http import BATCH_CONTENT_TYPE, HttpAnswer, HttpMessage
from inbound.publishing.sources import Encoded
from inbound.runtime.backoff import Backoff

#: A record that no broker has taken after so long has failed. Seconds.
DELIVERY_TIMEOUT = 30.0
#: Records that may be unconfirmed at a time: enough to keep the connection busy, little to hold in memory.
WINDOW = 20_000
#: Shorter waits cost more than they even out. Seconds.
_SHORTEST_WAIT = 0.005
_PROGRESS_EVERY = 0.1


class PublishError(InboundError):
    """A record was refused, or did not arrive."""


class SentRecord(Protocol):
    """A producer's future for one record (as kafka-python's)."""

    @property
    def is_done(self) -> bool: ...
    def get(self, timeout: float | None = None) -> object:
        """Wait until it has arrived. Raises its error."""


class RecordProducer(Protocol):
    """What is used of a `kafka.KafkaProducer`."""

    def send(self, topic: str, value: Any, key: Any, headers: Any) -> SentRecord: ...
    def flush(self, timeout: float | None = None) -> None: ...
    def close(self, timeout: float | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class Published:
    """What arrived: so many records, in so many seconds."""

    count: int
    seconds: float

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.count / self.seconds if self.seconds else 0.0


def publisher_to(
    properties: Mapping[str, Any],
    topic: str,
    around: Callable[[RecordProducer], RecordProducer] = lambda producer: producer,
) -> Publisher:
    """Return a publisher for one topic: all in-sync brokers must have a record, and a retry never writes it twice.

    `around` is given the producer, and returns the one that is used. Raises BrokerUnavailableError: no broker answers;
    ConfigError: a property cannot be used.
    """
    settings = {
        "client_id": "inbound-publish",
        "linger_ms": 5,
        "batch_size": 65536,
        **settings_for(properties, kafka.KafkaProducer.DEFAULT_CONFIG),
        "acks": "all",
        "enable_idempotence": True,
        "allow_auto_create_topics": False,
        "delivery_timeout_ms": round(DELIVERY_TIMEOUT * 1000),
        "max_block_ms": round(DELIVERY_TIMEOUT * 1000),
    }
    settings["request_timeout_ms"] = min(settings.get("request_timeout_ms", 10_000), 20_000)
    try:
        producer = kafka.KafkaProducer(**settings)
    except (kafka.errors.KafkaConfigurationError, ValueError) as error:
        raise ConfigError(f"kafka: {error}") from None
    except (kafka.errors.KafkaError, OSError) as error:
        raise unavailable(settings, error) from None
    return Publisher(around(producer), topic)


class Publisher:
    """Sends records to one topic by any producer.

    Used by one thread, whose owner closes it.
    """

    def __init__(self, producer: RecordProducer, topic: str, clock: Clock | None = None) -> None:
        self._producer = producer
        self._topic = topic
        self._clock = clock or SystemClock()
        self._waiting: deque[tuple[int, SentRecord]] = deque()
        self._sent = 0
        self.delivered = 0  # how many records are known to have arrived; any thread

    def publish(
        self,
        records: Iterable[Encoded],
        *,
        rate: float | None = None,
        stop: threading.Event | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Published:
        """Send all `records`, at most `rate` a second, and wait until every one has arrived.

        `stop` ends it early, after those sent so far have arrived. `progress` is called now and then with how many were
        sent. Raises PublishError: a record was refused or did not arrive; its number, from 1, is in the message. A
        ConfigError that `records` raise, and Ctrl-C, come through after what was sent before has arrived.
        """
        began = self._clock.now()
        self._sent = self.delivered = 0
        try:
            self._send(records, rate, stop or threading.Event(), progress)
        except (ConfigError, KeyboardInterrupt):
            self._arrive()
            raise
        self._arrive()
        if progress:
            progress(self._sent)
        return Published(self._sent, self._clock.now() - began)

    def _send(
        self,
        records: Iterable[Encoded],
        rate: float | None,
        stop: threading.Event,
        progress: Callable[[int], None] | None,
    ) -> None:
        clock, send, topic = self._clock, self._producer.send, self._topic
        began = shown = clock.now()
        for sent, (key, value, headers) in enumerate(records):
            now = clock.now()
            if rate is not None and (ahead := began + sent / rate - now) > _SHORTEST_WAIT:
                clock.wait(stop, ahead)
            if stop.is_set():
                break
            try:
                self._waiting.append((sent + 1, send(topic, value=value, key=key, headers=headers)))
            except (kafka.errors.KafkaError, ValueError, TypeError) as error:
                raise self._failed(sent + 1, error) from None
            self._sent = sent + 1
            self._confirm(WINDOW)
            if progress and now - shown >= _PROGRESS_EVERY:
                shown = now
                progress(self._sent)

    def _arrive(self) -> None:
        """Wait until all that was sent has arrived."""
        try:
            self._producer.flush(timeout=DELIVERY_TIMEOUT)
        except kafka.errors.KafkaError as error:
            raise self._failed(self.delivered + 1, error) from None
        self._confirm(0)

    def close(self) -> None:
        """Close the connections; what was not confirmed by then has failed."""
        self._producer.close(timeout=5)

    def _confirm(self, most: int) -> None:
        """Take those that have arrived off the list, and wait for the oldest while more than `most` have not."""
        waiting = self._waiting
        while waiting and (waiting[0][1].is_done or len(waiting) > most):
            number, delivery = waiting.popleft()
            try:
                delivery.get(timeout=DELIVERY_TIMEOUT)
            except kafka.errors.KafkaError as error:
                raise self._failed(number, error) from None
            self.delivered += 1

    def _failed(self, number: int, error: Exception) -> PublishError:
        return PublishError(
            f"topic {self._topic}: record {number} was not delivered: {str(error) or type(error).__name__}; "
            f"{self.delivered} before it were. {_advice(error)}"
        )


def _advice(error: Exception) -> str:
    if isinstance(error, (kafka.errors.MessageSizeTooLargeError, kafka.errors.RecordListTooLargeError)):
        return "Make it smaller, or raise the topic's max.message.bytes (a producer sends at most 1 MiB)."
    if isinstance(error, kafka.errors.KafkaError) and getattr(error, "retriable", False):
        return "Check the brokers and their logs, then publish the rest."
    return "Put the cause right, then publish the rest."


#: One request that is answered with 429 or 503, or not at all, is sent again for so long. Seconds.
PATIENCE = 30.0
#: Bytes at which a request is full.
MOST_BYTES = 2**20
_BACKOFF = Backoff(0.2, 5.0)
#: Answers after which the same request may be taken.
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
#: Answers that are about single events, not about all that we could send.
_ABOUT_EVENTS = frozenset({400, 413, 422})


class NumberedEvent(NamedTuple):
    """One event to publish: its line (or number, from 1) and record."""

    line: int
    record: Encoded


class RefusedEvent(NamedTuple):
    """An event that the ingress refused, and its answer."""

    line: int
    reason: str


#: Sends one message and returns the answer; the number counts the attempts at it, from 0. Raises SinkError: there was none.
Post = Callable[[HttpMessage, int], HttpAnswer]


@dataclass
class Posting:
    """Posts events one request after the other, so that their order stays.

    Used by one thread.

    `batch` events go into one request; 1: each alone, in binary mode, or `structured`. `name` is the ingress in messages.
    """

    post: Post
    name: str
    batch: int = 100
    structured: bool = False
    clock: Clock = field(default_factory=SystemClock)
    #: Events that were answered with 202.
    delivered: int = 0
    refused: list[RefusedEvent] = field(default_factory=list)

    def publish(
        self,
        events: Iterable[NumberedEvent | None],
        *,
        rate: float | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Published:
        """Post all `events`, at most `rate` a second; a None ends a request that is not full. Those that are
        refused are in `refused` afterwards.

        Raises PublishError: the ingress cannot be reached, or takes nothing from us. A ConfigError that `events` raise,
        and Ctrl-C, come through after what was read before them was posted.
        """
        began = shown = self.clock.now()
        stop = threading.Event()
        sent = 0
        most = self.batch if rate is None else max(1, min(self.batch, int(rate / 10)))
        for chunk in _chunks(events, most):
            if rate is not None and (ahead := began + sent / rate - self.clock.now()) > _SHORTEST_WAIT:
                self.clock.wait(stop, ahead)
            self._send(chunk)
            sent += len(chunk)
            if progress and (now := self.clock.now()) - shown >= _PROGRESS_EVERY:
                shown = now
                progress(sent)
        if progress:
            progress(sent)
        return Published(self.delivered, self.clock.now() - began)

    def _send(self, chunk: Sequence[NumberedEvent]) -> None:
        answer = self._answered(chunk)
        if 200 <= answer.status < 300:
            self.delivered += len(chunk)
            return
        said = _first_line(answer)
        if answer.status not in _ABOUT_EVENTS:
            raise PublishError(
                f"{self.name}: answered {answer.status}: {said or 'without a reason'}; {self._so_far(chunk[0].line)}"
            )
        refused = chunk if len(chunk) == 1 else _named(chunk, answer.headers)
        if refused:
            self.refused += [RefusedEvent(event.line, said) for event in refused]
            self.delivered += len(chunk) - len(refused)
            return
        # Of a request that is refused so nothing was written: look for the events that it is about.
        middle = len(chunk) // 2
        self._send(chunk[:middle])
        self._send(chunk[middle:])

    def _answered(self, chunk: Sequence[NumberedEvent]) -> HttpAnswer:
        """Send until there is an answer that asking again would not change."""
        message = self._message(chunk)
        stop = threading.Event()
        until = self.clock.now() + PATIENCE
        failures = 0
        while True:
            asked = None
            try:
                answer = self.post(message, failures)
                if answer.status not in _AGAIN:
                    return answer
                problem = f"answered {answer.status}: {_first_line(answer)}"
                asked = _seconds(answer.headers)
            except SinkError as error:
                problem = str(error)
            failures += 1
            pause = _BACKOFF.delay(failures) if asked is None else asked
            if self.clock.now() + pause > until:
                raise PublishError(f"{self.name}: {problem}; {self._so_far(chunk[0].line)}")
            self.clock.wait(stop, pause)

    def _message(self, chunk: Sequence[NumberedEvent]) -> HttpMessage:
        records = [PlainRecord(0, key=key, value=value, headers=headers) for _, (key, value, headers) in chunk]
        if self.batch > 1:
            bodies = b",".join([record_to_json(record) for record in records])
            return HttpMessage({"content-type": BATCH_CONTENT_TYPE}, b"[%b]" % bodies)
        parts = record_to_structured(records[0]) if self.structured else record_to_binary(records[0])
        lines = (line.decode().partition(": ") for line in parts.lines)
        return HttpMessage({name: value for name, _, value in lines}, parts.body)

    def _so_far(self, line: int) -> str:
        return (
            f"{self.delivered:,} events before it were accepted; put the cause right, and publish from line {line} on"
        )


def with_key(record: Encoded, key: bytes | None) -> Encoded:
    """Return `record` with `key` as its event's partitionkey, of which an ingress makes the key again; None changes nothing.

    Raises ValueError for a key that is no text.
    """
    if key is None:
        return record
    plain = PlainRecord(0, key=record[0], value=record[1], headers=record[2])
    changed = record_with_extensions(plain, {"partitionkey": key.decode()})
    return key, changed.value, [*changed.headers]


def read_ahead(events: Iterable[NumberedEvent], most: int) -> Iterator[NumberedEvent | None]:
    """Yield what a thread of its own reads from `events`; None wherever nothing more has come for now.

    So that what a slow pipe has brought need not wait until a request is full. What `events` raise comes through.
    """
    waiting: queue.Queue[NumberedEvent | BaseException | None] = queue.Queue(most)

    def read() -> None:
        try:
            for event in events:
                waiting.put(event)
            waiting.put(None)
        except BaseException as error:
            waiting.put(error)

    threading.Thread(target=read, name="publish-reader", daemon=True).start()
    while True:
        if waiting.empty():
            yield None
        found = waiting.get()
        if found is None:
            return
        if isinstance(found, BaseException):
            raise found
        yield found


def _chunks(events: Iterable[NumberedEvent | None], most: int) -> Iterator[list[NumberedEvent]]:
    """Yield `events` in stretches for one request each; a None ends one."""
    chunk: list[NumberedEvent] = []
    size = 0
    try:
        for event in events:
            more = sum(map(len, filter(None, event.record[:2]))) if event is not None else 0
            if chunk and (event is None or len(chunk) >= most or size + more > MOST_BYTES):
                yield chunk
                chunk, size = [], 0
            if event is not None:
                chunk.append(event)
                size += more
    except (ConfigError, KeyboardInterrupt):
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def _named(chunk: Sequence[NumberedEvent], headers: Mapping[str, str]) -> list[NumberedEvent]:
    """Return the events of `chunk` that an answer names as refused, where the others are written."""
    numbers = {number.strip() for number in headers.get("inbound-refused", "").split(",")}
    return [event for number, event in enumerate(chunk, 1) if str(number) in numbers]


def _first_line(answer: HttpAnswer) -> str:
    return answer.body.decode(errors="replace").strip().partition("\n")[0][:300]


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Return what Retry-After asks for; a date counts as not given."""
    asked = headers.get("retry-after", "")
    return float(asked) if asked.isdecimal() and len(asked) < 6 else None
