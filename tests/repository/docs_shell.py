"""The commands in the documentation: parsed by `inbound`'s own parser, and typed in a folder where `inbound` is this checkout's.

Before what is printed is compared with the page, what differs from run to run is made equal on both sides (`PATTERNS`, in
their order). Nothing else may differ but space. On the page a line `...` stands for any lines, `...` elsewhere for anything.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from inbound.cli.main import parser
from tests.repository.docs_blocks import ROOT, Block
from tests.waiting import patient

#: The longest a command takes on a quiet machine, unless it runs until it is stopped. Seconds.
LONGEST = 120.0
_parser = cache(parser)  # its making takes longer than all lines together


#: What differs from run to run, and what stands for it.
PATTERNS: Sequence[tuple[str, str]] = (
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z| UTC|\+00:00)?", "TIME"),
    (r"\b(\d\d-\d\d )?\d\d:\d\d:\d\d(\.\d+)?\b", "TIME"),
    (r"\b\d{8}T\d{6,9}Z(-[0-9a-f]{16})?\b", "ID"),  # of a run, or of a reset
    (r"\b[\w-]+-\d+-[0-9a-f]{6}\b", "MEMBER"),  # a generated consumer id: host, pid, random
    (r"\bpid \d+ on [\w.-]+", "pid PID on HOST"),
    (r"\b(process|pid) \d+\b", r"\1 PID"),
    (r"\b[\d,.]+ (ms|s|min|h)\b(?!/)", "DURATION"),
    (r"DURATION( DURATION)+", "DURATION"),  # 1 min 3 s
    (r"(127\.0\.0\.1|localhost):\d+", "HOST:PORT"),
    (r"\bepoch \d+", "epoch N"),
    (r"-{2,}", "--"),
)


def difference(shown: str, printed: str) -> str | None:
    """Return how `printed` is not what `shown` on the page says; None if it is."""
    if (shape := _json(shown)) is not None:
        found = _json(printed)
        good = found is not None and fits(shape, found)
        return None if good else f"keys or types are others than on the page in what is printed: {printed}"
    wanted, got = normalised(shown), normalised(printed)
    any_lines, any_text = r"(?:[^\n]*\n)*?", r"[^\n]*?"
    lines = (any_lines if line == "..." else re.escape(line).replace(r"\.\.\.", any_text) + r"\n" for line in wanted)
    if re.fullmatch("".join(lines), "".join(f"{line}\n" for line in got)):
        return None
    return "page (-) and what is printed (+), made equal:\n" + "\n".join(difflib.ndiff(wanted, got))


def normalised(text: str) -> list[str]:
    """Return the lines of a text, but for empty ones, with one space between words and a name for what differs."""
    for pattern, name in PATTERNS:
        text = re.sub(pattern, name, text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def _json(text: str) -> Any:
    """Return the value that a text is, with `{...}` and `[...]` as null; None if it is none."""
    try:
        return json.loads(re.sub(r"\{ *\.\.\. *\}|\[ *\.\.\. *\]", "null", text))
    except ValueError:
        return None


def fits(shown: Any, made: Any) -> bool:
    """Whether a value has the keys, and values of the types, of the one on the page.

    Null fits everything, for what is not known is null; lists fit by their first members.
    """
    if shown is None or made is None:
        return True
    if isinstance(shown, dict) and isinstance(made, dict):
        return shown.keys() == made.keys() and all(fits(shown[key], made[key]) for key in shown)
    if isinstance(shown, list) and isinstance(made, list):
        return not shown or not made or fits(shown[0], made[0])
    kinds = [float if type(one) is int else type(one) for one in (shown, made)]
    return kinds[0] is kinds[1]


@dataclass(frozen=True)
class Command:
    """What is typed, and what the page shows below it; None: nothing."""

    typed: str
    shown: str | None = None


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a `bash` or `console` block; of the latter only lines behind `$ `, and their output.

    Raises:
        ValueError: a console block does not begin with a command.
    """
    joined = re.sub(r"\\\n\s*", "", block.text)
    if block.language == "bash":
        return [Command(line) for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    before, *parts = re.split(r"(?m)^\$ ", joined)
    if before.strip() or not parts:
        raise ValueError(f"{block}: a console block begins with `$ ` and a command")
    pairs = (part.partition("\n") for part in parts)
    return [Command(typed, shown if shown.strip() else None) for typed, _, shown in pairs]


def words_of(line: str) -> Iterator[list[str]]:
    """Yield the arguments of each `inbound` in a shell line: behind pipes, in `$(...)`, with variables set before it.

    Raises:
        ValueError: quotes that do not end.
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    for _, group in itertools.groupby(lexer, lambda word: re.fullmatch(r"[|&;<>()]+", word) is None):
        words = list(group)
        before = words[: words.index("inbound")] if "inbound" in words else ["nothing"]
        if before[-1:] == ["-m"] or all("=" in word for word in before):
            yield words[len(before) + 1 :]


def inline(text: str) -> list[tuple[int, str]]:
    """Return (line, command) of each `inbound ...` in code quotes of a page without its blocks."""
    found = re.finditer(r"`(?:\$ )?((?:python3? -m )?inbound(?: [^`\n]+)?)`", text)
    return [(text.count("\n", 0, one.start()) + 1, one[1].replace("\\|", "|")) for one in found]


def refusal(words: list[str], whole: bool = True) -> str | None:
    """Return why inbound's parser does not take these arguments; None if it does.

    Args:
        words: what stands behind `inbound`. Words in capitals and `...` stand for a value; `[...]` may be left out.
        whole: False: an option or an argument may be missing, as where a text only names a command.
    """
    words = ["--help" if word == "COMMAND" else word.replace("HOST:PORT", "127.0.0.1:1") for word in words]
    given = ["1" if re.fullmatch(r"[A-Z][A-Z_]+|\.\.\.|…", word) else word for word in words if word[:1] != "["]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            _parser().parse_args(given)
    except SystemExit as ended:
        lacks = re.search(r"are required|is required|expected one argument", said.getvalue())
        return None if ended.code == 0 or (not whole and lacks) else said.getvalue().strip().rpartition("\n")[2]
    return None


def replaced(text: str, names: Mapping[str, str]) -> str:
    """Return a text with other names in it."""
    for name, other in names.items():
        text = text.replace(name, other)
    return text


@dataclass
class Shell:
    """Runs commands as they are typed, in `folder`; `close` kills what `begin` started and `end` did not stop.

    A scene names a command by its beginning.
    """

    folder: Path
    #: Put in place of what pages name, in commands and, the other way round, in what is printed: addresses, folders.
    instead: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Commands that were done when the scene was prepared.
    prepared: tuple[str, ...] = ()
    #: Commands that go on until they are ended with SIGTERM; the callable waits until one is at work.
    lasting: Mapping[str, Callable[[subprocess.Popen[str]], None]] = field(default_factory=dict)
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
        (self._bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self._bin / name).chmod(0o755)

    def follow(self, block: Block) -> None:
        """Carry out a block.

        Raises:
            AssertionError: a command fails, or prints other than the page shows.
        """
        for command in commands_of(block):
            if not command.typed.removeprefix("python -m ").startswith(self.prepared):
                try:
                    self.carry_out(command)
                except AssertionError as wrong:
                    raise AssertionError(f"{block}: `{command.typed}`: {wrong}") from wrong

    def carry_out(self, command: Command) -> None:
        """Type a command, and compare what it prints."""
        typed = command.typed.removeprefix("python -m ")
        if ready := next((self.lasting[one] for one in self.lasting if typed.startswith(one)), None):
            ready(self.begin(command.typed.partition("  #")[0]))
            return
        code, printed = self.run(command.typed)
        assert code == 0 or (code, typed[:15]) == (3, "inbound explain"), f"ended with {code}:\n{printed}"
        assert command.shown is None or (found := difference(command.shown, printed)) is None, found

    def run(self, typed: str) -> tuple[int, str]:
        """Return the exit code and what was printed on both streams, with what pages call things.

        Raises:
            subprocess.TimeoutExpired: it has not ended; it is killed then.
        """
        place = self._bin / "folder"  # a `cd` counts for the commands that follow
        script = f"trap 'pwd > {shlex.quote(str(place))}' EXIT\n{replaced(typed, self.instead)}"
        with subprocess.Popen(["bash", "-c", script], **self._how(subprocess.PIPE), start_new_session=True) as process:
            try:
                printed, _ = process.communicate(timeout=patient(LONGEST))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
                raise
        self.at = Path(place.read_text().strip())
        return process.returncode, replaced(printed, {ours: name for name, ours in self.instead.items()})

    def begin(self, typed: str) -> subprocess.Popen[str]:
        """Start a command that runs until it is stopped; its output goes to a file of the folder."""
        with open(self.folder / "running.log", "a") as output:
            process = subprocess.Popen(["bash", "-c", f"exec {replaced(typed, self.instead)}"], **self._how(output))
        self.running.append(process)
        return process

    def end(self) -> None:
        """Stop the running commands with SIGTERM; each exits with 0."""
        for process in self.running:
            process.send_signal(signal.SIGTERM)
        assert {process.wait(timeout=patient(LONGEST)) for process in self.running} <= {0}
        self.running.clear()

    def close(self) -> None:
        """Kill what was not ended."""
        for process in self.running:
            process.kill()
            process.wait()

    def _how(self, output: Any) -> dict[str, Any]:
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(self._bin), os.environ.get("PATH", "")]),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "COLUMNS": "200",  # a table's width
            "PYTHONUNBUFFERED": "1",  # both streams in the order of their lines
            "XDG_STATE_HOME": str(self.folder / ".state"),  # nothing of the user's is touched, or read
            "CURL_HOME": str(self._bin),
            **self.environment,
        }
        streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        return {"cwd": self.at, "env": environment, "text": True, **streams}
