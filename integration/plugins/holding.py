"""A recorder that a test can hold inside a batch, for as long as a file is there."""

from __future__ import annotations

import os
import time

from inbound import Context
from integration.plugins.recorder import Recorder


class Holding(Recorder):
    """Does not end a batch while the file `hold-<partition>` is in its folder; its records are written down already."""

    def open(self, context: Context) -> None:
        super().open(context)
        self._folder = context.options.folder

    def _write(self, text: str) -> None:
        kind, partition, *_ = text.split(maxsplit=2)
        while kind == "E" and os.path.exists(os.path.join(self._folder, f"hold-{partition}")):
            time.sleep(0.02)
        super()._write(text)
