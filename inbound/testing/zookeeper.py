"""A ZooKeeper ensemble in memory, and clients of it, with verbs for everything that goes wrong with the real one.

Deterministic and without threads. What is on its way stays there until somebody delivers it:

    ensemble.deliver()                   everything, clients in a random order (by the seed)
    ensemble.step(ensemble.pending[n])   one thing: a scheduler picks from what may happen next
    ensemble.auto = True                 at once, in every call

Sessions expire, and clients notice what happened to them and reconnect, when `tick` is called.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
from inbound.testing.zookeeper_tree import Commit, Tree
from inbound.testing.zookeeper_wire import Request, Wire

#: How long a client takes to find out that its connection is gone and to come back, in seconds of the clock.
RECONNECT_DELAY = 0.1


class Delivery(NamedTuple):
    """One thing that may happen next."""

    client: str
    #: execute: its oldest request reaches the servers; answer: its oldest answer arrives; watch: its oldest watch
    #: fires; late: a request of its lost connection is executed after all.
    kind: str


@dataclass(eq=False)
class _ServerSession:
    id: int
    timeout: float
    heard_at: float  # when the server last had a request or a ping of it


class FakeEnsemble:
    """The servers: one tree, its sessions, and the network to the clients."""

    def __init__(self, clock: Clock, seed: int = 0) -> None:
        self.clock = clock
        self.tree = Tree()
        self.tree.on_commit = self._committed
        self.is_up = True
        #: Deliver everything at once.
        self.auto = False
        self._rng = random.Random(seed)
        self._sessions: dict[int, _ServerSession] = {}
        self._last_session = 0x1000
        self._clients: dict[str, FakeZooKeeper] = {}
        self._delivering = False

    def client(self, name: str, session_timeout: float) -> FakeZooKeeper:
        """Return a new client, connected if the ensemble is up. It may have the name of one that is gone."""
        client = FakeZooKeeper(self, name, session_timeout)
        self._clients[name] = client
        client.reconnect()
        return client

    def subtree(self, parent: str) -> Mapping[str, bytes]:
        """Return the children of `parent` with their data, by full path."""
        return {
            f"{parent}/{name}": self.tree.nodes[f"{parent}/{name}"].data for name in self.tree.children(parent) or ()
        }

    # -- what happens next -------------------------------------------------------------------------------------------

    @property
    def pending(self) -> list[Delivery]:
        """What may happen next, in any order: each connection delivers its own things in theirs."""
        return [
            Delivery(client.name, kind) for client in self._clients.values() for kind in client.kinds(self._alive)
        ]

    def step(self, delivery: Delivery) -> None:
        """Let one of `pending` happen."""
        self._clients[delivery.client].step(delivery.kind)

    def deliver(self) -> int:
        """Let everything arrive: requests, each followed by its answer, clients in a random order; then watches.

        What that sets off waits for the next call. Returns how many things happened.
        """
        count = 0
        clients = [client for client in self._clients.values() if client.kinds(self._alive)]
        self._rng.shuffle(clients)
        for client in clients:
            for kinds in (("execute", "answer"), ("watch",)):
                for _ in range(client.waiting(kinds[0])):
                    for kind in kinds:
                        if kind in client.kinds(self._alive):
                            client.step(kind)
                            count += 1
        return count

    def deliver_all(self) -> None:
        """Deliver until nothing is on its way any more."""
        if not self._delivering:
            self._delivering = True
            try:
                while self.deliver():
                    pass
            finally:
                self._delivering = False

    def tick(self) -> None:
        """Expire sessions that were silent for too long, let clients ping, notice lost connections, and come back."""
        now = self.clock.now()
        for client in list(self._clients.values()):
            if client.reachable and client.session is not None and client.session.id in self._sessions:
                self._sessions[client.session.id].heard_at = now
        if self.is_up:
            for session in list(self._sessions.values()):
                if now - session.heard_at >= session.timeout:
                    self.end(session.id)
        for client in list(self._clients.values()):
            client.tick()

    # -- faults ------------------------------------------------------------------------------------------------------

    def expire_session(self, name: str) -> None:
        """Let the servers declare a client's session expired."""
        session = self._clients[name].session
        if session is not None:
            self.end(session.id)

    def disconnect(self, name: str, *, executed: int = 0, late: bool = False) -> None:
        """Break a client's connection. It cannot know what became of the requests that were on their way.

        The first `executed` of them are executed. The others are gone; with `late` they still reach the servers, and
        each may be executed until the client is back (kind "late" of `pending`).
        """
        self._clients[name].break_connection(executed=executed, late=late)

    def lose_answers(self, name: str, count: int = 1) -> None:
        """Execute the client's next `count` requests without an answer, and break the connection after the last."""
        self._clients[name].losing = count

    def drop_requests(self, name: str, count: int = 1) -> None:
        """Lose the client's next `count` requests on the way, and break the connection after the last."""
        self._clients[name].dropping = count

    def cut_off(self, name: str) -> None:
        """Keep a client from reaching any server, until `heal`."""
        self._clients[name].is_cut_off = True
        self._clients[name].break_connection()

    def heal(self, name: str) -> None:
        """Let a client reach the servers again."""
        self._clients[name].is_cut_off = False

    def freeze(self, name: str) -> None:
        """Stop the client's process: it neither pings nor notices anything, until `thaw`.

        What it had sent reaches the servers all the same.
        """
        self._clients[name].frozen = True

    def thaw(self, name: str) -> None:
        """Let the client's process go on. What happened meanwhile it notices at the next `tick`, not before."""
        self._clients[name].frozen = False

    def lag(self, name: str) -> None:
        """Let the client's server fall behind: reads show the tree of now, watches don't fire, until it catches up.

        The client's own writes pull it up to the leader: a client always sees them.
        """
        self._clients[name].lagging = True

    def catch_up(self, name: str, count: int | None = None) -> None:
        """Let the client's server take over the next `count` transactions; None: all, and it lags no more."""
        client = self._clients[name]
        if count is None:
            client.lagging = False
        elif client.wire is not None:
            client.wire.catch_up(count)

    def down(self) -> None:
        """Take the whole ensemble away. Sessions do not expire while nobody counts."""
        self.is_up = False
        for client in self._clients.values():
            client.break_connection()

    def up(self) -> None:
        """Bring it back. A new leader gives every session its full time again, as the real one does."""
        self.is_up = True
        for session in self._sessions.values():
            session.heard_at = self.clock.now()

    # -- the servers' side -------------------------------------------------------------------------------------------

    def connect(self, old: Session | None, timeout: float) -> Session:
        """Take up a session again, or begin a new one where the old one has expired."""
        if old is not None and old.id in self._sessions:
            self.touch(old.id)
            return old
        self._last_session += 1
        self._sessions[self._last_session] = _ServerSession(self._last_session, timeout, self.clock.now())
        return Session(self._last_session, timeout)

    def touch(self, session: int) -> None:
        """Take note of a sign of life."""
        self._sessions[session].heard_at = self.clock.now()

    def end(self, session: int) -> None:
        """End a session: by its client, or because it has expired."""
        if self._sessions.pop(session, None) is not None:
            self.tree.remove_ephemerals(session)

    def _alive(self, session: int) -> bool:
        return session in self._sessions

    def _committed(self, commit: Commit) -> None:
        for client in self._clients.values():
            if client.wire is not None:
                client.wire.committed(commit)


class FakeZooKeeper(ZooKeeper):
    """One client. See `FakeEnsemble` for how its requests are executed; it is also how to make one."""

    def __init__(self, ensemble: FakeEnsemble, name: str, session_timeout: float) -> None:
        super().__init__(ensemble.clock, session_timeout / 2)
        self.where = "ZooKeeper (fake)"
        self.name = name
        self.session: Session | None = None
        self.wire: Wire | None = None
        self.losing = 0  # answers still to lose
        self.dropping = 0  # requests still to lose
        self.is_cut_off = False
        self.frozen = False
        self.closed = False
        self._ensemble = ensemble
        self._timeout = session_timeout
        self._connection: Connection | None = None
        self._generation = 0
        self._dropped_at = float("-inf")
        self._late: deque[Request] = deque()

    @property
    def connection(self) -> Connection | None:
        return self._connection

    @property
    def reachable(self) -> bool:
        """Whether a ping of it arrives."""
        return self._connected and not self.frozen

    @property
    def lagging(self) -> bool:
        """Whether its server is behind the leader."""
        return self.wire is not None and self.wire.lagging

    @lagging.setter
    def lagging(self, lagging: bool) -> None:
        if self.wire is not None:
            self.wire.lagging = lagging
            if not lagging:
                self.wire.catch_up()

    # -- requests ----------------------------------------------------------------------------------------------------

    def get(self, path: str, watch: Callable[[], None] | None = None) -> Call[Node | None]:
        return self._send(f"read of {path}", lambda wire: wire.read(path, watch))

    def children(self, path: str, watch: Callable[[], None] | None = None) -> Call[list[str] | None]:
        return self._send(f"list of {path}", lambda wire: wire.list(path, watch))

    def transaction(self, ops: Sequence[Op]) -> Call[list[Stat | None]]:
        if not ops:
            raise ValueError("a transaction needs at least one operation")
        ops = tuple(ops)

        def execute(wire: Wire) -> list[Stat | None]:
            try:
                return self._ensemble.tree.transaction(ops, wire.session.id)
            finally:
                wire.catch_up()

        return self._send(f"transaction at {ops[0].path}", execute)

    def close(self) -> None:
        if self._connected and self.session is not None:
            while "execute" in self.kinds(self._ensemble._alive):  # the end of a session comes after what was sent
                self.step("execute")
            while self.wire is not None and self.wire.has_answer:
                self.step("answer")
            self._ensemble.end(self.session.id)
        self.closed = True
        self._notice()

    def _send(self, what: str, execute: Callable[[Wire], Any]) -> Call[Any]:
        call = self._new_call(what)
        if self._connection is None or self.wire is None:
            call.fail(unavailable(what))
        else:
            # One that is broken without our knowledge takes it all the same.
            self.wire.requests.append(Request(call, execute, self.clock.now()))
            if self._ensemble.auto:
                self._ensemble.deliver_all()
        return call

    # -- the network -------------------------------------------------------------------------------------------------

    @property
    def _connected(self) -> bool:
        return self.wire is not None and not self.wire.broken

    def kinds(self, alive: Callable[[int], bool]) -> list[str]:
        """Return what may happen to this client next; see `Delivery`."""
        wire, kinds = self.wire, []
        if self._late and self.session is not None and self._ensemble.is_up and alive(self.session.id):
            kinds.append("late")
        if wire is None:
            return kinds
        if wire.requests and not wire.broken and alive(wire.session.id):
            kinds.append("execute")
        if wire.has_answer and not self.frozen:
            kinds.append("answer")
        if wire.has_event and not self.frozen:
            kinds.append("watch")
        return kinds

    def waiting(self, kind: str) -> int:
        """Return how often `kind` can happen without anything else happening."""
        if self.wire is None:
            return 0
        return max(len(self.wire.requests), len(self.wire._answers)) if kind == "execute" else len(self.wire._events)

    def step(self, kind: str) -> None:
        """Let one thing of `kinds` happen."""
        wire = self.wire
        if kind == "late":
            assert self.session is not None
            old = Wire(self._ensemble.tree, self.session, self._ensemble.tree.now())
            old.execute(self._late.popleft(), answer=False)
        elif wire is None:
            raise RuntimeError(f"{self.name}: nothing is on its way")
        elif kind == "execute":
            self._execute(wire)
        elif kind == "answer":
            request, result, error = wire.take_answer()
            self.heard(wire.session, request.sent_at)
            if error is not None:
                request.call.fail(error)
            else:
                request.call.succeed(result)
        else:
            wire.fire()

    def _execute(self, wire: Wire) -> None:
        if self.dropping:
            self.dropping -= 1
            wire.unanswered.append(wire.requests.popleft())
            if not self.dropping:
                self.break_connection()
            return
        self._ensemble.touch(wire.session.id)
        if not self.losing:
            wire.execute(wire.requests.popleft())
            return
        # Executed, and no answer comes: neither for this one nor for any after it, until the connection is new.
        self.losing -= 1
        wire.execute(wire.requests.popleft(), answer=False)
        if not self.losing:
            self.break_connection()

    def break_connection(self, *, executed: int = 0, late: bool = False) -> None:
        """Break the connection; the client notices at once unless its process is stopped."""
        wire = self.wire
        if wire is not None and not wire.broken:
            for _ in range(min(executed, len(wire.requests))):
                wire.execute(wire.requests.popleft(), answer=False)
            if late:
                self._late.extend(wire.requests)
            wire.broken = True
        if not self.frozen:
            self._notice()

    def tick(self) -> None:
        """Notice a lost connection or an expired session, and come back where that is possible."""
        if self.frozen or self.closed:
            return
        if self._connection is not None:
            if not self._connected or not self._ensemble._alive(self._connection.session.id):
                self.break_connection()
        elif self.clock.now() - self._dropped_at >= RECONNECT_DELAY:
            self.reconnect()

    def reconnect(self) -> None:
        """Connect, if a server can be reached: in the same session, or in a new one if that has expired."""
        if not self._ensemble.is_up or self.is_cut_off or self.closed:
            return
        self.session = self._ensemble.connect(self.session, self._timeout)
        self._late.clear()  # whatever was on its way still is fenced off by the new connection
        tree = self._ensemble.tree
        self.wire = Wire(tree, self.session, tree.now()) if self.wire is None else self.wire.successor(self.session)
        self._generation += 1
        self._connection = Connection(self._generation, self.session)
        self.heard(self.session, self.clock.now())
        self.on_change()

    def _notice(self) -> None:
        """Find out that the connection is gone: whatever is not answered yet never will be; its watches are gone."""
        if self._connection is None:
            return
        self._connection = None
        self._dropped_at = self.clock.now()
        wire = self.wire
        if wire is not None:
            wire.broken = True
            lost = wire.lost()
            self.wire = wire.successor(wire.session)
            self.wire.broken = True
            for request in lost:
                request.call.fail(ambiguous(request.call.what, "the connection was lost before the answer"))
        self.on_change()
