"""Threads that run parts, woken, stopped and not ended by a defect; and those behind `asyncio.to_thread`."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from inbound.clock import SystemClock
from inbound.runtime.driver import DaemonThreads, Driver, Wakeup
from inbound.testing import ManualClock


class Scripted:
    """A part that follows a script: numbers are due times, exceptions are raised; afterwards it waits to be woken."""

    def __init__(self, *script: float | Exception | None) -> None:
        self.script = list(script)
        self.steps = 0
        self.stepped = threading.Semaphore(0)

    def run_once(self) -> float | None:
        self.steps += 1
        self.stepped.release()
        step = self.script.pop(0) if self.script else None
        if isinstance(step, Exception):
            raise step
        return step


def driver(part: Scripted, wakeup: Wakeup) -> Driver:
    """A driver that has started."""
    made = Driver("part", part, wakeup, SystemClock())
    made.start()
    return made


def test_a_part_runs_again_when_woken() -> None:
    """However long it wanted to wait."""
    part, wakeup = Scripted(None, None), Wakeup()
    running = driver(part, wakeup)
    assert part.stepped.acquire(timeout=5)
    wakeup.set()
    assert part.stepped.acquire(timeout=5)
    running.stop()
    assert (running.join(5), part.steps) == (True, 2)


def test_a_wakeup_before_the_wait_is_not_lost() -> None:
    """The part may be in its step when it is set."""
    wakeup = Wakeup()
    wakeup.set()
    wakeup.wait(60)  # returns at once, or this test takes a minute


def test_each_wakeup_wakes_one_waiter_and_at_most_as_many_as_there_are() -> None:
    """Five records do not wake more workers than exist."""
    wakeup = Wakeup(2)
    for _ in range(5):
        wakeup.set()
    wakeup.wait(60)
    wakeup.wait(60)
    finished = threading.Event()

    def wait() -> None:
        wakeup.wait(60)
        finished.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert not finished.wait(0.05)
    wakeup.set()
    assert finished.wait(5)
    waiter.join(5)


def test_a_part_that_raises_is_logged_counted_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """A defect in one part must not silently end it."""
    part, wakeup = Scripted(RuntimeError("a defect"), None), Wakeup()
    running = driver(part, wakeup)
    assert part.stepped.acquire(timeout=5)
    running.stop()
    assert running.join(5)
    assert running.failures == 1
    assert "part failed; this is a defect of inbound" in caplog.text


def test_a_part_that_raised_goes_on_although_nobody_wakes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was woken for is not done yet, and who counts on it does not wake it again."""
    part, wakeup = Scripted(RuntimeError("a defect"), None), Wakeup()
    made = Driver("part", part, wakeup, SystemClock())
    monkeypatch.setattr(made._stopping, "wait", lambda seconds: False)
    made.start()
    steps = [part.stepped.acquire(timeout=2) for _ in range(2)]
    made.stop()
    assert (made.join(5), steps) == (True, [True, True])


def test_a_thread_that_does_not_end_is_logged_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    """So that an operator sees where it hangs."""
    release = threading.Event()

    class Hanging:
        def run_once(self) -> float | None:
            release.wait(10)
            return None

    running = Driver("hanging", Hanging(), Wakeup(), SystemClock())
    running.start()
    running.stop()
    assert not running.join(0.05)
    release.set()
    assert running.join(5)
    assert "thread hanging did not end within" in caplog.text
    assert "release.wait(10)" in caplog.text


# -- threads behind asyncio.to_thread ---------------------------------------------------------------------------------


def test_calls_run_at_the_same_time_up_to_the_bound_and_give_their_results() -> None:
    """The third waits for one of two threads."""
    pool, both, names = DaemonThreads(2), threading.Barrier(2, timeout=10), set[str]()

    def call(number: int, *, add: int) -> int:
        names.add(threading.current_thread().name)
        if number < 2:
            both.wait()
        return number + add

    futures = [pool.submit(call, number, add=10) for number in range(3)]
    assert [future.result(10) for future in futures] == [10, 11, 12]
    assert len(names) == 2
    pool.shutdown()


def test_an_error_comes_with_the_result_and_the_thread_goes_on() -> None:
    """Also sys.exit()."""
    pool = DaemonThreads(1)
    with pytest.raises(SystemExit):
        pool.submit(sys.exit, 3).result(10)
    assert pool.submit(int, "7").result(10) == 7
    pool.shutdown()


def test_a_thread_that_cannot_be_begun_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that failed left room for one less, for good; and the call, whose error was told, was run by the next one."""
    pool, ran = DaemonThreads(1), list[int]()

    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", fails)
        with pytest.raises(RuntimeError):
            pool.submit(ran.append, 1)
    pool.submit(ran.append, 2).result(10)
    pool.shutdown()
    assert ran == [2]


HANGING = """
import asyncio, threading
from inbound.channel.shared import new_event_loop
loop = new_event_loop()
begun = threading.Event()
def hang():
    begun.set()
    threading.Event().wait()
async def work():
    await asyncio.wait({asyncio.ensure_future(asyncio.to_thread(hang))}, timeout=0.01)
loop.run_until_complete(work())
assert begun.wait(10)
for task in asyncio.all_tasks(loop):
    task.cancel()
loop.run_until_complete(asyncio.sleep(0))
loop.close()
print("closed", flush=True)
"""


def test_a_call_that_hangs_does_not_keep_the_process_from_ending() -> None:
    """`shutdown_timeout` would mean nothing otherwise."""
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")


class Passing(ManualClock):
    """Time that goes on by a little with each look at it."""

    def now(self) -> float:
        self.advance(Driver.UNBROKEN / 3.9)
        return super().now()


class Breaths(threading.Event):
    """Notes for how long it is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.taken.append(timeout)
        return super().wait(timeout)


class Busy:
    """A part that is never through, until it has had enough steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.over = threading.Event()

    def run_once(self) -> float | None:
        self.left -= 1
        if self.left:
            return 0.0
        self.over.set()
        return None


@pytest.mark.parametrize(("lets_go", "breaths"), [(False, [Driver.BREATH] * 4), (True, [])])
def test_a_part_that_is_never_through_lets_others_have_the_interpreter(lets_go: bool, breaths: list[float]) -> None:
    """A step takes a quarter of the time after which it is to; not where the part has done so on its own."""
    clock, part, stopping = Passing(), Busy(20), Breaths()
    running = Driver("part", part, Wakeup(), clock, clock.now if lets_go else lambda: 0.0)
    running._stopping = stopping
    running.start()
    assert part.over.wait(5)
    running.stop()
    assert (running.join(5), stopping.taken) == (True, breaths)
