"""A ZooKeeper ensemble in memory, and clients of it, with verbs for everything that goes wrong with the real one.

Deterministic and without threads: a request is executed, and its answer delivered, when `deliver` is called; sessions
expire, and clients reconnect, when `tick` is called. Requests of one client are executed in their order.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inbound.clock import Clock
from inbound.coordinators.zookeeper import (
    Call,
    Connection,
    Node,
    Op,
    Session,
    Stat,
    ZooKeeper,
    ambiguous,
    unavailable,
)
from inbound.testing.zookeeper_tree import Tree

#: How long a client takes to find out that its connection is gone and to come back, in seconds of the clock.
RECONNECT_DELAY = 0.1


@dataclass(eq=False)
class _ServerSession:
    id: int
    timeout: float
    heard_at: float  # when the server last had a request or a ping of it


@dataclass(eq=False)
class _Request:
    call: Call[Any]
    execute: Callable[[], Any]
    session: Session
    sent_at: float


class FakeEnsemble:
    """The servers: one tree, its sessions, and the network to the clients."""

    def __init__(self, clock: Clock, seed: int = 0) -> None:
        self.clock = clock
        self.tree = Tree()
        self.is_up = True
        self._rng = random.Random(seed)
        self._sessions: dict[int, _ServerSession] = {}
        self._last_session = 0x1000
        self._clients: dict[str, FakeZooKeeper] = {}

    def client(self, name: str, session_timeout: float) -> FakeZooKeeper:
        """Return a new client, connected if the ensemble is up."""
        client = FakeZooKeeper(self, name, session_timeout)
        self._clients[name] = client
        client.reconnect()
        return client

    def subtree(self, parent: str) -> Mapping[str, bytes]:
        """Return the children of `parent` with their data, by full path."""
        return {
            f"{parent}/{name}": self.tree.nodes[f"{parent}/{name}"].data for name in self.tree.children(parent) or ()
        }

    # -- time --------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Expire sessions that were silent for too long, let clients ping, notice lost connections, and come back."""
        now = self.clock.now()
        for client in list(self._clients.values()):
            if client.reachable and client.session is not None and client.session.id in self._sessions:
                self._sessions[client.session.id].heard_at = now
        if self.is_up:
            for session in list(self._sessions.values()):
                if now - session.heard_at >= session.timeout:
                    self._expire(session.id)
        for client in list(self._clients.values()):
            client.tick()

    def deliver(self) -> int:
        """Execute every waiting request and deliver its answer, clients in a random order. Returns how many."""
        count = 0
        clients = [client for client in self._clients.values() if client.requests]
        self._rng.shuffle(clients)
        for client in clients:
            for _ in range(len(client.requests)):
                count += client.deliver_one()
        return count

    # -- faults ------------------------------------------------------------------------------------------------------

    def expire_session(self, name: str) -> None:
        """Let the servers declare a client's session expired."""
        session = self._clients[name].session
        if session is not None:
            self._expire(session.id)

    def disconnect(self, name: str) -> None:
        """Break a client's connection. What it had sent and was not executed is gone; the client does not know that."""
        self._clients[name].drop()

    def lose_answers(self, name: str, count: int = 1) -> None:
        """Execute the client's next `count` requests without an answer, and break the connection after the last."""
        self._clients[name].losing = count

    def cut_off(self, name: str) -> None:
        """Keep a client from reaching any server, until `heal`."""
        self._clients[name].is_cut_off = True
        self._clients[name].drop()

    def heal(self, name: str) -> None:
        """Let a client reach the servers again."""
        self._clients[name].is_cut_off = False

    def freeze(self, name: str) -> None:
        """Stop the client's process: it neither pings nor notices anything, until `thaw`."""
        self._clients[name].frozen = True

    def thaw(self, name: str) -> None:
        """Let the client's process go on."""
        self._clients[name].frozen = False

    def down(self) -> None:
        """Take the whole ensemble away. Sessions do not expire while nobody counts."""
        self.is_up = False
        for client in self._clients.values():
            client.drop()

    def up(self) -> None:
        """Bring it back. A new leader gives every session its full time again, as the real one does."""
        self.is_up = True
        for session in self._sessions.values():
            session.heard_at = self.clock.now()

    # -- the servers' side -------------------------------------------------------------------------------------------

    def connect(self, old: Session | None, timeout: float) -> Session:
        """Take up a session again, or begin a new one where the old one has expired."""
        if old is not None and old.id in self._sessions:
            self._sessions[old.id].heard_at = self.clock.now()
            return old
        self._last_session += 1
        self._sessions[self._last_session] = _ServerSession(self._last_session, timeout, self.clock.now())
        return Session(self._last_session, timeout)

    def alive(self, session: int) -> bool:
        return session in self._sessions

    def touch(self, session: int) -> None:
        self._sessions[session].heard_at = self.clock.now()

    def end(self, session: int) -> None:
        self._expire(session)

    def _expire(self, session: int) -> None:
        self._sessions.pop(session, None)
        self.tree.remove_ephemerals(session)


class FakeZooKeeper(ZooKeeper):
    """One client. See `FakeEnsemble` for how its requests are executed."""

    def __init__(self, ensemble: FakeEnsemble, name: str, session_timeout: float) -> None:
        super().__init__(ensemble.clock, session_timeout / 2)
        self.where = "ZooKeeper (fake)"
        self.name = name
        self.session: Session | None = None
        self.requests: deque[_Request] = deque()
        self.losing = 0  # answers still to lose
        self._unanswered: list[_Request] = []
        self.is_cut_off = False
        self.frozen = False
        self.closed = False
        self._ensemble = ensemble
        self._timeout = session_timeout
        self._connection: Connection | None = None
        self._generation = 0
        self._dropped_at: float | None = None

    @property
    def connection(self) -> Connection | None:
        return self._connection

    @property
    def reachable(self) -> bool:
        """Whether a ping of it arrives."""
        return self._connection is not None and not self.frozen and not self.is_cut_off and self._ensemble.is_up

    # -- requests ----------------------------------------------------------------------------------------------------

    def get(self, path: str, watch: Callable[[], None] | None = None) -> Call[Node | None]:
        def execute() -> Node | None:
            if watch is not None:
                self._ensemble.tree.watch("data", path, watch)
            return self._ensemble.tree.get(path)

        return self._send(f"read of {path}", execute)

    def children(self, path: str, watch: Callable[[], None] | None = None) -> Call[list[str] | None]:
        def execute() -> list[str] | None:
            names = self._ensemble.tree.children(path)
            if watch is not None and names is not None:
                self._ensemble.tree.watch("children", path, watch)
            return names

        return self._send(f"list of {path}", execute)

    def transaction(self, ops: Sequence[Op]) -> Call[list[Stat | None]]:
        if not ops:
            raise ValueError("a transaction needs at least one operation")
        session = self.session.id if self.session else 0
        return self._send(f"transaction at {ops[0].path}", lambda: self._ensemble.tree.transaction(ops, session))

    def close(self) -> None:
        self.closed = True
        if self.session is not None and self._connection is not None:
            self._ensemble.end(self.session.id)
        self._connection = None

    def _send(self, what: str, execute: Callable[[], Any]) -> Call[Any]:
        call = self._new_call(what)
        if self._connection is None or self.closed:
            call.fail(unavailable(what))
        else:
            self.requests.append(_Request(call, execute, self._connection.session, self.clock.now()))
        return call

    # -- the network -------------------------------------------------------------------------------------------------

    def deliver_one(self) -> int:
        """Execute the oldest waiting request, if it can arrive. Returns how many were executed."""
        if not self.requests or self.frozen:
            return 0
        request = self.requests.popleft()
        if not self._ensemble.is_up or self.is_cut_off or not self._ensemble.alive(request.session.id):
            self.requests.appendleft(request)
            self.drop()
            return 0
        self._ensemble.touch(request.session.id)
        try:
            result, error = request.execute(), None
        except Exception as failure:
            result, error = None, failure
        if self.losing:
            # Executed, and no answer comes: neither for this one nor for any after it, until the connection is new.
            self.losing -= 1
            self._unanswered.append(request)
            if not self.losing:
                self.drop()
            return 1
        self.heard(request.session, request.sent_at)
        if error is not None:
            request.call.fail(error)
        else:
            request.call.succeed(result)
        return 1

    def drop(self) -> None:
        """The connection breaks: whatever is not answered yet never will be."""
        self._connection = None
        self.losing = 0
        self._dropped_at = self.clock.now()
        lost, self.requests, self._unanswered = [*self._unanswered, *self.requests], deque(), []
        for request in lost:
            request.call.fail(ambiguous(request.call.what, "the connection was lost before the answer"))
        self.on_change()

    def tick(self) -> None:
        """Notice an expired session, and come back where that is possible."""
        if self.frozen or self.closed:
            return
        if self._connection is not None and not self._ensemble.alive(self._connection.session.id):
            self.drop()
            return
        if self._connection is None and self.clock.now() - (self._dropped_at or 0.0) >= RECONNECT_DELAY:
            self.reconnect()

    def reconnect(self) -> None:
        """Connect, if a server can be reached: in the same session, or in a new one if that has expired."""
        if not self._ensemble.is_up or self.is_cut_off or self.closed:
            return
        self.session = self._ensemble.connect(self.session, self._timeout)
        self._generation += 1
        self._connection = Connection(self._generation, self.session)
        self.heard(self.session, self.clock.now())
        self.on_change()
