"""The log's writer: a slow reader of the log, or none, keeps no code waiting."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inbound.observe.logs.writer import ROOM, LogWriter

LINE = b"x" * 99 + b"\n"


def note(count: int) -> bytes:
    """Say how many lines were lost."""
    return f"lost {count}\n".encode()


def started(descriptor: int, room: int = ROOM) -> LogWriter:
    """Return a writer that runs."""
    writer = LogWriter(descriptor, note, room=room)
    writer.start()
    return writer


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Give a pipe: the end to read from, the end to write to."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            pass  # the test has closed it


def test_lines_are_written_in_order_before_the_end(pipe: tuple[int, int]) -> None:
    """Also those that were put right before it."""
    writer = started(pipe[1])
    for number in range(100):
        writer.put(f"{number}\n".encode())
    writer.close()
    writer.close()
    assert os.read(pipe[0], 4096).decode().split() == [str(number) for number in range(100)]


def test_a_reader_that_does_not_read_keeps_nobody_waiting(pipe: tuple[int, int]) -> None:
    """Lines without room are lost and counted; the log then says how many; none is torn."""
    writer = started(pipe[1], room=10_000)
    for _ in range(5000):
        writer.put(LINE)  # would block: a pipe takes 64 KiB
    lost = writer.lost
    assert lost > 5000 - (2 * 10_000 + 2 * 65_536) // len(LINE)

    read = b""
    while not read.endswith(b"\n") or sum(map(int, re.findall(rb"lost ([0-9]+)\n", read))) < lost:
        read += os.read(pipe[0], 65_536)
    writer.close()
    assert {line for line in read.split(b"\n") if not line.startswith(b"lost ")} == {LINE[:-1], b""}


def test_a_reader_that_is_gone_is_no_error(pipe: tuple[int, int]) -> None:
    """Code that logs goes on, and so does the end of the process."""
    os.close(pipe[0])
    writer = started(pipe[1])
    writer.put(LINE)
    writer.flush()
    writer.put(LINE)
    writer.close()
    assert writer.lost >= 1


def test_a_full_disk_is_no_error() -> None:
    """A log file on it cannot be written; the process goes on."""
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        writer = started(full)
        writer.put(LINE)
        writer.close()
        assert writer.lost == 1
    finally:
        os.close(full)


def test_the_end_waits_for_a_reader_for_a_bounded_time(pipe: tuple[int, int]) -> None:
    """A pipe that is full stays full."""
    writer = started(pipe[1])
    for _ in range(2000):
        writer.put(LINE)
    assert not writer.flush(0.0)
    writer.close(0.0)
    writer.put(LINE)
    assert writer.lost >= 1


@pytest.mark.slow
def test_a_command_without_standard_error_runs(tmp_path: Path) -> None:
    """Nothing that it opens later may get the number, and with it the log."""
    command = f"exec {sys.executable} -m inbound -v check -c {tmp_path / 'no.yaml'} 0<&- 2>&-"
    ran = subprocess.run(["/bin/sh", "-c", command], stdout=subprocess.PIPE, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (2, b"")
