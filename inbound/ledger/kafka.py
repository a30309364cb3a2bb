"""Writes the ledger to a Kafka topic, lines keyed by run."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

from inbound.clock import Clock
from inbound.errors import LedgerError
from inbound.ledger.base import Done
from inbound.ledger.format import FileName, seal, start_stamp
from inbound.ledger.lines import WrittenLedger

log = logging.getLogger("inbound.ledger")

#: Seconds that `done` and `close` wait for acknowledgements.
ACK_TIMEOUT = 20.0
#: Seconds to wait after the brokers could not be reached.
RETRY = 1.0
#: Lines that may be in flight. With more of them the ledger counts as unavailable, else they would grow without bound.
MOST_UNACKNOWLEDGED = 4096


class LedgerProducer(ABC):
    """A producer that keeps the order of records, or fails. Any thread."""

    @abstractmethod
    def send(self, key: bytes, value: bytes, answered: Callable[[Exception | None], None]) -> None:
        """Send a record; `answered` is called once, by any thread.

        It gets None when all replicas have the record, or else the error.

        Raises:
            LedgerError: the producer refused it; `answered` is not called.
        """

    @abstractmethod
    def close(self) -> None:
        """Close it, in bounded time; unacknowledged records may be lost."""


class KafkaLedger(WrittenLedger):
    """Writes to a topic through a producer, made at the first line.

    `done` returns when everything up to it is acknowledged; `begun`, `settled` and notes are sent without waiting. A
    failed producer is replaced, and the new one sends the unacknowledged lines again, under the same numbers.
    """

    def __init__(
        self,
        open_topic: Callable[[], LedgerProducer],
        name: str,
        group: str,
        consumer_id: str,
        clock: Clock,
        *,
        ack_timeout: float = ACK_TIMEOUT,
    ) -> None:
        """`open_topic` makes a producer, or raises LedgerError; `name` is the topic."""
        super().__init__(group, consumer_id, clock)
        self._ack_timeout = ack_timeout
        self._open_topic = open_topic
        self.topic = name
        self._start = start_stamp(int(clock.wall() * 1000))
        self._key = FileName(consumer_id, self._start, 0).run.encode()
        # Under the lock, which is held while the producer takes lines: so their order is that of the numbers.
        self._given = 0  # lines given to producers: each has a ticket, except headers
        self._topic: LedgerProducer | None = None
        self._not_before = 0.0
        self._refusal = ""
        # Under this lock, which the producer's thread takes too.
        self._answers = threading.Condition()
        self._unacknowledged: dict[int, bytes] = {}  # by ticket
        self._failed: Exception | None = None  # of the present producer

    def done(self, entries: Sequence[Done]) -> None:
        if not entries:
            return
        wall = self._clock.wall()
        self._wait(self._append([self._lines.done(entry, wall) for entry in entries]))

    def close(self, *, clean: bool = True) -> None:
        """Send the end mark, and wait for all acknowledgements; or raise LedgerError."""
        with self._lock:
            if self.closed:
                return
            try:
                if clean:
                    self._number_and_give(())
                    self._give(self._ready(), self._sealed(self._lines.end("closed", self._clock.wall()))[:-1])
            finally:
                self.closed = True
        try:
            self._wait(self._given)
        finally:
            with self._lock:
                self._drop("closed")

    def _append(self, bodies: Sequence[str]) -> int:
        """Send lines under the next numbers; return the last one's ticket."""
        with self._lock:
            self._number_and_give(bodies)
            return self._given

    def _number_and_give(self, bodies: Sequence[str]) -> None:
        with self._marked(bodies) as marked:
            for body in marked:
                topic = self._ready()
                with self._answers:
                    waiting = len(self._unacknowledged)
                if waiting >= MOST_UNACKNOWLEDGED:
                    raise self._error(f"{waiting} entries are not acknowledged yet, so the entry is not recorded")
                # Counted after it was given: a failed call leaves its number to the next line, as gaps mean loss.
                self._give(topic, seal(f'{body},"seq":{self._seq + 1}'.encode())[:-1])
                self._seq += 1
                self._entries += 1

    def _give(self, topic: LedgerProducer, line: bytes) -> None:
        ticket = self._given + 1
        with self._answers:
            self._unacknowledged[ticket] = line
        try:
            self._send(topic, ticket, line)
        except LedgerError as error:
            with self._answers:
                del self._unacknowledged[ticket]
            self._drop(f"write failed: {error}")
            raise
        self._given = ticket
        self._bytes += len(line)

    def _send(self, topic: LedgerProducer, ticket: int, line: bytes) -> None:
        topic.send(self._key, line, partial(self._answered, self._number, ticket))

    def _answered(self, producer: int, ticket: int, error: Exception | None) -> None:
        with self._answers:
            if producer != self._number:
                return  # that producer was given up, and the next one got the line
            if error is None:
                self._unacknowledged.pop(ticket, None)
            elif self._failed is None:
                self._failed = error
            self._answers.notify_all()

    def _wait(self, last: int) -> None:
        """Wait until all lines up to a ticket are acknowledged."""
        began = self._clock.now()
        deadline = began + self._ack_timeout
        with self._answers:
            while self._failed is None and next(iter(self._unacknowledged), last + 1) <= last:
                if self._clock.now() >= deadline:
                    self._failed = TimeoutError(f"no answer within {self._ack_timeout:g} s")
                else:
                    self._answers.wait(min(1.0, deadline - self._clock.now()))
            failed = self._failed
        if failed is not None:
            raise self._error(f"not acknowledged ({_told(failed)}), so the entry may not be recorded")
        self._sync_seconds.observe(self._clock.now() - began)

    # The rest is called under the lock.

    def _ready(self) -> LedgerProducer:
        """Return the producer, or a new one after a failure."""
        if self.closed:
            raise self._error("it is closed, so the entry is not recorded")
        with self._answers:
            failed = self._failed
        if failed is not None:
            self._drop(f"write failed: {_told(failed)}")
        if self._topic is None:
            self._topic = self._open()
        return self._topic

    def _open(self) -> LedgerProducer:
        if self._clock.now() < self._not_before:
            raise LedgerError(self._refusal)
        topic = None
        try:
            topic = self._open_topic()
            with self._answers:
                self._number += 1
                self._failed = None
                again = list(self._unacknowledged.items())
            name = FileName(self._consumer_id, self._start, self._number)
            previous = f"{self._number - 1}" if self._number > 1 else None
            self._send(topic, 0, self._sealed(self._lines.header(name, previous, self._why, self._clock.wall()))[:-1])
            for ticket, line in again:
                self._send(topic, ticket, line)
        except LedgerError as error:
            self._not_before, self._refusal = self._clock.now() + RETRY, str(error)
            if topic is not None:
                topic.close()
            raise
        return topic

    def _drop(self, why: str) -> None:
        if self._topic is not None:
            if why != "closed":
                log.warning("ledger topic %s: its producer is given up: %s", self.topic, why)
            self._topic.close()
        self._topic, self._why = None, why

    def _error(self, what: str) -> LedgerError:
        self._failures += 1
        return LedgerError(
            f"ledger topic {self.topic}: {what}; check that its brokers run and have enough replicas in sync"
        )


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__
