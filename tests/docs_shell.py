"""Carries out the commands of `bash` and `console` blocks: in a folder, with `inbound` and `python` being this checkout's."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs_blocks import ROOT, Block
from tests.docs_commands import Command, commands_of
from tests.docs_printed import difference

#: No command that ends by itself takes longer, even on a machine that does much else. Seconds.
LONGEST = 120.0


@dataclass
class Shell:
    """Runs commands as they are typed, and ends those that go on for ever.

    `folder` is where they run. `close` ends what `begin` started.
    """

    folder: Path
    #: Put in place of what pages name, in commands and, the other way round, in what is printed: addresses, folders.
    instead: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.at = self.folder
        self._bin = self.folder / ".bin"
        self._bin.mkdir(exist_ok=True)
        (self._bin / ".curlrc").write_text("silent\nshow-error\n")  # as on a terminal: no progress among the lines
        self.command("inbound", f'exec {shlex.quote(sys.executable)} -m inbound "$@"')
        self.command("python", f'exec {shlex.quote(sys.executable)} "$@"')

    def command(self, name: str, script: str) -> None:
        """Have a command of this name, a line for sh."""
        path = self._bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self, typed: str) -> tuple[int, str]:
        """Return the exit code and what was printed on both streams, with what pages call things.

        Raises:
            subprocess.TimeoutExpired: it has not ended; it is killed then.
        """
        place = self._bin / "folder"  # a `cd` counts for the commands that follow
        script = f"trap 'pwd > {shlex.quote(str(place))}' EXIT\n{self.here(typed)}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.at, env=self._environment(), text=True, timeout=LONGEST,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.at = Path(place.read_text().strip())
        return done.returncode, self.there(done.stdout)

    def begin(self, typed: str, log: str = "running.log") -> subprocess.Popen[str]:
        """Start a command that does not end by itself; what it prints goes to a file of the folder."""
        with open(self.folder / log, "a") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self.here(typed)}"], cwd=self.at, env=self._environment(), text=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.running.append(process)
        return process

    def end(self, process: subprocess.Popen[str]) -> int:
        """SIGTERM; return the exit code."""
        process.send_signal(signal.SIGTERM)
        self.running.remove(process)
        return process.wait(timeout=LONGEST)

    def close(self) -> None:
        """Kill what was not ended."""
        for process in self.running:
            process.kill()
            process.wait()
        self.running.clear()

    def here(self, text: str) -> str:
        """Return a command with what stands here for what it names."""
        for name, ours in self.instead.items():
            text = text.replace(name, ours)
        return text

    def there(self, text: str) -> str:
        """Return what was printed with the names of the page."""
        for name, ours in self.instead.items():
            text = text.replace(ours, name)
        return text

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(self._bin), os.environ.get("PATH", "")])
        python = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        shown = {
            "COLUMNS": "200",
            "PYTHONUNBUFFERED": "1",
        }  # a table's width; both streams in the order of what is said
        # Nothing of the user's is touched, or read.
        state = {"XDG_STATE_HOME": str(self.folder / ".state"), "CURL_HOME": str(self._bin)}
        return {**os.environ, "PATH": path, "PYTHONPATH": python, **shown, **state, **self.environment}


@dataclass
class Steps:
    """What is special about commands of a scene; each is told by how it begins."""

    shell: Shell
    #: Done already when the scene was prepared: what stands here for it is described there.
    prepared: Sequence[str] = ()
    #: Goes on until it is ended with SIGTERM; the callable waits until it is at work.
    lasting: Mapping[str, Callable[[subprocess.Popen[str]], None]] = field(default_factory=dict)
    #: Exit codes other than 0.
    codes: Mapping[str, int] = field(default_factory=dict)

    def run(self, block: Block) -> None:
        """Carry out a block.

        Raises:
            AssertionError: a command fails, or prints other than the page shows.
        """
        for command in commands_of(block):
            self._run(block, command)

    def _run(self, block: Block, command: Command) -> None:
        typed = command.typed.removeprefix("python -m ")
        if any(typed.startswith(one) for one in self.prepared):
            return
        for beginning, ready in self.lasting.items():
            if typed.startswith(beginning):
                ready(self.shell.begin(command.typed.partition("  #")[0]))
                return
        code, printed = self.shell.run(command.typed)
        wanted = next((number for one, number in self.codes.items() if typed.startswith(one)), 0)
        assert code == wanted, f"{block}: `{command.typed}` ended with {code}:\n{printed}"
        if command.shown is not None:
            found = difference(command.shown, printed)
            assert found is None, f"{block}: `{command.typed}`: {found}"

    def end(self) -> None:
        """End what lasts, in good order."""
        for process in list(self.shell.running):
            assert self.shell.end(process) == 0
