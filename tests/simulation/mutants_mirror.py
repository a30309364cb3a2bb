"""Mutants of the mirror: what an operator of the Kafka group, or its coordinator, would notice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from inbound.channel.commit import Pending
from inbound.channel.committer import Committer
from inbound.mirror import plan as mirror_plan
from inbound.mirror.mirror import Mirror
from inbound.mirror.plan import Answer, Held, Kind, MirrorPlan
from inbound.topic_partition import TopicPartition
from tests.simulation.planting import Plant, mutant_of, storm_has

Original = Callable[..., Any]


def _doubtful_is_held(plant: Plant) -> None:
    def held(original: Original, self: Mirror) -> Held:
        found: Held = original(self)
        if found.doubtful:
            plant.bite()
        partitions = self._schedule.held()
        return Held({p.tp: p.committed for p in partitions if p.committed is not None}, frozenset())

    plant.around(Mirror, "_held", held)


def _released_is_ours(plant: Plant) -> None:
    def take(original: Original, self: MirrorPlan, held: Held, now: float) -> dict[TopicPartition, int]:
        noted = dict(self._new)
        given_up = noted.keys() - held.commits.keys() - held.doubtful - held.lost
        if any(now - noted[tp][1] > mirror_plan.RELEASED_KEPT for tp in given_up):
            plant.bite()
        self._new = {tp: (offset, now) for tp, (offset, _) in noted.items()}
        taken: dict[TopicPartition, int] = original(self, held, now)
        for waiting in (self._new, self._sent):
            waiting.update({tp: noted[tp] for tp in waiting.keys() & noted.keys()})
        return taken

    plant.around(MirrorPlan, "take", take)


def _never_once_more(plant: Plant) -> None:
    def take(original: Original, self: MirrorPlan, held: Held, now: float) -> dict[TopicPartition, int]:
        if self._once_more is not None and now >= self._once_more > 1000.0:
            plant.bite()
        self._once_more = None
        taken: dict[TopicPartition, int] = original(self, held, now)
        return taken

    plant.around(MirrorPlan, "take", take)


def _before_it_landed(plant: Plant) -> None:
    def submit(original: Original, self: Committer, pending: Pending) -> None:
        if pending.offset is not None:
            plant.bite()
            pending.channel.mirror.landed(pending.partition, pending.offset)
        original(self, pending)

    plant.around(Committer, "submit", submit)


def _live_group_soon_again(plant: Plant) -> None:
    def wait_after(original: Original, kind: Kind, failures: int) -> float:
        if kind is Kind.LIVE_GROUP:
            plant.bite()
        return float(original(Kind.OTHER, failures))

    plant.around(mirror_plan, "wait_after", wait_after)


def _refused_is_taken(plant: Plant) -> None:
    def answered(original: Original, self: MirrorPlan, answer: Answer, now: float) -> int:
        if answer:
            plant.bite()
        self._once_more = None
        return int(original(self, {}, now))

    plant.around(MirrorPlan, "answered", answered)


def _highest_counts(plant: Plant) -> None:
    def note(original: Original, self: MirrorPlan, tp: TopicPartition, offset: int, now: float) -> bool:
        had: dict[TopicPartition, int] = self.__dict__.setdefault("highest", {})
        if offset < had.get(tp, 0):
            plant.bite()
        had[tp] = max(offset, had.get(tp, 0))
        return bool(original(self, tp, had[tp], now))

    plant.around(MirrorPlan, "note", note)


def _claims_are_not_told(plant: Plant) -> None:
    def claimed(original: Original, self: Mirror, tp: TopicPartition, offset: int | None) -> None:
        plant.bite()

    plant.around(Mirror, "claimed", claimed)


def _answers_not_waited_for(plant: Plant) -> None:
    def take(original: Original, self: Mirror, now: float) -> bool:
        if not original(self, now) and self._asked is not None:
            plant.bite()
            target, _, _ = self._asked
            self._asked = None
            target.plan.answered({}, now)
        return True

    plant.around(Mirror, "_take", take)


_mirror = partial(mutant_of, "mirror")

MIRROR = (
    _mirror("doubtful-is-held", "offsets of what another may have claimed are sent", _doubtful_is_held),
    _mirror("released-is-ours", "offsets of what was given up long ago are sent", _released_is_ours),
    _mirror("never-once-more", "what a late request has set back stays so", _never_once_more),
    _mirror("before-it-landed", "an offset is sent that ZooKeeper never had", _before_it_landed),
    _mirror("live-group-soon-again", "a group with members is asked all the time", _live_group_soon_again),
    _mirror("mirror-refused-is-taken", "what was not taken is not sent again", _refused_is_taken),
    _mirror(
        "highest-counts",
        "the Kafka group does not follow a group that is set back",
        _highest_counts,
        storm_has("reposition", "cut"),
    ),
    _mirror("claims-are-not-told", "what others have sent stays after a claim", _claims_are_not_told),
    _mirror("answers-not-waited-for", "several requests of one member are on their way", _answers_not_waited_for),
)
