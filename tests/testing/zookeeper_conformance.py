"""What every implementation of `ZooKeeper` must do: run on the fake in tests/, on a real server in integration/.

A test class inherits `ZooKeeperConformance` and has a fixture `stage` in its module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import pytest

from inbound.coordinators.zookeeper import Call, Check, Create, Delete, Op, RefusedError, SetData, ZooKeeper
from inbound.errors import ZkAmbiguousError, ZkUnavailableError

T = TypeVar("T")

#: Longer than a busy machine stalls. Seconds.
SESSION = 10.0


class Stage(ABC):
    """Clients of one ensemble, how time passes for them, and what can happen to them. Seconds."""

    @abstractmethod
    def client(self, name: str) -> ZooKeeper:
        """Return a new client with a session of `SESSION`, not necessarily connected yet."""

    @abstractmethod
    def client_of_user(self, name: str, user: str | None, acl: Literal["open", "creator", "readable"]) -> ZooKeeper:
        """Return a new client that logs in as `user`, and makes nodes for whom `acl` says."""

    @abstractmethod
    def until(self, condition: Callable[[], object], seconds: float = 20.0) -> None:
        """Let time pass until `condition` holds; fail if it does not within `seconds`."""

    @abstractmethod
    def pass_time(self, seconds: float) -> None:
        """Let so much time pass, everybody doing what is due."""

    @abstractmethod
    def outage(self) -> None:
        """Take all servers away."""

    @abstractmethod
    def outage_over(self) -> None:
        """Bring them back."""

    @abstractmethod
    def expire(self, name: str) -> None:
        """Let the servers declare the session of a client expired."""

    @abstractmethod
    def lose_answer(self, name: str, send: Callable[[], Call[T]]) -> Call[T]:
        """Send a request that reaches the servers and is executed, but break the connection before its answer."""

    def connected(self, name: str) -> ZooKeeper:
        """Return a new client, connected."""
        client = self.client(name)
        self.until(lambda: client.connection is not None)
        return client

    def connected_as(
        self, user: str | None, acl: Literal["open", "creator", "readable"] = "creator", *, name: str | None = None
    ) -> ZooKeeper:
        """Return a new client of `user`, connected."""
        client = self.client_of_user(name or f"of {user}", user, acl)
        self.until(lambda: client.connection is not None)
        return client

    def answer(self, call: Call[T]) -> T:
        """Wait for the answer to a request and return it, or raise it."""
        self.until(lambda: call.done)
        return call.result()

    def session(self, client: ZooKeeper) -> int:
        """Return the id of the session that `client` is connected in."""
        assert client.connection is not None
        return client.connection.session.id

    def settle(self, client: ZooKeeper) -> None:
        """Wait until all requests of `client`, and their effects, are over."""
        self.answer(client.get("/"))
        self.pass_time(0.1)


class Fired:
    """A watch that counts."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


REFUSALS: list[tuple[Op, str]] = [
    (Check("/made", 7), "BadVersion"),
    (Check("/absent", 0), "NoNode"),
    (SetData("/made", b"x", 7), "BadVersion"),
    (SetData("/absent", b"x"), "NoNode"),
    (Create("/made", b"x"), "NodeExists"),
    (Create("/absent/child", b"x"), "NoNode"),
    (Create("/fleeting/child", b"x"), "NoChildrenForEphemerals"),
    (Delete("/absent"), "NoNode"),
    (Delete("/made", 7), "BadVersion"),
    (Delete("/parent"), "NotEmpty"),
]


class ZooKeeperConformance:
    """The tests. Each begins with an empty tree."""

    # -- nodes -------------------------------------------------------------------------------------------------------

    def test_a_created_node_is_read_with_its_data_and_stat(self, stage: Stage) -> None:
        """Version 0, not ephemeral, and both transaction ids are the one that made it."""
        zk = stage.connected("a")
        assert stage.answer(zk.transaction([Create("/node", b"\x00data\xff")])) == [None]
        node = stage.answer(zk.get("/node"))
        assert node is not None
        assert (node.data, node.stat.version, node.stat.ephemeral_owner) == (b"\x00data\xff", 0, 0)
        assert node.stat.czxid == node.stat.mzxid > 0

    def test_children_are_listed_by_name(self, stage: Stage) -> None:
        """Also of the root, also none at all, also with names beyond ASCII; what is absent reads as None."""
        zk = stage.connected("a")
        assert (stage.answer(zk.get("/parent")), stage.answer(zk.children("/parent"))) == (None, None)
        stage.answer(zk.transaction([Create("/parent"), Create("/parent/b"), Create("/parent/Ä-1.x"), Create("/leaf")]))
        assert sorted(stage.answer(zk.children("/parent")) or ()) == ["b", "Ä-1.x"]
        assert stage.answer(zk.children("/leaf")) == []
        assert {"parent", "leaf"} <= set(stage.answer(zk.children("/")) or ())
        assert stage.answer(zk.get("/parent/Ä-1.x")) is not None

    def test_a_write_counts_the_version_up_and_answers_the_new_stat(self, stage: Stage) -> None:
        """One entry per operation; only SetData has something to say."""
        zk = stage.connected("a")
        stage.answer(zk.transaction([Create("/node"), Create("/other")]))
        stats = stage.answer(zk.transaction([Check("/other", 0), SetData("/node", b"1", 0), SetData("/node", b"2")]))
        node = stage.answer(zk.get("/node"))
        assert node is not None
        assert (len(stats), stats[0], stats[2]) == (3, None, node.stat)
        assert (node.data, node.stat.version) == (b"2", 2)
        assert node.stat.mzxid > node.stat.czxid

    def test_operations_of_a_transaction_see_those_before_them(self, stage: Stage) -> None:
        """A parent and its child, and a node that changes hands, in one."""
        zk = stage.connected("a")
        stage.answer(zk.transaction([Create("/p"), Create("/p/c"), SetData("/p/c", b"1", 0), Check("/p/c", 1)]))
        stage.answer(zk.transaction([Delete("/p/c", 1), Create("/p/c", b"new", ephemeral=True)]))
        node = stage.answer(zk.get("/p/c"))
        assert node is not None
        assert (node.data, node.stat.version, node.stat.ephemeral_owner) == (b"new", 0, stage.session(zk))

    def test_a_recreated_node_starts_at_version_0_again(self, stage: Stage) -> None:
        """Which is why an owner's own version proves nothing."""
        zk = stage.connected("a")
        stage.answer(zk.transaction([Create("/node"), SetData("/node", b"1")]))
        first = stage.answer(zk.get("/node"))
        stage.answer(zk.transaction([Delete("/node"), Create("/node")]))
        second = stage.answer(zk.get("/node"))
        assert first is not None
        assert second is not None
        assert (first.stat.version, second.stat.version) == (1, 0)
        assert second.stat.czxid > first.stat.czxid

    def test_requests_are_executed_in_the_order_they_were_made(self, stage: Stage) -> None:
        """Pipelined, none waiting for the one before."""
        zk = stage.connected("a")
        calls = [zk.transaction([Create("/node")])]
        calls += [zk.transaction([SetData("/node", b"%d" % n, n)]) for n in range(300)]
        read = zk.get("/node")
        for call in calls:
            stage.answer(call)
        node = stage.answer(read)
        assert node is not None
        assert (node.data, node.stat.version) == (b"299", 300)

    # -- refusals ----------------------------------------------------------------------------------------------------

    def test_a_refusal_names_the_operation_and_the_reason(self, stage: Stage) -> None:
        """Alone and among others. And nothing is done, neither what came before it nor what comes after."""
        zk = stage.connected("a")
        made = [Create("/made"), Create("/parent"), Create("/parent/c"), Create("/fleeting", ephemeral=True)]
        stage.answer(zk.transaction(made))
        for op, reason in REFUSALS:
            among = [SetData("/made", b"before"), Create("/new"), op, Delete("/made"), Check("/none", 3)]
            for ops in ([op], among):
                with pytest.raises(RefusedError) as refused:
                    stage.answer(zk.transaction(ops))
                assert (refused.value.index, refused.value.op, refused.value.reason) == (ops.index(op), op, reason)
                assert op.path in str(refused.value)
        node = stage.answer(zk.get("/made"))
        assert node is not None
        assert (node.data, node.stat.version, stage.answer(zk.get("/new"))) == (b"", 0, None)

    def test_a_refused_transaction_leaves_the_next_one_alone(self, stage: Stage) -> None:
        """Pipelined behind it, it is executed all the same."""
        zk = stage.connected("a")
        stage.answer(zk.transaction([Create("/node")]))
        refused, after = zk.transaction([Check("/node", 9)]), zk.transaction([SetData("/node", b"after")])
        with pytest.raises(RefusedError):
            stage.answer(refused)
        stats = stage.answer(after)
        assert stats[0] is not None
        assert stats[0].version == 1

    def test_an_empty_transaction_is_a_mistake_of_the_caller(self, stage: Stage) -> None:
        """Not something to send."""
        with pytest.raises(ValueError, match="at least one"):
            stage.connected("a").transaction([])

    # -- sessions ----------------------------------------------------------------------------------------------------

    def test_an_ephemeral_node_names_its_session_and_goes_with_its_close(self, stage: Stage) -> None:
        """At once, not after the time-out; what is persistent stays."""
        a, b = stage.connected("a"), stage.connected("b")
        session = stage.session(a)
        stage.answer(a.transaction([Create("/fleeting", ephemeral=True), Create("/lasting")]))
        gone = Fired()
        node = stage.answer(b.get("/fleeting", gone))
        assert node is not None
        assert node.stat.ephemeral_owner == session != stage.session(b)
        a.close()
        stage.until(lambda: gone.times, SESSION / 2)
        assert stage.answer(b.get("/fleeting")) is None
        assert stage.answer(b.get("/lasting")) is not None

    def test_a_closed_client_sends_nothing_more(self, stage: Stage) -> None:
        """Closing again is allowed."""
        zk = stage.connected("a")
        zk.close()
        zk.close()
        call = zk.transaction([Create("/node")])
        assert (zk.connection, call.done) == (None, True)
        with pytest.raises(ZkUnavailableError):
            call.result()

    def test_after_expiry_there_is_a_new_session_without_the_old_ones_nodes(self, stage: Stage) -> None:
        """The client finds out, and calls `on_change`."""
        a, b = stage.connected("a"), stage.connected("b")
        stage.answer(a.transaction([Create("/fleeting", ephemeral=True)]))
        before, changes = a.connection, Fired()
        a.on_change = changes
        stage.expire("a")
        stage.until(lambda: a.connection is not None and a.connection.session.id != before.session.id)  # type: ignore[union-attr]
        assert before is not None
        assert a.connection is not None
        assert a.connection.generation > before.generation
        assert changes.times >= 2
        assert stage.answer(b.get("/fleeting")) is None
        assert stage.answer(a.transaction([Create("/again", ephemeral=True)])) == [None]
        again = stage.answer(b.get("/again"))
        assert again is not None
        assert again.stat.ephemeral_owner == a.connection.session.id

    def test_a_short_outage_keeps_the_session_and_its_nodes(self, stage: Stage) -> None:
        """It is a new connection all the same: watches are gone."""
        zk = stage.connected("a")
        stage.answer(zk.transaction([Create("/fleeting", ephemeral=True)]))
        before = zk.connection
        assert before is not None
        stage.outage()
        stage.until(lambda: zk.connection is None)
        stage.outage_over()
        stage.until(lambda: zk.connection is not None)
        assert zk.connection is not None
        assert (zk.connection.session, zk.connection.generation > before.generation) == (before.session, True)
        node = stage.answer(zk.get("/fleeting"))
        assert node is not None
        assert node.stat.ephemeral_owner == before.session.id

    def test_without_a_connection_requests_fail_at_once_and_are_never_sent(self, stage: Stage) -> None:
        """Also not later, when the connection is back."""
        zk = stage.connected("a")
        stage.outage()
        stage.until(lambda: zk.connection is None)
        calls: list[Call[Any]] = [zk.transaction([Create("/node")]), zk.get("/node"), zk.children("/")]
        assert [call.done for call in calls] == [True] * 3
        for call in calls:
            with pytest.raises(ZkUnavailableError, match="not sent"):
                call.result()
        stage.outage_over()
        stage.until(lambda: zk.connection is not None)
        stage.settle(zk)
        assert stage.answer(zk.get("/node")) is None

    def test_a_lost_answer_is_ambiguous_and_the_request_may_have_executed(self, stage: Stage) -> None:
        """Here it has."""
        zk = stage.connected("a")
        call = stage.lose_answer("a", lambda: zk.transaction([Create("/node")]))
        with pytest.raises(ZkAmbiguousError, match="/node"):
            stage.answer(call)
        stage.until(lambda: zk.connection is not None)
        node = stage.answer(zk.get("/node"))
        assert node is not None

    # -- doubt -------------------------------------------------------------------------------------------------------

    def test_a_session_is_certain_for_two_thirds_of_its_time_after_the_last_answered_request_was_sent(
        self, stage: Stage
    ) -> None:
        """Any answer counts, a refusal and a missing node too; another session is never certain."""
        zk = stage.connected("a")
        session = stage.session(zk)
        assert zk.connection is not None
        assert zk.connection.session.timeout == SESSION
        assert (zk.certain(session), zk.certain(session + 1)) == (True, False)
        sends: list[Callable[[], Call[Any]]] = [
            lambda: zk.get("/"),
            lambda: zk.get("/absent"),
            lambda: zk.children("/absent"),
            lambda: zk.transaction([Check("/absent", 0)]),
        ]
        for send in sends:
            while True:
                stage.pass_time(0.05)
                sent_at = zk.clock.now()
                call = send()
                sent_by = zk.clock.now()
                stage.until(lambda call=call: call.done)  # type: ignore[misc]
                until = zk.certain_until(session)
                if zk.clock.now() - sent_at < SESSION / 6:
                    break  # else a ping of the client's own may have come between
            assert sent_at + SESSION * 2 / 3 <= until <= sent_by + SESSION * 2 / 3

    def test_without_a_connection_nothing_is_certain_but_the_deadline_stands(self, stage: Stage) -> None:
        """The session may still live: from when on it may not is known."""
        zk = stage.connected("a")
        session, deadline = stage.session(zk), zk.doubtful_from(stage.session(zk))
        stage.outage()
        down = zk.clock.now()
        stage.until(lambda: zk.connection is None)
        assert not zk.certain(session)
        # A ping may have been answered before the servers went.
        assert deadline <= zk.doubtful_from(session) <= down + SESSION * 2 / 3
        stage.outage_over()
        stage.until(lambda: zk.connection is not None)
        # Asked once more: a server that is only starting can take so long to answer the connect request that the answer
        # is old news when it comes, and counts from when the request was sent.
        stage.answer(zk.get("/"))
        assert zk.certain(session)
        assert zk.doubtful_from(session) > deadline

    # -- watches -----------------------------------------------------------------------------------------------------

    def test_a_watch_on_a_node_fires_once_when_it_changes(self, stage: Stage) -> None:
        """The second change sets off no watch, and children never did."""
        a, b = stage.connected("a"), stage.connected("b")
        stage.answer(a.transaction([Create("/node")]))
        watch = Fired()
        stage.answer(a.get("/node", watch))
        stage.answer(b.transaction([Create("/node/child")]))
        stage.settle(a)
        assert watch.times == 0
        stage.answer(b.transaction([SetData("/node", b"1")]))
        stage.until(lambda: watch.times)
        stage.answer(b.transaction([SetData("/node", b"2")]))
        stage.settle(a)
        assert watch.times == 1

    def test_a_watch_on_an_absent_node_fires_when_it_is_created(self, stage: Stage) -> None:
        """Once. None is set on the children of a node that is not there: its caller has to look again by other means."""
        a, b = stage.connected("a"), stage.connected("b")
        watch, children = Fired(), Fired()
        assert stage.answer(a.get("/node", watch)) is None
        assert stage.answer(a.children("/node", children)) is None
        stage.answer(b.transaction([Create("/node"), Create("/node/one")]))
        stage.until(lambda: watch.times)
        stage.answer(b.transaction([SetData("/node", b"1")]))
        stage.answer(b.transaction([Delete("/node/one"), Delete("/node")]))
        stage.settle(a)
        assert (watch.times, children.times) == (1, 0)

    def test_two_watches_on_one_node_both_fire(self, stage: Stage) -> None:
        """The same callback given twice counts once; and once at a deletion, though data and presence both went."""
        zk = stage.connected("a")
        stage.answer(zk.transaction([Create("/node")]))
        watch, other, deleted = Fired(), Fired(), Fired()
        for one in (watch, watch, other):
            stage.answer(zk.get("/node", one))
        stage.answer(zk.transaction([SetData("/node", b"1")]))
        stage.until(lambda: other.times)
        stage.answer(zk.get("/node", deleted))
        stage.answer(zk.transaction([Delete("/node")]))
        stage.settle(zk)
        assert (watch.times, other.times, deleted.times) == (1, 1, 1)

    def test_a_watch_on_children_fires_once_when_one_comes_or_goes(self, stage: Stage) -> None:
        """Not when one is written; and when their parent is deleted, the last of them gone before."""
        a, b = stage.connected("a"), stage.connected("b")
        stage.answer(a.transaction([Create("/parent"), Create("/parent/one")]))
        came, went = Fired(), Fired()
        stage.answer(a.children("/parent", came))
        stage.answer(b.transaction([SetData("/parent/one", b"x")]))
        stage.settle(a)
        assert came.times == 0
        stage.answer(b.transaction([Create("/parent/two")]))
        stage.until(lambda: came.times)
        stage.answer(a.children("/parent", went))
        stage.answer(b.transaction([Delete("/parent/one"), Delete("/parent/two")]))
        stage.until(lambda: went.times)
        deleted = Fired()
        stage.answer(a.children("/parent", deleted))
        stage.answer(b.transaction([Delete("/parent")]))
        stage.until(lambda: deleted.times)
        stage.settle(a)
        assert (came.times, went.times, deleted.times) == (1, 1, 1)

    def test_a_watch_does_not_outlive_its_connection(self, stage: Stage) -> None:
        """It may fire when the connection drops, and never again, for no change after the reconnect."""
        zk = stage.connected("a")
        watch, children = Fired(), Fired()
        stage.answer(zk.get("/node", watch))
        stage.answer(zk.children("/", children))
        stage.outage()
        stage.until(lambda: zk.connection is None)
        stage.outage_over()
        stage.until(lambda: zk.connection is not None)
        stage.settle(zk)
        fired = (watch.times, children.times)
        assert max(fired) <= 1
        stage.answer(zk.transaction([Create("/node")]))
        stage.settle(zk)
        assert (watch.times, children.times) == fired

    def test_a_transaction_fires_watches_only_if_it_is_done(self, stage: Stage) -> None:
        """A refused one changed nothing."""
        zk = stage.connected("a")
        watch = Fired()
        stage.answer(zk.get("/node", watch))
        with pytest.raises(RefusedError):
            stage.answer(zk.transaction([Create("/node"), Check("/none", 0)]))
        stage.settle(zk)
        assert watch.times == 0
