"""A group on paper: members with coordinators, owners, and views that may be old. No ZooKeeper, no time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from inbound import TopicPartition
from inbound.coordinators.base import GroupView, Member, Plan, ZkCoordinator
from inbound.coordinators.dynamic import DynamicCoordinator
from inbound.coordinators.fixed_count import FixedCountCoordinator
from inbound.coordinators.static import StaticCoordinator

TOPICS = ("a", "b", "c")


class Group:
    """Carries plans out, one member after the other."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self.partitions = dict(partitions)
        self.members: dict[str, Member] = {}
        self.coordinators: dict[str, ZkCoordinator] = {}
        self.owner: dict[TopicPartition, str] = {}
        self.moved: list[TopicPartition] = []  # what was released
        self.notices: dict[str, tuple[str, ...]] = {}  # of each member's last plan
        self._seen: dict[str, tuple[tuple[Member, ...], frozenset[TopicPartition]]] = {}
        self._joined = 0

    def join(self, name: str, coordinator: ZkCoordinator | None = None, topics: Iterable[str] = TOPICS) -> None:
        """Add a member; the others read of it what has gone through JSON."""
        self._joined += 1
        self.coordinators[name] = coordinator or DynamicCoordinator()
        said = json.loads(json.dumps(self.coordinators[name].registration()))
        self.members[name] = Member(name, self._joined, tuple(sorted(topics)), said)

    def leave(self, name: str) -> None:
        """Take a member out; its partitions have no owner then."""
        del self.members[name], self.coordinators[name]
        self._seen.pop(name, None)
        self.owner = {tp: owner for tp, owner in self.owner.items() if owner != name}

    def held(self, name: str) -> set[TopicPartition]:
        return {tp for tp, owner in self.owner.items() if owner == name}

    def view(self, name: str) -> GroupView:
        """Return the group as it is now, for one member."""
        topics = {t: self.partitions[t] for t in self.members[name].topics if t in self.partitions}
        owned = frozenset(tp for tp in self.owner if tp.topic in topics)
        return GroupView(name, tuple(self.members.values()), topics, owned, frozenset(self.held(name)))

    def plan(self, name: str) -> Plan:
        return self.coordinators[name].plan(self.view(name))

    def look(self, name: str, plan: Plan | None = None) -> bool:
        """Carry out the plan of a member (or its last one). Returns whether there was anything to do."""
        plan = plan or self.plan(name)
        self.notices[name] = plan.notices
        done = False
        for tp in plan.release:
            if self.owner.get(tp) == name:
                del self.owner[tp]
                self.moved.append(tp)
                done = True
        for tp in plan.take:
            if tp not in self.owner:  # a claim of what has an owner is refused
                self.owner[tp] = name
                done = True
        return done

    def settle(self, rng: random.Random, rounds: int = 4) -> int:
        """Let all look, in any order, round after round, until no member has anything to do. Returns the rounds."""
        for number in range(rounds):
            order = list(self.members)
            rng.shuffle(order)
            if not sum(self.look(name) for name in order):
                return number
        raise AssertionError(f"does not settle in {rounds} rounds: {self.owner} of {self.members}")

    # -- views that differ -------------------------------------------------------------------------------------------

    def notice_members(self, name: str) -> None:
        """Let a member see who is there; until the next time it believes this."""
        self._seen[name] = (tuple(self.members.values()), self._seen.get(name, ((), frozenset()))[1])

    def notice_owners(self, name: str) -> None:
        """Let a member see what has an owner; until the next time it believes this."""
        self._seen[name] = (self._seen.get(name, ((), frozenset()))[0], frozenset(self.owner))

    def stale_plan(self, name: str) -> Plan:
        """Plan on what the member has seen. It knows its own partitions."""
        members, owned = self._seen.get(name, ((), frozenset()))
        view = self.view(name)
        known = frozenset(tp for tp in owned if tp.topic in view.partitions) | view.mine
        return self.coordinators[name].plan(replace(view, members=members, owned=known))


def a_static(rng: random.Random, topics: Iterable[str] = TOPICS) -> StaticCoordinator:
    """Return one that lists some partitions, also such as may not exist."""
    chosen = [t for t in topics if rng.random() < 0.6] or ["a"]
    return StaticCoordinator({t: rng.sample(range(7), rng.randint(1, 3)) for t in chosen})


def a_coordinator(rng: random.Random) -> ZkCoordinator:
    """Return any of the shipped kinds."""
    kinds: list[Callable[[], ZkCoordinator]] = [
        DynamicCoordinator,
        DynamicCoordinator,
        lambda: FixedCountCoordinator(rng.randint(1, 4)),
        lambda: a_static(rng),
    ]
    return rng.choice(kinds)()


def some_topics(rng: random.Random) -> tuple[str, ...]:
    """Return some of the topics, mostly all."""
    return TOPICS if rng.random() < 0.6 else tuple(rng.sample(TOPICS, rng.randint(1, 2)))
