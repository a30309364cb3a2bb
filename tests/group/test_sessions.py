"""What happens to ownership and commits when ZooKeeper, or the way to it, fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from inbound.coordinators.zookeeper import Call, Create, Node, Op, SetData, Stat
from inbound.errors import ConsumerIdTakenError, ZkDeniedError
from inbound.processors.batch import Batch
from inbound.testing.world import Recording, World
from inbound.testing.zookeeper import ANONYMOUS, Who


@pytest.fixture
def world() -> World:
    """A world with one topic of four partitions, a record in each, and consumers a and b that own two each."""
    world = World()
    world.kafka.create_topic("orders", 4)
    world.join("a")
    world.join("b")
    world.run(5)
    return world


def recording(world: World, name: str) -> Recording:
    """Return the processor of a consumer."""
    processor = world.consumers[name].processor
    assert isinstance(processor, Recording)
    return processor


def publish(world: World, count: int = 5) -> None:
    """Publish to every partition."""
    for partition in range(4):
        world.kafka.publish("orders", partition, [b"x"] * count)


def seen(world: World) -> list[tuple[int, int]]:
    """Return (partition, offset) of everything that anybody was handed, in order."""
    return sorted((tp.partition, offset) for name in world.consumers for tp, offset in recording(world, name).seen)


def once(count: int) -> list[tuple[int, int]]:
    """Return every offset below `count` of the four partitions, once."""
    return [(partition, offset) for partition in range(4) for offset in range(count)]


def epochs(world: World) -> list[int]:
    """Return the partitions' epochs."""
    return [world.ensemble.tree.nodes[world.paths.epoch("orders", p)].version for p in range(4)]


def test_without_a_connection_nothing_is_delivered(world: World) -> None:
    """And everything goes on when it is back, in the same session."""
    world.ensemble.cut_off("a")
    world.run(0.2)
    publish(world)
    world.run(2)
    mine = {p.tp.partition for p in world.consumers["a"].channel.parts.schedule.held()}
    assert not [p for p, _ in seen(world) if p in mine]
    world.ensemble.heal("a")
    world.run(2)
    assert (seen(world), epochs(world)) == (once(5), [1] * 4)


def test_an_outage_of_all_servers_loses_repeats_and_moves_nothing(world: World) -> None:
    """Three sessions long."""
    publish(world)
    world.run(1)
    before = world.owned()
    world.ensemble.down()
    world.run(30)
    publish(world)
    world.ensemble.up()
    world.run(6)
    assert (seen(world), world.owned(), epochs(world)) == (once(10), before, [1] * 4)


def test_sessions_that_all_expire_are_recovered_by_their_own_consumers(world: World) -> None:
    """Who is back first does not take what the other is about to recover."""
    before = world.owned()
    world.ensemble.expire_session("a")
    world.ensemble.expire_session("b")
    publish(world)
    world.run(6)
    assert (seen(world), world.owned(), epochs(world)) == (once(5), before, [1] * 4)


def test_after_an_outage_the_first_one_back_waits_for_the_others(world: World) -> None:
    """Both sessions have expired; b comes back two seconds after a."""
    before = world.owned()
    world.ensemble.cut_off("b")
    world.ensemble.expire_session("b")
    world.ensemble.expire_session("a")
    world.run(2)
    world.ensemble.heal("b")
    world.run(6)
    assert (world.owned(), epochs(world)) == (before, [1] * 4)


def test_an_expired_consumer_loses_what_another_has_taken_and_commits_nothing_of_it(world: World) -> None:
    """A batch is inside the callback while the session expires and b takes over: a's commit is refused."""
    a = world.consumers["a"]
    held = {p.tp.partition for p in a.channel.parts.schedule.held()}

    def expire(batch: Batch) -> None:
        recording(world, "a").on_batch = lambda batch: None
        world.ensemble.cut_off("a")
        world.ensemble.expire_session("a")

    recording(world, "a").on_batch = expire
    publish(world)
    world.run(3)
    taken = {p.tp.partition for p in world.consumers["b"].channel.parts.schedule.held()}
    assert taken == {0, 1, 2, 3}
    committed = world.commits()
    world.ensemble.heal("a")
    world.run(5)
    lost = [call for call in recording(world, "a").calls if call[0] == "exception" and call[2] == "PartitionLostError"]
    assert ({p for _, p, _ in lost}, world.commits()) == (held, committed)
    assert all(owners for owners in world.owned().values())  # and it has rejoined


def test_a_commit_whose_answer_is_lost_is_sent_again_and_repeats_nothing(world: World) -> None:
    """It had landed; sent again under the same epoch it changes nothing."""
    publish(world)
    for name in ("a", "b"):
        world.ensemble.lose_answers(name)
    world.run(4)
    assert (seen(world), world.commits()) == (once(5), dict.fromkeys(range(4), 5))


@pytest.mark.parametrize("nth", range(1, 25))
def test_a_claim_whose_answer_is_lost_leaves_no_partition_that_nobody_reads(nth: int) -> None:
    """Whichever request's answer is lost around the claims: nodes that are ours without our knowing are claimed again."""
    world = World()
    world.kafka.create_topic("orders", 4)
    publish(world)
    world.join("a")
    world.run(2.9)
    world.ensemble.lose_answers("a", nth)
    world.run(4)
    world.ensemble.disconnect("a")
    world.run(2)
    assert (world.owned(), seen(world)) == ({"a": {0, 1, 2, 3}}, once(5))


def test_a_raised_epoch_takes_a_partition_away_and_it_is_claimed_again(world: World) -> None:
    """As a reset does with a stuck consumer: nothing of the old epoch is committed any more."""
    partition = min(world.owned()["a"])
    world.ensemble.tree.transaction([SetData(world.paths.epoch("orders", partition), b"")], 0)
    publish(world)
    world.run(3)
    assert world.commits() == dict.fromkeys(range(4), 5)
    assert ("exception", partition, "PartitionLostError") in recording(world, "a").calls


def test_a_second_live_process_with_our_id_stops_and_the_first_goes_on(world: World) -> None:
    """The id node changes hands only when a process starts; it never becomes a tug of war."""
    world.ensemble.tree.transaction([Create(f"{world.paths.ids}/tmp")], 0)
    node = world.ensemble.tree.nodes.pop(world.paths.member("a"))
    world.ensemble.tree.nodes[world.paths.member("a")] = type(node)(node.data, 0, 4711, 1, 1)
    world.run(61)
    error = world.fatal("a")
    assert isinstance(error, ConsumerIdTakenError)
    assert "consumer id 'a' is in use by process 1 on host" in str(error)


def test_a_new_process_with_the_id_of_a_dead_one_waits_for_its_session(world: World) -> None:
    """Where it cannot be sure that the other is dead."""
    world.kill("a")
    dead = world.consumers.pop("a")
    world.join("a")
    world.run(3)
    assert {p.tp.partition for p in world.consumers["a"].channel.parts.schedule.held()} == set()
    world.run(12)
    assert (len(world.owned()["a"]), dead.zk.session != world.consumers["a"].zk.session) == (2, True)


def test_a_new_process_takes_over_at_once_where_the_old_one_is_provably_dead(world: World) -> None:
    """Same machine, and the lock file that the old process held is ours now."""
    publish(world)
    world.run(1)
    before = world.owned()
    world.kill("a")
    del world.consumers["a"]
    world.join("a", owner_is_dead=lambda info: True)
    world.run(1)
    assert world.owned() == before
    publish(world)
    world.run(1)
    assert world.commits() == dict.fromkeys(range(4), 10)


def test_a_dead_process_that_comes_into_the_id_node_late_is_taken_over_again(world: World) -> None:
    """It was killed while it took the id over itself, and its request executes after its successor has registered."""
    a = world.consumers["a"]
    a.channel.membership.membership.owner_is_dead = lambda info: True
    node = world.ensemble.tree.nodes.pop(world.paths.member("a"))
    world.ensemble.tree.nodes[world.paths.member("a")] = type(node)(node.data, 0, 4711, 1, 1)
    before, session = world.owned(), node.owner
    world.run(61)
    node = world.ensemble.tree.nodes[world.paths.member("a")]
    assert (world.fatal("a"), node.owner, world.owned()) == (None, session, before)


def test_batches_are_told_when_the_session_may_have_expired_and_not_before(world: World) -> None:
    """A short loss of the connection is not a loss of the partitions."""
    a = world.consumers["a"]
    told: list[tuple[float, bool]] = []

    def cut(batch: Batch) -> None:
        world.ensemble.cut_off("a")
        for seconds in (0.0, 4.0, 4.0):
            world.clock.advance(seconds)
            a.controller.run_once()
            told.append((seconds, batch.lost.is_set()))
        recording(world, "a").on_batch = lambda batch: None

    recording(world, "a").on_batch = cut
    publish(world)
    world.run(0.3)
    assert told == [(0.0, False), (4.0, False), (4.0, True)]


def test_the_processor_gets_the_connection_loss(world: World) -> None:
    """Once per partition and loss."""
    world.ensemble.disconnect("a")
    world.run(2)
    calls = recording(world, "a").calls
    assert sorted(call[1] for call in calls if call[2:] == ("ZkUnavailableError",)) == sorted(world.owned()["a"])


def test_a_stop_during_an_outage_commits_what_was_processed_once_zookeeper_is_back(world: World) -> None:
    """Also when the session has expired meanwhile: the epoch still fences the commit, and nobody has claimed."""
    world.leave("b")
    publish(world)
    a = world.consumers["a"]
    recording(world, "a").on_batch = lambda batch: world.ensemble.cut_off("a")
    world.run(1)
    a.channel.parts.service.stopping.set()
    a.controller.close()
    left = a.tasks.spawn(a.channel.membership.leave_group(), "leave")
    world.run(12)
    world.ensemble.expire_session("a")
    world.ensemble.heal("a")
    world.run_until(lambda: left.done, within=5)
    delivered = {partition for partition, _ in seen(world)}
    assert {p: offset for p, offset in world.commits().items() if offset} == dict.fromkeys(delivered, 5)


def test_an_error_that_is_no_lost_connection_strands_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Access rights taken away, and given back: commits and releases are tried again, and the log says why they wait."""
    tree = world.ensemble.tree
    allowed = tree.transaction
    denied = ZkDeniedError("ZooKeeper: no access rights")

    def refuse(ops: Sequence[Op], session: int, *, expired: bool = False, who: Who = ANONYMOUS) -> list[Stat | None]:
        if a.zk.session is not None and session == a.zk.session.id:
            raise denied
        return allowed(ops, session, expired=expired, who=who)

    a = world.consumers["a"]
    monkeypatch.setattr(tree, "transaction", refuse)
    world.join("c")
    publish(world)
    world.run(8)
    monkeypatch.setattr(tree, "transaction", allowed)
    world.run(12)
    assert (seen(world), world.commits()) == (once(5), dict.fromkeys(range(4), 5))
    assert sorted(len(p) for p in world.owned().values()) == [1, 1, 2]
    assert "no access rights" in caplog.text


def test_a_request_that_is_never_answered_does_not_put_the_session_in_doubt_forever(world: World) -> None:
    """The sign of life has a deadline like every request, and is asked for again."""
    get = world.consumers["a"].zk.get
    lost: list[str] = []

    def losing(path: str, watch: Callable[[], None] | None = None) -> Call[Node | None]:
        if path == "/" and not lost:
            lost.append(path)
            return Call("never answered", world.clock.now() + 5)
        return get(path, watch)

    world.consumers["a"].zk.get = losing  # type: ignore[method-assign]
    world.run(20)
    publish(world)
    world.run(2)
    assert (len(lost), seen(world)) == (1, once(5))
