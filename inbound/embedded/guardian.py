"""A guardian process ends one server when the server's owner is gone.

Run as a plain script, with the standard library only: `python -I -S guardian.py LOG COMMAND...`. It starts the command
and writes its pid to standard output as a line. Then it reads standard input, whose other end only the owner holds: a
line is the number of a signal to send, answered by the pid again; the end of the input means that the owner is gone,
however it went, and kills the command. The guardian ends as its command does: with its exit code, or 128 + the signal.

Only the command's parent can signal it safely: for others its pid may by then belong to another process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys

#: Where another process holds the pipe open (a child that the owner forked without exec), a changed parent still shows
#: that the owner is gone. Seconds between checks.
_LOOK_EVERY = 1.0
_PR_SET_PDEATHSIG = 1


def _die_with_guardian() -> None:
    """Have the kernel kill the child when the guardian is killed.

    Runs in the child before exec, on Linux; elsewhere there is no such call. It fires when the *thread* that forked ends, so
    the owner's threads can't rely on it; the guardian has only one.
    """
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _answer(pid: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the owner has died: seen at the next look
        os.write(1, b"%d\n" % pid)


def _wait_until_stopped(pid: int) -> None:
    """Wait until all threads of the child have stopped, or it ends.

    Sending SIGSTOP returns before that: on a busy machine a thread of the server continued and answered a request half a
    second later. To the parent the kernel reports the stop when the last thread has stopped. WNOWAIT: an end is left
    for `poll` to find.
    """
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def main(log: str, command: list[str]) -> int:
    """Run `command` until it or the owner ends; return our exit code."""
    owner = os.getppid()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with open(log, "ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_guardian,
        )
    _answer(child.pid)
    pending = b""
    while child.poll() is None:
        ready, _, _ = select.select([0, wake_read], [], [], _LOOK_EVERY)
        if wake_read in ready:
            os.read(wake_read, 4096)
        gone = os.getppid() != owner
        if 0 in ready and not gone:
            data = os.read(0, 4096)
            gone = not data
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                child.send_signal(int(line))  # does nothing once the command has been waited for
                if int(line) == signal.SIGSTOP:
                    _wait_until_stopped(child.pid)
                _answer(child.pid)
        if gone:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
