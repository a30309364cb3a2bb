"""Distinguishes a recreated topic from the one that the group knows."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from inbound.clock import Clock
from inbound.coordinators.ownership import OtherTopicError
from inbound.partition.partition import Partition
from inbound.partition.topics import Topics
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

#: Seconds after which brokers are believed that go on listing a topic that the group knows as deleted.
BELIEVE_AFTER = 60.0


@dataclass
class _Contradiction:
    """Group and brokers disagree on a topic's id; brokers are asked again."""

    question: int
    since: float
    found: str | None = None  # the id that the group knows
    former: str | None = None  # the brokers' id, if it is of a topic that the group knows as deleted


class TopicIdentity:
    """Believes brokers after they repeat themselves: one may be behind. Controller's thread."""

    def __init__(self, topics: Topics, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._contradictions: dict[TopicPartition, _Contradiction] = {}

    def recreated(self, held: Iterable[Partition]) -> list[Partition]:
        """Return held partitions whose topic two answers of the brokers call recreated."""
        found = []
        for partition in held:
            tp, before = partition.tp, self._contradictions.get(partition.tp)
            if not self._topics.is_another(partition):
                self._contradictions.pop(tp, None)
            elif before is None:
                self._contradictions[tp] = _Contradiction(self._topics.ask(), self._clock.now())
            elif self._topics.answered(before.question):
                del self._contradictions[tp]
                found.append(partition)
        return found

    def may_claim(self, tp: TopicPartition, topic_id: str | None) -> bool:
        """Whether nothing contradicts `topic_id`, or the brokers have repeated it.

        An id that the group knows as deleted has to be repeated for `BELIEVE_AFTER` seconds.
        """
        before = self._contradictions.get(tp)
        if before is None:
            return True
        if not self._topics.answered(before.question):
            return False
        if topic_id != before.former or self._clock.now() - before.since >= BELIEVE_AFTER:
            return True
        before.question = self._topics.ask()  # a broker that is behind
        return False

    def instead_of(self, tp: TopicPartition) -> str | None:
        """Return the group's topic id that brokers contradict; None: there is none."""
        before = self._contradictions.get(tp)
        return before.found if before is not None else None

    def contradicted(self, tp: TopicPartition, error: OtherTopicError) -> None:
        """Ask the brokers again: a claim found another topic id than theirs."""
        before, now = self._contradictions.get(tp), self._clock.now()
        since = before.since if before is not None and before.found == error.found else now
        former = error.told if error.former else None
        self._contradictions[tp] = _Contradiction(self._topics.ask(), since, error.found, former)
        log.info("%s; asking them again", error)

    def agreed(self, tp: TopicPartition) -> None:
        """Forget a contradiction: a claim succeeded, so both mean the same topic."""
        self._contradictions.pop(tp, None)
