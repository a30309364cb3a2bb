"""What happens when topics grow, appear, vanish, and are recreated."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from inbound import Batch, BatchResponse, TopicPartition
from inbound.controller.kafka_controller import Timing
from inbound.group import topic_identity
from inbound.ledger.memory import MemoryLedger, Note
from inbound.proof.model import Verdict
from inbound.testing.world import Consumer, Recording, World
from inbound.testing.zookeeper_tree import Commit
from tests.proof.world_proofs import proofs_of


@pytest.fixture
def world() -> World:
    """A world with one topic of four partitions."""
    world = World()
    world.kafka.create_topic("orders", 4)
    return world


def publish(world: World, count: int, *, partitions: int = 4, word: bytes = b"x") -> None:
    """Publish to every partition."""
    for partition in range(partitions):
        world.kafka.publish("orders", partition, [word] * count)


def recreate(world: World, partitions: int = 4) -> None:
    """Delete and recreate the topic, between two looks of any member."""
    world.kafka.delete_topic("orders")
    world.kafka.create_topic("orders", partitions)


def said(caplog: pytest.LogCaptureFixture, words: str) -> int:
    """Return in how many messages `words` stand."""
    return sum(words in record.getMessage() for record in caplog.records)


class Values(Recording):
    """Notes which value came from where."""

    def __init__(self) -> None:
        super().__init__()
        self.values: Counter[tuple[bytes | None, int, int]] = Counter()
        self.on_batch = lambda batch: self.values.update((r.value, batch.partition, r.offset) for r in batch.records)


class Keeping(Recording):
    """Keeps the offset that it had in the deleted topic."""

    def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
        return 10


def values(*consumers: Consumer) -> Counter[tuple[bytes | None, int, int]]:
    """Return how often anybody was handed each (value, partition, offset)."""
    counts: Counter[tuple[bytes | None, int, int]] = Counter()
    for consumer in consumers:
        assert isinstance(consumer.processor, Values)
        counts += consumer.processor.values
    return counts


def of_new(counts: Counter[tuple[bytes | None, int, int]]) -> dict[tuple[int, int], int]:
    """Return how often each (partition, offset) of the new topic was delivered."""
    return {(partition, offset): n for (value, partition, offset), n in counts.items() if value == b"new"}


def everything(count: int, times: int = 1) -> dict[tuple[int, int], int]:
    """Return every offset below `count` of the four partitions, so many times."""
    return {(partition, offset): times for partition in range(4) for offset in range(count)}


# -- recreated ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 10, 30], ids=["shorter", "as long", "longer"])
@pytest.mark.parametrize("on_truncation", ["hold", "earliest", "latest"])
def test_a_topic_recreated_is_read_from_its_start_by_a_running_group(
    world: World, count: int, on_truncation: str, caplog: pytest.LogCaptureFixture
) -> None:
    """However long it is already when we notice, and under any on_truncation: nothing is skipped."""
    publish(world, 10)
    both = [world.join(name, Values(), on_truncation=on_truncation) for name in ("a", "b")]
    world.run(5)
    recreate(world)
    publish(world, count, word=b"new")
    world.run(10)
    got = of_new(values(*both))
    assert (got.keys(), max(got.values()) <= 2) == (everything(count).keys(), True)
    assert world.commits() == dict.fromkeys(range(4), count)
    assert [p.held for c in both for p in c.channel.status().partitions] == [None] * 4
    assert said(caplog, "the topic was deleted and recreated; the group starts at offset 0") == 4
    assert said(caplog, "truncated") == 0


def test_of_a_topic_recreated_while_nobody_ran_every_record_is_read_once(world: World) -> None:
    """The epoch nodes say which topic the offsets were about."""
    publish(world, 10)
    world.join("a")
    world.run(5)
    world.leave("a")
    recreate(world)
    publish(world, 12, word=b"new")
    both = [world.join(name, Values()) for name in ("b", "c")]
    world.run(8)
    resets = [e for c in both for e in c.ledger.entries if isinstance(e, Note) and e.kind == "reset"]
    assert of_new(values(*both)) == everything(12)
    assert [(note.facts["old"], note.facts["new"]) for note in resets] == [(10, 0)] * 4


def test_with_latest_too_a_topic_recreated_starts_at_its_smallest(world: World) -> None:
    """Also the partition that the old topic did not have."""
    publish(world, 9)
    both = [world.join(name, Values(), auto_offset_reset="latest") for name in ("a", "b")]
    world.run(5)
    recreate(world, 5)
    publish(world, 3, partitions=5, word=b"new")
    world.run(10)
    assert of_new(values(*both)) == {(partition, offset): 1 for partition in range(5) for offset in range(3)}


def test_a_batch_of_the_old_topic_is_not_committed_over_the_new_one(world: World) -> None:
    """Its callback runs on while the topic is recreated; its answer comes too late."""
    publish(world, 10)
    lost: list[bool] = []

    def slow(batch: Batch) -> BatchResponse:
        if batch.records[0].value == b"x" and batch.partition == 2:
            recreate(world)
            publish(world, 4, word=b"new")
            a.channel.reader.topics.due = 0
            for _ in range(40):
                a.channel.reader.run_once()
                world.clock.advance(0.01)
                a.controller.run_once()
                world.ensemble.deliver()
            lost.append(batch.lost.is_set())
        return BatchResponse.advance()

    processor = Values()
    processor.answer = slow
    a = world.join("a", processor, reader={"max_batch_records": 10})
    world.run(15)
    assert (lost, of_new(values(a)), world.commits()) == ([True], everything(4), dict.fromkeys(range(4), 4))
    assert ("exception", 2, "PartitionLostError") in processor.calls


def dies_claiming(world: World, name: str) -> None:
    """Let a process die when its next claim is executed, before it has the answer."""

    def executed(commit: Commit) -> None:
        owner = commit.after.get(world.paths.owner("orders", 0))
        if not world.consumers[name].dead and owner is not None and owner.data.decode() == name:
            world.kill(name)

    world.ensemble.observers.append(executed)


def test_a_topic_whose_first_claimant_dies_before_its_ledger_says_so_is_recreated_all_the_same() -> None:
    """The next claim says it in its ledger, and does not ask a processor that keeps offsets of the deleted topic."""
    world = World()
    world.kafka.create_topic("orders", 1)
    publish(world, 10, partitions=1)
    world.join("a")
    world.run(5)
    world.leave("a")
    recreate(world, 1)
    publish(world, 12, partitions=1, word=b"new")
    world.join("b")
    dies_claiming(world, "b")
    world.run(5)
    keeps = Keeping()
    c = world.join("c", keeps)
    world.run(15)

    resets = [e.facts for e in c.ledger.entries if isinstance(e, Note) and e.kind == "reset"]
    (proof,) = proofs_of(world).values()
    assert [world.consumers["b"].dead, [offset for _, offset in keeps.seen]] == [True, list(range(12))]
    assert [(facts["old"], facts["new"], facts["reason"]) for facts in resets] == [(10, 0, "topic created anew")]
    assert (proof.verdict, proof.proven, [former.committed for former in proof.former]) == (Verdict.PROVEN, 12, [10])


def test_a_member_with_old_metadata_does_not_undo_it(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """It takes over what another has moved to the new topic: it asks the brokers before it claims."""
    publish(world, 10)
    a, b = (world.join(name, Values()) for name in ("a", "b"))
    world.run(5)
    world.kafka.clients[1].remember_topics()
    recreate(world)
    publish(world, 10, word=b"new")
    world.run_until(lambda: sum(of_new(values(a)).values()) >= 20, within=7)
    caplog.set_level(logging.INFO)
    world.leave("a")
    world.run(8)
    assert (set(of_new(values(a, b))), world.commits()) == (set(everything(10)), dict.fromkeys(range(4), 10))
    assert said(caplog, "the brokers last named topic-1; asking them again") >= 1
    assert max(of_new(values(a, b)).values()) == 1


@pytest.mark.parametrize("insists", [False, True])
def test_a_broker_that_is_behind_the_times_is_not_believed_until_it_insists(
    world: World, monkeypatch: pytest.MonkeyPatch, insists: bool
) -> None:
    """Meanwhile the partitions wait; in the end it has to be believed, or nobody would read them forever."""
    monkeypatch.setattr(topic_identity, "BELIEVE_AFTER", 15.0)
    publish(world, 10)
    a = world.join("a", Values())
    world.run(5)
    world.join("b", Values())
    world.run(3)
    world.kafka.clients[1].remember_topics(behind=True)
    recreate(world)
    publish(world, 5, word=b"new")
    world.run(8)
    assert of_new(values(a)) == {(p, offset): 1 for p in world.owned()["a"] for offset in range(5)}
    world.leave("a")
    world.run(10)
    before = world.owned()["b"]
    if not insists:
        world.kafka.clients[1].forget_topics()
    world.run(8)
    assert (len(before), world.owned()["b"]) == (2, {0, 1, 2, 3})
    # What b held all along is held as truncated while its broker says that the topic is the same.
    assert world.commits() == {p: 10 if insists and p in before else 5 for p in range(4)}


def test_where_the_new_topics_start_is_gone_that_is_reported(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """As lost to retention, by the new topic's offsets."""
    publish(world, 10)
    world.join("a", Values())
    world.run(5)
    recreate(world)
    publish(world, 8, word=b"new")
    world.kafka.retain("orders", 1, 3)
    world.run(10)
    assert said(caplog, "orders/1: offsets 0 to 2 are lost to retention: the log starts at 3") == 1
    assert said(caplog, "are lost to retention") == 1
    assert world.commits() == dict.fromkeys(range(4), 8)


# -- deleted, and not (yet) recreated -------------------------------------------------------------------------------


def test_a_deleted_topic_is_released_gracefully_and_said_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The only one of the group. Its offsets stay, nobody is busy with it, and it goes on when it is back."""
    caplog.set_level(logging.INFO)
    publish(world, 10)
    a = world.join("a", Values())
    world.run(5)
    world.kafka.delete_topic("orders")
    world.run(10)
    evaluations = a.controller.evaluations
    world.run(60)
    assert (world.owned(), world.commits()) == ({"a": set()}, dict.fromkeys(range(4), 10))
    assert a.controller.evaluations - evaluations <= 2
    assert (said(caplog, "topic orders does not exist on these brokers"), said(caplog, "stands by")) == (1, 0)
    assert isinstance(a.processor, Values)
    assert {call for call in a.processor.calls if call[0] == "termination"} == {
        ("termination", p, 10) for p in range(4)
    }
    world.kafka.create_topic("orders", 4)
    publish(world, 3, word=b"new")
    world.run(10)
    assert of_new(values(a)) == everything(3)


def test_brokers_that_do_not_answer_are_no_deleted_topics(world: World) -> None:
    """Nothing is given up while nobody says that it is gone."""
    publish(world, 3)
    world.join("a", Values())
    world.run(5)
    owned, nodes = world.owned(), dict(world.nodes(world.paths.epochs("orders")))
    world.kafka.down()
    world.run(60)
    assert (world.owned(), dict(world.nodes(world.paths.epochs("orders")))) == (owned, nodes)
    world.kafka.up()
    publish(world, 1)
    world.run(5)
    assert world.commits() == dict.fromkeys(range(4), 4)


# -- more of them ------------------------------------------------------------------------------------------------------


def test_added_partitions_are_read_from_their_start_and_nobody_pauses(world: World) -> None:
    """Also with `latest`; what is read already stays where it is, and goes on all the while."""
    both = [world.join(name, Values(), auto_offset_reset="latest") for name in ("a", "b")]
    world.run(5)
    before, epochs = world.owned(), dict(world.nodes(world.paths.epochs("orders")))
    world.kafka.create_topic("orders", 8)
    for _ in range(10):
        publish(world, 1, partitions=8, word=b"new")
        world.run(1)
    assert of_new(values(*both)) == {(p, o): 1 for p in range(8) for o in range(10)}
    assert all(before[name] <= owned for name, owned in world.owned().items())
    assert {path: world.nodes(world.paths.epochs("orders"))[path] for path in epochs} == epochs
    assert [len(owned) for owned in world.owned().values()] == [4, 4]


def test_a_topic_that_matches_the_pattern_later_is_read_from_its_start_by_both(world: World) -> None:
    """Its first records came before anybody had seen it; what is read already is not touched."""
    both = [world.join(n, Values(), topics_pattern="ord.*|pay.*", auto_offset_reset="latest") for n in ("a", "b")]
    world.run(5)
    publish(world, 5)
    before = world.owned()
    world.kafka.create_topic("payments", 2)
    for partition in range(2):
        world.kafka.publish("payments", partition, [b"new"] * 3)
    world.run(10)
    assert of_new(values(*both)) == {(p, o): 1 for p in range(2) for o in range(3)}
    assert (world.owned(), world.commits("payments")) == (before, {0: 3, 1: 3})
    assert b'"topics":["orders","payments"]' in world.ensemble.tree.nodes[world.paths.member("a")].data


def test_a_pattern_does_not_mean_the_topic_of_the_ledger(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record that was read from it had others written to it, forever."""
    monkeypatch.setattr(MemoryLedger, "topic", "ledger")
    world.kafka.create_topic("ledger", 1)
    world.kafka.publish("ledger", 0, [b"begun"] * 3)
    publish(world, 1)
    a = Values()
    world.join("a", a, topics_pattern=".*")
    world.run(10)
    assert a.values == {(b"x", partition, 0): 1 for partition in range(4)}
    assert (world.commits("ledger"), world.commits()) == ({}, dict.fromkeys(range(4), 1))


def test_topics_that_do_not_fit_into_an_id_node_are_said_and_the_others_are_read_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A larger request breaks the connection, each time that it is sent. With fewer topics the group reads all of them."""
    world = World()
    world.ensemble.largest_request = 2000
    monkeypatch.setattr("inbound.coordinators.members.MAX_ID_BYTES", 1000)
    world.kafka.create_topic("orders", 1)
    a = world.join("a", topics_pattern="orders.*")
    world.run(5)
    session = a.zk.connection
    for number in range(30):
        world.kafka.create_topic(f"orders-{number:0100d}", 1)
    world.kafka.publish("orders", 0, [b"x"] * 3)
    world.run(15)
    path = world.paths.member("a")
    told = [r.getMessage() for r in caplog.records if "do not fit into an id node" in r.getMessage()]
    node = world.ensemble.tree.get(path)
    assert node is not None
    assert (len(told), told[0].startswith(f"channel orders: {path}: 31 topics"), len(node.data) < 1000) == (
        1,
        True,
        True,
    )
    assert (a.zk.connection, world.commits(), world.owned()) == (session, {0: 3}, {"a": {0}})
    for number in range(28):
        world.kafka.delete_topic(f"orders-{number:0100d}")
    world.run(10)
    assert {p.tp.topic for p in a.channel.parts.schedule.held()} == {
        "orders",
        f"orders-{28:0100d}",
        f"orders-{29:0100d}",
    }


def test_a_listed_topic_that_is_created_at_last_is_read_from_its_start(world: World) -> None:
    """What was published before we saw it would be lost with `latest`."""
    a = world.join("a", Values(), topics=["orders", "late"], auto_offset_reset="latest")
    world.run(5)
    world.kafka.create_topic("late", 1)
    world.kafka.publish("late", 0, [b"new"] * 3)
    world.run(7)
    assert of_new(values(a)) == {(0, offset): 1 for offset in range(3)}


def test_a_member_without_a_share_says_so_once_and_takes_over_at_a_death(caplog: pytest.LogCaptureFixture) -> None:
    """Standing by is no error, and no reason to say so at each rebalance that nothing triggered."""
    caplog.set_level(logging.INFO)
    world = World(timing=Timing(rebalance_interval=2))
    world.kafka.create_topic("orders", 4)
    for name in ("a", "b", "c", "d", "e"):
        world.join(name)
    world.run(9)
    idle = next(name for name, owned in world.owned().items() if not owned)
    assert said(caplog, "stands by") == 1
    world.kill(next(name for name, owned in world.owned().items() if owned))
    world.run(14)
    assert len(world.owned()[idle]) == 1
