"""Who reads: the reader's own thread, or the worker that has nothing else to do.

Python threads share one core. While callbacks compute, and the client fetches and decodes outside of Python, a reader beside
the worker only makes the two wait for each other: a channel with confluent-kafka got from 99,000 records a second to
160,000 when its worker read. So then the worker that has served everything that was due takes in what has come meanwhile
itself, as a plain loop does. The reader's thread stands back while that goes on, reads when nothing has come, and takes
over when no worker has read for `LOAN` seconds: a callback that takes long, or never ends, keeps nobody else's records.

Not so with kafka-python: its polls decode, and a worker that polls wastes the time in which its thread could fetch (0.70
of the plain loop instead of 0.92).
"""

from __future__ import annotations

import threading

from inbound.clock import Clock
from inbound.driver import Wakeup
from inbound.kafka.reader import Reader
from inbound.schedule import Schedule

#: How long the reader's thread stands back after a worker has read, or could now, in seconds.
LOAN = 0.05
#: With so many bytes read ahead, and none of it due, a worker waits for the commits that they wait for: what lies about for
#: long has left the processor's cache before it is looked at, and costs twice as much.
ENOUGH = 32 * 2**20


class Reading:
    """The reader as a part of its own thread (see `inbound.driver.Part`), which lends it to workers."""

    def __init__(self, reader: Reader, schedule: Schedule, wakeup: Wakeup, clock: Clock) -> None:
        self._reader = reader
        self._schedule = schedule
        self._wakeup = wakeup
        self._clock = clock
        #: Whoever has it uses the reader and its client. Never waited for, and never held in a callback.
        self._role = threading.Lock()
        self._lent_until = 0.0

    def run_once(self) -> float | None:
        """Read, unless a worker does."""
        now = self._clock.now()
        if now < self._lent_until:
            return self._lent_until
        if not self._role.acquire(blocking=False):
            return now + LOAN
        try:
            due = self._reader.run_once()
            if self._reader.brought and self._reader.may_be_lent and self._schedule.computing:
                self._lent_until = due = self._clock.now() + LOAN
            return due
        finally:
            self._role.release()

    def lend(self, worker: object) -> bool:
        """Let a worker that has nothing to serve take in what has come. Returns whether anything has; worker's thread."""
        if not self._reader.may_be_lent or self._reader.buffered > ENOUGH or not self._schedule.begin_reading(worker):
            return False
        brought = False
        try:
            if not self._role.acquire(blocking=False):
                return False
            try:
                self._reader.run_once(wait=False)
                brought = self._reader.brought
                self._lent_until = self._clock.now() + LOAN if brought else 0.0
            finally:
                self._role.release()
        finally:
            self._schedule.end_turn(worker, 0.0, 0.0)
        if not brought:
            self._wakeup.set()  # the reader's thread waits for what comes next
        return brought
