"""Commits of many partitions in one transaction, and what becomes of the group when some are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inbound.coordinators.zookeeper import Call, Create, Delete, Node, SetData
from inbound.errors import ZkAmbiguousError
from inbound.ledger.base import Settled
from inbound.partition.partition import Fate
from inbound.testing.world import Consumer, Recording, World
from inbound.testing.zookeeper import ANONYMOUS, Who
from inbound.topic_partition import TopicPartition

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
    """Let reader and workers run until every partition has a commit on its way; the committer does not run."""
    for _ in range(50):
        consumer.channel.reader.run_once()
        for worker in consumer.channel.workers:
            worker.run_once()
    assert not any(p.position.settled for p in consumer.channel.parts.schedule.held())


def outcomes(consumer: Consumer) -> dict[int, str]:
    """Return what the ledger says became of the first commit of offset 3 of each partition."""
    found: dict[int, str] = {}
    for entry in consumer.ledger.entries:
        if isinstance(entry, Settled) and entry.commit == 3:
            found.setdefault(entry.partition, entry.outcome)
    return found


def raise_epochs(world: World, *partitions: int) -> None:
    """Let another member claim these, as far as commits are concerned."""
    for partition in partitions:
        world.ensemble.tree.transaction([SetData(world.paths.epoch("orders", partition), b"")], 0)


@pytest.mark.parametrize(("moved", "transactions"), [((), 1), ((2,), 2), ((0, 1, 3, 4, 5), 3)])
def test_refused_commits_do_not_hold_up_the_others(world: World, moved: tuple[int, ...], transactions: int) -> None:
    """A group costs one transaction. A refused partition is dropped and the rest is sent again; after a second refusal
    all epochs are read at once, instead of one transaction for each that has moved.
    """
    a = world.consumers["a"]
    before = a.channel.parts.transactions
    raise_epochs(world, *moved)
    world.run_until(lambda: len(outcomes(a)) == PARTITIONS, within=1)
    assert outcomes(a) == {p: "fenced" if p in moved else "landed" for p in range(PARTITIONS)}
    assert {p: world.commits()[p] for p in range(PARTITIONS) if p not in moved} == dict.fromkeys(
        set(range(PARTITIONS)) - set(moved), 3
    )
    assert a.channel.parts.transactions - before == transactions


def test_a_commit_that_was_never_sent_did_not_land(world: World) -> None:
    """The partition was found to be another's while its commit still waited."""
    a = world.consumers["a"]
    (lost,) = [p for p in a.channel.parts.schedule.held() if p.tp.partition == 4]
    a.channel.parts.schedule.doom(lost, Fate.DROP)

    a.channel.parts.committer.run_once()

    assert outcomes(a) == {4: "fenced"}
    assert a.channel.parts.commits_fenced == 0, "nobody refused it"


def test_what_became_of_a_commit_without_an_answer_is_not_known(world: World) -> None:
    """It may have landed before the partition was found to be another's."""
    a = world.consumers["a"]
    committer = a.channel.parts.committer
    committer.run_once()
    assert committer._call is not None
    committer._call.fail(ZkAmbiguousError("the connection was lost"))
    committer.run_once()
    (lost,) = [p for p in a.channel.parts.schedule.held() if p.tp.partition == 4]
    a.channel.parts.schedule.doom(lost, Fate.DROP)
    world.run(1)

    assert outcomes(a)[4] == "unknown"


def test_what_was_fenced_is_claimed_again_and_read_from_the_last_commit(world: World) -> None:
    """Nothing is lost; the refused batch is read again."""
    raise_epochs(world, 0, 1)
    world.run(3)
    a = world.consumers["a"].processor
    assert isinstance(a, Recording)
    repeated = {tp.partition for tp, offset in a.seen if a.seen.count((tp, offset)) > 1}
    assert (world.commits(), repeated) == (dict.fromkeys(range(PARTITIONS), 3), {0, 1})


def test_an_offset_node_that_was_deleted_is_made_again(world: World) -> None:
    """Without it nothing of the group could be committed any more."""
    world.ensemble.tree.transaction([Delete(world.paths.offset("orders", 4))], 0)
    world.run(1)
    assert world.commits() == dict.fromkeys(range(PARTITIONS), 3)


# -- what ZooKeeper refuses for one node -------------------------------------------------------------------------------

ADMIN = Who("admin", "creator")
Hand = Callable[[World], None]


def give_offset(world: World, who: Who) -> None:
    world.ensemble.tree.give(world.paths.offset("orders", 2), who)


def give_epoch(world: World, who: Who) -> None:
    world.ensemble.tree.give(world.paths.epoch("orders", 2), who)


def limit(world: World) -> None:
    world.ensemble.tree.refused[world.paths.offset("orders", 2)] = "quota exceeded"


#: What happens to partition 2, how it is undone, and what the log says.
HANDS: dict[str, tuple[Hand, Hand, str]] = {
    "offset node not writable": (
        lambda world: give_offset(world, ADMIN), lambda world: give_offset(world, ANONYMOUS), "offsets/orders/2 is not allowed",
    ),
    "epoch node not readable": (
        lambda world: give_epoch(world, ADMIN), lambda world: give_epoch(world, ANONYMOUS), "epochs/orders/2 is not allowed",
    ),
    "quota": (limit, lambda world: world.ensemble.tree.refused.clear(), "offsets/orders/2: quota exceeded"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", HANDS)
def test_a_commit_that_is_refused_for_its_node_is_set_apart_and_named_and_the_others_land(
    world: World, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At once, and also what they commit later; the one lands within a minute after its node is put right. Nothing is repeated."""
    a, (do, undo, words) = world.consumers["a"], HANDS[kind]
    assert isinstance(a.processor, Recording)
    do(world)
    world.run(0.2)
    at_once = world.commits()
    for partition in range(PARTITIONS):
        world.kafka.publish("orders", partition, [b"x"] * 2)
    world.run(60)
    later, before = world.commits(), a.channel.parts.transactions
    world.run(60)
    tries = a.channel.parts.transactions - before
    undo(world)
    world.run(60)
    others = set(range(PARTITIONS)) - {2}
    said = [r.getMessage() for r in caplog.records if "commit" in r.getMessage() and words in r.getMessage()]
    assert at_once == {2: 0, **dict.fromkeys(others, 3)}
    assert later == {2: 0, **dict.fromkeys(others, 5)}
    assert (tries, len(said), "group orders/2: the commit of offset 3 waits: " in said[0]) == (1, 7, True)
    assert (world.commits(), len(a.processor.seen)) == (dict.fromkeys(range(PARTITIONS), 5), 5 * PARTITIONS)


def test_a_topic_whose_folder_of_offsets_is_missing_keeps_no_other_topic_from_committing() -> None:
    """Each of its partitions is named, with what to do; when the folder is there again, they commit."""
    world = World()
    for topic in ("orders", "bills"):
        world.kafka.create_topic(topic, 3)
    a = world.join("a", topics=["orders", "bills"])
    world.run(4)
    folder = world.paths.offsets("bills")
    world.ensemble.tree.transaction([*(Delete(path) for path in world.nodes(folder)), Delete(folder)], 0)
    for topic in ("bills", "orders"):
        for partition in range(3):
            world.kafka.publish(topic, partition, [b"x"] * 3)
    world.run(1)
    orders, problems = world.commits(), {p.tp.topic for p in a.channel.parts.schedule.held() if p.commit_problem}
    world.ensemble.tree.transaction([Create(folder)], 0)
    world.run(5)
    assert (orders, problems, world.commits("bills")) == (
        dict.fromkeys(range(3), 3), {"bills"}, dict.fromkeys(range(3), 3),
    )  # fmt: skip
    assert [p.commit_problem for p in a.channel.parts.schedule.held()] == [None] * 6


def test_a_release_waits_for_a_commit_that_is_refused_for_its_node(world: World) -> None:
    """The others are released at once; this one when its commit has landed, and nothing is repeated."""
    a = world.consumers["a"]
    give_offset(world, ADMIN)
    world.run(1)
    world.join("b")
    world.run(8)
    before = {p.tp.partition: p.commit_problem is not None for p in a.channel.parts.schedule.held()}
    for partition in before:
        if (p := a.channel.parts.schedule.get(TopicPartition("orders", partition))) is not None:
            a.channel.membership.claims.release(p)
    world.run(1)
    during = world.owned()["a"] & {2}
    give_offset(world, ANONYMOUS)
    world.run(70)
    assert (before[2], during, world.commits()) == (True, {2}, dict.fromkeys(range(PARTITIONS), 3))
    assert sum(c.channel.status().records_total for c in world.consumers.values()) == 3 * PARTITIONS


def test_an_epoch_that_cannot_be_read_after_a_lost_answer_is_asked_forever_more_rarely(world: World) -> None:
    """It has to be read before the commit is sent again. The other partitions' commits land meanwhile."""
    a = world.consumers["a"]
    committer = a.channel.parts.committer
    committer.run_once()
    world.ensemble.disconnect("a", late=True)
    give_epoch(world, ADMIN)
    reads: list[str] = []
    read = a.zk.get

    def get(path: str, watch: Callable[[], None] | None = None) -> Call[Node | None]:
        reads.append(path)
        return read(path, watch)

    a.zk.get = get  # type: ignore[method-assign]
    world.run(30)
    others = {p: offset for p, offset in world.commits().items() if p != 2}
    give_epoch(world, ANONYMOUS)
    world.run(60)
    assert others == dict.fromkeys(set(range(PARTITIONS)) - {2}, 3)
    assert world.commits() == dict.fromkeys(range(PARTITIONS), 3)
    assert reads.count(world.paths.epoch("orders", 2)) < 100


def test_a_commit_without_an_answer_counts_for_the_session_that_it_was_sent_in(world: World) -> None:
    """The partition is got back in a new session before its answer is known to be lost: nothing of the old one can come."""
    a = world.consumers["a"]
    committer = a.channel.parts.committer
    committer.run_once()
    old = a.zk.session
    call, committer._call = committer._call, Call("the answer, which is looked at later")
    assert call is not None
    committer._call.sent_in = call.sent_in
    world.ensemble.expire_session("a")
    lost = committer._call
    world.run_until(
        lambda: all(p.fence.session != (old.id if old else 0) for p in a.channel.parts.schedule.held()), within=5
    )
    before = epochs(world)
    lost.fail(ZkAmbiguousError("the connection was lost"))
    world.run(2)
    assert (world.commits(), epochs(world)) == (dict.fromkeys(range(PARTITIONS), 3), before)


def epochs(world: World) -> list[int]:
    """Return the versions of the epoch nodes."""
    return [world.ensemble.tree.nodes[world.paths.epoch("orders", p)].version for p in range(PARTITIONS)]


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
