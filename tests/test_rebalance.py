"""Who owns what, as consumers come and go: one action, one look at the whole world."""

from __future__ import annotations

import pytest

from inbound.testing.world import Recording, World


@pytest.fixture
def world() -> World:
    """A world with one topic of six partitions."""
    world = World()
    world.kafka.create_topic("orders", 6)
    return world


def moved(before: dict[str, set[int]], after: dict[str, set[int]]) -> set[int]:
    """Return the partitions that have another owner now."""
    was = {p: name for name, partitions in before.items() for p in partitions}
    return {p for name, partitions in after.items() for p in partitions if was.get(p) != name}


def test_the_first_consumer_takes_everything_after_the_join_delay(world: World) -> None:
    """It waits a little, as others may be starting with it."""
    world.join("a")
    world.run(2.5)
    assert world.owned() == {"a": set()}
    world.run(1)
    assert world.owned() == {"a": {0, 1, 2, 3, 4, 5}}


def test_consumers_that_start_together_share_evenly_without_moving_anything(world: World) -> None:
    """Counts differ by at most one, and every partition was claimed once."""
    for name in ("a", "b", "c", "d"):
        world.join(name)
    world.run(5)
    assert sorted(len(partitions) for partitions in world.owned().values()) == [1, 1, 2, 2]
    epochs = [world.ensemble.tree.nodes[world.paths.epoch("orders", p)].version for p in range(6)]
    assert epochs == [1] * 6


def test_a_joiner_gets_its_share_at_once_and_nothing_else_moves(world: World) -> None:
    """What is given up for it, it need not wait for."""
    world.join("a")
    world.join("b")
    world.run(5)
    before = world.owned()
    world.join("c")
    world.run(1.5)
    after = world.owned()
    assert ({len(p) for p in after.values()}, moved(before, after)) == ({2}, after["c"])


def test_a_leaver_is_replaced_at_once(world: World) -> None:
    """Its partitions are taken when it releases them, by those who have room."""
    for name in ("a", "b", "c"):
        world.join(name)
    world.run(5)
    before = world.owned()
    world.leave("c")
    world.run(0.5)
    after = world.owned()
    assert ({name: len(p) for name, p in after.items()}, moved(before, after)) == ({"a": 3, "b": 3}, before["c"])


def test_a_killed_consumer_is_replaced_when_its_session_has_expired(world: World) -> None:
    """Not before: it may be alive. And soon after."""
    for name in ("a", "b", "c"):
        world.join(name)
    world.run(5)
    before = world.owned()
    world.kill("b")
    world.run(9.5)
    assert {p for partitions in world.owned().values() for p in partitions} == set(range(6))
    world.run(1.5)
    after = world.owned()
    assert ({name: len(p) for name, p in after.items()}, moved(before, after)) == ({"a": 3, "c": 3}, before["b"])


def test_more_consumers_than_partitions_leave_some_standing_by(world: World) -> None:
    """They are members all the same, and take over when one is gone."""
    for number in range(8):
        world.join(f"c{number}")
    world.run(6)
    counts = {name: len(p) for name, p in world.owned().items()}
    assert sorted(counts.values()) == [0, 0, 1, 1, 1, 1, 1, 1]
    owner = next(name for name, count in counts.items() if count)
    world.kill(owner)
    world.run(12)
    assert sum(len(p) for p in world.owned().values()) == 6


def test_partitions_added_to_a_topic_are_taken(world: World) -> None:
    """By whoever has the fewest."""
    world.join("a")
    world.join("b")
    world.run(5)
    world.kafka.create_topic("orders", 9)
    world.run(7)
    assert sorted(len(p) for p in world.owned().values()) == [4, 5]


def test_a_topic_that_matches_a_pattern_later_is_taken(world: World) -> None:
    """And the id node says so."""
    world.join("a", Recording(), topics_pattern="ord.*|pay.*")
    world.run(5)
    world.kafka.create_topic("payments", 2)
    world.kafka.publish("payments", 1, [b"x"])
    world.run(7)
    assert sorted(p for t, p in world.consumers["a"].channel.parts.totals if t == "payments") == [1]
    assert b'"topics":["orders","payments"]' in world.ensemble.tree.nodes[world.paths.member("a")].data


def test_consumers_of_different_topics_share_only_what_both_read(world: World) -> None:
    """A member that does not list a topic does not count for it."""
    world.kafka.create_topic("payments", 4)
    world.join("a", topics=("orders", "payments"))
    world.join("b", topics=("orders",))
    world.run(6)
    held = {n: sorted(p.tp for p in c.channel.parts.schedule.held()) for n, c in world.consumers.items()}
    assert [tp for tp in held["a"] if tp.topic == "payments"] == [("payments", p) for p in range(4)]
    assert {len([tp for tp in tps if tp.topic == "orders"]) for tps in held.values()} == {3}


def test_an_id_node_of_another_tool_is_not_counted_as_a_member(world: World) -> None:
    """It would be given a share that nobody takes."""
    world.join("a")
    world.run(4)
    from inbound.coordinators.zookeeper import Create

    world.ensemble.tree.transaction([Create(f"{world.paths.ids}/stranger", b'{"version":1}')], 0)
    world.run(2)
    assert world.owned() == {"a": set(range(6))}


def test_an_evaluation_during_which_the_join_delay_ends_is_not_the_last_one(world: World) -> None:
    """It left partitions alone because the delay was not over; when it was done, it was."""
    a = world.join("a")
    world.run(2.9)
    membership = a.channel.membership
    claimable = membership._claimable

    def slow(*arguments: object) -> object:
        result = claimable(*arguments)  # type: ignore[arg-type]
        world.clock.advance(4)
        membership._claimable = claimable  # type: ignore[method-assign]
        return result

    membership._claimable = slow  # type: ignore[method-assign, assignment]
    a.channel.parts.evaluate()  # a watch fires, say
    world.run(6)
    assert world.owned() == {"a": {0, 1, 2, 3, 4, 5}}
