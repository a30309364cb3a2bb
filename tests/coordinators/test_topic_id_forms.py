"""Clients write a topic's id in different forms: one topic stays one topic, with any client of a member."""

from __future__ import annotations

import json
import logging

import pytest

from inbound.coordinators.nodes import EpochInfo, canonical, same_topic
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import SetData
from inbound.ledger.memory import Note
from inbound.offsets.changes import TopicOffsets
from inbound.testing.kafka import ID_FORMS
from inbound.testing.world import GROUP, Recording, World
from tests.channel.one_partition import offsets, publish, start, world

__all__ = ["world"]  # the fixture

UUID, LIBRDKAFKA, JAVA = (form(1) for form in ID_FORMS)
ANOTHER = ID_FORMS[0](2)


def epoch_node(world: World) -> EpochInfo:
    """Return what stands in the only partition's epoch node, as text."""
    body = json.loads(world.ensemble.tree.nodes[world.paths.epoch("orders", 0)].data)
    return EpochInfo(body["consumer"], 0, "", body["topic_id"], tuple(body["former"]))


def write_ids(world: World, topic_id: str, *former: str) -> None:
    """Let the epoch node name the topic like this, as an earlier release or another tool would."""
    data = EpochInfo("earlier", 1, "n", topic_id, former).encode()
    world.ensemble.tree.transaction([SetData(world.paths.epoch("orders", 0), data)], 0)


def as_read_by_ten(world: World) -> None:
    """Let a member read ten records and leave."""
    publish(world, 10)
    start(world)
    world.leave("a")


def resets(world: World) -> list[dict[str, object]]:
    """Return what all ledgers say of offsets that were moved."""
    entries = [entry for consumer in world.consumers.values() for entry in consumer.ledger.entries]
    return [entry.facts for entry in entries if isinstance(entry, Note) and entry.kind == "reset"]


@pytest.mark.parametrize("one", [UUID, LIBRDKAFKA, JAVA, UUID.replace("-", ""), LIBRDKAFKA + "=="])
@pytest.mark.parametrize("other", [UUID, LIBRDKAFKA, JAVA])
def test_all_forms_of_an_id_are_one(one: str, other: str) -> None:
    """As kafka-python, librdkafka and Java write it."""
    assert (same_topic(one, other), canonical(one), len({UUID, LIBRDKAFKA, JAVA})) == (True, UUID, 3)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [(UUID, ANOTHER, False), (LIBRDKAFKA, ANOTHER, False), (UUID, "topic-1", None), ("topic-1", "topic-1", True)],
)
def test_ids_that_differ_are_told_from_ids_that_cannot_be_compared(one: str, other: str, same: bool | None) -> None:
    """An unknown form proves nothing."""
    assert (same_topic(one, other), same_topic(other, one)) == (same, same)


@pytest.mark.parametrize("zero", ["00000000-0000-0000-0000-000000000000", "A" * 22])
def test_the_zero_id_is_none(zero: str) -> None:
    """Brokers before 2.8 say it to clients that ask for one."""
    assert canonical(zero) is None


def test_members_with_different_clients_hand_a_partition_to_each_other_and_repeat_nothing(world: World) -> None:
    """There and back: the next owner begins where the one before committed, and no topic was recreated."""
    world.kafka.id_forms = ID_FORMS
    seen = []
    for turn in range(5):
        publish(world, 2)
        processor = start(world)
        seen += offsets(processor)
        world.leave("a")
        assert world.commits() == {0: 2 * turn + 2}
    assert (seen, resets(world)) == (list(range(10)), [])


def test_a_group_of_both_clients_shares_its_partitions_without_a_repeat() -> None:
    """Every partition changes hands, and is read on at once."""
    world = World()
    world.kafka.id_forms = ID_FORMS
    world.kafka.create_topic("orders", 6)
    processors = [Recording() for _ in range(3)]
    for name, processor in zip("abc", processors, strict=True):
        for partition in range(6):
            world.kafka.publish("orders", partition, [b"x"] * 3)
        world.join(name, processor)
        world.run(4)
    world.leave("b")
    world.run(2)
    assert sorted(one for processor in processors for one in processor.seen) == [
        (("orders", p), o) for p in range(6) for o in range(9)
    ]
    assert (world.commits(), {p for owned in world.owned().values() for p in owned}) == (
        dict.fromkeys(range(6), 9),
        set(range(6)),
    )


@pytest.mark.parametrize("written", [LIBRDKAFKA, JAVA])
def test_an_id_of_an_earlier_release_is_the_same_and_stays_as_it_is_written(world: World, written: str) -> None:
    """Members of that release, which compare the text, may come back."""
    world.kafka.id_forms = ID_FORMS[:1]
    as_read_by_ten(world)
    write_ids(world, written)
    processor = start(world)
    assert (offsets(processor), world.commits(), epoch_node(world).topic_id) == ([], {0: 10}, written)


def test_an_id_that_stands_among_the_former_ones_in_another_form_keeps_nobody_waiting(world: World) -> None:
    """Earlier releases put it there whenever a partition went from one client to the other."""
    world.kafka.id_forms = ID_FORMS[:1]
    as_read_by_ten(world)
    write_ids(world, LIBRDKAFKA, UUID)
    publish(world, 1)
    processor = start(world)
    assert (offsets(processor), world.commits()) == ([10], {0: 11})


def test_an_id_that_differs_is_a_recreated_topic_in_log_and_ledger(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """With both ids: smallest offset, said loudly."""
    world.kafka.id_forms = ID_FORMS
    as_read_by_ten(world)
    world.kafka.delete_topic("orders")
    world.kafka.create_topic("orders", 1)
    publish(world, 3)
    processor = start(world)
    said = f"the group starts at offset 0 of the new one (id {ANOTHER}, before {UUID}; the commit was 10)"
    assert (offsets(processor), any(said in record.getMessage() for record in caplog.records)) == ([0, 1, 2], True)
    assert resets(world) == [{"old": 10, "new": 0, "reason": "topic created anew", "topic_id": ANOTHER, "former": UUID}]


def test_an_id_that_cannot_be_compared_holds_the_partition_at_every_owner(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is read and nothing is moved; status and log say what to do. Trying again changes nothing."""
    caplog.set_level(logging.ERROR)
    world.kafka.id_forms = ID_FORMS
    as_read_by_ten(world)
    write_ids(world, "what is this?")
    publish(world, 3)
    processor = start(world)
    world.consumers["a"].channel.try_again()
    world.run(3)
    (partition,) = world.consumers["a"].channel.status().partitions
    world.leave("a")
    successor = Recording()
    world.join("b", successor)
    world.run(4)
    held = (
        f"the commit 10 is about topic id what is this?, the brokers name {UUID}: whether that is one topic cannot be told. "
        "Say where to go on with `inbound offsets reset --group group --topic orders:0`: at 10 if it is, at the earliest offset "
        "if the topic was recreated"
    )
    assert (partition.held, offsets(processor), offsets(successor), world.commits()) == (held, [], [], {0: 10})
    assert epoch_node(world).topic_id == "what is this?"
    assert f"group orders/0: held: {held}" in [record.getMessage() for record in caplog.records]


def test_offsets_that_are_set_again_end_the_hold(world: World) -> None:
    """They are about the topic as the brokers name it, and the node says so."""
    world.kafka.id_forms = ID_FORMS
    as_read_by_ten(world)
    write_ids(world, "what is this?")
    publish(world, 3)
    start(world)
    world.leave("a")
    zk, tasks = world.ensemble.client("by hand", 10.0), Tasks(world.clock, lambda: None)
    world.run(1)
    change = tasks.spawn(TopicOffsets(zk, GROUP, "orders", topic_id=UUID).change({0: 11}, 1), "offsets set")
    while not change.done:
        tasks.step()
        world.run(0.5)
    assert change.result()
    processor = start(world)
    assert (offsets(processor), epoch_node(world).topic_id) == ([11, 12], UUID)
