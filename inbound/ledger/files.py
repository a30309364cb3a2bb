"""Writes the ledger to files: JSON lines, one series per process run."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from inbound.clock import Clock
from inbound.errors import LedgerError
from inbound.ledger.base import Done
from inbound.ledger.disk import Disk, OpenFile, advice, reason
from inbound.ledger.format import FileName, path_part, seal, start_stamp
from inbound.ledger.lines import WrittenLedger

log = logging.getLogger("inbound.ledger")

#: Lines kept in memory in case the next fsync fails: more than all workers write between two commits.
_UNSYNCED_LINES = 4096


class FilesLedger(WrittenLedger):
    """Writes `<directory>/<group>/<consumer>-<start>-<number>.jsonl`, never another run's file.

    One lock guards the current file and the sequence numbers; it is held for a `write()`, never during an fsync.
    Workers take it for each batch, and a thread that waits for it must also wait for the interpreter: `done` takes it
    once. A file that reaches `max_file_bytes` is ended, and the next one opened. After a failure that leaves a file in
    an unknown state, the next call opens a fresh one: an fsync that failed must not be repeated on the same file,
    because the kernel marks the lost pages clean and answers the second one with success.
    """

    def __init__(
        self,
        directory: Path,
        group: str,
        consumer_id: str,
        clock: Clock,
        max_file_bytes: int = 64 * 1024 * 1024,
        *,
        disk: Disk | None = None,
    ) -> None:
        """Open the first file; LedgerError if that is not possible."""
        super().__init__(group, consumer_id, clock)
        self._directory = directory / path_part(group)
        self._max_file_bytes = max_file_bytes
        self._disk = disk or Disk()
        # All below: under the lock.
        self._started = int(clock.wall() * 1000)
        self._file: OpenFile | None = None  # None: the next call opens a fresh one
        self._opened_at = 0  # the last number given before it was opened
        self._previous: str | None = None
        #: The lines since the last fsync that no caller waits for, by number; those up to `_synced` can go.
        self._unsynced: dict[int, bytes] = {}
        self._synced = 0
        self._in_doubt = False  # the unsynced lines may be gone from the file that was given up
        with self._lock:
            self._ready_file()

    @property
    def path(self) -> Path | None:
        """The file being written; None after `close` or a failure."""
        file = self._file
        return None if file is None else file.path

    def done(self, entries: Sequence[Done]) -> None:
        if not entries:
            return
        wall = self._clock.wall()
        bodies = [self._lines.done(entry, wall) for entry in entries]
        with self._lock:
            self._forget_synced()
            file = self._present_file()
            data = b"".join(self._number_and_write(file, bodies).values())
            last = self._seq
            file.pin()
        if self._sync(file) is not None:
            with self._lock:
                file = self._ready_file()
                self._write(file, data)  # the same lines with the same numbers: readers take them once
                file.pin()
            if (failure := self._sync(file)) is not None:
                raise self._failed(
                    f"file {file.path}", "could not be synced: what of it is on the disk is unknown", failure
                )
        self._synced = max(self._synced, last)

    def roll(self) -> None:
        """End the current file, to be shipped, if it has an entry."""
        with self._lock:
            if self._file is not None and self._seq > self._opened_at:
                self._end_full(self._file)

    def close(self, *, clean: bool = True) -> None:
        """Write the end mark, fsync, close; LedgerError if it may be lost."""
        with self._lock:
            if self.closed:
                return
            if not clean:
                self.closed = True
                self._leave("")
                return
            try:
                file = self._present_file()
                self._number_and_write(file, ())
                self._write(file, self._end_mark("closed"))
                file.pin()
            finally:
                self.closed = True
                if self._file is not None:
                    self._file.retire()
                    self._file = None
        if (failure := self._sync(file)) is not None:
            raise self._failed(
                f"file {file.path}", "could not be synced at its end: its last lines may be lost", failure
            )

    def _append(self, bodies: Sequence[str]) -> None:
        if not bodies:
            return
        with self._lock:
            self._unsynced.update(self._number_and_write(self._ready_file(), bodies))
            if len(self._unsynced) > _UNSYNCED_LINES:
                for seq in list(islice(self._unsynced, _UNSYNCED_LINES // 2)):
                    del self._unsynced[seq]

    def _sync(self, file: OpenFile) -> OSError | None:
        """Fsync a pinned file, unpin it; on failure give it up. Unlocked."""
        failure, began = None, self._clock.now()
        try:
            file.sync()
            self._sync_seconds.observe(self._clock.now() - began)
        except OSError as error:
            failure = error
            with self._lock:
                self._give_up(file, f"fsync failed: {reason(failure)}", in_doubt=True)
        file.unpin()
        return failure

    # The rest is called under the lock.

    def _forget_synced(self) -> None:
        self._unsynced = {seq: line for seq, line in self._unsynced.items() if seq > self._synced}

    def _number_and_write(self, file: OpenFile, bodies: Sequence[str]) -> dict[int, bytes]:
        """Number and write the lines; a failed call gives its numbers back."""
        if self._lacking:
            with self._marked(bodies) as marked:
                return self._write_lines(file, marked)
        return self._write_lines(file, bodies)

    def _write_lines(self, file: OpenFile, bodies: Sequence[str]) -> dict[int, bytes]:
        lines = {seq: seal(f'{body},"seq":{seq}'.encode()) for seq, body in enumerate(bodies, start=self._seq + 1)}
        try:
            self._write(file, b"".join(lines.values()))
        except LedgerError:
            if file.torn:  # some of the lines may stand in the file: their numbers are used up
                self._seq += len(lines)
            raise
        self._seq += len(lines)
        self._entries += len(lines)
        return lines

    def _write(self, file: OpenFile, data: bytes) -> None:
        try:
            file.append(data)
            self._bytes += len(data)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            if file.torn or not full:  # a full disk is the one failure that the file outlives
                self._give_up(file, f"write failed: {reason(error)}", in_doubt=False)
            raise self._failed(
                f"file {file.path}", "could not be written, so the entry is not recorded", error
            ) from error

    def _give_up(self, file: OpenFile, why: str, *, in_doubt: bool) -> None:
        log.warning("ledger file %s is given up: %s", file.path, why)
        file.retire()
        if self._file is file or in_doubt:  # where another thread has rolled on, its lines go to the fresh file too
            self._leave(why)
        self._in_doubt |= in_doubt

    def _leave(self, why: str) -> None:
        if self._file is not None:
            self._file.retire()
        self._file = None
        self._why = why

    def _present_file(self) -> OpenFile:
        """Return the file to write to; a deleted one is replaced.

        Lines since the last fsync go to the fresh file, too. A check costs as much as a line, so it is made before a
        `done` and at a file's end only.
        """
        file = self._ready_file()
        try:
            file.check()
        except OSError as error:
            self._give_up(file, reason(error), in_doubt=True)
            file = self._ready_file()
        return file

    def _ready_file(self) -> OpenFile:
        """Return the current file; after its end or failure the next."""
        if self.closed:
            raise LedgerError(f"ledger in {self._directory}: it is closed, so the entry is not recorded")
        if self._file is not None and self._file.size >= self._max_file_bytes:
            self._end_full(self._file)
        if self._file is None:
            try:
                self._file = self._open_next()
            except OSError as error:
                what = "no file could be opened in it, so the entry is not recorded"
                raise self._failed(f"directory {self._directory}", what, error) from error
            self._previous = self._file.path.name
            self._opened_at = self._seq
            self._in_doubt = False
        return self._file

    def _end_full(self, file: OpenFile) -> None:
        try:
            file.check()
            file.append(self._end_mark("rolled"))
        except OSError as error:
            if file.deleted:
                self._give_up(file, f"write failed: {reason(error)}", in_doubt=True)
                what = "its lines are lost, and the entry is not recorded"
                raise self._failed(f"file {file.path}", what, error) from error
            log.warning("ledger file %s lacks its end mark: %s", file.path, reason(error))  # the next header says it
        self._leave("rolled")

    def _open_next(self) -> OpenFile:
        """Make this run's next file, with header and lines in doubt."""
        self._disk.make_directory(self._directory)
        while True:
            name = FileName(self._consumer_id, start_stamp(self._started), self._number + 1)
            try:
                file = OpenFile(self._directory / str(name), self._disk)
                break
            except FileExistsError:
                if self._number:  # not ours: we count
                    self._number += 1
                else:  # another run of this consumer began in the same millisecond
                    self._started += 1
        self._forget_synced()
        header = self._lines.header(name, self._previous, self._why, self._clock.wall())
        try:
            file.append(self._sealed(header) + b"".join(self._unsynced.values() if self._in_doubt else ()))
        except OSError:
            file.retire()
            self._disk.remove(file.path)  # it holds no entry that would not stand elsewhere or be given again
            raise
        self._number = name.number
        return file

    def _end_mark(self, why: str) -> bytes:
        return self._sealed(self._lines.end(why, self._clock.wall()))

    def _failed(self, subject: str, what: str, error: OSError) -> LedgerError:
        self._failures += 1
        return LedgerError(f"ledger {subject}: {what} ({reason(error)}); {advice(error)}")
