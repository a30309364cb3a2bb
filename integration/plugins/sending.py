"""A sink that writes down every record that it is sent, in the form of `recorder.py`: what the tests judge inbound by."""

from __future__ import annotations

from inbound import Batch, Context
from inbound.processors.sinks import BatchEventSink
from integration.plugins.recorder import Options, Recorder


class RecordingSink(BatchEventSink):
    """One line per record; each is written alone if it takes time: a kill in between leaves the rest of the batch out."""

    Options = Options

    def open(self, context: Context) -> None:
        self._recorder = Recorder()
        self._recorder.open(context)

    def send(self, batch: Batch) -> None:
        self._recorder.on_next_batch(batch)

    def close(self) -> None:
        self._recorder.close()
