"""Threads that run active parts, and their wakeups.

Every active part offers `run_once() -> when to run next`. In production a driver calls it; in the simulator a seeded scheduler.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from inbound.clock import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")


class Part(Protocol):
    """Something that works in short steps."""

    def run_once(self) -> float | None:
        """Do due work; return the next due time, None: wait until woken."""


class Wakeup:
    """Wakes up to `waiters` threads, one for each `set`."""

    def __init__(self, waiters: int = 1) -> None:
        self._condition = threading.Condition()
        self.waiters = waiters
        self._pending = 0

    def set(self) -> None:
        """Wake one thread that waits, or will wait."""
        with self._condition:
            self._pending = min(self._pending + 1, self.waiters)
            self._condition.notify()

    def set_all(self) -> None:
        """Wake every thread."""
        with self._condition:
            self._pending = self.waiters
            self._condition.notify_all()

    def take(self) -> bool:
        """Take a pending wakeup without waiting; return whether there was one."""
        if not self._pending:
            return False
        with self._condition:
            woken = self._pending > 0
            self._pending = max(0, self._pending - 1)
            return woken

    def wait(self, seconds: float | None) -> None:
        """Block until woken, or for `seconds`."""
        with self._condition:
            if not self._pending and (seconds is None or seconds > 0):
                self._condition.wait(seconds)
            self._pending = max(0, self._pending - 1)


class Driver:
    """Runs one part on its own thread until `stop`.

    A part that raises has a defect: the driver logs it, counts it in `failures`, and goes on after a second. `last_step` is the
    clock time of the last return of the part, which `/healthz` checks.
    """

    #: The longest wait of any part. Seconds.
    MAX_WAIT = 5.0
    #: The interpreter switches threads every 5 ms (`sys.getswitchinterval`), but starts to count again each time that the running
    #: thread releases it, however shortly. A thread that writes a line to a file every 100 us releases it for 4 us each time,
    #: which is less than another one takes to wake: commits were seen to wait for seconds. So a part that is always busy
    #: releases it after `UNBROKEN` seconds, for at least `BREATH` seconds.
    UNBROKEN, BREATH = 0.001, 0.00005

    def __init__(
        self, name: str, part: Part, wakeup: Wakeup, clock: Clock, let_go_at: Callable[[], float] = lambda: 0.0
    ) -> None:
        """`let_go_at` returns when the part last released the interpreter (clock time)."""
        self.name = name
        self._let_go_at = let_go_at
        self._part = part
        self._wakeup = wakeup
        self._clock = clock
        self._stopping = threading.Event()
        self.last_step = clock.now()
        self.failures = 0
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self.last_step = self._clock.now()
        self.thread.start()

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Ask the thread to end after its current step."""
        self._stopping.set()
        self._wakeup.set_all()

    def join(self, seconds: float) -> bool:
        """Wait for the thread's end; else log its stack, and return False."""
        if self.thread.ident is None:
            return True
        self.thread.join(seconds)
        if self.thread.is_alive():
            log.error("thread %s did not end within %.1f s; it is at:\n%s", self.name, seconds, self.stack())
            return False
        return True

    def stack(self) -> str:
        """Return the thread's current stack."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame else "(not running)"

    def _run(self) -> None:
        rested = self._clock.now()
        while not self._stopping.is_set():
            try:
                due = self._part.run_once()
            except BaseException:  # also SystemExit and others, which would end this thread unnoticed
                self.failures += 1
                log.exception("%s failed; this is a defect of inbound, please report it; it goes on in 1 s", self.name)
                self._stopping.wait(1.0)
                due = self._clock.now()
            self.last_step = now = self._clock.now()
            wait = self.MAX_WAIT if due is None else min(due - now, self.MAX_WAIT)
            if wait > 0:
                self._wakeup.wait(wait)
                rested = self._clock.now()
            elif now - max(rested, self._let_go_at()) > self.UNBROKEN:
                self._stopping.wait(self.BREATH)
                rested = self._clock.now()


class DaemonThreads(ThreadPoolExecutor):
    """A pool whose threads do not keep the process from ending.

    At its exit Python waits for the threads of other pools, however long they take: a call that hangs would outlive its
    `shutdown_timeout`. (A subclass, because an event loop accepts no other executor.)
    """

    def __init__(self, most: int, name: str = "to-thread") -> None:
        """The pool has at most `most` threads, called `name` and a number."""
        super().__init__(most)
        self._most = most
        self._name = name
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._free = threading.Semaphore(0)  # threads that wait for a job, or are about to
        self._guard = threading.Lock()
        self._count = 0

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a call on a free thread, or on a new one."""
        future: Future[T] = Future()
        self._jobs.put((future, partial(fn, *args, **kwargs)))
        if not self._free.acquire(blocking=False):
            with self._guard:
                if self._count < self._most:
                    self._count += 1
                    try:
                        threading.Thread(target=self._work, name=f"{self._name}-{self._count}", daemon=True).start()
                    except RuntimeError:  # the system has no more threads
                        self._count -= 1
                        if not self._count:
                            future.cancel()  # it stays in the queue, and must not run later
                            raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End idle threads, and busy ones after their jobs; never waits."""
        with self._guard:
            for _ in range(self._count):
                self._jobs.put(None)
            self._count = self._most  # no new ones

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, call = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del job, future, call  # else they stay in memory until the next job
            self._free.release()
