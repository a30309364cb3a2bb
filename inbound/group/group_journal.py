"""Journals members that join and leave, reasons of moves, and notices."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence

from inbound.coordinators.base import Plan
from inbound.group.parts import MemberParts
from inbound.partition.topics import Topics

log = logging.getLogger(__name__)

#: A notice is logged once it has stood for so many seconds: while members come and go, much is true for a moment only.
STANDS = 3.0
#: An address in memory, as objects show it, differs each time.
_ADDRESS = re.compile("0x[0-9a-f]+")


class PlanNotices:
    """Logs each notice of a plan once, and its end. Controller's thread."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._since: dict[str, float] = {}
        self._logged: dict[str, str] = {}

    def say(self, notices: Collection[str], now: float) -> float | None:
        """Log new and ended notices. `now` is the clock's time.

        Returns:
            The clock time at which a notice will have stood for long enough; None: no notice is waiting.
        """
        current = {_ADDRESS.sub("0x...", notice): notice for notice in notices}
        self._since = {key: self._since.get(key, now) for key in current}
        for key in self._logged.keys() - current.keys():
            log.info("channel %s: over: %s", self._channel, self._logged.pop(key))
        for key, notice in current.items():
            if key not in self._logged and now >= self._since[key] + STANDS:
                log.warning("channel %s: %s", self._channel, notice)
                self._logged[key] = notice
        return min((since + STANDS for key, since in self._since.items() if key not in self._logged), default=None)


class GroupJournal:
    """Journals changes of the group, and why partitions move. Controller's thread."""

    def __init__(self, parts: MemberParts, kind: str, topics: Topics) -> None:
        """`kind` is the coordinator's, as it is registered."""
        self._consumer_id = parts.consumer_id
        self._journal = parts.journal
        self._kind = kind
        self._topics = topics
        self._notices = PlanNotices(parts.name)
        self._members: frozenset[str] = frozenset()
        self._share = 0
        #: The members that came or left last.
        self._change = "after joining the group"
        self._has_no_share = False
        self._too_large = ""

    def members(self, now: Collection[str]) -> bool:
        """Note members that joined and left. Returns whether other members joined."""
        before, self._members = self._members, frozenset(now)
        came, gone = (sorted(some - {self._consumer_id}) for some in (self._members - before, before - self._members))
        for kind, some in (("left", gone), ("joined", came)):
            if before and some:
                self._change = f"after {_named(some)} {kind}"
                self._journal.note(kind, f"{_named(some)} {kind} the group; members now: {len(now)}")
        return bool(before and came)

    def plan(self, plan: Plan, now: float, *, tell: bool) -> float | None:
        """Note the latest plan; with `tell`, what operators should know of it.

        Returns:
            The clock time at which to look again for a notice; None: no notice is waiting.
        """
        self._share = plan.share
        if not tell:
            return None
        if plan.share == 0 and not self._has_no_share:
            self._journal.note(
                "no-share",
                f"none of the partitions that the group's {len(self._members)} members share is for this one; it stands by",
            )
        self._has_no_share = plan.share == 0
        return self._notices.say(plan.notices, now)

    def id_node_too_large(self, error: str) -> None:
        """Note once that the id node cannot name all topics."""
        if error != self._too_large:
            self._too_large = error
            self._journal.note("id-too-large", f"{error}; new topics are not read before that", level=logging.ERROR)

    def why_claimed(self) -> str:
        """Return why partitions are claimed now."""
        return f"{self._change} ({self._shares()}, {self._kind})"

    def why_released(self) -> str:
        """Return why partitions are released now by a rebalance."""
        return f"{self._change} ({self._shares()})"

    def _shares(self) -> str:
        partitions, members = sum(meta.partitions for meta in self._topics.found.values()), len(self._members)
        return f"share {self._share} of {partitions} partitions for {members} member{'' if members == 1 else 's'}"


def _named(consumers: Sequence[str]) -> str:
    return ", ".join(consumers[:5]) + (f" and {len(consumers) - 5} more" if len(consumers) > 5 else "")
