"""A watch stands once on each connection, for as long as nothing changes and its reads are answered."""

from __future__ import annotations

import pytest

from inbound.coordinators.zookeeper import Create, SetData, Watch
from inbound.errors import ZkAmbiguousError, ZkDeniedError, ZkUnavailableError
from inbound.testing.clock import ManualClock
from inbound.testing.zookeeper import ANONYMOUS, FakeEnsemble, Who

ADMIN = Who("admin", "creator")


class Scene:
    """A client, a node `/made`, and a watch."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ensemble = FakeEnsemble(self.clock)
        self.ensemble.tree.transaction([Create("/made")], 0)
        self.zk = self.ensemble.client("a", 10.0)
        self.fired: list[str] = []
        self.watch = Watch(lambda: self.fired.append("fired"))

    @property
    def standing(self) -> dict[tuple[str, str], int]:
        """How many callbacks stand on the servers."""
        assert self.zk.wire is not None
        return self.zk.wire.watches

    def write(self) -> None:
        self.ensemble.tree.transaction([SetData("/made", b"x")], 0, who=ADMIN)
        self.ensemble.deliver_all()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_reads_leave_one_watch_and_another_only_after_it_has_fired(scene: Scene) -> None:
    """Two reads before the first answer leave one, too."""
    for _ in range(2):
        scene.watch.get(scene.zk, "/made")
    scene.ensemble.deliver_all()
    before, stands = dict(scene.standing), scene.watch.stands(scene.zk)
    scene.write()
    between = scene.watch.stands(scene.zk)
    scene.watch.get(scene.zk, "/made")
    scene.ensemble.deliver_all()
    assert (before, stands, between, scene.fired) == ({("data", "/made"): 1}, True, False, ["fired"])
    assert (scene.standing, scene.watch.stands(scene.zk)) == ({("data", "/made"): 1}, True)


def test_a_list_of_an_absent_node_leaves_none_and_the_next_read_does(scene: Scene) -> None:
    """ZooKeeper sets none there."""
    first = scene.watch.children(scene.zk, "/absent")
    scene.ensemble.deliver_all()
    between = scene.watch.stands(scene.zk)
    scene.ensemble.tree.transaction([Create("/absent")], 0)
    scene.watch.children(scene.zk, "/absent")
    scene.ensemble.deliver_all()
    assert (first.result(), between, scene.standing) == (None, False, {("children", "/absent"): 1})


def test_a_read_without_an_answer_is_followed_by_one_that_sets_it_again(scene: Scene) -> None:
    """It is not known whether the first one did; nor does a watch outlive its connection."""
    lost = scene.watch.get(scene.zk, "/made")
    scene.ensemble.disconnect("a", executed=1)
    refused = scene.watch.get(scene.zk, "/made")
    scene.clock.advance(1)
    scene.ensemble.tick()
    between = scene.watch.stands(scene.zk)
    scene.watch.get(scene.zk, "/made")
    scene.ensemble.deliver_all()
    scene.write()
    with pytest.raises(ZkAmbiguousError):
        lost.result()
    with pytest.raises(ZkUnavailableError):
        refused.result()
    assert (between, scene.fired) == (False, ["fired"])


def test_reads_that_are_refused_leave_one_watch_and_the_first_that_is_allowed_sets_it_again(scene: Scene) -> None:
    """The server sets it although the node may not be read, and loses it when the node changes until then."""
    scene.ensemble.tree.give("/made", ADMIN)
    refused = []
    for _ in range(3):
        refused.append(scene.watch.get(scene.zk, "/made"))
        scene.ensemble.deliver_all()
    before, stands = dict(scene.standing), scene.watch.stands(scene.zk)
    scene.write()
    unheard = list(scene.fired)
    scene.ensemble.tree.give("/made", ANONYMOUS)
    scene.watch.get(scene.zk, "/made")
    scene.ensemble.deliver_all()
    scene.write()
    for call in refused:
        with pytest.raises(ZkDeniedError):
            call.result()
    assert (before, stands, unheard, scene.fired) == ({("data", "/made"): 1}, False, [], ["fired"])
