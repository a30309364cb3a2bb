"""The fake ensemble does what a real one does (the conformance suite), and what only a fake can: on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

import pytest

from inbound.coordinators.zookeeper import Call, Create, Node, RefusedError, SetData
from inbound.errors import ZkAmbiguousError
from inbound.testing.clock import ManualClock
from inbound.testing.zookeeper import Arrival, FakeEnsemble, FakeZooKeeper, Who
from tests.controller.access_conformance import AccessConformance
from tests.testing.zookeeper_conformance import SESSION, Fired, Stage, ZooKeeperConformance

T = TypeVar("T")


class FakeStage(Stage):
    """The fake ensemble, on a clock that moves in small steps."""

    def __init__(self, *, auto: bool) -> None:
        self.clock = ManualClock()
        self.ensemble = FakeEnsemble(self.clock)
        self.ensemble.auto = auto

    def client(self, name: str) -> FakeZooKeeper:
        return self.ensemble.client(name, SESSION)

    def client_of_user(self, name: str, user: str | None, acl: Literal["open", "creator", "readable"]) -> FakeZooKeeper:
        return self.ensemble.client(name, SESSION, Who(user, acl))

    def until(self, condition: Callable[[], object], seconds: float = 20.0) -> None:
        end = self.clock.now() + seconds
        while not condition():
            assert self.clock.now() < end, f"did not come about within {seconds} s of the clock"
            if not self.ensemble.deliver():
                self.clock.advance(0.01)
                self.ensemble.tick()

    def pass_time(self, seconds: float) -> None:
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            self.ensemble.deliver()
            self.clock.advance(0.01)
            self.ensemble.tick()

    def outage(self) -> None:
        self.ensemble.down()

    def outage_over(self) -> None:
        self.ensemble.up()

    def expire(self, name: str) -> None:
        self.ensemble.expire_session(name)

    def lose_answer(self, name: str, send: Callable[[], Call[T]]) -> Call[T]:
        self.ensemble.lose_answers(name)
        return send()


@pytest.fixture(params=[False, True], ids=["delivered", "auto"])
def stage(request: pytest.FixtureRequest) -> FakeStage:
    """An empty ensemble that delivers when told to, or at once."""
    return FakeStage(auto=request.param)


class TestFakeZooKeeper(ZooKeeperConformance, AccessConformance):
    """The suite."""


# -- one thing at a time -----------------------------------------------------------------------------------------------


@pytest.fixture
def ensemble() -> FakeEnsemble:
    """An ensemble with a node, in which only the test makes things happen."""
    ensemble = FakeEnsemble(ManualClock())
    ensemble.tree.transaction([Create("/node", b"0")], 0)
    return ensemble


def data(call: Call[Node | None]) -> bytes:
    """Return the data of the node that was read."""
    node = call.result()
    assert node is not None
    return node.data


def test_a_request_is_executed_and_answered_in_two_steps(ensemble: FakeEnsemble) -> None:
    """Between the two it has happened, and its client does not know."""
    zk = ensemble.client("a", SESSION)
    call = zk.transaction([SetData("/node", b"1")])
    assert (ensemble.pending, ensemble.tree.nodes["/node"].data) == ([Arrival("a", "execute")], b"0")
    ensemble.step(Arrival("a", "execute"))
    assert (ensemble.pending, ensemble.tree.nodes["/node"].data) == ([Arrival("a", "answer")], b"1")
    assert not call.done
    ensemble.step(Arrival("a", "answer"))
    assert (ensemble.pending, call.done) == ([], True)


def test_requests_of_two_clients_happen_in_any_order_those_of_one_in_theirs(ensemble: FakeEnsemble) -> None:
    """The scheduler picks."""
    a, b = ensemble.client("a", SESSION), ensemble.client("b", SESSION)
    calls = [a.transaction([SetData("/node", b"a", 1)]), b.transaction([SetData("/node", b"b", 0)])]
    assert ensemble.pending == [Arrival("a", "execute"), Arrival("b", "execute")]
    ensemble.step(Arrival("b", "execute"))
    ensemble.step(Arrival("a", "execute"))
    ensemble.deliver_all()
    assert [call.result()[0].version for call in calls if call.result()[0]] == [2, 1]  # type: ignore[union-attr]


def test_a_watch_may_fire_after_answers_that_came_later_but_not_before_earlier_ones(ensemble: FakeEnsemble) -> None:
    """kazoo calls watches on another thread than it takes answers on."""
    zk, watch = ensemble.client("a", SESSION), Fired()
    read = zk.get("/node", watch)
    ensemble.step(Arrival("a", "execute"))
    ensemble.tree.transaction([SetData("/node", b"1")], 0)
    assert ensemble.pending == [Arrival("a", "answer")]
    ensemble.step(Arrival("a", "answer"))
    again = zk.get("/node")
    ensemble.step(Arrival("a", "execute"))
    assert ensemble.pending == [Arrival("a", "answer"), Arrival("a", "watch")]
    ensemble.step(Arrival("a", "answer"))
    assert (data(read), data(again), watch.times) == (b"0", b"1", 0)
    ensemble.step(Arrival("a", "watch"))
    assert watch.times == 1


# -- what is lost ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executed", [0, 1, 2])
def test_a_broken_connection_leaves_open_what_was_executed(ensemble: FakeEnsemble, executed: int) -> None:
    """All are ambiguous to the client; the servers have done the first of them."""
    zk = ensemble.client("a", SESSION)
    calls = [zk.transaction([SetData("/node", b"%d" % n)]) for n in (1, 2)]
    ensemble.disconnect("a", executed=executed)
    for call in calls:
        with pytest.raises(ZkAmbiguousError):
            call.result()
    assert ensemble.tree.nodes["/node"].data == b"%d" % executed
    assert ensemble.pending == []


def test_a_request_of_a_lost_connection_may_be_executed_after_a_later_one_of_the_same_session(
    ensemble: FakeEnsemble,
) -> None:
    """As a real ensemble does when a session comes back to a server that was frozen with the request in its socket."""
    zk = ensemble.client("a", SESSION)
    zk.transaction([SetData("/node", b"old")])
    ensemble.disconnect("a", late=True)
    zk.reconnect()
    zk.transaction([SetData("/node", b"new")])
    for kind in ("execute", "answer", "late"):
        ensemble.step(Arrival("a", kind))
    assert (ensemble.pending, ensemble.tree.nodes["/node"].data) == ([], b"old")


def test_a_late_request_of_an_expired_session_is_not_executed(ensemble: FakeEnsemble) -> None:
    """The servers know the session no more."""
    ensemble.client("a", SESSION).transaction([SetData("/node", b"1")])
    ensemble.disconnect("a", late=True)
    ensemble.expire_session("a")
    assert ensemble.pending == []


def test_requests_can_be_lost_on_the_way(ensemble: FakeEnsemble) -> None:
    """Ambiguous to the client, and not executed."""
    ensemble.auto = True
    zk = ensemble.client("a", SESSION)
    ensemble.drop_requests("a")
    call = zk.transaction([SetData("/node", b"1")])
    with pytest.raises(ZkAmbiguousError):
        call.result()
    assert (zk.connection, ensemble.tree.nodes["/node"].data) == (None, b"0")


def test_answers_are_lost_until_the_last_one_breaks_the_connection(ensemble: FakeEnsemble) -> None:
    """The second of two requests: both are executed, neither is answered."""
    zk = ensemble.client("a", SESSION)
    ensemble.lose_answers("a", 2)
    calls = [zk.transaction([SetData("/node", b"%d" % n)]) for n in (1, 2)]
    ensemble.step(Arrival("a", "execute"))
    assert (calls[0].done, zk.connection is None) == (False, False)
    ensemble.step(Arrival("a", "execute"))
    assert ([call.done for call in calls], zk.connection) == ([True, True], None)
    assert ensemble.tree.nodes["/node"].data == b"2"


# -- sessions ----------------------------------------------------------------------------------------------------------


def pass_time(ensemble: FakeEnsemble, seconds: float) -> None:
    """Let the clock go on in steps of a tenth of a second."""
    assert isinstance(ensemble.clock, ManualClock)
    for _ in range(round(seconds * 10)):
        ensemble.clock.advance(0.1)
        ensemble.tick()


def test_a_stopped_process_loses_its_session_and_learns_of_it_only_when_it_goes_on(ensemble: FakeEnsemble) -> None:
    """Requests sent before are executed; it believes itself connected until it looks."""
    zk = ensemble.client("a", SESSION)
    call = zk.transaction([Create("/mine", ephemeral=True)])
    ensemble.freeze("a")
    ensemble.deliver_all()
    assert "/mine" in ensemble.tree.nodes
    pass_time(ensemble, SESSION + 0.1)
    assert "/mine" not in ensemble.tree.nodes
    before = zk.connection
    assert before is not None
    ensemble.thaw("a")
    assert (zk.certain(before.session.id), call.done) == (False, False)
    ensemble.deliver_all()
    assert (zk.certain(before.session.id), call.done) == (False, True)  # an old answer is no sign of life
    pass_time(ensemble, 0.3)
    after = zk.connection
    assert after is not None
    assert after.session.id != before.session.id


def test_sessions_do_not_expire_while_all_servers_are_away(ensemble: FakeEnsemble) -> None:
    """And have their full time again afterwards."""
    zk = ensemble.client("a", SESSION)
    before = zk.connection
    ensemble.cut_off("a")
    ensemble.down()
    pass_time(ensemble, 10 * SESSION)
    ensemble.up()
    pass_time(ensemble, SESSION - 0.2)
    ensemble.heal("a")
    pass_time(ensemble, 0.2)
    assert before is not None
    assert zk.connection is not None
    assert zk.connection.session == before.session


def test_a_client_that_is_cut_off_loses_its_session(ensemble: FakeEnsemble) -> None:
    """Though the servers are up, and it learns of it only after the cut is healed."""
    zk = ensemble.client("a", SESSION)
    before = zk.connection
    ensemble.cut_off("a")
    pass_time(ensemble, SESSION + 0.1)
    assert not zk.reachable
    ensemble.heal("a")
    pass_time(ensemble, 0.2)
    after = zk.connection
    assert before is not None
    assert after is not None
    assert after.session.id != before.session.id


# -- servers that are behind -------------------------------------------------------------------------------------------


def read(ensemble: FakeEnsemble, zk: FakeZooKeeper) -> bytes:
    """Read the node through `zk`."""
    call = zk.get("/node")
    ensemble.deliver_all()
    return data(call)


def test_a_server_that_lags_shows_the_past_and_fires_watches_late(ensemble: FakeEnsemble) -> None:
    """Step by step, each transaction's watches when it is taken over."""
    zk, watch = ensemble.client("a", SESSION), Fired()
    ensemble.lag("a")
    zk.get("/node", watch)
    ensemble.deliver_all()
    for n in (1, 2):
        ensemble.tree.transaction([SetData("/node", b"%d" % n)], 0)
    assert (read(ensemble, zk), watch.times) == (b"0", 0)
    ensemble.catch_up("a", 1)
    assert (read(ensemble, zk), watch.times) == (b"1", 1)
    ensemble.catch_up("a")
    ensemble.tree.transaction([SetData("/node", b"3")], 0)
    assert (read(ensemble, zk), watch.times) == (b"3", 1)


def test_a_client_sees_its_own_writes_and_never_an_older_tree_than_before(ensemble: FakeEnsemble) -> None:
    """Also a refused one brings its server up to date; also another connection shows nothing older."""
    a, b = ensemble.client("a", SESSION), ensemble.client("b", SESSION)
    for name in ("a", "b"):
        ensemble.lag(name)
    ensemble.tree.transaction([SetData("/node", b"1")], 0)
    assert read(ensemble, a) == b"0"
    own = a.transaction([Create("/other")])
    refused = b.transaction([Create("/node")])
    ensemble.deliver_all()
    assert own.done
    with pytest.raises(RefusedError):
        refused.result()
    assert (read(ensemble, a), read(ensemble, b)) == (b"1", b"1")
    ensemble.tree.transaction([SetData("/node", b"2")], 0)
    ensemble.disconnect("a")
    a.reconnect()
    assert read(ensemble, a) == b"1"


# -- the same every time -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
def test_the_seed_decides_the_order_of_clients(seed: int) -> None:
    """The same seed, the same history; different seeds, different ones."""

    def history(seed: int) -> list[str]:
        ensemble = FakeEnsemble(ManualClock(), seed)
        clients = [ensemble.client(f"{n}", SESSION) for n in range(6)]
        done: list[str] = []
        for zk in clients:
            zk.transaction([Create(f"/{zk.name}")]).when_done(lambda zk=zk: done.append(zk.name))  # type: ignore[misc]
        ensemble.deliver()
        return done

    assert history(seed) == history(seed)
    assert history(seed) != history(seed + 10)


@pytest.mark.parametrize("start", [1000.0, 1030.0])
def test_a_client_reconnects_at_the_time_that_it_names(start: float) -> None:
    """However the two are rounded; a simulated run would stall at that time."""
    clock = ManualClock(start)
    client = FakeEnsemble(clock).client("a", SESSION)
    client.break_connection()
    clock.advance(client.next_notice - clock.now())
    client.tick()
    assert client.connection is not None
