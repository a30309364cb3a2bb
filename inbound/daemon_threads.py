"""The threads that coroutines put blocking calls into: `asyncio.to_thread` of an asynchronous processor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class DaemonThreads(ThreadPoolExecutor):
    """A pool whose threads do not keep the process from ending.

    Those of the standard library are waited for at its exit, however long they take: a call that hangs would outlive its
    `shutdown_timeout`. (A subclass, because an event loop takes no other executor.)
    """

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._most = most
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._free = threading.Semaphore(0)  # threads that wait for a job, or are about to
        self._guard = threading.Lock()
        self._count = 0

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a call in one of the threads; a new one while all are busy and there are fewer than `most`."""
        future: Future[T] = Future()
        self._jobs.put((future, partial(fn, *args, **kwargs)))
        if not self._free.acquire(blocking=False):
            with self._guard:
                if self._count < self._most:
                    self._count += 1
                    try:
                        threading.Thread(target=self._work, name=f"to-thread-{self._count}", daemon=True).start()
                    except RuntimeError:  # the system gives no more
                        self._count -= 1
                        if not self._count:
                            future.cancel()  # it is in the queue, and is not to be run when there is one again
                            raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads once they have nothing to do. Waits for none, whatever is asked."""
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
            del job, future, call  # kept alive for as long as nothing else comes, otherwise
            self._free.release()
