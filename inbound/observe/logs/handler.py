"""The one log handler of a process, and its configuration."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from types import TracebackType

from inbound.config import LoggingConfig
from inbound.observe.logs.formats import FORMATS, message_of, to_bytes
from inbound.runtime.repeated import Repeats

#: Bytes of lines in the queue at most; further lines are lost, and counted.
ROOM = 4 * 2**20
#: For the queued lines at the end. Seconds.
CLOSE_SECONDS = 2.0
#: Between two attempts to write. Seconds.
REST = 0.1


class LogWriter:
    """Writes lines to a file descriptor, which it does not close.

    `put`, `flush` from any thread; `put` never blocks.

    A closed or full output is no error: lines that cannot be written are lost, and counted in `lost`.
    """

    def __init__(
        self,
        descriptor: int,
        note: Callable[[int], bytes],
        tick: Callable[[], None] = lambda: None,
        *,
        room: int = ROOM,
    ) -> None:
        """`note` makes the line that reports lost lines; `tick` is called by the thread at least once a second."""
        self._descriptor = descriptor
        self._note = note
        self._tick = tick
        self._room = room
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._untold = 0
        self._changed = threading.Condition()
        self._writing = False
        self._closed = False
        self._rest = threading.Event()
        self.lost = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Queue a line; it is lost if there is no room."""
        with self._changed:
            if self._closed or self._size + len(line) > self._room:
                self._lose(1)
                return
            self._lines.append(line)
            self._size += len(line)
            self._changed.notify_all()

    def flush(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Wait until all lines are written, for at most `seconds`. Returns whether they are."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._lines or self._writing:
                left = deadline - time.monotonic()
                if left <= 0 or not self._thread.is_alive():
                    return False
                self._changed.wait(left)
        return True

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write the queued lines, for at most `seconds`, and end the thread. May be called twice."""
        self.flush(seconds)
        with self._changed:
            self._closed = True
            self._rest.set()
            self._changed.notify_all()
        self._thread.join(1.0 if seconds else 0.0)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._lines and not self._closed:
                    self._changed.wait(1.0)
                if self._closed:
                    return
                lines, count = b"".join(self._lines), len(self._lines)
                self._lines.clear()
                self._size = 0
                untold, self._untold = self._untold, 0
                self._writing = bool(lines)
            if untold:
                lines += self._note(untold)
            if lines and not self._write(lines):
                with self._changed:
                    self._lose(count + untold)
            with self._changed:
                self._writing = False
                self._changed.notify_all()
            self._tick()

    def _lose(self, count: int) -> None:
        self.lost += count
        self._untold += count

    def _write(self, data: bytes) -> bool:
        """Write everything, for as long as it takes; False: it cannot be written, or the writer is closed."""
        poll, start, view = select.poll(), 0, memoryview(data)
        try:
            poll.register(self._descriptor, select.POLLOUT)
            while start < len(data) and not self._closed:
                if poll.poll(REST * 1000):
                    # A pipe takes so much in one piece. Other processes may write to it, so only whole lines are written.
                    most = start + select.PIPE_BUF
                    end = data.rfind(b"\n", start, most) + 1 or most
                    with contextlib.suppress(BlockingIOError):  # another process was faster
                        start += os.write(self._descriptor, view[start:end])
        except OSError:  # closed, broken, or the disk behind it is full
            self._rest.wait(REST)
            return False
        return start == len(data)


#: Loggers of other packages; their lines are logged only where the configuration names them.
LIBRARIES = ("kafka", "kazoo", "py4j", "confluent_kafka", "watchfiles")
_NUMBERS = re.compile("[0-9]+")
_log = logging.getLogger("inbound.observe.logs")


class LogHandler(logging.Handler):
    """Formats lines, leaves repeats out, and passes them to `put`.

    Any thread; `now` is a clock in seconds.
    """

    def __init__(
        self,
        put: Callable[[bytes], None],
        now: Callable[[], float] = time.monotonic,
        *,
        writer: LogWriter | None = None,
        verbose: bool = False,
    ) -> None:
        """`writer` is flushed and closed with the handler; `verbose` logs everything."""
        super().__init__()
        self._put = put
        self._now = now
        self._writer = writer
        self._verbose = verbose
        self._repeats = Repeats[logging.LogRecord](LoggingConfig().repeat_interval)
        self._named: set[str] = set()
        self.formatter = FORMATS["console"]()

    def configure(self, config: LoggingConfig) -> None:
        """Take format, levels and the interval of repeats from `config`, in place of earlier ones."""
        wanted = dict.fromkeys(LIBRARIES, logging.INFO if self._verbose else logging.CRITICAL)
        wanted |= {name: logging.getLevelName(level.upper()) for name, level in config.levels.items()}
        with self.lock or threading.RLock():
            self.formatter = FORMATS[config.format]()
            self._repeats.interval = config.repeat_interval
        logging.getLogger().setLevel(logging.DEBUG if self._verbose else config.level.upper())
        for name in self._named - set(wanted):
            logging.getLogger(name).setLevel(logging.NOTSET)
        for name, level in wanted.items():
            logging.getLogger(name).setLevel(level)
        self._named = set(wanted)

    # -- logging.Handler ---------------------------------------------------------------------------------------------

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, or leave it out. Never raises, never blocks on the output."""
        try:
            if record.levelno > logging.DEBUG:
                left_out = self._repeats.seen(_key(record), self._now(), record)
                if left_out is None:
                    return
                record.left_out = left_out
            self._write(record)
        except Exception:  # the line cannot be made, and is lost
            self.handleError(record)

    def tell_overdue(self, now: float | None = None) -> None:
        """Write lines that were left out and did not come again until `now`."""
        with self.lock or threading.RLock():
            try:
                for record, count in self._repeats.overdue(self._now() if now is None else now):
                    record.left_out = count - 1
                    self._write(record)
            except Exception:
                pass  # as in `emit`; the thread that calls must go on

    def handleError(self, record: logging.LogRecord) -> None:
        """Say that a line could not be made. Python would print its arguments, secrets included."""
        self._put(to_bytes(f"a log line of {record.name} at {record.filename}:{record.lineno} could not be made"))

    def flush(self) -> None:
        """Wait until everything is written, left-out lines included, for a bounded time."""
        self.tell_overdue(math.inf)
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Write the queued lines, for a bounded time, and end the thread."""
        self.tell_overdue(math.inf)
        if self._writer is not None:
            self._writer.close()
        super().close()

    def _write(self, record: logging.LogRecord) -> None:
        self._put(to_bytes(self.format(record)))


def _key(record: logging.LogRecord) -> Hashable:
    """Return the key of equal lines: those of other packages may differ in numbers, such as ports and times."""
    text = message_of(record)
    if record.name.partition(".")[0] in LIBRARIES:
        return record.name, record.levelno, _NUMBERS.sub("#", text)
    given = getattr(record, "inbound", None)
    where = tuple(str(given.get(name)) for name in _WHERE) if isinstance(given, Mapping) else ()
    error = record.exc_info[1] if record.exc_info else None
    return record.name, record.levelno, text, where, type(error), str(error)


_WHERE = ("event", "channel", "group", "topic", "partition", "offset", "epoch")


def installed() -> LogHandler | None:
    """Return the handler that `install` added."""
    return next((handler for handler in logging.getLogger().handlers if isinstance(handler, LogHandler)), None)


def install(*, verbose: bool = False, descriptor: int = 2) -> LogHandler | None:
    """Log to a file descriptor, by the defaults of `LoggingConfig`. `verbose` logs everything in any configuration.

    Does nothing where the root logger has a handler already: an embedding application logs in its own way.
    """
    root = logging.getLogger()
    if root.handlers:
        return None
    writer = LogWriter(descriptor, lambda count: _lost(handler, count), lambda: handler.tell_overdue())
    handler = LogHandler(writer.put, writer=writer, verbose=verbose)
    handler.configure(LoggingConfig())
    writer.start()
    root.addHandler(handler)
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = lambda args: _uncaught(args.exc_type, args.exc_value, args.exc_traceback, args.thread)
    return handler


def apply(config: LoggingConfig) -> None:
    """Log by `config` from now on. Does nothing where `install` did nothing. Any thread."""
    handler = installed()
    if handler is not None:
        handler.configure(config)


def flush() -> None:
    """Wait until all lines are written, for a bounded time."""
    handler = installed()
    if handler is not None:
        handler.flush()


def _lost(handler: LogHandler, count: int) -> bytes:
    text = f"{count} lines of the log were lost: the reader of the log was too slow, or gone"
    record = logging.LogRecord(_log.name, logging.WARNING, __file__, 0, text, (), None)
    return to_bytes(handler.format(record))


def _uncaught(
    kind: type[BaseException],
    error: BaseException | None,
    trace: TracebackType | None,
    thread: threading.Thread | None = None,
) -> None:
    if issubclass(kind, SystemExit | KeyboardInterrupt):
        return
    subject = f"the thread {thread.name} has ended" if thread is not None else "the process ends"
    _log.critical("%s: %s", subject, error, exc_info=(kind, error or kind(), trace))
