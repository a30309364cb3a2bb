"""A ZooKeeper ensemble in memory, with clients and faults.

Deterministic and without threads. A request or answer stays in flight until a test delivers it:

    ensemble.deliver()                   everything, clients in a random order (by the seed)
    ensemble.step(ensemble.pending[n])   one event: a scheduler picks from what may happen next
    ensemble.auto = True                 at once, in every call

Sessions expire, and clients notice what happened to them and reconnect, when `tick` is called.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from inbound.clock import Clock
from inbound.coordinators.zookeeper import Session
from inbound.testing.zookeeper_client import FakeZooKeeper
from inbound.testing.zookeeper_tree import ANONYMOUS, Commit, Tree, Who

__all__ = ["ANONYMOUS", "Arrival", "FakeEnsemble", "FakeZooKeeper", "Who"]


class Arrival(NamedTuple):
    """One event that may happen next between a client and its server."""

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
        self.tree = Tree(self._committed)
        self.is_up = True
        #: A larger request breaks its connection (jute.maxbuffer). Bytes.
        self.largest_request = 1024 * 1024
        #: Deliver everything at once.
        self.auto = False
        self._rng = random.Random(seed)
        self._sessions: dict[int, _ServerSession] = {}
        #: Called after every transaction.
        self.observers: list[Callable[[Commit], None]] = []
        #: Every session there ever was, and its client's name.
        self.clients_of: dict[int, str] = {}
        self._last_session = 0x1000
        self._clients: dict[str, FakeZooKeeper] = {}
        self._delivering = False

    def client(self, name: str, session_timeout: float, who: Who = ANONYMOUS) -> FakeZooKeeper:
        """Return a new client, connected if the ensemble is up.

        It may reuse the name of a dead one. `who` is its user, and the access rights of the nodes that it creates.
        """
        client = FakeZooKeeper(self, name, session_timeout, who)
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
    def pending(self) -> list[Arrival]:
        """What may happen next; each connection keeps its own order."""
        return [Arrival(client.name, kind) for client in self._clients.values() for kind in client.kinds()]

    def step(self, delivery: Arrival) -> None:
        """Let one of `pending` happen."""
        self._clients[delivery.client].step(delivery.kind)

    def deliver(self) -> int:
        """Deliver all requests and answers, clients in random order, then watches.

        Events that these cause wait for the next call. Returns how many events happened.
        """
        count = 0
        clients = [client for client in self._clients.values() if client.kinds()]
        self._rng.shuffle(clients)
        for client in clients:
            for kinds in (("execute", "answer"), ("watch",)):
                for _ in range(client.waiting(kinds[0])):
                    for kind in kinds:
                        if kind in client.kinds():
                            client.step(kind)
                            count += 1
        return count

    def deliver_all(self) -> None:
        """Deliver until nothing is in flight."""
        if not self._delivering:
            self._delivering = True
            try:
                while self.deliver():
                    pass
            finally:
                self._delivering = False

    def tick(self) -> None:
        """Expire silent sessions; let clients ping, notice lost connections and reconnect."""
        now = self.clock.now()
        for client in list(self._clients.values()):
            if client.reachable and client.session is not None and client.session.id in self._sessions:
                self._sessions[client.session.id].heard_at = now
        self.expire_silent()
        for client in list(self._clients.values()):
            client.tick()

    def expire_silent(self) -> None:
        """Expire the sessions that were silent for too long."""
        if self.is_up:
            for session in list(self._sessions.values()):
                if self.clock.now() >= session.heard_at + session.timeout:
                    self.end(session.id)

    @property
    def next_expiry(self) -> float:
        """The clock time of the next session expiry without further pings."""
        times = (session.heard_at + session.timeout for session in self._sessions.values())
        return min(times, default=float("inf")) if self.is_up else float("inf")

    @property
    def clients(self) -> Mapping[str, FakeZooKeeper]:
        """All clients by name, dead ones included."""
        return self._clients

    # -- faults ------------------------------------------------------------------------------------------------------

    def expire_session(self, name: str) -> None:
        """Let the servers declare a client's session expired."""
        session = self._clients[name].session
        if session is not None:
            self.end(session.id)

    def disconnect(self, name: str, *, executed: int = 0, late: bool = False) -> None:
        """Break a client's connection; its requests in flight become ambiguous.

        The first `executed` of them are executed. The others are lost; with `late` they still reach the servers, and each may
        be executed as long as the session lives, also after later requests of its next connection (kind "late" of `pending`).
        A real ensemble does that, see docs/decisions/0014-late-requests.md.
        """
        self._clients[name].break_connection(executed=executed, late=late)

    def lose_answers(self, name: str, count: int = 1, *, after: int = 0) -> None:
        """Execute the next `count` requests without an answer, then disconnect.

        The first `after` requests from now on are still answered. A connection that breaks earlier ends the fault.
        """
        self._clients[name].losing = range(after, after + count)

    def drop_requests(self, name: str, count: int = 1, *, after: int = 0, late: bool = False) -> None:
        """Like `lose_answers`, but the requests are lost, or with `late` delayed."""
        client = self._clients[name]
        client.dropping = range(after, after + count)
        client.dropped_arrive_late = late

    def stick(self, name: str, text: str) -> None:
        """Delay the next request about `text`, and break its connection."""
        self._clients[name].sticking = text

    def answer_again(self, name: str) -> None:
        """End `lose_answers` and `drop_requests`; if they have begun, the connection breaks now."""
        client = self._clients[name]
        client.losing = client.dropping = range(0)
        client.sticking = None
        if client.wire is not None and client.wire.unanswered:
            client.break_connection()

    def cut_off(self, name: str) -> None:
        """Keep a client from reaching any server, until `heal`."""
        self._clients[name].is_cut_off = True
        self._clients[name].break_connection()

    def heal(self, name: str) -> None:
        """Let a client reach the servers again."""
        self._clients[name].is_cut_off = False

    def freeze(self, name: str) -> None:
        """Stop the client's process: it neither pings nor notices anything, until `thaw`.

        Requests that it had sent still reach the servers.
        """
        self._clients[name].frozen = True

    def thaw(self, name: str) -> None:
        """Resume the client's process, which notices a lost session at `tick`."""
        self._clients[name].frozen = False

    def lag(self, name: str) -> None:
        """Freeze the tree that the client's server shows, until `catch_up`.

        Watches do not fire. The client's own writes bring the server up to date: a client always sees them.
        """
        if (wire := self._clients[name].wire) is not None:
            wire.lagging = True

    def catch_up(self, name: str, count: int | None = None) -> None:
        """Let the client's server apply `count` more transactions; None ends the lag."""
        if (wire := self._clients[name].wire) is not None:
            wire.lagging = wire.lagging and count is not None
            wire.catch_up(count)

    def down(self) -> None:
        """Stop the whole ensemble; sessions do not expire while it is down."""
        self.is_up = False
        for client in self._clients.values():
            client.break_connection()

    def up(self) -> None:
        """Restart the ensemble; as in ZooKeeper, sessions get their full timeout again."""
        self.is_up = True
        for session in self._sessions.values():
            session.heard_at = self.clock.now()

    # -- the servers' side -------------------------------------------------------------------------------------------

    def connect(self, name: str, old: Session | None, timeout: float) -> Session:
        """Resume a session, or begin a new one if it has expired."""
        if old is not None and old.id in self._sessions:
            self.touch(old.id)
            return old
        self._last_session += 1
        self.clients_of[self._last_session] = name
        self._sessions[self._last_session] = _ServerSession(self._last_session, timeout, self.clock.now())
        return Session(self._last_session, timeout)

    def touch(self, session: int) -> None:
        """Note that a session has been heard from."""
        self._sessions[session].heard_at = self.clock.now()

    def end(self, session: int) -> None:
        """End a session, closed or expired."""
        if self._sessions.pop(session, None) is not None:
            self.tree.remove_ephemerals(session)

    def alive(self, session: int) -> bool:
        """Return whether a session has not ended."""
        return session in self._sessions

    def _committed(self, commit: Commit) -> None:
        for client in self._clients.values():
            if client.wire is not None:
                client.wire.committed(commit)
        for observer in self.observers:
            observer(commit)
