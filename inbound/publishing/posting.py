"""Posts events to an ingress, one request after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from inbound.clock import Clock, SystemClock
from inbound.errors import ConfigError, SinkError
from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_bridge import (
    record_to_binary,
    record_to_json,
    record_to_structured,
    record_with_extensions,
)
from inbound.processors.cloudevents_http import BATCH_CONTENT_TYPE, HttpAnswer, HttpMessage
from inbound.publishing.publisher import PROGRESS_EVERY, SHORTEST_WAIT, Published, PublishError
from inbound.publishing.sources import Encoded, NumberedEvent
from inbound.runtime.backoff import Backoff

#: A request with an answer of `_AGAIN`, or without one, is retried for this time. Seconds.
PATIENCE = 30.0
#: Bytes at which a request is full.
MOST_BYTES = 2**20
_BACKOFF = Backoff(0.2, 5.0)
#: Status codes after which a retry may succeed.
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
#: Status codes about single events, not about all that we could send.
_ABOUT_EVENTS = frozenset({400, 413, 422})


class RefusedEvent(NamedTuple):
    """An event that the ingress refused, and its answer."""

    line: int
    reason: str


#: Sends one message and returns the answer; the number counts its attempts, from 0. Raises SinkError without an answer.
Post = Callable[[HttpMessage, int], HttpAnswer]


@dataclass
class Posting:
    """Posts events in order, one request at a time. For one thread.

    `batch` events go into one request; 1: each alone, in binary mode, or `structured`. `name` is the ingress in messages.
    """

    post: Post
    name: str
    batch: int = 100
    structured: bool = False
    clock: Clock = field(default_factory=SystemClock)
    delivered: int = 0  # events that the ingress has accepted
    refused: list[RefusedEvent] = field(default_factory=list)

    def publish(
        self,
        events: Iterable[NumberedEvent | None],
        *,
        rate: float | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Published:
        """Post all events, and collect refused ones in `refused`.

        At most `rate` events are sent per second; a None ends a request that is not full. A ConfigError that `events` raise,
        and Ctrl-C, come through after the events before were posted.

        Raises:
            PublishError: the ingress cannot be reached, or accepts nothing from us.
        """
        began = shown = self.clock.now()
        stop = threading.Event()
        sent = 0
        most = self.batch if rate is None else max(1, min(self.batch, int(rate / 10)))
        for chunk in _chunks(events, most):
            if rate is not None and (ahead := began + sent / rate - self.clock.now()) > SHORTEST_WAIT:
                self.clock.wait(stop, ahead)
            self._send(chunk)
            sent += len(chunk)
            if progress and (now := self.clock.now()) - shown >= PROGRESS_EVERY:
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
        # The ingress has written nothing of this request: find the events that it refused.
        middle = len(chunk) // 2
        self._send(chunk[:middle])
        self._send(chunk[middle:])

    def _answered(self, chunk: Sequence[NumberedEvent]) -> HttpAnswer:
        """Send until an answer comes that a retry would not change."""
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
    """Return a record with `key` as its event's partitionkey, if not None.

    An ingress makes the key of it again. Raises ValueError for a key that is no text.
    """
    if key is None:
        return record
    plain = PlainRecord(0, key=record[0], value=record[1], headers=record[2])
    changed = record_with_extensions(plain, {"partitionkey": key.decode()})
    return key, changed.value, [*changed.headers]


def _chunks(events: Iterable[NumberedEvent | None], most: int) -> Iterator[list[NumberedEvent]]:
    """Yield the events of each request; a None ends one."""
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
    """Return the refused events that an answer names; others are written."""
    numbers = {number.strip() for number in headers.get("inbound-refused", "").split(",")}
    return [event for number, event in enumerate(chunk, 1) if str(number) in numbers]


def _first_line(answer: HttpAnswer) -> str:
    return answer.body.decode(errors="replace").strip().partition("\n")[0][:300]


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Return Retry-After in seconds; None without one, or for a date."""
    asked = headers.get("retry-after", "")
    return float(asked) if asked.isdecimal() and len(asked) < 6 else None
