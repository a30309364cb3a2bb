"""The threads behind `asyncio.to_thread`."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from inbound.daemon_threads import DaemonThreads


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


HANGING = """
import asyncio, threading
from inbound.channel import new_event_loop
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
