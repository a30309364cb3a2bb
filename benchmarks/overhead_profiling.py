"""Takes a CPU profile of a channel for as long as it works, as an operator does: over HTTP.

The profile is ended by the end of the process, which answers with what there is: how many looks were taken shows that the
profile was there all the time.
"""

from __future__ import annotations

import gzip
import re
import subprocess
import threading
import time
from pathlib import Path
from urllib.request import urlopen

#: Longer than any run; the listener's highest.
SECONDS = 300


class Profiler:
    """Asks one process for one profile, in a thread of its own."""

    def __init__(self, log: Path, process: subprocess.Popen[str]) -> None:
        """`log` is where the process says at which address it takes profiles."""
        self._url = _announced(log, process)
        self._body = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> int:
        """Return how many looks were taken, once the process has ended.

        Raises:
            SystemExit: there is no profile, so the run has measured nothing.
        """
        self._thread.join(60)
        found = re.search(rb"([\d,]+) looks in", gzip.decompress(self._body) if self._body else b"")
        if found is None:
            raise SystemExit(f"no profile came of {self._url}")
        return int(found[1].replace(b",", b""))

    def _run(self) -> None:
        with urlopen(f"{self._url}profile?seconds={SECONDS}", timeout=SECONDS + 60) as answer:
            self._body = answer.read()


def _announced(log: Path, process: subprocess.Popen[str]) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"profiling: (http://[^\s\"]+/debug/pprof/)", log.read_text())
        if found is not None:
            return found[1]
        time.sleep(0.02)
    raise SystemExit(f"it does not say where profiles are taken:\n{log.read_text()[-3000:]}")
