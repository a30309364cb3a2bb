"""A batch of records that cannot be taken apart holds its partition, and says so."""

from __future__ import annotations

from typing import Any

import pytest

from inbound import TopicPartition
from inbound.coordinators.zookeeper import SetData
from inbound.testing.world import World
from tests.one_partition import offsets, start

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def world() -> World:
    """Two partitions of three records each; the second record of the first one is in a batch that cannot be read."""
    world = World()
    world.kafka.create_topic("orders", 2)
    for partition in range(2):
        world.kafka.publish("orders", partition, [b"0", b"1", b"2"])
    world.kafka.unreadable[ORDERS_0] = 1
    return world


def held(world: World) -> list[str | None]:
    """Return why each partition is held."""
    return [one.held for one in sorted(world.consumers["a"].channel.status().partitions, key=lambda one: one.partition)]


def test_it_holds_its_partition_alone_and_is_said_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """What stands before it is delivered and committed, and so is everything of other partitions; nothing is skipped."""
    processor = start(world)
    world.run(65)

    why = "the batch of records at offset 1 cannot be read: it is too large"
    assert (sorted(processor.seen), world.commits(), held(world)) == (
        [(ORDERS_0, 0), (ORDERS_1, 0), (ORDERS_1, 1), (ORDERS_1, 2)], {0: 1, 1: 3}, [why, None],
    )  # fmt: skip
    assert [r.getMessage() for r in caplog.records if "held" in r.getMessage()] == [f"group orders/0: held: {why}"]
    assert processor.calls.count(("exception", 0, "UnreadableBatchError")) == 1


def test_it_is_read_on_once_it_can_be(world: World) -> None:
    """With a larger bound, say, which hot reload brings; from where it stood, without a repeat."""
    processor = start(world)
    world.kafka.unreadable.clear()
    world.consumers["a"].channel.try_again()
    world.run(4)

    assert ([offset for tp, offset in processor.seen if tp == ORDERS_0], held(world)) == ([0, 1, 2], [None, None])


def test_what_a_client_says_that_is_about_to_go_is_void(world: World) -> None:
    """1. The bound is raised; 2. the former client still finds the batch too large; 3. nobody would try again."""

    class Meanwhile(dict[TopicPartition, int]):
        """The batches; the client is exchanged while it looks at one."""

        edited = True

        def get(self, key: TopicPartition, *default: Any) -> Any:
            found = super().get(key, *default)
            if key in self and not self.edited:
                self.edited = True
                self.clear()
                channel.reader.reconnect(world.kafka.client)
                channel.try_again()
            return found

    world.kafka.unreadable = batches = Meanwhile(world.kafka.unreadable)
    processor = start(world)
    channel = world.consumers["a"].channel
    batches.edited = False
    channel.try_again()
    world.run(65)

    assert ([offset for tp, offset in processor.seen if tp == ORDERS_0], held(world)) == ([0, 1, 2], [None, None])


def test_it_is_held_again_where_nothing_has_changed(world: World) -> None:
    """And is not tried in between."""
    start(world)
    world.consumers["a"].channel.try_again()
    world.run(4)

    assert (held(world)[0] is not None, world.commits()) == (True, {0: 1, 1: 3})


def test_a_group_that_is_moved_past_it_goes_on(world: World) -> None:
    """The other way out that the message names; the next owner finds it, too, unless it was moved."""
    start(world)
    world.leave("a")
    again = start(world)
    before = (offsets(again), held(world)[0] is not None)
    world.leave("a")
    del world.kafka.unreadable[ORDERS_0]  # it ends before offset 2
    world.ensemble.tree.transaction([SetData(world.paths.offset("orders", 0), b"2")], 0)

    assert (before, offsets(start(world)), held(world)) == (([], True), [2], [None, None])
