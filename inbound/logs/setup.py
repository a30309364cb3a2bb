"""The one handler of a process, and what the configuration says of it."""

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
from inbound.logs.formats import FORMATS, message_of, to_bytes
from inbound.logs.outlet import Outlet
from inbound.repeats import Repeats

#: Other people's loggers, whose lines are let through only if somebody asks: what happens to a channel inbound says itself.
LIBRARIES = ("kafka", "kazoo", "py4j", "confluent_kafka", "watchfiles")
_NUMBERS = re.compile("[0-9]+")
_log = logging.getLogger("inbound.logs")


class LogHandler(logging.Handler):
    """Formats lines, leaves repeats out, and hands them to `put`. Any thread; `now` is a clock in seconds."""

    def __init__(self, put: Callable[[bytes], None], now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._put = put
        self._now = now
        self._repeats = Repeats[logging.LogRecord](LoggingConfig().repeat_interval)
        self._named: set[str] = set()
        self.formatter = FORMATS["console"]()
        self.outlet: Outlet | None = None
        self.verbose = False

    def configure(self, config: LoggingConfig) -> None:
        """Take format, levels and the interval of repeats from `config`; what an earlier one set is forgotten."""
        wanted = dict.fromkeys(LIBRARIES, logging.INFO if self.verbose else logging.CRITICAL)
        wanted |= {name: logging.getLevelName(level.upper()) for name, level in config.levels.items()}
        with self.lock or threading.RLock():
            self.formatter = FORMATS[config.format]()
            self._repeats.interval = config.repeat_interval
        logging.getLogger().setLevel(logging.DEBUG if self.verbose else config.level.upper())
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
        except Exception:  # of a line that cannot be made; what it says is lost, and nobody but its writer could help
            self.handleError(record)

    def tell_overdue(self, now: float | None = None) -> None:
        """Write what was left out and did not come again by `now`, which is now by default."""
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
        """Wait until everything is written, what was left out included, for a bounded time."""
        self.tell_overdue(math.inf)
        if self.outlet is not None:
            self.outlet.flush()

    def close(self) -> None:
        """Write what is there, for a bounded time, and end the thread."""
        self.tell_overdue(math.inf)
        if self.outlet is not None:
            self.outlet.close()
        super().close()

    def _write(self, record: logging.LogRecord) -> None:
        self._put(to_bytes(self.format(record)))


def _key(record: logging.LogRecord) -> Hashable:
    """Return what is the same for lines that say the same. Other people's differ in ports and times, ours in what they say."""
    text = message_of(record)
    if record.name.partition(".")[0] in LIBRARIES:
        return record.name, record.levelno, _NUMBERS.sub("#", text)
    given = getattr(record, "inbound", None)
    where = tuple(str(given.get(name)) for name in _WHERE) if isinstance(given, Mapping) else ()
    error = record.exc_info[1] if record.exc_info else None
    return record.name, record.levelno, text, where, type(error), str(error)


_WHERE = ("event", "channel", "group", "topic", "partition", "offset", "epoch")


def installed() -> LogHandler | None:
    """Return the handler that `install` added; None if there is none."""
    return next((handler for handler in logging.getLogger().handlers if isinstance(handler, LogHandler)), None)


def install(*, verbose: bool = False, descriptor: int = 2) -> LogHandler | None:
    """Log to a file descriptor, as `LoggingConfig` says by default. `verbose`: everything, whatever is configured.

    Where the root logger has a handler already, nothing is done: whoever embeds us logs in their own way.
    """
    root = logging.getLogger()
    if root.handlers:
        return None
    outlet = Outlet(descriptor, lambda count: _lost(handler, count))
    handler = LogHandler(outlet.put)
    handler.outlet, handler.verbose = outlet, verbose
    outlet.tick = handler.tell_overdue
    handler.configure(LoggingConfig())
    root.addHandler(handler)
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = lambda args: _uncaught(args.exc_type, args.exc_value, args.exc_traceback, args.thread)
    return handler


def apply(config: LoggingConfig) -> None:
    """Log from now on as `config` says. Does nothing where `install` did nothing. Any thread."""
    handler = installed()
    if handler is not None:
        handler.configure(config)


def flush() -> None:
    """Wait until what was logged is written, for a bounded time."""
    handler = installed()
    if handler is not None:
        handler.flush()


def _lost(handler: LogHandler, count: int) -> bytes:
    text = f"{count} lines of the log were lost: whoever reads it was too slow, or gone"
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
    what = f"the thread {thread.name} has ended" if thread is not None else "the process ends"
    _log.critical("%s: %s", what, error, exc_info=(kind, error or kind(), trace))
