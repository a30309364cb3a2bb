"""The ledger of a redrive: the outcome of each letter.

It is a file of sealed JSON lines, as those in `inbound/ledger/format.py`. The first line names the topic and its id; each other
line is the outcome of one letter. A line is written once its record is acknowledged, so after a crash only records that were
unacknowledged, or not noted yet, are sent again.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inbound.clock import Clock
from inbound.dead_letters.selection import Place
from inbound.errors import LedgerError
from inbound.ledger.disk import reason
from inbound.ledger.format import seal, unseal

VERSION = 1
#: Seconds between fsyncs, which survive a power failure. A written line survives the end of the process.
SYNC_EVERY = 1.0
#: What the first line begins with.
_BEGIN = b'{"v":'
_WRITE = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class RedriveLedger:
    """The outcomes of one topic's letters, in a file. One thread."""

    def __init__(self, path: Path, topic: str, topic_id: str | None, clock: Clock, *, write: bool) -> None:
        """Read the file; with `write`, create and lock it until `close`.

        Raises:
            LedgerError: it cannot be used, is another topic's, is damaged, or another redrive writes it.
        """
        self.path = path
        self.done: dict[Place, str] = {}  # letters that were redriven, and where to
        self._clock = clock
        self._fd: int | None = None
        self._synced = clock.now()
        self._unsynced = False
        try:
            if write:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._fd = os.open(path, _WRITE, 0o666)
                self._lock(self._fd)
            data = self._held()
            whole = data[: data.rfind(b"\n") + 1]
            self._read(whole.splitlines(), topic, topic_id)
            if self._fd is not None:
                if len(whole) < len(data):  # the process that wrote it was killed in the midst of a line
                    os.ftruncate(self._fd, len(whole))
                if not whole:
                    self._append({"v": VERSION, "kind": "header", "topic": topic, "topic_id": topic_id})
                    self.sync()
        except OSError as error:
            self.close()
            raise self._unusable(error) from None
        except BaseException:
            self.close()
            raise

    def note(self, place: Place, outcome: str, where: str, why: str = "") -> None:
        """Write the outcome of a letter, `sent` or `refused`.

        Only sent letters are left out of the next redrive.

        Raises:
            LedgerError: the file cannot be written. A sent letter without a note may be sent again.
        """
        line: dict[str, Any] = {"kind": outcome, "partition": place[0], "offset": place[1], "to": where}
        line["at"] = round(self._clock.wall(), 3)
        if why:
            line["why"] = why
        try:
            self._append(line)
            if self._clock.now() - self._synced >= SYNC_EVERY:
                self.sync()
        except OSError as error:
            raise self._unusable(error) from None
        if outcome == "sent":
            self.done[place] = where

    def sync(self) -> None:
        """Make all notes survive a power failure. Raises LedgerError."""
        if self._fd is None or not self._unsynced:
            return
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise self._unusable(error) from None
        self._synced, self._unsynced = self._clock.now(), False

    def close(self) -> None:
        """Close and unlock the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    # -- inside --------------------------------------------------------------------------------------------------------

    def _held(self) -> bytes:
        """Return the file's content, which must begin like a ledger."""
        path = self.path
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise LedgerError(f"redrive ledger {path}: is no file; give another --ledger")
        data = path.read_bytes() if path.exists() else b""
        if not (data.startswith(_BEGIN) or _BEGIN.startswith(data)) and b"\n" not in data:
            raise LedgerError(f"redrive ledger {path}: holds something else, which stays; give another --ledger")
        return data

    def _lock(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LedgerError(
                f"redrive ledger {self.path}: another redrive writes it now; wait for its end, or give another --ledger"
            ) from None
        except OSError:
            pass  # a file system without locks

    def _read(self, lines: list[bytes], topic: str, topic_id: str | None) -> None:
        for number, line in enumerate(lines, 1):
            body = unseal(line)
            if body is None:
                raise LedgerError(
                    f"redrive ledger {self.path}:{number}: the line is damaged (its checksum is wrong); restore the file, "
                    "or give another --ledger: letters that only this one knows are then sent again"
                )
            entry = json.loads(body)
            if number == 1:
                self._check(entry, topic, topic_id)
            elif entry.get("kind") == "sent":
                self.done[entry["partition"], entry["offset"]] = entry["to"]

    def _check(self, header: Mapping[str, Any], topic: str, topic_id: str | None) -> None:
        if header.get("v", 0) > VERSION:
            raise LedgerError(
                f"redrive ledger {self.path}: it has format version {header['v']}, this inbound reads up to {VERSION}; use "
                "the release that wrote it, or a newer one"
            )
        if header.get("kind") != "header" or header.get("topic") != topic:
            raise LedgerError(
                f"redrive ledger {self.path}: it is of topic {header.get('topic')}, not of {topic}; give another --ledger"
            )
        before = header.get("topic_id")
        if before is not None and topic_id is not None and before != topic_id:
            raise LedgerError(
                f"redrive ledger {self.path}: topic {topic} was deleted and recreated since (its id was {before}, and is "
                f"{topic_id}), so the offsets in it mean other letters; give another --ledger, or remove this one"
            )

    def _append(self, line: Mapping[str, Any]) -> None:
        assert self._fd is not None, "opened for reading"
        data = seal(json.dumps(line, separators=(",", ":"))[:-1].encode())
        while data:
            data = data[os.write(self._fd, data) :]
        self._unsynced = True

    def _unusable(self, error: OSError) -> LedgerError:
        return LedgerError(
            f"redrive ledger {self.path}: {reason(error)}; check the disk and the folder's rights, or give another --ledger. "
            "What was sent and is not noted may be sent again"
        )
