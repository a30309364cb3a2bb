"""Three ZooKeeper servers: requests of lost connections, and servers that die under connected consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from inbound.embedded import EmbeddedCluster
from integration.controller.ensemble import (
    Ensemble,
    Outcome,
    attempt,
    frozen,
    on_to_the_same_frozen,
    there_and_back,
    variants,
)
from integration.harness import Scene, Scenes

pytestmark = pytest.mark.thorough(
    "three ZooKeeper servers that are frozen and killed for minutes; test_survival.py has one "
    "die, tests/group/test_late_requests.py decides what a late request does"
)


@pytest.fixture(scope="module")
def ensemble(cluster_factory: Callable[..., EmbeddedCluster]) -> Iterator[EmbeddedCluster]:
    """Three ZooKeeper servers and a broker; closed with this file."""
    cluster = cluster_factory(zookeepers=3)
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def roles(ensemble: EmbeddedCluster) -> Iterator[Ensemble]:
    """The three by their roles, with proxies before and between them."""
    one = Ensemble(ensemble)
    one.put_proxies_between()
    yield one
    one.close()


@pytest.fixture(autouse=True)
def all_up(roles: Ensemble) -> None:
    """Every test begins with three that serve, also after one that failed."""
    roles.await_all()


def test_a_request_of_a_lost_connection_never_executes_after_a_later_one_of_its_session(roles: Ensemble) -> None:
    """It waits in the network, at a frozen server, or between servers, until the session has written elsewhere."""
    executed, outcomes = variants(roles, rounds=1)
    for name, outcome in outcomes.items():
        print(f"{name}: {outcome.tried} tried, {outcome.before} executed before the later one, {outcome.never} never")
    assert set(executed.values()) == {1}, f"these do not reach the server even if the session stays: {executed}"
    assert {name: outcome.after for name, outcome in outcomes.items() if outcome.after} == {}


def test_a_request_at_a_leader_that_was_replaced_never_executes(roles: Ensemble) -> None:
    """A follower passed it on to a leader that was frozen then; the others elected a new one."""
    old_leader, (one, two) = roles.leader, roles.followers
    ports = [server.port for server in roles.cluster.zookeepers]
    outcome = attempt(ports[one], ports[two], lambda: frozen(roles.server(old_leader)))
    roles.await_all()
    print(f"{outcome.tried} tried, {outcome.before} executed before the later one, {outcome.never} never")
    assert (outcome.tried, outcome.after) == (5, [])


def test_a_request_at_a_frozen_server_does_not_execute_after_a_later_one_sent_to_the_same_server(
    roles: Ensemble,
) -> None:
    """The session reconnects to the server that has the old request in its socket, a follower and the leader."""
    outcome = Outcome()
    for server in (roles.server(roles.followers[0]), roles.server(roles.leader)):
        for _ in range(2):
            outcome += on_to_the_same_frozen(server, 10)
    print(f"{outcome.tried} tried, {outcome.before} executed before the later one, {outcome.never} never")
    assert (outcome.tried, outcome.after) == (40, [])


def test_a_session_that_comes_back_to_a_frozen_server_finds_its_old_request_alive_unless_the_epoch_moved(
    roles: Ensemble,
) -> None:
    """The one case in which ZooKeeper does not keep the order: it checks who has the session, and that is so again.

    The server passes on "the session is mine again" before the requests that it has read from the session's old connection. So a
    write after a reconnect is only safe from older ones if it moves the epoch that they check.
    """
    unsafe, safe = Outcome(), Outcome()
    for _ in range(3):
        unsafe += there_and_back(roles, 8, moved_epoch=False)
        safe += there_and_back(roles, 8, moved_epoch=True)
    for _ in range(20):  # which of two threads of the server is first is not ours to say: it may need another try
        if unsafe.after:
            break
        roles.await_all()
        unsafe += there_and_back(roles, 8, moved_epoch=False)
    print(
        f"same epoch: {len(unsafe.after)} of {unsafe.tried} executed late; epoch moved: {len(safe.after)} of {safe.tried}"
    )
    assert (safe.tried, safe.after) == (24, [])
    assert unsafe.after, "ZooKeeper has kept the order here, too: if that holds, moving the epoch is not needed"


def test_a_dying_zookeeper_server_costs_no_session_no_partition_and_no_record(
    ensemble: EmbeddedCluster, roles: Ensemble, scenes: Scenes
) -> None:
    """A follower, then the leader: its consumers go on at another with the sessions they had."""
    s = scenes(cluster=ensemble)
    s.run_group(3)
    s.start_load()
    s.wait_read()
    before = (s.owners(), s.claims(), sessions(s))
    for number in (roles.followers[0], roles.leader):
        server = roles.server(number)
        server.kill()
        s.wait_more()
        server.start()
        roles.await_all()
    s.settle()
    assert (s.account().clean, (s.owners(), s.claims(), sessions(s)) == before) == (True, True)
    assert s.stop_all() == [0, 0, 0]


def sessions(s: Scene) -> dict[str, int]:
    """Return each member's ZooKeeper session."""
    ids = f"/consumers/{s.group}/ids"
    return {name: s.zk.exists(f"{ids}/{name}").ephemeralOwner for name in s.zk.get_children(ids)}
