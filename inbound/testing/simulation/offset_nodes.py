"""What a judge knows of hands in the offset nodes: where the group's offset is gone, and which claims that explains."""

from __future__ import annotations

from dataclasses import dataclass

from inbound.kafka.base import LogRange
from inbound.topic_partition import TopicPartition


@dataclass
class _Node:
    """One partition's."""

    lost: bool = False  # it holds no offset, since a hand was at it
    found_by: int = -1  # the claim that came to it then,
    may_find: int = -1  # and one that may have read it before or after


class OffsetNodes:
    """Told by the judge. `tenure` is the number of a claim."""

    def __init__(self, *, latest: bool) -> None:
        self._latest = latest
        self._nodes: dict[TopicPartition, _Node] = {}
        self._mended: set[TopicPartition] = set()

    def take(self, tp: TopicPartition, tenure: int | None) -> None:
        """Somebody empties, deletes or garbles the node; `tenure` may not have read it yet, None if it has."""
        node = self._nodes.setdefault(tp, _Node())
        node.lost = True
        if tenure is not None:
            node.may_find = tenure

    def mend(self, tp: TopicPartition) -> None:
        """Somebody writes what was there."""
        self._mended.add(tp)
        self._nodes.setdefault(tp, _Node()).lost = False

    def is_by_hand(self, tp: TopicPartition) -> bool:
        """Whether a change that no member has made is one of these."""
        node = self._nodes.get(tp)
        if tp in self._mended:
            self._mended.remove(tp)
            return True
        return node is not None and node.lost

    def claimed(self, tp: TopicPartition, tenure: int) -> bool:
        """A member claims the partition. Returns whether it finds no offset."""
        node = self._nodes.get(tp)
        if node is None or not node.lost:
            return False
        node.found_by = tenure
        return True

    def written(self, tp: TopicPartition) -> None:
        """Somebody has written an offset into it."""
        self._nodes.pop(tp, None)

    def is_uncommitted(self, tp: TopicPartition, tenure: int) -> bool:
        """Whether a claim that found no offset has not committed its first position yet."""
        node = self._nodes.get(tp)
        return node is not None and node.lost and node.found_by == tenure

    def begins_anew(self, tp: TopicPartition, tenure: int, new: int, limits: LogRange | None) -> bool:
        """Whether the first commit of a claim is the position of a group without an offset."""
        node = self._nodes.get(tp)
        if node is None or tenure not in (node.found_by, node.may_find):
            return False
        return limits is None or new <= (limits.end if self._latest else limits.start)
