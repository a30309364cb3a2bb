"""KazooZooKeeper on a real server: all of the conformance suite, and what only a real one can do to it."""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import Callback

from inbound.clock import SystemClock
from inbound.controller.kazoo_zk import KazooZooKeeper
from inbound.controller.zookeeper_access import OPEN, Access
from inbound.coordinators.zookeeper import Call, Create, ZooKeeper
from inbound.embedded import EmbeddedCluster
from inbound.embedded.zookeeper import ZooKeeperServer
from inbound.errors import ConfigError, ZkAmbiguousError, ZkUnavailableError
from tests.controller.access_conformance import AccessConformance
from tests.testing.zookeeper_conformance import SESSION, Stage, ZooKeeperConformance
from tests.waiting import patient, until, wait_for

T = TypeVar("T")


class RealStage(Stage):
    """A folder of its own on a real server, with real time."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self.server = server
        self.chroot = f"/conformance/{uuid.uuid4().hex}"  # neither part exists yet
        self.clients: dict[str, KazooZooKeeper] = {}

    def client(self, name: str) -> KazooZooKeeper:
        return self.client_of(name, self.server.address)

    def client_of_user(
        self, name: str, user: str | None, acl: Literal["open", "creator", "readable"]
    ) -> KazooZooKeeper:
        access = Access(acl=acl) if user is None else Access(scheme="digest", user=user, password=lambda: "pw", acl=acl)
        return self.client_of(name, self.server.address, access=access)

    def client_of(self, name: str, hosts: str, session: float = SESSION, access: Access = OPEN) -> KazooZooKeeper:
        client = KazooZooKeeper(hosts, chroot=self.chroot, session_timeout=session, clock=SystemClock(), access=access)
        self.clients[name] = client
        client.start()
        return client

    def until(self, condition: Callable[[], object], seconds: float = 40.0) -> None:
        until(condition, seconds, "what a client of ZooKeeper waits for", look=0.002)

    def settle(self, client: ZooKeeper) -> None:
        """What a client was told before the answer to a read of its own stands before that in its callbacks' queue."""
        for one in self.clients.values():
            if one.connection is not None:
                self.answer(one.get("/"))
                over = threading.Event()
                one._link._client.handler.dispatch_callback(Callback("settled", over.set, ()))
                wait_for(over, 40, "the client's callbacks")

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)

    def outage(self) -> None:
        self.server.kill()

    def outage_over(self) -> None:
        self.server.start()

    def expire(self, name: str) -> None:
        """Close the session from a second client that has its password."""
        client = self.clients[name]._link._client
        other = KazooClient(self.server.address, client_id=client.client_id, timeout=SESSION)
        other.start()
        other.stop()
        other.close()

    def lose_answer(self, name: str, send: Callable[[], Call[T]]) -> Call[T]:
        """A stopped server has the request in its socket's buffer; it executes it when it goes on."""
        client = self.clients[name]._link._client
        self.server.pause()
        call = send()
        self.until(lambda: client._pending or call.done)  # kazoo's thread has written it, or has lost the connection
        self.cut(name)
        self.until(lambda: call.done)
        self.server.resume()
        return call

    def cut(self, name: str) -> None:
        """Break a client's connection."""
        self.clients[name]._link._client._connection._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self.server.paused:
            self.server.resume()
        self.server.start()
        for client in self.clients.values():
            client.close()


@pytest.fixture
def stage(embedded_cluster: EmbeddedCluster) -> Iterator[RealStage]:
    """A stage on the shared cluster's server, which runs again afterwards in any case."""
    stage = RealStage(embedded_cluster.zookeepers[0])
    yield stage
    stage.close()


class TestKazooZooKeeper(ZooKeeperConformance, AccessConformance):
    """The suite."""


# -- the chroot --------------------------------------------------------------------------------------------------------


def test_the_chroot_is_created_with_its_parents_and_hides_everything_else(stage: RealStage) -> None:
    """`/` is the chroot, and nothing of it shows in paths."""
    zk = stage.connected("a")
    assert stage.answer(zk.children("/")) == []
    stage.answer(zk.transaction([Create("/node", b"x")]))
    stage.chroot = ""
    root = stage.connected("root")
    chroot = zk.where.split("/", 1)[1]
    node = stage.answer(root.get(f"/{chroot}/node"))
    assert node is not None
    assert node.data == b"x"


# -- connecting --------------------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there_yet_is_waited_for(stage: RealStage, caplog: pytest.LogCaptureFixture) -> None:
    """The log says what is missing, once, and `start` and requests do not wait."""
    stage.outage()
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "inbound"):
        zk = stage.client("a")
        with pytest.raises(ZkUnavailableError):
            zk.get("/").result()
        took = time.monotonic() - began
        assert took < patient(0.5)
        stage.until(lambda: zk.problem is not None)
        time.sleep(1.5)  # it tries again until then
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("inbound")]
    assert len(ours) == 1
    assert f"{stage.server.address}: socket connection error: Connection refused" in ours[0]
    stage.outage_over()
    stage.until(lambda: zk.connection is not None)


@pytest.mark.thorough("measures a reconnect after a long outage; the suite's short ones are in `make test`")
def test_reconnecting_takes_at_most_a_second_however_long_the_outage_was(stage: RealStage) -> None:
    """kazoo's own delay doubles up to an hour."""
    zk = stage.connected("a")
    stage.outage()
    time.sleep(6)
    stage.outage_over()
    began = time.monotonic()
    fresh = stage.client("fresh")
    stage.until(lambda: fresh.connection is not None)
    first = (
        time.monotonic() - began
    )  # the time that a server that has just started, and its disk, need for a first request
    stage.until(lambda: zk.connection is not None)
    took = time.monotonic() - began
    assert took < patient(1.0 + 1.0) + first


@pytest.mark.thorough("three clients try hosts in turn; `make test` connects to servers that come and go")
def test_a_server_that_swallows_connections_does_not_hold_up_the_others(stage: RealStage) -> None:
    """Its backlog is full, so that connecting to it neither succeeds nor fails."""
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        address = hole.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        for attempt in range(3):  # the order of the hosts is random
            began = time.monotonic()
            zk = stage.client_of(f"{attempt}", f"127.0.0.1:{address[1]},{stage.server.address}", session=10.0)
            stage.until(lambda zk=zk: zk.connection is not None)  # type: ignore[misc]
            took = time.monotonic() - began
            assert took < patient(3)
        for filler in fillers:
            filler.close()


def test_a_host_that_cannot_be_resolved_is_logged_and_tried_again(
    stage: RealStage, caplog: pytest.LogCaptureFixture
) -> None:
    """Names may come to exist later."""
    with caplog.at_level(logging.WARNING, "inbound"):
        zk = stage.client_of("a", "no-such-host.invalid:2181")
        stage.until(lambda: "no name could be resolved" in caplog.text)
    assert zk.connection is None


def test_hosts_that_are_none_are_a_mistake_in_the_configuration() -> None:
    """Told by name, before anything starts."""
    with pytest.raises(ConfigError, match=r"zookeeper\.hosts"):
        KazooZooKeeper("host:port:port", session_timeout=2.0, clock=SystemClock())


def test_the_negotiated_session_is_the_servers_not_ours(stage: RealStage) -> None:
    """Servers clamp what is asked for."""
    zk = stage.client_of("a", stage.server.address, session=0.1)
    connection = until(lambda: zk.connection, 40, "connected")  # looked at once: such a session expires soon
    assert connection is not None
    assert connection.session.timeout == 1.0


def test_an_unexpected_error_does_not_end_the_client(stage: RealStage, caplog: pytest.LogCaptureFixture) -> None:
    """In kazoo alone its thread ends, and nothing connects again, without a word."""
    zk = stage.connected("a")
    session = stage.session(zk)
    link = stage.clients["a"]._link
    read = link._client._connection._read_socket

    def fail(*arguments: object) -> object:
        link._client._connection._read_socket = read
        raise RuntimeError("xids do not match")

    link._client._connection._read_socket = fail
    with caplog.at_level(logging.WARNING, "inbound"), pytest.raises(ZkAmbiguousError):
        stage.answer(zk.get("/"))
    stage.until(lambda: zk.connection is not None)
    assert stage.session(zk) == session
    assert "xids do not match" in caplog.text


# -- losing the connection ---------------------------------------------------------------------------------------------


def test_no_request_goes_over_another_connection_than_the_one_it_was_made_on(stage: RealStage) -> None:
    """Requests are made without a pause while the connection breaks again and again.

    Each is answered, unsent, or ambiguous; what was unsent did not happen, and what was answered did.
    """
    zk = stage.connected("a")
    stage.answer(zk.transaction([Create("/n")]))
    made: list[tuple[str, Call[object]]] = []
    stop = threading.Event()

    def make() -> None:
        while not stop.is_set():
            path = f"/n/{len(made)}"
            made.append((path, zk.transaction([Create(path)])))  # type: ignore[arg-type]
            if len(made) % 50 == 0:
                time.sleep(0.005)

    thread = threading.Thread(target=make)
    thread.start()
    try:
        for _ in range(6):
            stage.until(lambda: zk.connection is not None)
            time.sleep(0.05)
            before = zk.connection
            stage.cut("a")
            stage.until(lambda before=before: zk.connection != before)  # type: ignore[misc]
    finally:
        stop.set()
        thread.join()
    stage.until(lambda: zk.connection is not None)
    stage.until(lambda: all(call.done for _, call in made))
    present = set(stage.answer(zk.children("/n")) or ())
    outcomes: dict[str, set[str]] = {"answered": set(), "unsent": set(), "ambiguous": set()}
    for path, call in made:
        name = path.rsplit("/", 1)[1]
        try:
            call.result()
            outcomes["answered"].add(name)
        except ZkUnavailableError:
            outcomes["unsent"].add(name)
        except ZkAmbiguousError:
            outcomes["ambiguous"].add(name)
    assert all(outcomes.values())
    assert outcomes["answered"] <= present
    assert not outcomes["unsent"] & present


def test_a_request_made_while_the_connection_is_being_given_up_is_not_queued_for_the_next_one(stage: RealStage) -> None:
    """kazoo answers what is queued, and only then reports that the connection is gone: here the report comes first."""
    zk = stage.connected("a")
    link = stage.clients["a"]._link
    give_up = link._kazoo_notify_pending
    calls: list[Call[object]] = []

    def late(state: object) -> None:
        give_up(state)
        calls.append(zk.transaction([Create("/late")]))  # type: ignore[arg-type]

    link._kazoo_notify_pending = late
    stage.cut("a")
    stage.until(lambda: calls)
    with pytest.raises(ZkUnavailableError):
        calls[0].result()
    stage.until(lambda: zk.connection is not None)
    assert stage.answer(zk.get("/late")) is None


def test_a_server_that_hangs_makes_the_session_doubtful_before_it_can_have_expired(stage: RealStage) -> None:
    """Nothing is known of it on the socket: only our own deadline tells."""
    zk = stage.connected("a")
    session = stage.session(zk)
    stage.answer(zk.get("/"))
    stage.server.pause()
    answered = zk.clock.now()
    call = zk.get("/")
    stage.until(lambda: not zk.certain(session))
    assert zk.doubtful_from(session) <= answered + SESSION * 2 / 3
    assert call.deadline is not None
    stage.server.resume()
    stage.until(lambda: zk.certain(session))


@pytest.mark.thorough("waits for a session; test_stopped.py has one expire in `make test`")
def test_the_session_expires_while_nobody_can_connect_and_a_new_one_follows(stage: RealStage) -> None:
    """The server forgets what did not come back in time."""
    zk, other = stage.connected("a"), stage.connected("b")
    stage.answer(zk.transaction([Create("/fleeting", ephemeral=True)]))
    session = stage.session(zk)
    link = stage.clients["a"]._link
    connect = link._kazoo_create_connection

    def refuse(*arguments: object, **options: object) -> object:
        raise OSError("cut off")

    link._kazoo_create_connection = refuse
    stage.cut("a")
    stage.until(lambda: _gone(stage, other, "/fleeting"))
    assert (zk.connection, zk.certain(session)) == (None, False)
    link._kazoo_create_connection = connect
    stage.until(lambda: zk.connection is not None)
    assert stage.session(zk) != session


def _gone(stage: RealStage, zk: ZooKeeper, path: str) -> bool:
    return stage.answer(zk.get(path)) is None


# -- closing -----------------------------------------------------------------------------------------------------------


def test_closing_is_bounded_when_the_server_hangs(stage: RealStage, caplog: pytest.LogCaptureFixture) -> None:
    """kazoo's stop() waits for an answer that does not come."""
    zk = stage.connected("a")
    stage.server.pause()
    began = time.monotonic()
    zk.close()
    took = time.monotonic() - began
    assert took < patient(6)
    stage.server.resume()


def test_closing_while_there_is_no_connection_is_quick(stage: RealStage) -> None:
    """No thread is left behind."""
    zk = stage.connected("a")
    stage.outage()
    stage.until(lambda: zk.connection is None)
    before = threading.active_count()
    began = time.monotonic()
    zk.close()
    took = time.monotonic() - began
    assert took < patient(3)
    assert threading.active_count() < before


def test_a_client_that_was_never_started_can_be_closed(stage: RealStage) -> None:
    """Its start may have failed half-way."""
    KazooZooKeeper(stage.server.address, session_timeout=2.0, clock=SystemClock()).close()
