"""Traces of a reset, as far as they are the members' part: T2, T15, T16.

The reset itself is played here: it closes the gate, moves offset and epoch in one transaction, and opens the gate. What its
reconciler must do is not tested in this file: T15's two steps done twice, and T16's command that is deleted while its
groups are stopped, or made again under the same name.
"""

from __future__ import annotations

import pytest

from inbound.topic_partition import TopicPartition
from tests.simulation.stage import commits_of, gate, in_next_batch, reset, seen, with_and_without, world_of

P0 = TopicPartition("orders", 0)
CLOSED = b"/inbound/commands/reset-offset/some"


@with_and_without("ours-but-not-held-left-alone")
def test_a_node_kept_through_a_reset_is_claimed_anew(kept: bool) -> None:
    """T2 (R4). The member goes on under the old epoch when the gate opens, and its first commit is refused."""
    world = world_of("a")
    world.kafka.publish(*P0, [b"x"] * 3)
    world.run(0.5)
    gate(world, "orders", CLOSED)
    reset(world, P0, 1)
    gate(world, "orders", b"open")
    world.kafka.publish(*P0, [b"y"])
    world.run(2)
    assert (seen(world, "a"), world.commits()) == (([0, 1, 2, 3, 1, 2, 3], {0: 4}) if kept else ([0, 1, 2, 3], {0: 1}))


@pytest.mark.parametrize("bump", [True, False], ids=["with the rule", "without it: the epoch stays"])
def test_recovery_does_not_bring_back_the_position_from_before_a_reset(bump: bool) -> None:
    """T15 (section 8). A batch is in the callback when its process loses the session, and the reset comes before it is back."""
    world = world_of("a")
    history = commits_of(world, P0)

    def meanwhile() -> None:
        world.ensemble.cut_off("a")
        world.ensemble.expire_session("a")
        gate(world, "orders", CLOSED)
        reset(world, P0, 1, bump=bump)
        gate(world, "orders", b"open")
        world.ensemble.heal("a")

    in_next_batch(world, "a", meanwhile)
    world.kafka.publish(*P0, [b"x"] * 3)
    world.run(5)
    assert (history, seen(world, "a")) == (([1, 3], [0, 1, 2, 1, 2]) if bump else ([1, 3], [0, 1, 2]))


@with_and_without("commit-unchecked")
def test_a_call_that_hung_through_a_reset_does_not_undo_it(kept: bool) -> None:
    """T16 (section 8, R3). The reset has overtaken it by the epoch; its commit comes when the call has ended."""
    world = world_of("a")
    history = commits_of(world, P0)

    def meanwhile() -> None:
        gate(world, "orders", CLOSED)
        reset(world, P0, 1)

    in_next_batch(world, "a", meanwhile)
    world.kafka.publish(*P0, [b"x"] * 3)
    world.run(2)
    assert history == ([1] if kept else [1, 3])
