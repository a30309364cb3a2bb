"""The sink of a shadow: what the sinks of a `simple` processor would get, as JSON lines in a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from inbound.ledger.format import path_part
from inbound.processors.base import Context
from inbound.processors.batch import Batch
from inbound.processors.sinks.base import BatchEventSink
from inbound.processors.sinks.jsonl import JsonlOptions, JsonlSink


class CaptureOptions(BaseModel):
    """Where to write."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path = Field(description="a folder that all executors share; each attempt writes a file of its own")


class CaptureSink(BatchEventSink):
    """Writes the lines of the `jsonl` sink, one file per attempt: hosts that share a folder may share no file."""

    Options = CaptureOptions

    def open(self, context: Context) -> None:
        """Open the attempt's file. Raises ConfigError if that fails."""
        options: CaptureOptions = context.options
        path = options.folder / f"{path_part(context.consumer_id)}.jsonl"
        self._file = JsonlSink()
        self._file.open(replace(context, options=JsonlOptions(path=path)))

    def send(self, batch: Batch) -> None:
        """Append `batch`. Raises OSError if the file does not take it."""
        self._file.send(batch)

    def close(self) -> None:
        self._file.close()
