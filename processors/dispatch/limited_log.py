"""Warnings that come for every event, told now and then."""

from __future__ import annotations

import logging
from collections.abc import Callable

from inbound.repeats import Repeats

#: How often the same kind of trouble is logged, in seconds.
LOG_INTERVAL = 5.0


class LimitedLog:
    """A logger for one thread. `now` is a clock in seconds."""

    def __init__(self, log: logging.Logger, now: Callable[[], float]) -> None:
        self._log = log
        self._now = now
        self._repeats = Repeats[str](LOG_INTERVAL)
        self._in_trouble = False  # and said so

    def say(self, kind: str, message: str, *arguments: object) -> bool:
        """Log a warning, unless one of this kind was just logged. Returns whether it was."""
        left_out = self._repeats.seen(kind, self._now(), message)
        if left_out is None:
            return False
        more = f" (and {left_out} more like it since the last line)" if left_out else ""
        self._log.warning(message + more, *arguments)
        return True

    def trouble(self, message: str) -> None:
        """Something that was well is not."""
        if not self._in_trouble:
            self._in_trouble = self.say("trouble", "%s", message)

    def trouble_over(self, message: str) -> None:
        """It is well again; nobody is told who was not told of the trouble."""
        if self._in_trouble:
            self._in_trouble = False
            self._log.info("%s", message)

    def error(self, message: str, *arguments: object) -> None:
        """Log an error, always."""
        self._log.error(message, *arguments)
