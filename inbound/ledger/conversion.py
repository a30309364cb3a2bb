"""A separate process writes Parquet of a ledger's `.jsonl` files.

pyarrow takes 100 MiB that would stay, and its conversion competes with callbacks for the interpreter. So a process is
started, converts the files one after the other, and is ended. It also ends when its parent is gone.

Both sides speak JSON lines: `{"path", "target"}` to its stdin, `{"size"}` or `{"problem"}` from its stdout.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from importlib.abc import MetaPathFinder
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, NoReturn

from inbound.errors import InboundError, LedgerError
from inbound.ledger.columns import write_parquet
from inbound.ledger.disk import Disk
from inbound.ledger.format import temporary_name
from inbound.ledger.jsonl import split_lines

#: Seconds between looks at a converting process: at first, and at most.
LOOKS = (0.01, 0.2)
#: Seconds that it may take for a file; a full one takes a few on a core of its own.
LONGEST = 600.0
#: The arguments of its interpreter: `-P` keeps the working directory out of its imports.
COMMAND = (
    "-P",
    "-c",
    "import sys; sys.path.append(sys.argv[1]); from inbound.ledger.conversion import main; main()",
    str(Path(__file__).parents[2]),
)
_NOT_NEEDED = "or set ledger.compact to false: lines are as good as Parquet, and larger"


def convert(
    writer: ParquetWriter, path: Path, data: BinaryIO, target: Path, disk: Disk
) -> Generator[float, None, None]:
    """Make Parquet of a `.jsonl` file under another name, sync, rename.

    Raises:
        LedgerError: the writer could not.
        OSError: it can't be kept.
    """
    status = os.fstat(data.fileno())
    temporary = target.with_name(temporary_name(target.name))
    try:
        yield from writer.write(path, data, temporary)
        os.utime(temporary, (status.st_mtime, status.st_mtime))  # by which its lines grow old
        disk.sync_path(temporary)
        temporary.replace(target)
        disk.sync_path(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


class ParquetWriter:
    """Writes Parquet of files in a child process, for one thread."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def write(self, path: Path, data: BinaryIO, target: Path) -> Generator[float, None, None]:
        """Write `path`, opened as `data`, as Parquet to `target`.

        Yields seconds until the next step. At the end `target` is whole, and not synced.

        Raises:
            LedgerError: it could not.
        """
        over = False
        try:
            answer = yield from self._ask({"path": str(path.absolute()), "target": str(target.absolute())})
            over = True
        finally:
            if not over:  # a late answer would be taken for the next file's
                self.close()
        if (problem := answer.get("problem")) is not None:
            raise LedgerError(problem)
        # Before the lines are deleted: check that this converter answered, and that it has read all of this file.
        if answer.get("size") != os.fstat(data.fileno()).st_size or not target.exists():
            self.close()
            raise LedgerError(f"{path}: {sys.executable} has not converted it")

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            with child:  # closes its pipes, and waits
                pass

    def _ask(self, question: dict[str, str]) -> Generator[float, None, dict[str, Any]]:
        child = self._child = self._child or _begin()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(json.dumps(question).encode() + b"\n")
        except BrokenPipeError:
            raise LedgerError(_why_ended(child)) from None
        said, waited, wait = b"", 0.0, LOOKS[0]
        while not said.endswith(b"\n"):
            try:
                more = os.read(child.stdout.fileno(), 1 << 16)
            except BlockingIOError:  # nothing yet
                if waited > LONGEST:
                    raise LedgerError(
                        f"the converter has not ended within {LONGEST:.0f} s; look at the disk, {_NOT_NEEDED}"
                    ) from None
                yield wait
                waited, wait = waited + wait, min(wait * 2, LOOKS[1])
                continue
            if not more:
                raise LedgerError(_why_ended(child))
            said += more
        try:
            answer: object = json.loads(said)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise LedgerError(f"{sys.executable} does not convert files: it says {said[:100]!r}")
        return answer


def _begin() -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise LedgerError(
            f"it cannot be converted: this program does not know its interpreter. Run it by one, {_NOT_NEEDED}"
        )
    try:
        child = subprocess.Popen(  # an interrupt at the terminal is for its parent
            [sys.executable, *COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            cwd="/", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise LedgerError(
            f"no process could be started to convert it ({error.strerror}: {sys.executable}); raise the limit on processes or "
            f"memory, {_NOT_NEEDED}"
        ) from None
    assert child.stdout is not None
    os.set_blocking(child.stdout.fileno(), False)
    return child


def _why_ended(child: subprocess.Popen[bytes]) -> str:
    """Return why the process ended before its answer."""
    child.kill()  # it may have closed its pipes alone
    assert child.stderr is not None
    text = child.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
    code = child.wait()
    if text:
        return f"the converter has ended: {text}"
    if code == -signal.SIGKILL:
        return f"the converter was killed; most often memory is short: raise its limit by 100 MiB, {_NOT_NEEDED}"
    return f"the converter has ended with {code}"


class _NoPandas(MetaPathFinder):
    """Hides pandas from pyarrow: unneeded, it takes 50 MiB and 0.7 s."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def main() -> NoReturn:
    """Convert one file after the other at low priority, until stdin ends."""
    os.nice(10)
    try:  # where memory is short, this goes first
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        pass
    sys.meta_path.insert(0, _NoPandas())
    questions = SimpleQueue[bytes]()
    threading.Thread(target=_listen, args=(questions,), daemon=True).start()
    while True:
        question = json.loads(questions.get())
        try:
            with open(question["path"], "rb") as data:
                answer: dict[str, object] = {"size": os.fstat(data.fileno()).st_size}
                write_parquet(split_lines(data), Path(question["path"]), Path(question["target"]))
        except (InboundError, OSError, ValueError, MemoryError) as error:  # ValueError: what Arrow raises
            answer = {"problem": " ".join(str(error).split()) or type(error).__name__}
        print(json.dumps(answer), flush=True)


def _listen(questions: SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        questions.put(line)
    os._exit(0)  # the parent is gone; also in the midst of a file
