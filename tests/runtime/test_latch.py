"""What signal handlers set: between any two steps of the thread that waits for it, or sets it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from inbound.runtime.signals import Latch


def interrupted(work: Callable[[Latch], object], step: int) -> tuple[bool, object]:
    """Do `work` with a latch that the same thread sets in between, before the line number `step` that is executed.

    Returns whether there are so many lines, and what the work returned. Fails if it does not come to its end.
    """
    latch, lines, returned = Latch(), list[bool](), list[object]()

    def trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "line":
            lines.append(True)
            if len(lines) == step:
                sys.settrace(None)
                latch.set()
        return trace

    def run() -> None:
        sys.settrace(trace)
        try:
            returned.append(work(latch))
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), f"set by a handler before line {step}, it never ends"
    return len(lines) >= step, returned[0]


def wait(latch: Latch) -> bool:
    return latch.wait(0.001) or latch.wait(0.2)


def set_and_look(latch: Latch) -> bool:
    latch.set()
    return latch.wait(0)


@pytest.mark.parametrize("work", [wait, set_and_look])
def test_a_handler_may_set_it_wherever_its_thread_is_just_then(work: Callable[[Latch], bool]) -> None:
    """Waiting for it, or setting it for another signal: nothing hangs, and nothing is missed."""
    told: list[object] = []
    while (found := interrupted(work, len(told) + 1))[0]:
        told.append(found[1])
    assert (len(told) > 3, set(told)) == (True, {True})


def test_it_is_not_set_before_it_is() -> None:
    """A wait ends after its time."""
    latch = Latch()
    assert (latch.is_set(), latch.wait(0.01), latch.wait(0)) == (False, False, False)


def test_all_who_wait_go_on() -> None:
    """Also those who come later."""
    latch, gone_on = Latch(), list[bool]()
    waiting = [threading.Thread(target=lambda: gone_on.append(latch.wait(30))) for _ in range(3)]
    for thread in waiting:
        thread.start()
    latch.set()
    for thread in waiting:
        thread.join(30)
    assert (gone_on, latch.wait(), latch.wait(30)) == ([True] * 3, True, True)


STARTS_THREADS = """
import signal, threading
from inbound.runtime.signals import Latch

latch = Latch()
signal.signal(signal.SIGTERM, lambda number, frame: latch.set())


def start() -> None:
    while not latch.is_set():
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()


threads = [threading.Thread(target=start) for _ in range(3)]
for thread in threads:
    thread.start()
print("ready", flush=True)
latch.wait()
"""


@pytest.mark.slow  # five processes
def test_a_signal_that_another_thread_was_given_is_heard() -> None:
    """Starting a thread blocks signals for a moment, and may take one that woke the main thread."""
    processes = [subprocess.Popen([sys.executable, "-c", STARTS_THREADS], stdout=subprocess.PIPE) for _ in range(5)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(signal.SIGTERM)
        assert [process.wait(60) for process in processes] == [0] * 5
    finally:
        for process in processes:
            process.kill()
            process.communicate()
