"""A processor for replays: writes down what it is handed, and can kill its own process, or answer in other ways, once."""

from __future__ import annotations

import os
import signal
import time

from pydantic import BaseModel, ConfigDict

from inbound import Batch, BatchEventProcessor, BatchResponse, Context


class Options(BaseModel):
    """Where to write, and when to die."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: str
    #: Partition and offset at which the process that is handed it kills itself, if it is the first to come there.
    kill_at: tuple[int, int] | None = None
    kill_executor: bool = False  # then it is the executor that is killed, and the batch is answered a second later
    fail_at: tuple[int, int] | None = None  # and where it always raises
    revert_at: tuple[int, int] | None = (
        None  # and where it once goes back to the beginning of the log, after all before it
    )
    seconds_per_batch: float = 0.0


class Replayed(BatchEventProcessor):
    """Records everything, and advances."""

    Options = Options

    def open(self, context: Context) -> None:
        self._options: Options = context.options
        path = os.path.join(self._options.folder, f"{os.getpid()}-{time.monotonic_ns()}.seen")
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        lines = [f"R {batch.partition} {record.offset} {batch.epoch}\n" for record in batch.records]
        os.write(self._file, "".join(lines).encode())
        time.sleep(self._options.seconds_per_batch)
        if self._first_at("kill", self._options.kill_at, batch):
            os.kill(_executor() if self._options.kill_executor else os.getpid(), signal.SIGKILL)
            time.sleep(1)
        if self._is_at(self._options.fail_at, batch):
            raise ValueError("this record is refused")
        if self._first_at("revert", self._options.revert_at, batch):
            return BatchResponse.revert(0)
        return BatchResponse.advance()

    def close(self) -> None:
        os.close(self._file)

    def _is_at(self, place: tuple[int, int] | None, batch: Batch) -> bool:
        return place is not None and batch.partition == place[0] and batch.first_offset <= place[1] < batch.next_offset

    def _first_at(self, what: str, place: tuple[int, int] | None, batch: Batch) -> bool:
        if not self._is_at(place, batch):
            return False
        try:
            os.close(os.open(os.path.join(self._options.folder, what), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def _executor() -> int:
    """Return the executor's pid: the parent of the daemon that this worker was forked from."""
    with open(f"/proc/{os.getppid()}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


class Scattered(Replayed):
    """The same, in any order."""

    ordered = False
