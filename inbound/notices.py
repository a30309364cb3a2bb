"""What a coordinator wants people to know, said in the log once, and again when it is over."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection

log = logging.getLogger(__name__)

#: A notice is logged when it has stood for so long: while members come and go, much is so for a moment only. Seconds.
STANDS = 3.0

#: An address in memory, as objects show it, differs each time.
_ADDRESS = re.compile("0x[0-9a-f]+")


class Notices:
    """The notices of one channel. Used from the controller's thread only."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._since: dict[str, float] = {}
        self._told: dict[str, str] = {}

    def say(self, notices: Collection[str], now: float) -> float | None:
        """Log what is new in `notices`, the latest plan's, and what is over. `now` is the clock's time.

        Returns:
            When to come again, because something may have stood for long enough by then; None if there is no such thing.
        """
        current = {_ADDRESS.sub("0x...", notice): notice for notice in notices}
        self._since = {key: self._since.get(key, now) for key in current}
        for key in self._told.keys() - current.keys():
            log.info("channel %s: over: %s", self._channel, self._told.pop(key))
        for key, notice in current.items():
            if key not in self._told and now >= self._since[key] + STANDS:
                log.warning("channel %s: %s", self._channel, notice)
                self._told[key] = notice
        return min((since + STANDS for key, since in self._since.items() if key not in self._told), default=None)
