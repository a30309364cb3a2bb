"""The verbs of a server and its guardian, told with small programs in place of Java."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inbound.embedded import guardian
from inbound.embedded.locks import alive
from inbound.embedded.server import Server
from inbound.errors import EmbeddedClusterError
from tests.waiting import until


class Program(Server):
    """A shell script that counts as serving once it has written the word `up`."""

    def __init__(self, script: str, folder: Path) -> None:
        super().__init__("program", 15000, folder)
        self._script = script

    def command(self) -> list[str]:
        return ["/bin/sh", "-c", self._script]

    def ready(self, timeout: float) -> bool:
        return "up" in self._log_since_start().split()


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    """Servers that a test puts here are killed at its end."""
    made: list[Server] = []
    yield made
    for server in made:
        server.kill()


def started(servers: list[Server], folder: Path, script: str) -> Program:
    program = Program(script, folder / "program")
    servers.append(program)
    program.start(timeout=10)
    return program


def state(pid: int) -> str:
    """Return the kernel's letter for what a process does: S sleeping, T stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def await_stopped(pid: int) -> None:
    """Wait until a process stops: one that is on another processor just then runs on for a moment."""
    until(lambda: state(pid) == "T", 5, f"process {pid} stops", look=0.005)


def test_a_killed_server_can_be_started_again(servers: list[Server], tmp_path: Path) -> None:
    """Kill returns once the process is gone; the next start is another process, and the log goes on."""
    program = started(servers, tmp_path, "echo up; exec sleep 60")
    first = program.pid
    program.kill()
    assert first is not None
    assert not alive(first)
    assert "not running" in repr(program)

    program.start(timeout=10)

    second = program.pid
    program.start()  # does nothing: it runs

    assert program.running
    assert program.pid == second not in (None, first)
    assert program.log_path.read_text() == "up\nup\n"


@pytest.mark.parametrize(
    ("script", "timeout", "log"),
    [
        ("trap 'echo bye; exit 0' TERM; echo up; sleep 60 & wait", None, "up\nbye\n"),
        ("trap '' TERM; echo up; while :; do sleep 60; done", 0.05, "up\n"),  # is killed when its time is over
    ],
)
def test_stop_ends_a_server_gracefully(
    servers: list[Server], tmp_path: Path, script: str, timeout: float | None, log: str
) -> None:
    """It is asked by SIGTERM, and its end is waited for."""
    program = started(servers, tmp_path, script)

    program.stop(**({} if timeout is None else {"timeout": timeout}))

    assert not program.running
    assert program.log_path.read_text() == log


def test_a_paused_server_runs_on_after_resume(servers: list[Server], tmp_path: Path) -> None:
    """Pause freezes the process itself, resume lets it go on, and a paused one can be stopped or killed."""
    program = started(servers, tmp_path, "echo up; exec sleep 60")
    pid = program.pid
    assert pid is not None

    program.pause()
    assert (program.running, program.paused) == (True, True)
    await_stopped(pid)
    program.resume()
    assert (program.paused, state(pid) == "T") == (False, False)
    program.pause()
    program.stop()
    assert not program.running


@pytest.mark.parametrize(
    ("words", "taken"), [("java.net.BindException: Address already in use", True), ("no disk", False)]
)
def test_a_server_that_dies_at_start_tells_its_last_words(
    servers: list[Server], tmp_path: Path, words: str, taken: bool
) -> None:
    """The error has the exit code, the log's end and the log's path; words of an earlier start are not among them.
    Only a taken port is a reason to choose other ports. What does not run cannot be paused.
    """
    (tmp_path / "program.log").write_text("old news\n")
    program = Program(f"echo '{words}' >&2; exit 3", tmp_path / "program")
    servers.append(program)

    with pytest.raises(EmbeddedClusterError) as caught:
        program.start(timeout=10)

    message = str(caught.value)
    assert "program: the server ended with exit code 3" in message
    assert (words in message, str(program.log_path) in message, "old news" in message) == (True, True, False)
    assert program.died_of_a_taken_port() is taken
    with pytest.raises(EmbeddedClusterError, match=r"program: cannot be paused, it does not run\. Start it first"):
        program.pause()
    for ended in (program, Program("true", tmp_path / "never-started")):
        ended.kill()
        ended.stop()
        assert ended.pid is None


def test_a_server_that_never_answers_is_given_up(servers: list[Server], tmp_path: Path) -> None:
    """The wait is bounded, and the message says that the process runs but does not answer."""
    program = Program("exec sleep 60", tmp_path / "program")
    servers.append(program)

    with pytest.raises(EmbeddedClusterError, match=r"runs but has not answered on 127\.0\.0\.1:15000"):
        program.start(timeout=0.1)


def guarded(log: Path, script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guardian.__file__, str(log), "/bin/sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )


def await_end(pid: int) -> None:
    """Wait until a process has ended."""
    until(lambda: not alive(pid), 5, f"process {pid} ends", look=0.005)


@pytest.mark.parametrize(
    "killed",
    [
        False,
        pytest.param(
            True, marks=pytest.mark.skipif(sys.platform != "linux", reason="needs Linux' parent-death signal")
        ),
    ],
)
def test_no_command_outlives_its_guardian_or_its_owner(tmp_path: Path, killed: bool) -> None:
    """The end of its input, which is all that a killed owner leaves, is enough; also while the command is frozen."""
    with guarded(tmp_path / "log", "trap '' TERM; sleep 60; exit 0") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        if killed:
            process.kill()
        else:
            os.kill(pid, signal.SIGSTOP)
            process.stdin.close()
            assert process.wait(60) == 128 + signal.SIGKILL

        await_end(pid)


def test_the_guardian_ends_as_its_command_does(tmp_path: Path) -> None:
    """The exit code is handed on, and the command's words are in the log."""
    with guarded(tmp_path / "log", "echo out; echo err >&2; exit 7") as process:
        assert process.wait(60) == 7
    assert (tmp_path / "log").read_text() == "out\nerr\n"


def test_a_server_dies_with_its_owner(tmp_path: Path) -> None:
    """The owner is killed with SIGKILL while a process it forked lives on, holding copies of all it had open."""
    code = f"""
import os, sys, time
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent.parent.parent)!r})
from tests.embedded.test_embedded_server import Program
program = Program("echo up; exec sleep 60", Path({str(tmp_path)!r}) / "program")
program.start(timeout=10)
if os.fork() == 0:
    os.close(1)
    time.sleep(30)
    os._exit(0)
print(program.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert alive(pid)

        os.kill(owner.pid, signal.SIGKILL)

        try:
            await_end(pid)
        finally:
            os.killpg(owner.pid, signal.SIGKILL)  # the forked one
