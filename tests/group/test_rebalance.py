"""Who owns what, as consumers come and go: one action, one look at the whole world."""

from __future__ import annotations

import pytest

from inbound.testing.world import World


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


def test_a_consumer_that_starts_while_zookeeper_is_unavailable_joins_when_it_is_back(world: World) -> None:
    """Without a session there is nothing to doubt."""
    world.ensemble.down()
    world.join("a")
    world.run(5)
    world.ensemble.up()
    world.run(6)
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


@pytest.fixture
def three(world: World) -> World:
    """The same world with consumers a, b and c, which have two partitions each."""
    for name in ("a", "b", "c"):
        world.join(name)
    world.run(5)
    return world


def only_its_partitions_moved(world: World, gone: str, before: dict[str, set[int]]) -> bool:
    """Return whether two consumers have three partitions each, and only those of `gone` have another owner."""
    after = world.owned()
    return ([len(p) for p in after.values()], moved(before, after)) == ([3, 3], before[gone])


def test_a_leaver_is_replaced_at_once(three: World) -> None:
    """Its partitions are taken when it releases them, by those who have room."""
    before = three.owned()
    three.leave("c")
    three.run(0.5)
    assert only_its_partitions_moved(three, "c", before)


def test_a_killed_consumer_is_replaced_when_its_session_has_expired(three: World) -> None:
    """Not before: it may be alive. And soon after."""
    before = three.owned()
    three.kill("b")
    three.run(9.5)
    assert three.owned() == before
    three.run(1.5)
    assert only_its_partitions_moved(three, "b", before)


def test_consumers_of_different_topics_share_only_what_both_read(world: World) -> None:
    """A member that does not list a topic does not count for it."""
    world.kafka.create_topic("payments", 4)
    world.join("a", topics=("orders", "payments"))
    world.join("b", topics=("orders",))
    world.run(6)
    held = {n: sorted(p.tp for p in c.channel.parts.schedule.held()) for n, c in world.consumers.items()}
    assert [tp for tp in held["a"] if tp.topic == "payments"] == [("payments", p) for p in range(4)]
    assert {len([tp for tp in tps if tp.topic == "orders"]) for tps in held.values()} == {3}


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
