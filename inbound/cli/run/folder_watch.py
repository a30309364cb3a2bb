"""Reports changes in folders by the system's notifications, through watchfiles."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("inbound")

#: How often the library looks for notifications of the system, and how long it collects them, in milliseconds.
STEP, DEBOUNCE = 100, 400
#: Folders that cannot be watched are tried again after so many seconds.
TRY_AGAIN = 30.0


class FolderWatch:
    """Calls `wake` when something in a folder changes.

    One thread calls `follow` and `close`. Notifications only speed up: network file systems have none, and a system may run out
    of them. So the caller also looks at times.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._folders: frozenset[Path] = frozenset()
        self._ended = threading.Event()  # of the current round
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        #: Whether the system reports changes in all folders.
        self.watching = False

    def follow(self, folders: set[Path]) -> None:
        """Watch these folders, not the ones inside, instead of earlier ones."""
        if self._closed.is_set() or (self._folders == folders and self._thread is not None):
            return
        self._folders = frozenset(folders)
        self._ended.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="folder-watch", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread; within a second."""
        self._closed.set()
        self._ended.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        logging.getLogger("watchfiles").setLevel(logging.WARNING)  # each look would be a line
        from watchfiles import watch  # imports asyncio: the start of a process need not wait for it

        told = ""
        while not self._closed.is_set():
            ended = self._ended = threading.Event()
            folders = sorted(path for path in self._folders if path.is_dir())
            try:
                changes = watch(
                    *folders, watch_filter=None, recursive=False, stop_event=ended, step=STEP, debounce=DEBOUNCE,
                    rust_timeout=500, yield_on_timeout=True, raise_interrupt=False,
                )  # fmt: skip
                begun = False
                for found in changes:
                    if found or not begun:  # a look also finds changes from before the watch began
                        self._wake()
                    self.watching, begun, told = True, True, ""
                    if not all(path.is_dir() for path in folders):
                        break  # a watch stays with a deleted folder, and misses a new one of the same name
            except (OSError, RuntimeError) as error:
                self.watching = False
                if str(error) != told:
                    told = str(error)
                    log.warning(
                        "the configuration's folders cannot be watched (%s): they are read every few seconds", error
                    )
                self._wake()
                ended.wait(TRY_AGAIN)
            if not folders:
                ended.wait(TRY_AGAIN)
        self.watching = False
