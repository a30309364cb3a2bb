"""Which topic a group's offset is about: what stands in the epoch node, and the claim that moves to another topic."""

from __future__ import annotations

import pytest

from inbound.coordinators.nodes import FORMER_IDS, EpochInfo, RecreationNote, decode_epoch
from inbound.coordinators.ownership import Claim, OtherTopicError
from inbound.coordinators.zookeeper import Delete, SetData
from inbound.errors import TransientError
from tests.coordinators.ownership_stage import PATHS, TP, Consumer, Group

PATH = PATHS.epoch(*TP)
CLAIM = EpochInfo("a", 1, "n")
SECOND = EpochInfo("a", 1, "n", "t", ("s",))
NOTED = EpochInfo("a", 1, "n", "t", ("s",), recreated=RecreationNote(7))


@pytest.fixture
def group() -> Group:
    return Group()


def claim(consumer: Consumer, topic_id: str | None, instead_of: str | None = None) -> Claim:
    """Claim the partition as a member to which the brokers named `topic_id`; release it again."""
    claim = consumer.do(consumer.ownership.claim(TP, (), topic_id, instead_of=instead_of))
    assert claim is not None
    return claim


def info(group: Group) -> EpochInfo:
    """Return what stands in the epoch node."""
    found = decode_epoch(PATH, group.node(PATH))
    assert found is not None
    return found


def read_ten(group: Group, topic_id: str | None) -> Consumer:
    """Let a consumer claim, commit 10 and release."""
    a = group.join("a")
    fence = claim(a, topic_id).fence
    a.do(a.ownership.release(TP, fence, 10))
    return a


@pytest.mark.parametrize(
    ("before", "told", "after"),
    [
        ((None, ()), "t1", ("t1", ())),
        ((None, ()), None, (None, ())),
        (("t1", ()), None, ("t1", ())),
        (("t1", ("t0",)), "t1", ("t1", ("t0",))),
        (("t1", ("t0",)), "t2", ("t2", ("t1", "t0"))),
        (("t1", ("t0",)), "t0", ("t0", ("t1",))),
    ],
)
def test_former_topics_are_remembered(
    before: tuple[str | None, tuple[str, ...]], told: str | None, after: tuple[str | None, tuple[str, ...]]
) -> None:
    """An id that is not told changes nothing; one that is current again is no former one."""
    found = EpochInfo("a", 1, "n", *before).of_topic(told)
    assert (found.topic_id, found.former) == after


def test_only_so_many_former_topics_are_remembered() -> None:
    """The node stays small however often a topic is recreated."""
    found = CLAIM
    for number in range(100):
        found = found.of_topic(f"t{number}")
    assert found.former == tuple(f"t{number}" for number in range(98, 98 - FORMER_IDS, -1))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"v":1,"consumer":"a","session":1,"nonce":"n"}', CLAIM),
        (b'{"v":2,"consumer":"a","session":1,"nonce":"n","topic_id":"t","former":["s"],"more":{}}', SECOND),
        (b'{"v":1,"consumer":"a","session":1,"nonce":"n","topic_id":null,"former":null}', CLAIM),
        (b'{"v":1,"consumer":"a","session":1,"nonce":"n","topic_id":"t","former":["s"],"recreated":{"old":7}}', NOTED),
    ],
    ids=["older", "newer", "nulls", "recreated"],
)  # fmt: skip
def test_neighbouring_versions_epoch_nodes_are_read(data: bytes, expected: EpochInfo) -> None:
    """What is missing is unknown; what is unknown is left out."""
    assert decode_epoch(PATH, data) == expected


def test_a_claim_of_another_topic_sets_the_offset_back_in_the_same_transaction(group: Group) -> None:
    """No other member can come between, and nothing of the old epoch can be committed over it."""
    a = read_ten(group, "t1")
    b = group.join("b")
    claimed = claim(b, "t2", instead_of="t1")
    nodes = group.ensemble.tree.nodes
    assert (claimed.offset, claimed.recreated, claimed.old, claimed.topic_id) == (0, True, 10, "t2")
    assert nodes[PATH].mzxid == nodes[PATHS.offset(*TP)].mzxid == nodes[PATHS.owner(*TP)].czxid
    assert (info(group).topic_id, info(group).former) == ("t2", ("t1",))
    assert not a.commit(claimed.fence.__class__(claimed.fence.epoch - 1, a.session), 11)


@pytest.mark.parametrize(
    ("told", "instead_of", "former"), [("t2", None, False), ("t2", "t0", False), ("t0", None, True), ("t0", "t9", True)]
)
def test_a_claim_on_hearsay_is_not_made(group: Group, told: str, instead_of: str | None, former: bool) -> None:
    """The brokers have to be asked after the node was read: what was heard before may be older than the node."""
    read_ten(group, "t0")
    a = group.join("b")
    a.do(a.ownership.release(TP, claim(a, "t1", instead_of="t0").fence, 10))
    epoch = group.epoch
    with pytest.raises(OtherTopicError, match=f"about topic t1, the brokers last named {told}") as caught:
        a.do(a.ownership.claim(TP, (), told, instead_of=instead_of))
    assert (caught.value.found, caught.value.former) == ("t1", former)
    assert (group.epoch, group.offset, group.owner) == (epoch, b"10", None)


@pytest.mark.parametrize(("before", "told", "after"), [(None, "t1", "t1"), ("t1", None, "t1"), ("t1", "t1", "t1")])
def test_an_unknown_or_the_same_topic_keeps_the_offset(
    group: Group, before: str | None, told: str | None, after: str
) -> None:
    """Nodes of older versions, and brokers that name no ids."""
    read_ten(group, before)
    claimed = claim(group.join("b"), told)
    assert (claimed.offset, claimed.recreated, info(group).topic_id) == (10, False, after)


def test_an_offset_node_that_is_missing_is_made_with_the_claim(group: Group) -> None:
    """It was deleted by hand; it would else refuse every claim."""
    read_ten(group, "t1")
    group.ensemble.tree.transaction([Delete(PATHS.offset(*TP))], 0)
    assert claim(group.join("b"), "t2", instead_of="t1").offset == 0


def test_a_claim_of_another_topic_whose_answer_is_late_is_known_by_its_nonce(group: Group) -> None:
    """And the offset is not set back twice: the second claim finds its own topic."""
    a = read_ten(group, "t1")
    a.ensemble.lose_answers("a", 1, after=5)  # four reads, the offset, then the transaction
    call = a.begin(a.ownership.claim(TP, (), "t2", instead_of="t1"))
    with pytest.raises(TransientError):
        a.finish(call)
    a.reconnect()
    a.do(a.ownership.release(TP, a.claim().fence, 3))
    assert (claim(group.join("b"), "t2", instead_of="t1").offset, group.offset) == (3, b"3")


def told(claim: Claim) -> tuple[bool, int | None, str | None]:
    return claim.recreated, claim.old, claim.former


def test_each_claim_reports_a_recreation_until_something_is_committed(group: Group) -> None:
    """The claim that begins the topic may execute without an answer; the next claim reports it instead."""
    a, b = read_ten(group, "t1"), group.join("b")
    a.ensemble.lose_answers("a", 1, after=5)  # four reads, the offset, then the transaction
    call = a.begin(a.ownership.claim(TP, (), "t2", instead_of="t1"))
    with pytest.raises(TransientError):
        a.finish(call)
    a.reconnect()
    first = claim(a, "t2")
    a.do(a.ownership.release(TP, first.fence, None))
    second = claim(b, "t2")
    b.do(b.ownership.release(TP, second.fence, 3))
    third = claim(a, "t2")

    assert [told(one) for one in (first, second, third)] == [(True, 10, "t1"), (True, 10, "t1"), (False, None, None)]
    assert info(group).recreated is None


def test_a_hand_that_moves_the_offset_ends_the_note_of_a_recreation(group: Group) -> None:
    """The report must explain where the claim begins."""
    a = read_ten(group, "t1")
    a.do(a.ownership.release(TP, claim(a, "t2", instead_of="t1").fence, None))
    group.ensemble.tree.transaction([SetData(PATHS.offset(*TP), b"5")], 0)

    assert (told(claim(a, "t2")), info(group).recreated) == ((False, None, None), None)
