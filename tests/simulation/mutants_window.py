"""Mutants of the commit window: what may be on its way, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inbound.channel.commit import Pending
from inbound.channel.committer import Committer
from inbound.partition.position import Position
from tests.simulation.planting import Mutant, Plant

Original = Callable[..., Any]


def _limit_ignored(plant: Plant) -> None:
    def is_open(original: Original, self: Position, limit: int) -> bool:
        if not original(self, limit):
            plant.bite()
        return True

    plant.around(Position, "is_open", is_open)


def _older_stands_for_newer(plant: Plant) -> None:
    """Of two commits of a partition the one that waited first is sent."""

    def put(original: Original, self: Committer, pending: Pending) -> None:
        waiting = self._queue.get(pending.partition)
        if waiting is None or waiting.mark.order > pending.mark.order:
            original(self, pending)
            return
        plant.bite()
        pending.channel.schedule.landed(pending.partition, pending.mark, ())

    plant.around(Committer, "_put", put)


def _unanswered_is_forgotten(plant: Plant) -> None:
    """The newer commit that stands for one without an answer is sent as if that had never been."""

    def stand_for(original: Original, self: Pending, older: Pending) -> None:
        original(self, older)
        if self.unanswered is not None:
            plant.bite()
            self.unanswered = self.unanswered_in = self.epoch = None
            self.unread = False

    plant.around(Pending, "stand_for", stand_for)


WINDOW = (
    Mutant(
        "limit-ignored", "the window: no more is on its way than a crash may repeat",
        "a crash repeats all deliveries", _limit_ignored,
    ),
    Mutant(
        "older-stands-for-newer", "the window: the newest commit of a partition stands for those before it",
        "what was answered for is never committed", _older_stands_for_newer,
    ),
    Mutant(
        "unanswered-is-forgotten", "the window: a newer commit knows that one before it went without an answer",
        "our own epoch, moved on by the late one, is taken for another's", _unanswered_is_forgotten,
    ),
)  # fmt: skip
