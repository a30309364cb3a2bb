"""One server of an embedded cluster, behind its guardian process."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from inbound.embedded import guardian
from inbound.errors import EmbeddedClusterError

#: How long a server may take to answer after its start, in seconds: about 20 times the usual on a quiet machine.
START_TIMEOUT = 90.0
#: How long a server may take to end gracefully before it is killed, in seconds.
STOP_TIMEOUT = 20.0
_POLL = 0.05
_LOG_LINES = 15

#: Servers with a pipe to a guardian. A process forked off the owner without exec must not keep those pipes open.
_live: weakref.WeakSet[Server] = weakref.WeakSet()


class Server(ABC):
    """One server process; a restart keeps its port and its data.

    Its methods may be called from any thread; those of one server wait for each other.
    """

    def __init__(self, name: str, port: int, folder: Path) -> None:
        self.name = name
        self.port = port
        self.folder = folder
        #: The server's standard output and error; every start appends.
        self.log_path = folder.parent / f"{name}.log"
        #: Descriptors that the guardian keeps open for as long as the server lives (the folder's lock).
        self.keep_open: Sequence[int] = ()
        self._lock = threading.RLock()
        self._guardian: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._paused = False
        self._log_start = 0

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line that starts the server."""

    @abstractmethod
    def ready(self, timeout: float) -> bool:
        """Return whether the server serves clients; takes at most `timeout` seconds."""

    @property
    def address(self) -> str:
        """Where clients connect: host:port."""
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the process exists; a paused one does."""
        return self._guardian is not None and self._guardian.poll() is None

    @property
    def paused(self) -> bool:
        """Whether the process exists and is held by `pause`."""
        return self.running and self._paused

    @property
    def pid(self) -> int | None:
        """The server's own pid, not its guardian's; None if not running."""
        with self._lock:
            if not self.running:
                return None
            if self._pid is None:
                self._pid = self._read_pid()
            return self._pid

    def start(self, *, wait: bool = True, timeout: float = START_TIMEOUT) -> None:
        """Start the process unless it runs, and wait until it serves clients.

        A ZooKeeper server of a quorum serves only once a majority runs: start the others with `wait=False`, then call
        `wait_ready`. Raises EmbeddedClusterError: it died or did not answer within `timeout` seconds.
        """
        with self._lock:
            if not self.running:
                self._launch()
        if wait:
            self.wait_ready(timeout)

    def wait_ready(self, timeout: float = START_TIMEOUT) -> None:
        """Wait until the server serves clients.

        Raises EmbeddedClusterError, with the server's last log lines: it died, or `timeout` seconds have passed.
        """
        deadline = time.monotonic() + timeout
        while True:
            if not self.running:
                raise EmbeddedClusterError(f"{self.name}: the server {self._how_it_ended()}. {self._log_tail()}")
            left = deadline - time.monotonic()
            if left <= 0:
                raise EmbeddedClusterError(
                    f"{self.name}: the server runs but has not answered on {self.address} within {timeout:.0f} s. "
                    f"{self._log_tail()}"
                )
            if self.ready(min(left, 2.0)):
                return
            time.sleep(_POLL)

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """End the process with SIGTERM, or with SIGKILL after `timeout` seconds."""
        with self._lock:
            if self.terminate():
                self._end(timeout)

    def terminate(self) -> bool:
        """Send SIGTERM without waiting; return False if it does not run."""
        with self._lock:
            if self._paused:
                self.resume()
            return self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once (SIGKILL), and wait until it is gone."""
        with self._lock:
            self._signal(signal.SIGKILL)
            self._end(STOP_TIMEOUT)

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): its port stays open, nothing is answered."""
        with self._lock:
            if not self._signal(signal.SIGSTOP):
                raise EmbeddedClusterError(f"{self.name}: cannot be paused, it does not run. Start it first.")
            self._paused = True

    def resume(self) -> None:
        """Continue a paused process (SIGCONT)."""
        with self._lock:
            if not self._signal(signal.SIGCONT):
                raise EmbeddedClusterError(f"{self.name}: cannot be resumed, it does not run. Start it first.")
            self._paused = False

    def died_of_a_taken_port(self) -> bool:
        """Return whether the process ended because its port was taken."""
        log = self._log_since_start()
        return not self.running and ("Address already in use" in log or "BindException" in log)

    def __repr__(self) -> str:
        state = "paused" if self.paused else "running" if self.running else "not running"
        return f"<{self.name} {self.address} {state}>"

    def _launch(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._close_pipes()
        self._pid = None
        self._paused = False
        # -I -S: nothing of the user's environment or site-packages, and up in 20 ms.
        command = [sys.executable, "-I", "-S", guardian.__file__, str(self.log_path), *self.command()]
        with open(self.log_path, "ab") as errors:
            self._guardian = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                pass_fds=self.keep_open,
                start_new_session=True,  # a Ctrl-C in the owner's terminal is the owner's to handle
                bufsize=0,
            )
        _live.add(self)

    def _signal(self, number: signal.Signals) -> bool:
        """Have the guardian send a signal; return whether it was sent."""
        process = self._guardian
        if process is None or self.pid is None:
            return False
        assert process.stdin is not None
        try:
            process.stdin.write(b"%d\n" % number)
        except BrokenPipeError:
            return False
        return self._read_pid() is not None

    def _read_pid(self) -> int | None:
        """Return the guardian's next line; None if the server has ended."""
        process = self._guardian
        assert process is not None
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], STOP_TIMEOUT)[0]:
            raise EmbeddedClusterError(f"{self.name}: its guardian (pid {process.pid}) does not answer. Kill that pid.")
        line = os.read(process.stdout.fileno(), 64)
        return int(line) if line else None

    def _end(self, timeout: float) -> None:
        """Wait for the end of the process; kill it after `timeout` seconds."""
        process = self._guardian
        if process is None:
            return
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._close_pipes()  # the end of its input makes the guardian kill the server
            process.wait(STOP_TIMEOUT)
        self._close_pipes()
        self._paused = False

    def _close_pipes(self) -> None:
        if self._guardian is not None:
            for pipe in (self._guardian.stdin, self._guardian.stdout):
                assert pipe is not None
                pipe.close()

    def _how_it_ended(self) -> str:
        if self._guardian is None:
            return "was never started"
        code = self._guardian.returncode
        return f"was ended by signal {code - 128}" if code > 128 else f"ended with exit code {code}"

    def _log_since_start(self) -> str:
        if not self.log_path.exists():
            return ""
        with open(self.log_path, "rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", "replace")

    def _log_tail(self) -> str:
        lines = self._log_since_start().strip().splitlines()[-_LOG_LINES:]
        said = "\n  ".join(lines) if lines else "(nothing)"
        return f"The end of its log, {self.log_path}:\n  {said}"


def _close_inherited_pipes() -> None:
    for server in _live:
        server._close_pipes()


os.register_at_fork(after_in_child=_close_inherited_pipes)
