"""A stopped group's offsets are set or taken back in one transaction, which no starting member can overlap."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from inbound.coordinators.nodes import EpochInfo, ResetNote, decode_epoch
from inbound.coordinators.ownership import Fence, Ownership
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call, Create, Op, SetData, Stat
from inbound.errors import ZkUnavailableError
from inbound.kafka.base import LogRange, TopicMeta
from inbound.offsets.changes import BY, IMPORT, Change, OffsetsError, TopicOffsets, outside
from inbound.offsets.model import Logs
from inbound.offsets.nodes import group_names, read_group
from inbound.offsets.removal import DisturbedError, Look, delete_group, look
from inbound.testing.clock import ManualClock
from inbound.testing.zookeeper import FakeEnsemble, FakeZooKeeper
from inbound.topic_partition import TopicPartition

T = TypeVar("T")
PATHS = GroupPaths("svc")
TP = TopicPartition("orders", 0)
GATE_PATH = PATHS.gate("orders")


class Scene:
    """An ensemble, an operator's client, and a consumer's."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ensemble = FakeEnsemble(self.clock)
        self.ensemble.auto = True
        self.zk = self.client("operator")
        self.member = Ownership(self.client("member"), "svc", "a")
        #: Called right before each transaction of the operator's.
        self.before: list[Callable[[], None]] = []
        transaction = self.zk.transaction

        def disturbed(ops: Any) -> Call[list[Stat | None]]:
            if self.before and not all(isinstance(op, Create) for op in ops):  # not while missing nodes are made
                self.before.pop(0)()
            return transaction(ops)

        self.zk.transaction = disturbed  # type: ignore[method-assign]

    def client(self, name: str) -> FakeZooKeeper:
        return self.ensemble.client(name, 10.0)

    def run(self, work: Coroutine[Call[Any], None, T]) -> T:
        """Run a coroutine to its end; clients come back when their connection broke."""
        tasks = Tasks(self.clock, lambda: None)
        call = tasks.spawn(work, "work")
        for _ in range(200):
            tasks.step()
            if call.done:
                return call.result()
            self.clock.advance(0.5)
            self.ensemble.tick()
            self.ensemble.deliver_all()
        raise AssertionError("it did not end")

    def register(self) -> None:
        """Let the consumer be a member."""
        self.run(self.member.ensure_group())
        self.run_op(Create(PATHS.member("a"), b"{}", ephemeral=True))

    def unregister(self) -> None:
        self.ensemble.expire_session("member")
        self.member = Ownership(self.client("member"), "svc", "a")

    def run_op(self, *ops: Op) -> None:
        self.member.zk.transaction(ops).result()

    def claim(self) -> Fence:
        """Let the consumer claim the partition, as a member."""
        self.register()
        self.run(self.member.ensure("orders", 2))
        claim = self.run(self.member.claim(TP))
        assert claim is not None
        return claim.fence

    def commit(self, fence: Fence, offset: int) -> None:
        """Let the consumer give the partition up with a commit."""
        self.run(self.member.release(TP, fence, offset))

    def change(self, new: dict[int, int | None], partitions: int = 2, topic_id: str | None = None) -> list[Change]:
        return self.run(TopicOffsets(self.zk, "svc", "orders", topic_id=topic_id).change(new, partitions))

    def offsets(self) -> dict[int, int | None]:
        """Return the offsets, as the nodes say."""
        topic = self.run(read_group(self.zk, "svc")).topics.get("orders")
        return {p: one.committed for p, one in topic.partitions.items()} if topic is not None else {}

    def epoch(self, partition: int = 0) -> tuple[int, EpochInfo | None]:
        """Return an epoch's version and what stands in it."""
        path = PATHS.epoch("orders", partition)
        node = self.ensemble.tree.get(path)
        assert node is not None
        return node.stat.version, decode_epoch(path, node.data)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_group_that_never_was_gets_its_nodes_and_offsets(scene: Scene) -> None:
    """With gate, epochs and all: the first member finds the nodes that it would have created."""
    assert scene.change({0: 5, 2: 7}, partitions=3) == [Change("orders", 0, None, 5), Change("orders", 2, None, 7)]
    group = scene.run(read_group(scene.zk, "svc"))
    topic = group.topics["orders"]
    assert {p: (one.committed, one.epoch) for p, one in topic.partitions.items()} == {
        0: (5, 1),
        1: (None, 0),
        2: (7, 1),
    }
    assert (topic.gate, topic.known_from_start, group.members) == (None, 3, ())
    assert scene.run(group_names(scene.zk)) == ["svc"]


def test_the_next_owner_reads_the_new_offset_and_the_note_of_the_move(scene: Scene) -> None:
    """The claim after it begins where the operator said."""
    fence = scene.claim()
    scene.commit(fence, 3)
    scene.unregister()
    scene.change({0: 8})
    version, info = scene.epoch()
    assert info is not None
    assert (version, info.consumer, info.session, info.reset) == (2, BY, 0, ResetNote(IMPORT, 3, 8, since=3))
    scene.register()
    claim = scene.run(scene.member.claim(TP))
    assert claim is not None
    assert claim.offset == 8


def test_two_moves_before_a_claim_are_told_as_one(scene: Scene) -> None:
    """As the last, which says where the group was before the first: the ledger knows it there."""
    scene.commit(scene.claim(), 3)
    scene.unregister()
    scene.change({0: 8})
    scene.change({0: 5})
    scene.change({0: 5})
    info = scene.epoch()[1]
    assert info is not None
    assert info.reset == ResetNote(IMPORT, 8, 5, since=3)


def test_a_zombies_commit_is_void(scene: Scene) -> None:
    """A process that slept through it all commits under an epoch that has passed; so also where the offset stayed."""
    fence = scene.claim()
    scene.commit(fence, 3)
    scene.unregister()
    scene.change({0: 3})
    scene.register()
    assert scene.run(scene.member.release(TP, fence, 4)) is None
    assert scene.offsets() == {0: 3, 1: None}


def test_a_live_member_is_named_and_nothing_is_done(scene: Scene) -> None:
    """Also in the plan; a running group is for `offsets reset`."""
    scene.register()
    said = r"svc: has 1 live member \(a\); stop them first.*offsets reset"
    with pytest.raises(OffsetsError, match=said):
        scene.run(TopicOffsets(scene.zk, "svc", "orders").plan({0: 5}))
    with pytest.raises(OffsetsError, match=said):
        scene.change({0: 5})
    assert scene.offsets() == {}


#: Who uses a group: what is to be made, what a change and what a deletion say of it.
USES: dict[str, tuple[Callable[[Scene], None], str, str]] = {
    "member": (Scene.register, "live member", "1 live member"),
    "owner": (
        lambda scene: scene.run_op(Create(PATHS.owner("orders", 1), b"a", ephemeral=True)),
        r"have an owner that is not registered \(1\)",
        "its owner is not registered",
    ),
    "gate": (
        lambda scene: scene.run_op(SetData(GATE_PATH, b"/inbound/commands/reset-offset/r")),
        "a reset has closed the gate",
        "a reset has closed",
    ),
}


@pytest.mark.parametrize("use", USES)
def test_what_comes_right_before_the_transaction_makes_it_impossible(scene: Scene, use: str) -> None:
    """1. No member is there when we look; 2. a member, an owner or a reset comes; 3. the transaction is refused as a whole."""
    come, said, _ = USES[use]
    scene.change({0: 1, 1: 1})
    scene.before = [lambda: come(scene)]
    with pytest.raises(OffsetsError, match=said):
        scene.change({0: 5, 1: 5})
    assert scene.offsets() == {0: 1, 1: 1}


@pytest.mark.parametrize("use", USES)
def test_a_group_in_use_is_not_deleted(scene: Scene, use: str) -> None:
    """By a member, by a session that has not expired, by a reset."""
    come, _, said = USES[use]
    scene.change({0: 1})
    come(scene)
    now = found(scene)
    for attempt in (now.refuse, lambda: scene.run(delete_group(scene.zk, now))):
        with pytest.raises(OffsetsError, match=said):
            attempt()
    assert scene.offsets() == {0: 1, 1: None}


def test_a_member_that_came_and_went_is_seen(scene: Scene) -> None:
    """It moved the epoch, so what was read is old: it is read again, and the old offset told is the member's."""
    scene.change({0: 1})

    def come_and_go() -> None:
        scene.commit(scene.claim(), 4)
        scene.unregister()

    scene.before = [come_and_go]
    assert scene.change({0: 9}) == [Change("orders", 0, 4, 9)]
    assert (scene.offsets(), scene.epoch()[0]) == ({0: 9, 1: None}, 3)


@pytest.mark.parametrize("fate", ["executed", "lost", "executed late"])
def test_a_lost_answer_is_looked_up(scene: Scene, fate: str) -> None:
    """It is done once: the epochs move by one, whether it had executed or not, or does later."""
    scene.change({0: 1})
    if fate == "executed":
        scene.before = [lambda: scene.ensemble.lose_answers("operator")]
    else:
        scene.before = [lambda: scene.ensemble.drop_requests("operator", late=fate == "executed late")]
    assert scene.change({0: 5}) == [Change("orders", 0, 1, 5)]
    scene.ensemble.deliver_all()
    assert (scene.offsets(), scene.epoch()[0]) == ({0: 5, 1: None}, 2)


def test_no_zookeeper_is_reported(scene: Scene) -> None:
    """With nothing done."""
    scene.ensemble.down()
    scene.ensemble.tick()
    with pytest.raises(ZkUnavailableError):
        scene.change({0: 5})


def test_the_topic_ids_stay_and_a_newer_one_goes_before(scene: Scene) -> None:
    """Offsets are about the topic as the brokers have it: with an older id left the first claim would begin at 0."""
    scene.change({0: 1}, topic_id="first")
    scene.change({0: 2})
    kept = scene.epoch()[1]
    scene.change({0: 3}, topic_id="second")
    moved = scene.epoch()[1]
    assert kept is not None
    assert moved is not None
    assert ((kept.topic_id, kept.former), (moved.topic_id, moved.former)) == (("first", ()), ("second", ("first",)))
    scene.register()
    claim = scene.run(scene.member.claim(TP, topic_id="second"))
    assert claim is not None
    assert (claim.offset, claim.recreated) == (3, False)


def test_taken_back_means_as_if_nothing_had_been_committed(scene: Scene) -> None:
    """The epoch moves on, so a zombie's commit is void; the node stays."""
    scene.change({0: 1, 1: 2})
    assert scene.change({0: None}) == [Change("orders", 0, 1, None)]
    assert (scene.offsets(), scene.epoch()[0]) == ({0: None, 1: 2}, 2)


def test_an_unreadable_offset_is_overwritten(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """A warning, and the old offset is unknown."""
    scene.change({0: 1})
    scene.run_op(SetData(PATHS.offset("orders", 0), b"seven"), SetData(PATHS.epoch("orders", 0), b"what?"))
    assert scene.run(read_group(scene.zk, "svc")).topics["orders"].partitions[0].problem is not None
    assert scene.change({0: 5}) == [Change("orders", 0, None, 5)]
    assert "not an offset" in caplog.text
    assert scene.offsets()[0] == 5


def test_what_does_not_fit_in_one_transaction_is_refused_before_anything_is_set(scene: Scene) -> None:
    """With what does it in parts."""
    group = "g" * 200
    with pytest.raises(OffsetsError, match=r"900 partitions are .* KiB in one transaction.*offsets reset --from-file"):
        scene.run(TopicOffsets(scene.zk, group, "t" * 200).change(dict.fromkeys(range(900), 1), 900))
    topic = scene.run(read_group(scene.zk, group)).topics["t" * 200]
    assert {one.committed for one in topic.partitions.values()} == {None}


def test_offsets_outside_the_log_are_named_with_what_is_valid() -> None:
    """Both ends are valid: the first record, and the one that comes next."""
    found = Logs(
        topics={"orders": TopicMeta(3)},
        ranges={TopicPartition("orders", 0): LogRange(4, 10), TopicPartition("orders", 1): LogRange(0, 0)},
        problem="one leader is away",
    )
    assert outside("orders", {0: 4, 1: 0}, found) == outside("orders", {0: 10}, found) == []
    assert outside("orders", {0: 11, 1: 1, 2: 0, 3: 0}, found) == [
        "orders/0: offset 11 is outside the log; valid are 4 to 10",
        "orders/1: offset 1 is outside the log; valid are 0 to 0",
        "orders/2: its leader does not answer, so offset 0 cannot be checked",
        "orders/3: the topic has 3 partitions, 0 to 2",
    ]
    assert outside("bills", {0: 0}, found) == ["bills: the brokers have no such topic; create it, or correct its name"]


# -- a whole group -----------------------------------------------------------------------------------------------------


def found(scene: Scene) -> Look:
    return scene.run(look(scene.zk, "svc"))


def test_a_group_is_deleted_with_everything_in_it(scene: Scene) -> None:
    """And what was another's stays."""
    scene.change({0: 1, 1: 2})
    scene.run_op(Create(PATHS.pause("operator"), b""))
    before = found(scene)
    before.refuse()
    assert found(scene).changed_since(before) is None
    assert scene.run(delete_group(scene.zk, before)) == len(before.nodes) == 17
    assert (scene.ensemble.tree.get(PATHS.root), scene.run(group_names(scene.zk))) == (None, [])
    assert scene.ensemble.tree.get("/consumers") is not None


def test_a_large_group_takes_several_transactions(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each as large as ZooKeeper is sent."""
    scene.change({p: p for p in range(10)}, 10)
    before = found(scene)
    monkeypatch.setattr("inbound.offsets.removal.MAX_TRANSACTION_BYTES", 500)
    assert scene.run(delete_group(scene.zk, before)) == len(before.nodes)
    assert scene.ensemble.tree.get(PATHS.root) is None


def test_a_member_that_comes_between_two_transactions_stops_the_deletion(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error counts the deleted nodes; the member's stay."""
    scene.change({p: p for p in range(10)}, 10)
    before = found(scene)
    monkeypatch.setattr("inbound.offsets.removal.MAX_TRANSACTION_BYTES", 500)

    def join() -> None:
        scene.run(Ownership(scene.member.zk, "svc", "a").ensure_group())
        scene.register()

    scene.before = [lambda: None, join]
    with pytest.raises(DisturbedError, match=r"has changed while the group was to be silent.* of 32 nodes are deleted"):
        scene.run(delete_group(scene.zk, before))
    assert scene.ensemble.tree.get(PATHS.member("a")) is not None


def test_a_member_that_came_and_went_breaks_the_silence(scene: Scene) -> None:
    """A claim leaves its mark in the epoch, a commit in the offset."""
    scene.change({0: 1})
    before = found(scene)
    fence = scene.claim()
    scene.commit(fence, 4)
    scene.unregister()
    now = found(scene)
    now.refuse()
    assert now.changed_since(before) == PATHS.epoch("orders", 0)


@pytest.mark.parametrize("executed", [True, False])
def test_a_lost_answer_of_a_deletion_is_looked_up(scene: Scene, executed: bool) -> None:
    """And the rest is deleted then."""
    scene.change({0: 1})
    before = found(scene)
    fault = scene.ensemble.lose_answers if executed else scene.ensemble.drop_requests
    scene.before = [lambda: fault("operator")]
    scene.run(delete_group(scene.zk, before))
    assert scene.ensemble.tree.get(PATHS.root) is None
