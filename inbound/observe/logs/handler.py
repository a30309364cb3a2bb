"""The one log handler of a process, and its configuration."""

from __future__ import annotations

import logging
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from types import TracebackType

from inbound.config import LoggingConfig
from inbound.observe.logs.formats import FORMATS, message_of, to_bytes
from inbound.observe.logs.writer import LogWriter
from inbound.runtime.repeated import Repeats

#: Loggers of other packages; the log has their lines only if the configuration names them.
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
        """Take format, levels and the interval of repeats from `config`."""
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
        """Write one record, or leave it out; never raises or blocks."""
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
        """Write left-out lines that did not come again until `now`."""
        with self.lock or threading.RLock():
            try:
                for record, count in self._repeats.overdue(self._now() if now is None else now):
                    record.left_out = count - 1
                    self._write(record)
            except Exception:
                pass  # as in `emit`; the thread that calls must go on

    def handleError(self, record: logging.LogRecord) -> None:
        """Report a line that could not be made.

        Python would print its arguments, secrets included.
        """
        self._put(to_bytes(f"a log line of {record.name} at {record.filename}:{record.lineno} could not be made"))

    def flush(self) -> None:
        """Wait for all lines, left-out ones included, for a bounded time."""
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
    """Return the key of equal lines.

    Lines of other packages may differ in numbers, such as ports and times.
    """
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
    """Log to a file descriptor, with the defaults of `LoggingConfig`.

    `verbose` logs everything in any configuration. Does nothing if the root logger has a handler already: an embedding
    application logs in its own way.
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
    """Log by `config`, if `install` added a handler. Any thread."""
    handler = installed()
    if handler is not None:
        handler.configure(config)


def flush() -> None:
    """Wait for all lines, for a bounded time."""
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
