"""How long partitions took to find their places, and what had set them moving."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from inbound.instruments import Histogram, Kinds

#: Somebody joined or left the group, or this member did; the session expired; the topics changed; somebody asked for it; an
#: owner node came or went otherwise; or the timer came by.
TRIGGERS: Final = ("start", "join", "leave", "session", "topics", "operator", "owners", "interval")
#: Who lacks some of its share although nothing has moved for so long, in seconds, does not get it from this rebalance.
SETTLED_AFTER = 5.0
#: What has set nothing moving for so long, in seconds, is not the cause of what moves later.
FORGET_AFTER = 60.0


class Rebalances:
    """Follows one member's looks at its group. A rebalance is from what set it off to the last partition that moved.

    All methods but `status` on the controller's thread.
    """

    def __init__(self) -> None:
        self.started = Kinds(*TRIGGERS)
        self.seconds = Histogram()
        self._session = 0
        self._members: frozenset[str] = frozenset()
        self._topics: dict[str, int] = {}
        #: What was found and has moved nothing yet, and when.
        self._found: tuple[str, float] | None = None
        self._trigger: str | None = None  # of the rebalance under way
        self._began = 0.0
        self._moved_at: float | None = None

    @property
    def trigger(self) -> str | None:
        """What set off the rebalance that is under way; None: none is."""
        return self._trigger

    def moved(self, now: float) -> None:
        """A partition was claimed or released."""
        self._moved_at = now

    def looked(
        self, now: float, *, session: int, members: Collection[str], topics: Mapping[str, int],
        asked: bool, news: bool, moving: bool, content: bool,
    ) -> None:  # fmt: skip
        """Take note of a look.

        `asked`: somebody asked for it; `news`: owner nodes came or went since the last one; `moving`: it takes or
        releases partitions; `content`: it has its share.
        """
        if self._found is not None and now - self._found[1] > FORGET_AFTER:
            self._found = None
        found = self._change(session, frozenset(members), dict(topics))
        if found is None and asked:
            found = "operator"
        if found is not None and (self._found is None or self._trigger is not None):
            self._found = found, now
        if self._trigger is None and moving:
            self._trigger, self._began = self._found or ("owners" if news else "interval", now)
            self._found = self._moved_at = None
            self.started.add(self._trigger)
        elif self._trigger is not None and not moving and (content or now - (self._moved_at or now) >= SETTLED_AFTER):
            if self._moved_at is not None:
                self.seconds.observe(max(0.0, self._moved_at - self._began))
            self._trigger = None
        if self._trigger is None and content:
            self._found = None  # it moved nothing

    def _change(self, session: int, members: frozenset[str], topics: dict[str, int]) -> str | None:
        """Return what is not as it was at the last look."""
        before = self._session, self._members, self._topics
        self._session, self._members, self._topics = session, members, topics
        if not before[0]:
            return "start"
        if session != before[0]:
            return "session"
        if before[1] - members:
            return "leave"
        if members - before[1]:
            return "join"
        return "topics" if topics != before[2] else None
