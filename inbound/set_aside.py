"""Partitions that a member has given up because somebody asked for it, and does not take again for a while."""

from __future__ import annotations

from collections.abc import Collection

from inbound.topic_partition import TopicPartition

#: How long that is where nobody says, in seconds: as long as the usual `rebalance_interval`. Nobody else may have room for
#: such a partition, and it must not stay unread for good.
UNTIL_REBALANCE = 60.0


class SetAside:
    """What one member leaves to others. `clear` from any thread, the rest on the controller's."""

    def __init__(self) -> None:
        #: Until when, and whether a rebalance ends it before.
        self._until: dict[TopicPartition, tuple[float, bool]] = {}
        self._members: frozenset[str] = frozenset()

    def add(self, tp: TopicPartition, now: float, seconds: float | None) -> None:
        """Leave `tp` to others for so long; None: until the next rebalance, at most `UNTIL_REBALANCE`."""
        self._until[tp] = (now + (UNTIL_REBALANCE if seconds is None else seconds), seconds is None)

    def clear(self) -> None:
        """Somebody asked for a rebalance: nothing is left to others any more."""
        self._until = {}

    def left(self, now: float, members: Collection[str]) -> frozenset[TopicPartition]:
        """Return what is still left to others. `members` are those of the group: when they change, that is a rebalance."""
        until, before, self._members = self._until, self._members, frozenset(members)
        moved = before != self._members and bool(before)
        over = {tp for tp, (at, ends) in until.items() if at <= now or (ends and moved)}
        for tp in over:
            until.pop(tp, None)
        return frozenset(until)

    def partitions(self) -> list[TopicPartition]:
        """Return what was left to others, as last looked at. Any thread."""
        return sorted(dict(self._until))

    def due(self) -> float | None:
        """Return when the first of them may be taken again; None: none is left to others."""
        return min((at for at, _ in self._until.values()), default=None)
