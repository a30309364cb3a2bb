"""The `jsonl` sink: appends one JSON line per record to a file."""

from __future__ import annotations

import base64
import os
import threading
from pathlib import Path
from typing import Any

from pydantic import Field

from inbound.config.values import StrictModel
from inbound.errors import ConfigError
from inbound.processors.base import Context
from inbound.processors.batch import Batch
from inbound.processors.cloudevents_kafka import json_object
from inbound.processors.cloudevents_values import write_json
from inbound.processors.sinks.base import BatchEventSink


class JsonlOptions(StrictModel):
    """The file of the `jsonl` sink, and its durability."""

    path: Path = Field(description="the file to append to, relative to the working directory; its folder must exist")
    fsync: bool = Field(default=False, description="also wait for the disk: survives a power cut, not only a kill")


class JsonlSink(BatchEventSink):
    """Appends each whole batch to a file, before the batch is committed.

    A line has topic, partition, offset, timestamp (ms) and key (`key_base64` if it is not UTF-8), then `event` in the
    CloudEvents JSON format; or, for a record that is no event, `value_base64`, `headers` and the `reason`.

    Each batch is one append, so several processes can share a file. A kill, or a full disk, can leave a torn last line;
    its batch is appended again, on a new line. Readers skip a line that is no JSON, or empty.
    """

    Options = JsonlOptions

    def open(self, context: Context) -> None:
        """Open the file, and create it if missing. Raises ConfigError."""
        options: JsonlOptions = context.options
        self._path = options.path
        self._fsync = options.fsync
        self._lock = threading.Lock()
        try:
            # O_RDWR: the last byte is read back.
            self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError(
                f"jsonl sink: cannot write {self._path} ({error.strerror}): create its folder, or correct `path`"
            ) from error

    def send(self, batch: Batch) -> None:
        """Append `batch`. Raises OSError."""
        lines = _lines(batch)
        with self._lock:
            self._append(lines)

    def close(self) -> None:
        os.close(self._file)

    def _append(self, lines: bytes) -> None:
        size = os.fstat(self._file).st_size
        # Another process may append between this check and the write: an empty line at worst.
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            lines = b"\n" + lines
        left = memoryview(lines)
        while left:  # short writes happen only when the disk is full, and then the next one raises
            left = left[os.write(self._file, left) :]
        if self._fsync:
            os.fsync(self._file)


def _lines(batch: Batch) -> bytes:
    """Write `batch` as JSON lines, in offset order."""
    reasons = {record.offset: reason for record, reason in batch.undecodable}
    events = iter(batch.events)
    lines = []
    for record in batch.records:
        line: dict[str, Any] = {
            "topic": batch.topic,
            "partition": batch.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            **_key(record.key),
        }
        reason = reasons.get(record.offset)
        if reason is None:
            try:
                lines.append(write_json(line | {"event": json_object(next(events))}))
                continue
            except ValueError as error:  # an event that JSON cannot carry, such as a number that is too large
                reason = str(error)
        headers = [[name, _base64(value)] for name, value in record.headers]
        lines.append(write_json({**line, "value_base64": _base64(record.value), "headers": headers, "reason": reason}))
    lines.append(b"")
    return b"\n".join(lines)


def _key(key: bytes | None) -> dict[str, str | None]:
    try:
        return {"key": None if key is None else key.decode()}
    except UnicodeDecodeError:
        return {"key_base64": _base64(key)}


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")
