"""Consumers that were cut off while an operator moved their group, or deleted it: nothing of before comes through."""

from __future__ import annotations

import pytest

from inbound.offsets.changes import TopicOffsets
from inbound.offsets.removal import delete_group, look
from inbound.testing.world import GROUP
from tests.group.paused_group import PARTITIONS, Group


@pytest.fixture
def group() -> Group:
    """A group whose two members have read five records of each partition, and are cut off from ZooKeeper since."""
    one = Group()
    one.publish(5)
    one.world.run(5)
    for name in ("a", "b"):
        one.world.ensemble.cut_off(name)
    one.world.run(15)
    return one


def heal(group: Group) -> None:
    for name in ("a", "b"):
        group.world.ensemble.heal(name)
    group.world.run(30)


def once(count: int) -> list[tuple[int, int]]:
    return [(p, offset) for p in range(PARTITIONS) for offset in range(count)]


def test_members_that_come_back_go_on_where_the_group_was_moved_to(group: Group) -> None:
    """They find their claims void, claim again, and read from the imported offsets."""
    group.operator(TopicOffsets(group.zk, GROUP, "orders").change(dict.fromkeys(range(PARTITIONS), 3), PARTITIONS))
    heal(group)
    again = [(p, offset) for p in range(PARTITIONS) for offset in (3, 4)]
    assert group.seen() == sorted(once(5) + again)
    assert group.world.commits() == dict.fromkeys(range(PARTITIONS), 5)


def test_members_that_come_back_to_a_deleted_group_recreate_it(group: Group) -> None:
    """It begins as a new group does: no offset of before is there, and none is committed under an old claim."""
    before = group.operator(look(group.zk, GROUP))
    group.world.run(10)
    assert group.operator(look(group.zk, GROUP)).changed_since(before) is None
    group.operator(delete_group(group.zk, before))
    heal(group)
    assert sorted(map(len, group.world.owned().values())) == [2, 2]
    assert group.seen() == sorted(once(5) * 2)
    assert group.world.commits() == dict.fromkeys(range(PARTITIONS), 5)
