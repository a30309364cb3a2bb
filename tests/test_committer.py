"""Commits of many partitions in one transaction, and what becomes of the group when some are refused."""

from __future__ import annotations

import pytest

from inbound.coordinators.zookeeper import Delete, SetData
from inbound.errors import ZkAmbiguousError
from inbound.ledger.base import Settled
from inbound.partition import Fate, Place
from inbound.testing.world import Consumer, Recording, World

PARTITIONS = 6


@pytest.fixture
def world() -> World:
    """A world with one consumer of six partitions, three records in each, all processed and none committed."""
    world = World()
    world.kafka.create_topic("orders", PARTITIONS)
    a = world.join("a")
    world.run(4)
    for partition in range(PARTITIONS):
        world.kafka.publish("orders", partition, [b"x"] * 3)
    process(a)
    return world


def process(consumer: Consumer) -> None:
    """Let reader and workers run until every partition waits for its commit; the committer does not run."""
    for _ in range(50):
        consumer.channel.reader.run_once()
        for worker in consumer.channel.workers:
            worker.run_once()
    assert {p.place for p in consumer.channel.parts.schedule.held()} == {Place.SETTLING}


def outcomes(consumer: Consumer) -> dict[int, str]:
    """Return what the ledger says became of the first commit of offset 3 of each partition."""
    found: dict[int, str] = {}
    for entry in consumer.ledger.entries:
        if isinstance(entry, Settled) and entry.commit == 3:
            found.setdefault(entry.partition, entry.outcome)
    return found


def raise_epochs(world: World, *partitions: int) -> None:
    """Let somebody else claim these, as far as commits are concerned."""
    for partition in partitions:
        world.ensemble.tree.transaction([SetData(world.paths.epoch("orders", partition), b"")], 0)


@pytest.mark.parametrize(("moved", "transactions"), [((), 1), ((2,), 2), ((0, 1, 3, 4, 5), 3)])
def test_refused_commits_do_not_hold_up_the_others(world: World, moved: tuple[int, ...], transactions: int) -> None:
    """A group costs one transaction. A refused partition is dropped and the rest is sent again; after a second refusal
    all epochs are read at once, instead of one transaction for each that has moved.
    """
    a = world.consumers["a"]
    before = a.channel.committer.transactions
    raise_epochs(world, *moved)
    world.run_until(lambda: len(outcomes(a)) == PARTITIONS, within=1)
    assert outcomes(a) == {p: "fenced" if p in moved else "landed" for p in range(PARTITIONS)}
    assert {p: world.commits()[p] for p in range(PARTITIONS) if p not in moved} == dict.fromkeys(
        set(range(PARTITIONS)) - set(moved), 3
    )
    assert a.channel.committer.transactions - before == transactions


def test_a_commit_that_was_never_sent_did_not_land(world: World) -> None:
    """The partition was found to be another's while its commit still waited."""
    a = world.consumers["a"]
    (lost,) = [p for p in a.channel.parts.schedule.held() if p.tp.partition == 4]
    a.channel.parts.schedule.doom(lost, Fate.DROP)

    a.channel.committer.run_once()

    assert outcomes(a) == {4: "fenced"}
    assert a.channel.committer.fenced == 0, "nobody refused it"


def test_what_became_of_a_commit_without_an_answer_is_not_known(world: World) -> None:
    """It may have landed before the partition was found to be another's."""
    a = world.consumers["a"]
    committer = a.channel.committer
    committer.run_once()
    assert committer._call is not None
    committer._call.fail(ZkAmbiguousError("the connection was lost"))
    committer.run_once()
    (lost,) = [p for p in a.channel.parts.schedule.held() if p.tp.partition == 4]
    a.channel.parts.schedule.doom(lost, Fate.DROP)
    world.run(1)

    assert outcomes(a)[4] == "unknown"


def test_what_was_fenced_is_claimed_anew_and_read_from_the_last_commit(world: World) -> None:
    """Nothing is lost; the refused batch is read again."""
    raise_epochs(world, 0, 1)
    world.run(3)
    a = world.consumers["a"].processor
    assert isinstance(a, Recording)
    repeated = {tp.partition for tp, offset in a.seen if a.seen.count((tp, offset)) > 1}
    assert (world.commits(), repeated) == (dict.fromkeys(range(PARTITIONS), 3), {0, 1})


def test_an_offset_node_that_somebody_deleted_is_made_again(world: World) -> None:
    """Without it nothing of the group could be committed any more."""
    world.ensemble.tree.transaction([Delete(world.paths.offset("orders", 4))], 0)
    world.run(1)
    assert world.commits() == dict.fromkeys(range(PARTITIONS), 3)


def test_commits_wait_while_the_session_is_in_doubt_and_land_once_it_is_verified(world: World) -> None:
    """And nothing is repeated."""
    world.ensemble.cut_off("a")
    world.run(9)
    assert world.commits() == dict.fromkeys(range(PARTITIONS), 0)
    world.ensemble.heal("a")
    world.run(2)
    a = world.consumers["a"].processor
    assert isinstance(a, Recording)
    assert (world.commits(), len(a.seen)) == (dict.fromkeys(range(PARTITIONS), 3), 3 * PARTITIONS)
