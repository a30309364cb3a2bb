"""What every implementation of `ZooKeeper` must make of access rights: the second part of `zookeeper_conformance`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal

import pytest

from inbound.coordinators.zookeeper import Call, Check, Create, Delete, Op, SetData, ZooKeeper
from inbound.errors import ZkDeniedError
from tests.testing.zookeeper_conformance import Fired, Stage

#: What one may want to do to `/made` and `/made/child`.
READS: list[Callable[[ZooKeeper], Call[Any]]] = [
    lambda zk: zk.get("/made"),
    lambda zk: zk.get("/made", Fired()),
    lambda zk: zk.children("/made"),
    lambda zk: zk.transaction([Check("/made", 0)]),
]
WRITES: list[Op] = [SetData("/made", b"mine"), Create("/made/new"), Delete("/made/child"), Delete("/made/fleeting")]


class AccessConformance:
    """The tests. Each begins with an empty tree."""

    @pytest.mark.parametrize("other", ["stranger", None], ids=["another user", "no user"])
    @pytest.mark.parametrize("acl", ["creator", "readable"])
    def test_what_one_user_made_no_other_may_touch(
        self, stage: Stage, acl: Literal["creator", "readable"], other: str | None
    ) -> None:
        """Neither alone nor among what he may do, of which nothing is done then; and reading is a matter of its own."""
        stage.connected("a")
        owner, other_zk = stage.connected_as("inbound", acl), stage.connected_as(other, "open")
        family = [Create("/made", b"theirs"), Create("/made/child"), Create("/made/fleeting", ephemeral=True)]
        stage.answer(owner.transaction(family))
        for op in WRITES:
            with pytest.raises(ZkDeniedError, match=op.path) as denied:
                stage.answer(other_zk.transaction([Create("/his"), op]))
            assert (denied.value.path, denied.value.index) == (op.path, 1)
        for read in READS:
            with nullcontext() if acl == "readable" else pytest.raises(ZkDeniedError, match="/made"):
                stage.answer(read(other_zk))
        assert stage.answer(other_zk.get("/his")) is None
        for read in READS:
            stage.answer(read(owner))
        for op in WRITES:
            stage.answer(owner.transaction([op]))

    def test_who_logs_in_as_the_same_user_may_do_all(self, stage: Stage) -> None:
        """Members of a group share one user, in sessions of their own."""
        stage.connected("a")
        one, two = stage.connected_as("inbound"), stage.connected_as("inbound", name="another")
        stage.answer(one.transaction([Create("/made", b"1"), Create("/made/child", ephemeral=True)]))
        stage.answer(two.transaction([SetData("/made", b"2", 0), Delete("/made/child"), Create("/made/new")]))
        node = stage.answer(one.get("/made"))
        assert node is not None
        assert (node.data, stage.answer(one.children("/made"))) == (b"2", ["new"])

    def test_ephemeral_nodes_end_with_their_session_with_any_access_rights(self, stage: Stage) -> None:
        """Access rights do not keep the dead."""
        zk = stage.connected("a")
        owner = stage.connected_as("inbound", name="mortal")
        stage.answer(zk.transaction([Create("/made")]))
        stage.answer(owner.transaction([Create("/made/fleeting", ephemeral=True)]))
        stage.expire("mortal")
        stage.until(lambda: stage.answer(zk.children("/made")) == [])

    def test_nodes_of_who_makes_them_for_all_stay_open(self, stage: Stage) -> None:
        """Logging in alone closes nothing."""
        stage.connected("a")
        owner, other = stage.connected_as("inbound", "open"), stage.connected_as(None, "open")
        stage.answer(owner.transaction([Create("/made", b"1")]))
        stage.answer(other.transaction([SetData("/made", b"2", 0), Delete("/made")]))
        assert stage.answer(owner.get("/made")) is None
