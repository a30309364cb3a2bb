"""Publishing to an ingress: events go there as CloudEvents over HTTP, and 202 says that Kafka has them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from inbound.clock import Clock, SystemClock
from inbound.errors import ConfigError, SinkError
from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_bridge import (
    record_to_binary,
    record_to_json,
    record_to_structured,
    record_with_extensions,
)
from inbound.processors.cloudevents_http import BATCH_CONTENT_TYPE, HttpMessage
from inbound.publishing.publisher import Published, PublishError
from inbound.publishing.sources import Encoded

#: One request that is answered with 429 or 503, or not at all, is sent again for so long. Seconds.
PATIENCE = 30.0
#: Bytes at which a request is full.
MOST_BYTES = 2**20
_SHORTEST_WAIT, _FIRST_WAIT, _LONGEST_WAIT = 0.005, 0.2, 5.0
_PROGRESS_EVERY = 0.1
#: Answers after which the same request may be taken.
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
#: Answers that are about single events, not about all that we could send.
_ABOUT_EVENTS = frozenset({400, 413, 422})


class Event(NamedTuple):
    """One event to publish: the line that it stands in (or its number, from 1), and its record."""

    line: int
    record: Encoded


class Refusal(NamedTuple):
    """An event that the ingress does not take, and what it said."""

    line: int
    reason: str


class Answer(Protocol):
    """What is read of an answer."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def body(self) -> bytes: ...


#: Sends one message and returns the answer; the number counts the attempts at it, from 0. Raises SinkError: there was none.
Post = Callable[[HttpMessage, int], Answer]


@dataclass
class Posting:
    """Posts events one request after the other, so that their order stays. Used by one thread.

    `batch` events go into one request; 1: each alone, in binary mode, or `structured`. `name` is the ingress in messages.
    """

    post: Post
    name: str
    batch: int = 100
    structured: bool = False
    clock: Clock = field(default_factory=SystemClock)
    #: Events that were answered with 202.
    delivered: int = 0
    refused: list[Refusal] = field(default_factory=list)

    def publish(
        self,
        events: Iterable[Event | None],
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

    def _send(self, chunk: Sequence[Event]) -> None:
        answer = self._answered(chunk)
        if 200 <= answer.status < 300:
            self.delivered += len(chunk)
            return
        said = answer.body.decode(errors="replace").strip().partition("\n")[0][:300]
        if answer.status not in _ABOUT_EVENTS:
            raise PublishError(
                f"{self.name}: answered {answer.status}: {said or 'without a reason'}; {self._so_far(chunk[0].line)}"
            )
        refused = chunk if len(chunk) == 1 else _named(chunk, answer.headers)
        if refused:
            self.refused += [Refusal(event.line, said) for event in refused]
            self.delivered += len(chunk) - len(refused)
            return
        # Of a request that is refused so nothing was written: look for the events that it is about.
        middle = len(chunk) // 2
        self._send(chunk[:middle])
        self._send(chunk[middle:])

    def _answered(self, chunk: Sequence[Event]) -> Answer:
        """Send until there is an answer that asking again would not change."""
        message = self._message(chunk)
        stop = threading.Event()
        until = self.clock.now() + PATIENCE
        wait = _FIRST_WAIT
        attempt = 0
        while True:
            asked = None
            try:
                answer = self.post(message, attempt)
                if answer.status not in _AGAIN:
                    return answer
                said = answer.body.decode(errors="replace").strip().partition("\n")[0][:300]
                problem = f"answered {answer.status}: {said}"
                asked = _seconds(answer.headers)
            except SinkError as error:
                problem = str(error)
            pause = wait if asked is None else asked
            if self.clock.now() + pause > until:
                raise PublishError(f"{self.name}: {problem}; {self._so_far(chunk[0].line)}")
            self.clock.wait(stop, pause)
            wait = min(2 * wait, _LONGEST_WAIT)
            attempt += 1

    def _message(self, chunk: Sequence[Event]) -> HttpMessage:
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


def read_ahead(events: Iterable[Event], most: int) -> Iterator[Event | None]:
    """Yield what a thread of its own reads from `events`; None wherever nothing more has come for now.

    So that what a slow pipe has brought need not wait until a request is full. What `events` raise comes through.
    """
    waiting: queue.Queue[Event | BaseException | None] = queue.Queue(most)

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


def _chunks(events: Iterable[Event | None], most: int) -> Iterator[list[Event]]:
    """Yield `events` in stretches for one request each; a None ends one."""
    chunk: list[Event] = []
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


def _named(chunk: Sequence[Event], headers: Mapping[str, str]) -> list[Event]:
    """Return the events of `chunk` that an answer names as refused, where the others are written."""
    numbers = {number.strip() for number in headers.get("inbound-refused", "").split(",")}
    return [event for number, event in enumerate(chunk, 1) if str(number) in numbers]


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Return what Retry-After asks for; a date counts as not given."""
    asked = headers.get("retry-after", "")
    return float(asked) if asked.isdecimal() and len(asked) < 6 else None
