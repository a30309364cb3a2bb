"""Processes that are measured from outside, through /proc: so Linux only."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from inbound.admin.client import fetch_status

MIB = 2**20
#: How long a process may take to end after SIGTERM, in seconds; then it is killed.
STOP = 20.0


class MeasuredProgram:
    """A child process; ended with the `with` block."""

    def __init__(self, log: Path, command: Sequence[str]) -> None:
        """Start it; both its outputs are appended to `log`."""
        self._log = log
        with open(log, "ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def wait_for(self, what: str, done: Callable[[], bool], seconds: float) -> None:
        """Block until `done()`; the benchmark ends if the process does, or `seconds` pass."""
        deadline = time.monotonic() + seconds
        while not done():
            if self._process.poll() is not None:
                raise SystemExit(f"a process ended with {self._process.returncode} before {what}:\n{self.said()}")
            if time.monotonic() > deadline:
                raise SystemExit(f"{what}: not within {seconds:.0f} s; its process said:\n{self.said()}")
            time.sleep(0.05)

    def said(self) -> str:
        """Return the end of what it wrote."""
        return self._log.read_text(errors="replace")[-3000:]

    def channel(self) -> Mapping[str, Any]:
        """Return what `/status` says of its only channel; {} until it serves one."""
        found = re.search(r"admin: (http://\S+)/status", self._log.read_text(errors="replace"))
        channels: list[Mapping[str, Any]] = fetch_status(found[1])["channels"] if found else []
        return channels[0] if channels else {}

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its threads so far, user and system."""
        return _cpu_seconds(self.pid)

    def tree_cpu_seconds(self) -> float:
        """Return the CPU time so far of its threads, its children, theirs, and those of them that have ended."""
        return sum(_cpu_seconds(pid, with_ended=True) for pid in _tree(self.pid))

    def rss_mib(self) -> float:
        """Return its resident set."""
        return self._status("VmRSS") / MIB

    def peak_mib(self) -> float:
        """Return the largest resident set that it ever had."""
        return self._status("VmHWM") / MIB

    def _status(self, name: str) -> int:
        with open(f"/proc/{self.pid}/status") as lines:
            found = next(line for line in lines if line.startswith(f"{name}:"))
        return int(found.split()[1]) * 1024


class Measured(MeasuredProgram):
    """A child process running a module of Python; ended with the `with` block."""

    def __init__(self, log: Path, module: str, *arguments: str) -> None:
        """Start it; both its outputs are appended to `log`."""
        super().__init__(log, [sys.executable, "-m", module, *arguments])


def _cpu_seconds(pid: int, with_ended: bool = False) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    # user, system, and the same of children that were waited for
    return sum(int(field) for field in fields[11 : 15 if with_ended else 13]) / os.sysconf("SC_CLK_TCK")


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from _tree(int(child))
