"""What a refused transaction of commits means for the commit that is to blame."""

from __future__ import annotations

import pytest

from inbound.channel.commit import Pending, Refusal, meaning
from inbound.coordinators.zookeeper import Check, RefusedError, SetData
from inbound.testing.world import World

GUARD, WRITE = Check("/consumers/g/epochs/orders/0", 3), SetData("/consumers/g/offsets/orders/0", b"5")


@pytest.mark.parametrize(
    ("refused", "create", "unanswered", "expected"),
    [
        (RefusedError(0, GUARD, "BadVersion"), False, False, Refusal.LOST),
        (RefusedError(2, GUARD, "BadVersion"), False, False, Refusal.LOST),
        (RefusedError(0, GUARD, "BadVersion"), False, True, Refusal.READ_EPOCH),
        (RefusedError(1, WRITE, "NoNode"), False, False, Refusal.OTHER_WRITE),
        (RefusedError(3, WRITE, "NodeExists"), True, False, Refusal.OTHER_WRITE),
        (RefusedError(1, WRITE, "NoNode"), True, False, Refusal.APART),
        (RefusedError(1, WRITE, "NoNode"), True, True, Refusal.APART),
    ],
)
def test_a_refusal_means(refused: RefusedError, create: bool, unanswered: bool, expected: Refusal) -> None:
    """By which of its two operations was refused, why, and whether a commit before it went without an answer."""
    world = World()
    world.kafka.create_topic("orders", 1)
    parts = world.join("a").channel.parts
    world.run(4)
    (partition,) = parts.schedule.held()
    pending = Pending(parts, partition, partition.position.advance(1), create=create)
    pending.unanswered_in = 1 if unanswered else None
    assert meaning(pending, refused) is expected
