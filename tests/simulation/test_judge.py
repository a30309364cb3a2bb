"""The judge of simulated runs: which histories are violations, and which are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inbound import Batch, BatchResponse, TopicPartition
from inbound.coordinators.nodes import OPEN, EpochInfo
from inbound.coordinators.zookeeper import Create, Delete, Op, SetData
from inbound.errors import OffsetOutOfRangeError
from inbound.processors.batch import PlainRecord, Record
from inbound.testing.kafka import ID_FORMS
from inbound.testing.simulation.judge import AWARE, Judge
from inbound.testing.simulation.plan import Plan, Setup
from inbound.testing.simulation.played_processors import Database
from inbound.testing.simulation.resting_group import Requests
from inbound.testing.simulation.stage import Stage
from inbound.testing.world import Consumer, World

ORDERS_0 = TopicPartition("orders", 0)


class Judged:
    """Two members, of which k1 has claimed the only partition in epoch 1; then things happen one by one."""

    def __init__(self, on_truncation: str = "hold", *, gives_up: str = "", window: int = 10_000) -> None:
        self.world = World(session_timeout=4.0)
        self.world.kafka.id_forms = ID_FORMS
        self.world.kafka.create_topic("orders", 1)
        self.judge = Judge(self.world, Setup(gives_up=gives_up, window=window, patience=1.5))
        self.k1 = self.world.join("k1", on_truncation=on_truncation)
        self.world.run(4)
        self.x3 = self.world.join("x3", on_truncation=on_truncation)
        self.world.run(1)
        self.world.kafka.publish("orders", 0, [b"x", b"x"])

    def claimed(self, by: Consumer) -> None:
        epoch, owner = self.world.paths.epoch(*ORDERS_0), self.world.paths.owner(*ORDERS_0)
        ops: list[Op] = [
            SetData(epoch, EpochInfo(by.name, 0, "").encode()),
            Create(owner, by.name.encode(), ephemeral=True),
        ]
        self._does(by, *ops)

    def moves_epoch_on(self, owner: Consumer) -> None:
        self._does(owner, SetData(self.world.paths.epoch(*ORDERS_0), EpochInfo(owner.name, 0, "").encode()))

    def releases(self, owner: Consumer) -> None:
        self._does(owner, Delete(self.world.paths.owner(*ORDERS_0)))

    def owner_node_is_deleted(self) -> None:
        self.judge.disowned(ORDERS_0)
        self._does(None, Delete(self.world.paths.owner(*ORDERS_0)))

    def gate(self, data: bytes) -> None:
        self._does(None, SetData(self.world.paths.gate("orders"), data))

    def group_is_set_to(self, offset: int) -> None:
        self.judge.moved(ORDERS_0)
        epoch, path = self.world.paths.epoch(*ORDERS_0), self.world.paths.offset(*ORDERS_0)
        self._does(None, SetData(path, b"%d" % offset), SetData(epoch, EpochInfo("tool", 0, "").encode()))

    def handed(
        self, to: Consumer, epoch: int, answer: BatchResponse | None = None, *, first: int = 0, count: int = 2, now: bool = False
    ) -> None:  # fmt: skip
        """`now`: the records that the log has there now."""
        records: list[Record] = [PlainRecord(offset, value=b"x") for offset in range(first, first + count)]
        if now:
            records = [one for one in self.world.kafka.records(ORDERS_0) if first <= one.offset < first + count]
        given = self.judge.begins(to, Batch("orders", 0, first, first + count, records, epoch), to.processor)
        self.judge.answers.ends(given, answer)

    def commits(self, owner: Consumer, offset: int, *, leader: int | None = None) -> None:
        """`leader`: the epoch node, which else stays as it is, says that it wrote what is before the offset; -1: unknown."""
        epoch = EpochInfo(owner.name, 0, "", leader_epoch=None if leader == -1 else leader)
        noted = [SetData(self.world.paths.epoch(*ORDERS_0), epoch.encode())] if leader is not None else []
        self._does(owner, *noted, SetData(self.world.paths.offset(*ORDERS_0), b"%d" % offset))

    def log_is_cut(self, end: int, grows: int = 4) -> None:
        self.judge.cut(ORDERS_0, end)
        self.world.kafka.truncate(*ORDERS_0, end)
        self.world.kafka.publish(*ORDERS_0, [b"new"] * grows)

    def handed_what_is_there(self, to: Consumer, first: int, end: int) -> None:
        records = [record for record in self.world.kafka.records(ORDERS_0) if first <= record.offset < end]
        given = self.judge.begins(to, Batch("orders", 0, first, end, records, 1), to.processor)
        self.judge.answers.ends(given, BatchResponse.advance())

    def learns(self, of_cut: int, position: int, end: int | None = None) -> None:
        error = OffsetOutOfRangeError("orders", 0, position, 0, of_cut if end is None else end, cut=of_cut)
        self.judge.cuts.out_of_range(ORDERS_0, error)

    def _does(self, who: Consumer | None, *ops: Op) -> None:
        session = who.zk.session if who is not None else None
        self.world.ensemble.tree.transaction(ops, session=session.id if session is not None else 0)


@pytest.mark.parametrize(
    ("later", "violations"),
    [(0.5, []), (AWARE + 0.5, ["k1 is handed orders/0 in epoch 1; epoch 3 is x3's and the owner node x3's"])],
)
def test_who_was_overtaken_by_hand_has_time_to_find_out(later: float, violations: list[str]) -> None:
    """However far its successor has moved the epoch on by then."""
    judged = Judged()
    judged.judge.calm()
    judged.owner_node_is_deleted()
    judged.claimed(judged.x3)
    judged.moves_epoch_on(judged.x3)
    judged.world.clock.advance(later)
    judged.handed(judged.k1, epoch=1)
    assert judged.judge.violations == violations


@pytest.mark.parametrize(
    ("closed", "violations"),
    [
        (2.0, []),
        (1.0, [f"orders/0 offset {n} is redelivered to k1 in epoch 2, because it gave the partition up" for n in (0, 1)]),
    ],
)  # fmt: skip
def test_what_was_abandoned_behind_a_gate_may_be_released_after_it_opens(closed: float, violations: list[str]) -> None:
    """Its nodes were refused until then. A gate that was closed for less than `shutdown_timeout` is no reason to abandon it."""
    judged = Judged()
    judged.handed(judged.k1, epoch=1, answer=BatchResponse.advance())
    judged.gate(b"/inbound/commands/reset-offset/r1")
    judged.world.clock.advance(closed)
    judged.gate(OPEN)
    judged.world.clock.advance(2.0)
    judged.releases(judged.k1)
    judged.claimed(judged.k1)
    judged.handed(judged.k1, epoch=2)
    assert judged.judge.violations == violations


def test_what_waits_for_its_commit_is_abandoned_with_a_batch_behind_it_that_failed() -> None:
    """A reset waits no longer; the next claim begins at the commit."""
    judged = Judged()
    judged.handed(judged.k1, epoch=1, answer=BatchResponse.advance())
    judged.handed(judged.k1, epoch=1, first=2)
    judged.gate(b"/inbound/commands/reset-offset/r1")
    judged.world.clock.advance(2.0)
    judged.releases(judged.k1)
    judged.gate(OPEN)
    judged.claimed(judged.k1)
    judged.handed(judged.k1, epoch=2)
    assert judged.judge.violations == []


def test_a_commit_that_moves_the_epoch_on_is_no_claim_although_nobody_has_the_owner_node() -> None:
    """It was deleted by hand, and its consumer has not made it again yet; another may be first."""
    judged = Judged()
    judged.owner_node_is_deleted()
    judged.moves_epoch_on(judged.k1)
    judged.handed(judged.k1, epoch=2, answer=BatchResponse.advance())
    assert judged.judge.tenures() == {ORDERS_0: 1}
    judged.claimed(judged.x3)
    judged.handed(judged.x3, epoch=3)
    assert judged.judge.tenures() == {ORDERS_0: 2}
    assert judged.judge.violations == []


@pytest.mark.parametrize("cut", [True, False])
def test_who_begins_behind_a_cut_may_be_held_for_it(cut: bool) -> None:
    """Its claim knows up to where the log was read: the next claim does not, and has to read."""
    judged = Judged()
    judged.handed(judged.k1, epoch=1, answer=BatchResponse.advance())
    judged.commits(judged.k1, 2)
    judged.releases(judged.k1)
    if cut:
        judged.log_is_cut(1)
    judged.claimed(judged.x3)
    judged.judge.placed(judged.x3, ORDERS_0, 4)
    judged.commits(judged.x3, 4)
    assert judged.judge.cuts.may_hold(ORDERS_0) == cut
    judged.handed(judged.x3, epoch=2, answer=BatchResponse.advance(), first=4)
    judged.commits(judged.x3, 6)
    assert not judged.judge.cuts.may_hold(ORDERS_0)


def test_a_commit_past_a_record_that_is_given_up_goes_over_no_cut() -> None:
    """It was read before the log was cut; then the group goes on at the log's end, once."""
    judged = Judged(on_truncation="latest", gives_up="skip")
    judged.world.kafka.publish(*ORDERS_0, [b"x"])
    judged.handed(judged.k1, epoch=1, answer=BatchResponse.advance())
    judged.commits(judged.k1, 2)
    judged.log_is_cut(1)
    judged.handed(judged.k1, epoch=1, first=2, count=1)
    judged.commits(judged.k1, 3)
    judged.learns(of_cut=1, position=3)
    judged.commits(judged.k1, 5)
    assert judged.judge.violations == []


def test_a_cut_behind_a_commit_is_not_over_with_it() -> None:
    """The log was cut, and read on; then it is cut between two commits that are on their way."""
    judged = Judged()
    judged.world.kafka.publish(*ORDERS_0, [b"x"] * 4)
    judged.handed(judged.k1, epoch=1, answer=BatchResponse.advance())
    judged.commits(judged.k1, 2)
    judged.log_is_cut(3)
    judged.handed_what_is_there(judged.k1, 2, 4)
    judged.handed_what_is_there(judged.k1, 4, 7)
    judged.log_is_cut(5)
    judged.commits(judged.k1, 4)
    judged.commits(judged.k1, 7)  # it is about records that are gone
    assert judged.judge.violations == []
    judged.handed_what_is_there(judged.k1, 7, 9)
    assert judged.judge.violations == [
        "k1 reads on in orders/0 at 7, although the log was cut at 5: [5, 6] were published since, and never delivered"
    ]


def test_no_commit_skips_what_stands_behind_a_cut_that_is_over() -> None:
    judged = Judged()
    judged.world.kafka.publish(*ORDERS_0, [b"x"] * 4)
    judged.handed(judged.k1, epoch=1, answer=BatchResponse.advance())
    judged.commits(judged.k1, 2)
    judged.log_is_cut(5)
    judged.log_is_cut(3)
    judged.handed_what_is_there(judged.k1, 2, 4)
    judged.commits(judged.k1, 4)
    judged.commits(judged.k1, 7)
    assert judged.judge.violations == ["k1 commits orders/0 7, but [4, 5, 6] were not processed"]


@pytest.mark.parametrize(("commit", "violations"), [(4, []), (5, ["k1 sets the commit of orders/0 back from 6 to 5"])])
def test_who_goes_over_a_cut_goes_where_the_log_ended_then(commit: int, violations: list[str]) -> None:
    """It is cut twice more before the commit of that lands, as its session had expired."""
    judged = Judged(on_truncation="latest")
    judged.world.kafka.publish(*ORDERS_0, [b"x"] * 4)
    judged.handed(judged.k1, epoch=1, answer=BatchResponse.advance(), count=6)
    judged.commits(judged.k1, 6)
    judged.log_is_cut(3, grows=1)
    judged.learns(of_cut=3, position=6, end=4)
    judged.log_is_cut(2, grows=0)
    judged.log_is_cut(1, grows=0)
    judged.commits(judged.k1, commit)
    assert judged.judge.violations == violations


@pytest.mark.parametrize(
    ("first", "violations"), [(3, []), (4, ["k1 reads orders/0 at 4 instead of 5: [4] lie between"])]
)
def test_who_passes_over_the_place_of_a_cut_goes_back_for_it(first: int, violations: list[str]) -> None:
    """It was handed what stands before the cut when the log was cut already; what was read ahead of it was cut off."""
    judged = Judged()
    judged.world.kafka.publish(*ORDERS_0, [b"x"] * 2)
    judged.log_is_cut(4)
    judged.world.clock.advance(0.1)
    judged.handed(judged.k1, epoch=1, answer=BatchResponse.advance(), count=3, now=True)
    judged.handed(judged.k1, epoch=1, answer=BatchResponse.next(5), first=3, count=1, now=True)
    judged.handed(judged.k1, epoch=1, first=first)
    assert judged.judge.violations == violations


@pytest.mark.parametrize(("start", "missing"), [(1, "[1, 2, 3, 4]"), (3, None)])
def test_who_passes_over_a_cut_without_knowing_is_led_back_to_it_unless_retention_has_deleted_its_place(
    start: int, missing: str | None
) -> None:
    """The processor names an offset of its batch from before the cut."""
    judged = Judged()
    batch = Batch("orders", 0, 0, 2, judged.world.kafka.records(ORDERS_0), 1)
    given = judged.judge.begins(judged.k1, batch, judged.k1.processor)
    judged.log_is_cut(1, grows=5)
    judged.world.kafka.retain(*ORDERS_0, start)
    judged.judge.answers.ends(given, BatchResponse.next(5))
    judged.handed(judged.k1, epoch=1, first=5, count=1, now=True)
    over = f"the log was cut at 1: {missing} were published since, and never delivered"
    assert judged.judge.violations == ([f"k1 reads on in orders/0 at 5, although {over}"] if missing else [])


def test_what_was_answered_for_behind_a_cut_is_not_on_its_way() -> None:
    """Its commit goes as far as the cut; then what stands there now is read, and the window has room for it."""
    judged = Judged(window=0)
    judged.world.kafka.publish(*ORDERS_0, [b"x"] * 2)
    judged.handed(judged.k1, epoch=1, answer=BatchResponse.advance(), count=4)
    judged.log_is_cut(3)
    judged.commits(judged.k1, 3)
    judged.handed(judged.k1, epoch=1, answer=BatchResponse.revert(4), first=3, now=True)
    judged.handed(judged.k1, epoch=1, first=4, now=True)
    assert judged.judge.violations == []


@pytest.mark.parametrize(
    ("told", "leader", "end", "lost"),
    [
        (3, -1, 3, False),
        (4, -1, 4, False),  # where the last batch ended, too
        (4, 0, 4, True),  # that is the last batch's own: it was on its way when the cut was found
        (4, -1, 3, True),  # elsewhere than reading goes on
        (None, -1, 4, True),  # no member has found the cut
    ],
)
def test_who_goes_over_a_cut_commits_less_than_it_had_answered_for(
    told: int | None, leader: int, end: int, lost: bool
) -> None:
    """The log is cut below what is committed, and has grown to within the last batch by then: its end is where reading goes on."""
    judged = Judged(on_truncation="latest")
    judged.world.kafka.publish(*ORDERS_0, [b"x"] * 2)
    judged.handed(judged.k1, epoch=1, answer=BatchResponse.advance())
    judged.commits(judged.k1, 2, leader=0)
    judged.handed(judged.k1, epoch=2, answer=BatchResponse.advance(), first=2)
    judged.log_is_cut(1, grows=end - 1)
    if told is not None:
        judged.learns(of_cut=1, position=4, end=told)
    judged.commits(judged.k1, end, leader=leader)
    judged.world.kafka.publish(*ORDERS_0, [b"new"])
    judged.handed(judged.k1, epoch=3, first=end, count=1, now=True)
    passed = f"the log was cut at 1: {[*range(1, end)]} were published since, and never delivered"
    assert judged.judge.violations == ([f"k1 reads on in orders/0 at {end}, although {passed}"] if lost else [])


def test_who_goes_over_a_cut_finds_one_below_it_later() -> None:
    """The log was cut once more after its limits were asked for, and before the processor was told."""
    judged = Judged(on_truncation="latest")
    judged.world.kafka.publish(*ORDERS_0, [b"x"] * 4)
    judged.handed(judged.k1, epoch=1, answer=BatchResponse.advance(), count=4)
    judged.commits(judged.k1, 4)
    judged.log_is_cut(3, grows=0)
    judged.log_is_cut(2, grows=0)
    judged.learns(of_cut=3, position=6)
    judged.commits(judged.k1, 3)
    judged.learns(of_cut=2, position=3)
    judged.commits(judged.k1, 2)
    assert judged.judge.violations == []


@pytest.mark.parametrize(
    ("answer", "end", "first", "violations"),
    [
        (BatchResponse.advance(), 3, 3, []),  # of what was answered for, the commit is sent as far as the log still has it
        (BatchResponse.advance(), 3, 2, ["k1 reads orders/0 at 2 instead of 4: [2, 3] lie between"]),
        (BatchResponse.next(), 3, 2, []),  # back to what is on its way to the commit
        (BatchResponse.next(), 3, 3, ["k1 reads orders/0 at 3 instead of 4: [3] lie between"]),
        (BatchResponse.next(), 3, 0, []),  # back to what has landed
        (BatchResponse.advance(), 1, 2, ["k1 reads orders/0 at 2 instead of 4: [2, 3] lie between"]),  # and not over others
    ],
)  # fmt: skip
def test_reading_goes_back_over_a_cut_to_what_is_sent(
    answer: BatchResponse, end: int, first: int, violations: list[str]
) -> None:
    """A batch was in hand when the log was cut, and the commit of the one before it has not landed."""
    judged = Judged()
    judged.world.kafka.publish(*ORDERS_0, [b"x"] * 2)
    judged.handed(judged.k1, epoch=1, answer=BatchResponse.advance())
    judged.handed(judged.k1, epoch=1, answer=answer, first=2)
    judged.log_is_cut(end)
    judged.handed(judged.k1, epoch=1, first=first)
    assert judged.judge.violations == violations


def _reads(stage: Stage, member: Consumer) -> None:
    member.zk.get("/")


def _commits(stage: Stage, member: Consumer) -> None:
    member.zk.transaction([SetData("/consumers/audit/offsets/orders/0", b"7")])


def _claims(stage: Stage, member: Consumer) -> None:
    owner = stage.paths.owner(*ORDERS_0)
    data = EpochInfo(member.consumer_id, 0, "").encode()
    claim: list[Op] = [
        SetData(stage.paths.epoch(*ORDERS_0), data),
        Delete(owner),
        Create(owner, member.consumer_id.encode(), ephemeral=True),
    ]
    member.zk.transaction(claim)
    for _ in range(10):
        member.zk.get("/")


def _claims_what_is_refused(stage: Stage, member: Consumer) -> None:
    stage.judge.refused.add(ORDERS_0)
    _claims(stage, member)


@pytest.mark.parametrize(
    ("does", "times", "violations"),
    [
        (_reads, 71, ["{} has asked ZooKeeper 71 times in 4.0 s, with nothing to do"]),
        (_commits, 200, []),
        (_claims, 20, []),
        (_claims_what_is_refused, 20, ["{} has asked ZooKeeper 220 times in 4.0 s, with nothing to do but 1 claims"]),
    ],
)  # fmt: skip
def test_requests_of_a_member_at_rest_are_few(
    does: Callable[[Stage, Consumer], None], times: int, violations: list[str]
) -> None:
    """Commits of any channel are something to do, and claims: but of what is refused to it, not again and again."""
    stage = Stage(Plan(1, Setup(topics=(("orders", 1),), members=1), ()))
    stage.scheduler.run(stage.world.clock.now() + 4.0)
    folders = ("/consumers/audit", "/consumers/audit/offsets", "/consumers/audit/offsets/orders")
    stage.ensemble.tree.transaction([Create(path) for path in (*folders, f"{folders[-1]}/0")], session=0)
    (member,) = stage.living()
    requests = Requests(stage)
    requests.begin()
    for _ in range(times):
        does(stage, member)
    stage.ensemble.deliver_all()
    stage.world.clock.advance(4.0)
    requests.check()
    assert stage.judge.violations == [text.format(member.name) for text in violations]


@pytest.mark.parametrize(
    ("begins", "violations"),
    [(2, []), (1, ["the database gets orders/0 from 2 on, and never got [1]"])],
)
def test_a_database_begins_where_the_group_stands(begins: int, violations: list[str]) -> None:
    """An operator has set the group's offset before anything was written: the database knows nothing of records before that."""
    judged = Judged()
    judged.world.kafka.publish("orders", 0, [b"x", b"x"])
    judged.group_is_set_to(begins)
    database = Database(judged.judge, judged.world.kafka)
    database.next_offset(ORDERS_0)
    database.write(Batch("orders", 0, 2, 4, [PlainRecord(offset, value=b"x") for offset in (2, 3)], 3))
    assert judged.judge.violations == violations


class Mirrored:
    """One member, whose offsets go to a Kafka group, too; it holds the only partition, and has nothing to read."""

    def __init__(self) -> None:
        self.stage = Stage(Plan(1, Setup(topics=(("orders", 1),), members=1, mirror=True), ()))
        self.stage.scheduler.run(self.stage.world.clock.now() + 4.0)
        (self.member,) = self.stage.living()
        assert self.stage.mirrors is not None
        self.mirrors = self.stage.mirrors

    def commits(self, offset: int) -> None:
        self._does(SetData(self.stage.paths.offset(*ORDERS_0), b"%d" % offset))

    def recovers(self) -> None:
        self._does(*self._owner_again())

    def claims_again(self) -> None:
        claim = EpochInfo(self.member.consumer_id, 0, "").encode()
        self._does(SetData(self.stage.paths.epoch(*ORDERS_0), claim), *self._owner_again())

    def sends(self, offset: int) -> None:
        self.mirrors.send(self.member.name, "group", {ORDERS_0: offset}, lambda: None)

    def _owner_again(self) -> tuple[Op, Op]:
        owner = self.stage.paths.owner(*ORDERS_0)
        return Delete(owner), Create(owner, self.member.consumer_id.encode(), ephemeral=True)

    def _does(self, *ops: Op) -> None:
        assert self.member.zk.session is not None
        self.stage.ensemble.tree.transaction(ops, session=self.member.zk.session.id)
        self.stage.world.clock.advance(1.0)


@pytest.mark.parametrize(
    ("again", "violations"),
    [
        (Mirrored.recovers, []),
        (Mirrored.claims_again, ["{} sends orders/0 1 to Kafka, which the group's offset was not since it has it"]),
    ],
)
def test_who_recovers_a_partition_sends_what_it_knew_of_it(
    again: Callable[[Mirrored], None], violations: list[str]
) -> None:
    """The answer to its last commit was lost with the session. Who claims it reads the offset."""
    mirrored = Mirrored()
    mirrored.commits(1)
    mirrored.commits(2)
    again(mirrored)
    mirrored.sends(1)
    assert mirrored.stage.judge.violations == [text.format(mirrored.member.name) for text in violations]


def test_a_kafka_group_is_behind_what_has_just_landed_and_not_for_long() -> None:
    mirrored = Mirrored()
    mirrored.commits(1)
    mirrored.mirrors.check()
    assert mirrored.stage.judge.violations == []
    mirrored.stage.world.clock.advance(1.0)
    mirrored.mirrors.check()
    assert mirrored.stage.judge.violations == ["in the Kafka group orders/0 is at 0 instead of 1"]
