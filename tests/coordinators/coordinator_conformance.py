"""What every coordinator must do, a user's too. A test class inherits `CoordinatorConformance` and says what to make."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from inbound import TopicPartition
from inbound.coordinators.base import GroupView, Member, ZkCoordinator
from inbound.coordinators.rights import described, is_dynamic, portions, rights_of
from tests.coordinators.coordinator_group import TOPICS, Group, a_coordinator, some_topics

#: How many random views or groups each test looks at.
MANY = 150

#: Possible content of id nodes of other versions, or of other tools.
STRANGE: list[dict[str, Any]] = [
    {},
    {"type": None},
    {"type": ["static"]},
    {"type": "later:Kind", "count": "many"},
    {"type": "static"},
    {"type": "static", "partitions": None},
    {"type": "static", "partitions": {"a": 3, "b": ["x", -1, None, 2.5, True, {}], "c": [1]}},
    {"type": "static", "partitions": [["a", 1]]},
    {"type": "fixed-count"},
    {"type": "fixed-count", "count": "four"},
    {"type": "fixed-count", "count": -3},
    {"type": "fixed-count", "count": True},
    {"type": "fixed-count", "count": 10**30},
]


def random_view(rng: random.Random, coordinator: ZkCoordinator, *, strange: bool = False) -> GroupView:
    """Return what a member may see, right or wrong: members' views differ, owners come and go."""
    counts = {t: rng.randint(0, 5) for t in some_topics(rng)}
    members = []
    for name in rng.sample("mnopqr", rng.randint(0, 4)):
        said = rng.choice(STRANGE) if strange and rng.random() < 0.7 else a_coordinator(rng).registration()
        members.append(Member(name, rng.randint(0, 5), some_topics(rng), said))
    if rng.random() < 0.9:
        members.append(Member("me", rng.randint(0, 5), tuple(counts), coordinator.registration()))
    everything = [TopicPartition(t, p) for t in TOPICS for p in range(counts.get(t, 5))]
    mine = frozenset(tp for tp in everything if rng.random() < 0.25)
    owned = mine | {tp for tp in everything if rng.random() < 0.4}
    return GroupView("me", tuple(members), counts, frozenset(owned), mine)


def right_of(view: GroupView, coordinator: ZkCoordinator) -> Iterator[tuple[set[TopicPartition], int]]:
    """Yield sets of partitions and how many of each `me` has a right to, with any wishes of the others."""
    rights = rights_of(view)
    unreserved = {topic: set(of.unreserved()) for topic, of in rights.items()}
    if is_dynamic(coordinator.registration()):
        for portion in portions("me", rights):
            yield {tp for of in portion.topics for tp in unreserved[of.topic]}, portion.keep
    for topic, of in rights.items():
        yield unreserved[topic], of.targets.get("me", 0)
        for tp, members in of.listed.items():
            yield {tp}, int("me" in members)


class CoordinatorConformance:
    """The tests. `make` returns a coordinator of the kind, any of those there can be."""

    def make(self, rng: random.Random) -> ZkCoordinator:
        raise NotImplementedError

    def views(self, *, strange: bool = False) -> Iterator[tuple[ZkCoordinator, GroupView]]:
        for seed in range(MANY):
            rng = random.Random(seed)
            coordinator = self.make(rng)
            yield coordinator, random_view(rng, coordinator, strange=strange)

    def test_it_takes_only_what_has_no_owner_and_releases_only_what_is_its_own(self) -> None:
        """In any view, with id nodes of other versions and damaged ones too; and nothing twice, or both at once."""
        for coordinator, view in (*self.views(), *self.views(strange=True)):
            plan = coordinator.plan(view)
            assert all(isinstance(described(m.coordinator), str) for m in view.members)
            assert set(plan.take) <= set(view.free()), view
            assert set(plan.release) <= view.mine, view
            assert len({*plan.take, *plan.release}) == len(plan.take) + len(plan.release), view

    def test_the_same_view_gives_the_same_plan(self) -> None:
        """In any order of the members, and in another process."""
        for seed in range(MANY):
            first, second = (self.make(random.Random(seed)) for _ in range(2))
            view = random_view(random.Random(seed), first)
            turned = GroupView(view.me, view.members[::-1], view.partitions, view.owned, view.mine)
            assert first.plan(view) == first.plan(view) == second.plan(turned), view

    def test_a_view_without_itself_moves_nothing(self) -> None:
        """Its id node is not seen yet: it would count the group without itself. Only topics it reads no more go."""
        for coordinator, view in self.views():
            if all(m.consumer_id != "me" for m in view.members):
                plan = coordinator.plan(view)
                gone = {tp for tp in view.mine if tp.topic not in view.partitions}
                assert (plan.take, set(plan.release), plan.notices) == ((), gone, ()), view

    def test_it_never_releases_what_it_has_a_right_to(self) -> None:
        """No other member is entitled to that."""
        for coordinator, view in self.views():
            if all(m.consumer_id != "me" for m in view.members):
                continue
            plan = coordinator.plan(view)
            for partitions, right in right_of(view, coordinator):
                before, after = view.mine & partitions, view.mine - set(plan.release)
                assert len(after & partitions) >= min(right, len(before)), (view, plan)

    def test_a_group_comes_to_rest_and_stays_there(self) -> None:
        """Within three rounds, with any other members; then every plan is empty."""
        for seed in range(MANY // 2):
            rng = random.Random(seed)
            group = Group({t: rng.randint(0, 6) for t in TOPICS})
            for number in range(rng.randint(1, 5)):
                coordinator = self.make(rng) if number < 2 else a_coordinator(rng)
                group.join(f"m{number}", coordinator, some_topics(rng))
                group.settle(rng)
            assert all((plan := group.plan(name)).take == () == plan.release for name in group.members)

    def test_its_parameters_survive_the_id_node(self) -> None:
        """Others read its JSON, and can name it to people."""
        for seed in range(MANY):
            coordinator = self.make(random.Random(seed))
            read = json.loads(json.dumps(coordinator.registration(), allow_nan=False))
            assert read == coordinator.registration()
            assert read["type"] == coordinator.kind
            assert described(read).startswith(coordinator.kind)
