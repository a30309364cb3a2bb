"""A paused group keeps its partitions, claims and releases, and reads nothing; nothing is lost and nothing repeated."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inbound.coordinators.ownership import Fence
from inbound.coordinators.pauses import OPERATOR, Pause, ask_rebalance, decode_pause, pause
from inbound.coordinators.zookeeper import Call, Create, Delete
from inbound.errors import InboundError, TransientError
from inbound.ledger.base import Range
from inbound.partition.partition import Partition
from inbound.partition.position import Position
from inbound.partition.schedule import NEVER, Schedule
from inbound.processors.batch import Batch, BatchResponse
from inbound.testing.clock import ManualClock
from inbound.testing.world import GROUP, World
from inbound.topic_partition import TopicPartition
from tests.group.paused_group import PARTITIONS, SINCE, Group


def once(count: int) -> list[tuple[int, int]]:
    """Return every offset below `count` of every partition, once."""
    return [(partition, offset) for partition in range(PARTITIONS) for offset in range(count)]


@pytest.fixture
def group() -> Group:
    return Group()


def test_a_paused_group_ends_the_batch_in_hand_keeps_its_partitions_and_reads_nothing(group: Group) -> None:
    """Under load: what was delivered is committed, what was read ahead waits, and later everything comes once."""
    for processor in (group.a, group.b):
        processor.answer = lambda batch: BatchResponse.advance(wait=0.05)
    group.publish(100)
    group.world.run_until(lambda: len(group.seen()) > 20, within=5)
    owned = group.world.owned()
    group.pause()
    before = group.seen()
    group.publish(50)
    group.world.run(120)
    assert (group.seen(), group.committed(), group.world.owned()) == (before, before, owned)
    assert len(before) < 300, "hardly anything was left to be paused"
    group.resume()
    group.world.run(20)
    assert (group.seen(), group.world.owned()) == (once(150), owned)


def test_a_pause_that_comes_during_a_callback_lets_it_end_and_commit(group: Group) -> None:
    """And that partition has its on_pause right after."""
    path = group.world.paths.pause(OPERATOR)

    def on_batch(batch: Batch) -> None:
        if group.world.ensemble.tree.nodes.get(path) is None:
            group.world.ensemble.tree.transaction([Create(path, b"")], 0)

    group.a.on_batch = on_batch
    (first, *_) = sorted(group.of("a"))
    group.world.kafka.publish("orders", first, [b"x"] * 50)
    group.world.run(10)
    seen = [offset for _, offset in group.a.seen]
    calls = [call for call in group.a.calls if call[1] == first]
    assert (seen, group.world.commits()[first]) == (list(range(len(seen))), len(seen))
    assert calls[-2:] == [("processed", first, len(seen)), ("pause", first)]
    assert 1 <= len(seen) < 10


def test_on_pause_comes_once_per_partition_and_spell(group: Group) -> None:
    """By on_pause and on_resume; pause_state again changes nothing. The status says who paused, since when and why."""
    group.pause()
    status = group.world.consumers["a"].channel.status()
    assert status.paused == [Pause(OPERATOR, None, SINCE, "ann", "a good reason")]
    assert [p.paused for p in status.partitions] == [True, True]
    assert group.pause(by="bob") == Pause(OPERATOR, None, SINCE, "ann", "a good reason")
    group.publish()
    group.world.run(70)  # over a timed evaluation
    held = [p for c in group.world.consumers.values() for p in c.channel.parts.schedule.held()]
    assert [p.buffer.size for p in held] == [0] * PARTITIONS, "memory and brokers are left alone"
    group.resume()
    group.world.run(5)
    assert group.resume() == []
    for name, processor in (("a", group.a), ("b", group.b)):
        expected = [(call, p) for p in sorted(group.of(name)) for call in ("pause", "resume")]
        assert processor.told("pause", "resume") == expected


def test_the_lag_of_a_paused_group_grows_with_its_logs(group: Group) -> None:
    """In the status, and so in the metric; nothing is fetched for it."""
    group.publish(5)
    group.world.run(5)
    group.pause()
    group.publish(7)
    group.world.run(10)
    c = group.join("c")  # its partition was never fetched by it
    group.world.run(10)
    lags = [p.lag for consumer in group.world.consumers.values() for p in consumer.channel.status().partitions]
    assert (lags, c.seen) == ([7] * PARTITIONS, [])


def test_a_joiner_takes_its_share_of_a_paused_group_and_reads_nothing(group: Group) -> None:
    """The old owner releases at once; the new one gets on_pause."""
    group.publish()
    group.pause()
    before = group.seen()
    group.publish()
    c = group.join("c")
    group.world.run(10)
    assert sorted(map(len, group.world.owned().values())) == [1, 1, 2]
    assert (group.seen(), c.told("pause", "resume")) == (before, [("pause", p) for p in group.of("c")])
    gone = [call for p in (group.a, group.b) for call in p.told("resume")]
    assert gone == [], "a partition that went while it was paused was not resumed"
    group.resume()
    group.world.run(10)
    assert group.seen() == once(10)


def test_a_group_that_is_killed_and_started_again_is_still_paused(group: Group) -> None:
    """The pause outlives every process; the first to come reads nothing either."""
    group.publish()
    group.world.run(5)
    group.pause()
    group.publish()
    group.world.kill("a")
    group.world.kill("b")
    group.world.run(15)
    group.join("d")
    group.join("e")
    group.world.run(20)
    assert (group.seen(), len(group.of("d")), len(group.of("e"))) == (once(5), 2, 2)
    group.resume()
    group.world.run(10)
    assert group.seen() == once(10)


def test_pauses_of_two_holders_are_counted_apart(group: Group) -> None:
    """The group reads again only when nobody holds it any more."""
    group.pause()
    group.pause("reset-monday")
    group.publish()
    assert [p.holder for p in group.resume()] == [OPERATOR]
    group.world.run(10)
    assert group.seen() == []
    group.pause()
    group.resume("reset-monday")
    group.world.run(10)
    assert group.seen() == []
    group.resume()
    group.world.run(10)
    assert (group.seen(), group.a.told("pause", "resume")) == (
        once(5),
        [(name, p) for p in sorted(group.of("a")) for name in ("pause", "resume")],
    )


def test_one_member_alone_is_paused(group: Group) -> None:
    """It keeps its partitions; the others read theirs."""
    group.pause(consumer="a")
    group.publish()
    group.world.run(10)
    assert group.seen() == [(p, offset) for p, offset in once(5) if p in group.of("b")]
    assert len(group.of("a")) == 2
    group.resume(consumer="a")
    group.world.run(10)
    assert group.seen() == once(5)


def test_resuming_the_group_resumes_members_that_were_paused_alone(group: Group) -> None:
    """But resuming a member of a paused group does not make it read."""
    group.pause()
    group.pause(consumer="a")
    group.publish()
    group.resume(consumer="a")
    group.world.run(5)
    assert group.seen() == []
    group.pause(consumer="a")
    assert sorted(p.consumer or "" for p in group.resume()) == ["", "a"]
    group.world.run(5)
    assert group.seen() == once(5)


@pytest.mark.parametrize("expired", [False, True], ids=["same-session", "new-session"])
def test_a_pause_made_while_a_member_was_cut_off_holds_before_it_reads_again(group: Group, expired: bool) -> None:
    """Its watch went with the connection: nothing is delivered before the pauses have been read on the new one."""
    group.world.ensemble.cut_off("a")
    group.publish()
    group.world.run(0.5)
    group.pause()
    before = group.seen()
    group.world.run(20 if expired else 2)
    group.world.ensemble.heal("a")
    group.publish()
    group.world.run(10)
    assert group.seen() == before
    group.resume()
    group.world.run(15)
    assert group.seen() == once(10)


def test_an_outage_of_zookeeper_during_a_pause_changes_nothing(group: Group) -> None:
    """Neither partitions nor the pause move, and afterwards it can be ended."""
    owned = group.world.owned()
    group.pause()
    group.world.ensemble.down()
    group.publish()
    group.world.run(60)
    group.world.ensemble.up()
    group.world.run(10)
    assert (group.seen(), group.world.owned()) == ([], owned)
    group.resume()
    group.world.run(10)
    assert (group.seen(), group.world.owned()) == (once(5), owned)


def test_a_member_whose_server_lags_learns_of_the_pause_when_it_catches_up(group: Group) -> None:
    """A timed look in between reads the old list, and must not make it deaf."""
    group.world.ensemble.lag("a")
    group.pause()
    group.world.run(65)
    group.world.ensemble.catch_up("a")
    group.world.run(0.3)
    before = group.seen()
    group.publish()
    group.world.run(10)
    assert group.seen() == before == []


def test_a_pause_is_no_idle_time(group: Group) -> None:
    """on_idle is not told while it lasts, and its time does not count."""
    c = group.join("c", idle_time=20.0)
    group.world.run(10)
    group.pause()
    group.world.run(100)
    (mine,) = group.of("c")
    assert c.told("idle") == []
    group.resume()
    group.world.run(5)
    assert c.told("idle") == []
    group.world.run(10)
    assert c.told("idle") == [("idle", mine)]


def test_a_partition_that_rests_gets_the_pause_at_once_and_rests_on_afterwards(group: Group) -> None:
    """A back-off of a minute is no reason to tell a processor late, and a pause is none to cut it short."""
    group.a.answer = lambda batch: BatchResponse.advance(wait=60)
    group.publish(2)
    group.world.run(5)
    group.pause()
    mine = sorted(group.of("a"))
    assert group.a.told("pause") == [("pause", p) for p in mine]
    group.resume()
    assert group.a.told("resume") == [("resume", p) for p in mine]
    group.world.run(50)
    assert [offset for _, offset in group.a.seen] == [0, 0]
    group.world.run(10)
    assert [offset for _, offset in group.a.seen] == [0, 0, 1, 1]


@pytest.mark.parametrize("paused", [True, False])
def test_a_pause_that_begins_or_ends_while_a_partition_is_with_a_worker_is_seen_to_right_after(paused: bool) -> None:
    """It is put back to wait for records, which may never come; nobody else would wake it."""
    worker = object()
    schedule = Schedule(ManualClock(), lambda: None, 1, lambda: None)
    schedule.read_apart(lambda: None)
    schedule.set_paused(not paused)
    partition = Partition(TopicPartition("orders", 0), Fence(1, 1), Position(0))
    partition.quiet.paused_since = None if paused else 1000.0
    schedule.adopt(partition)
    schedule.start(partition)
    assert schedule.take(worker) is partition
    schedule.set_paused(paused)
    schedule.put_back(partition, NEVER)
    schedule.end_turn(worker)
    assert schedule.take(worker) is partition


def test_a_pause_that_comes_right_before_a_delivery_holds_that_batch_back(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last look is after the ledger was written, which can take long; the batch is delivered after the pause."""
    consumer = group.world.consumers["a"]
    begun = consumer.ledger.begun

    def begun_and_paused(entry: Range) -> None:
        begun(entry)
        consumer.channel.parts.schedule.set_paused(True)

    monkeypatch.setattr(consumer.ledger, "begun", begun_and_paused)
    mine = sorted(group.of("a"))
    group.publish(1)
    group.world.run(0.3)
    assert (group.a.seen, [call[0] for call in group.a.calls]) == ([], ["pause"] * 2)
    monkeypatch.undo()
    consumer.channel.parts.schedule.set_paused(False)
    group.world.run(5)
    assert sorted(tp.partition for tp, _ in group.a.seen) == mine


def test_what_was_read_before_a_watch_fired_counts_for_nothing(group: Group) -> None:
    """1. The list of pauses is answered; 2. a watch tells of one made since; 3. the answer is looked at."""
    pause_state, connection = (
        group.world.consumers["a"].channel.parts.pause_state,
        group.world.consumers["a"].zk.connection,
    )
    assert connection is not None
    doubts = pause_state.doubts
    pause_state.doubt()
    pause_state.learned(connection.generation, (), doubts)
    assert not pause_state.allows()
    pause_state.learned(connection.generation, (), pause_state.doubts)
    assert pause_state.allows()


def test_a_pause_of_another_member_costs_the_others_no_time(group: Group) -> None:
    """They look who is meant, and go on at once."""
    group.world.ensemble.tree.transaction([Create(group.world.paths.pause(OPERATOR, "b"), b"")], 0)
    group.publish(3)
    group.world.run_until(lambda: len(group.a.seen) == 6, within=0.5)


def test_a_list_that_is_refused_once_leaves_nobody_deaf(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its watch was not set; the next look sets one."""
    zk = group.world.consumers["a"].zk
    children = zk.children
    refused: list[str] = []

    def children_refused(path: str, watch: Callable[[], None] | None = None) -> Call[list[str] | None]:
        if path != group.world.paths.pauses or refused:
            return children(path, watch)
        refused.append(path)
        call: Call[list[str] | None] = Call("list")
        call.fail(InboundError("no right to read it"))
        return call

    group.world.ensemble.disconnect("a")
    monkeypatch.setattr(zk, "children", children_refused)
    group.world.run(10)
    group.pause()
    group.publish()
    group.world.run(5)
    assert (refused, group.a.seen) == ([group.world.paths.pauses], [])


def test_a_node_made_by_hand_pauses_too(group: Group) -> None:
    """With any content: `create /consumers/orders-svc/pauses/operator` is enough, and so is its deletion."""
    group.world.ensemble.tree.transaction([Create(group.world.paths.pause(OPERATOR), b"because")], 0)
    group.world.run(1)
    group.publish()
    group.world.run(10)
    assert group.seen() == []
    group.world.ensemble.tree.transaction([Delete(group.world.paths.pause(OPERATOR))], 0)
    group.world.run(10)
    assert group.seen() == once(5)


def test_a_deleted_folder_of_pauses_is_no_pause_and_a_new_one_is_heard_of(group: Group) -> None:
    """An operator cleaned up; the next pause makes it again."""
    group.world.ensemble.tree.transaction([Delete(group.world.paths.pauses)], 0)
    group.world.run(61)
    group.pause()
    group.publish()
    group.world.run(10)
    assert group.seen() == []


def test_a_rebalance_is_heard_by_every_member_at_once_and_each_time(group: Group) -> None:
    """Without waiting for the timer."""
    world = group.world
    world.run(1)
    for _ in range(2):
        before = {name: c.controller.evaluations for name, c in world.consumers.items()}
        group.operator(ask_rebalance(group.zk, GROUP, Pause(OPERATOR, since=SINCE)))
        after = {name: c.controller.evaluations for name, c in world.consumers.items()}
        assert after == {name: count + 1 for name, count in before.items()}


def test_a_group_that_nobody_has_joined_yet_can_be_paused() -> None:
    """Its members are paused from their first moment."""
    group = Group.__new__(Group)
    group.world, group.processors = World(), []
    group.world.kafka.create_topic("orders", PARTITIONS)
    group.pause()
    group.publish()
    group.join("a")
    group.world.run(10)
    assert (group.seen(), len(group.of("a"))) == ([], PARTITIONS)
    group.resume()
    group.world.run(10)
    assert group.seen() == once(5)


@pytest.mark.parametrize("fault", ["lose_answers", "drop_requests"])
@pytest.mark.parametrize("after", range(4))
def test_a_command_whose_answers_are_lost_says_that_it_failed_or_has_done_it(
    group: Group, fault: str, after: int
) -> None:
    """It is never half done, and trying again is safe."""
    client = group.zk
    getattr(client._ensemble, fault)("operator", after=after)
    wanted = Pause(OPERATOR, None, SINCE, "ann")
    try:
        done = group.operator(pause(client, GROUP, wanted)) is None
    except TransientError:
        done = group.operator(pause(client, GROUP, wanted)) in (None, wanted)
    group.publish()
    group.world.run(5)
    assert (done, group.seen()) == (True, [])


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (b'{"v":1,"since":"S","by":"ann","reason":"new\\n\\u001b[31mdisk"}', Pause("operator", "a@b", "S", "ann", "new [31mdisk")),
        (b'{"v":9,"since":"S","more":1}', Pause("operator", "a@b", "S")),
        (b"[]", Pause("operator", "a@b")),
        (b"", Pause("operator", "a@b")),
        (b"\xff", Pause("operator", "a@b")),
    ],
)  # fmt: skip
def test_with_any_content_a_nodes_name_says_who_is_paused(data: bytes, read: Pause) -> None:
    """And nothing in it can break a line of a log or a terminal."""
    assert decode_pause("operator@a@b", data) == read
