"""A ZooKeeper ensemble in memory, and clients of it, with verbs for everything that goes wrong with the real one.

Deterministic and without threads. A request or answer stays in flight until a test delivers it:

    ensemble.deliver()                   everything, clients in a random order (by the seed)
    ensemble.step(ensemble.pending[n])   one thing: a scheduler picks from what may happen next
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
    """One thing that may happen next between a client and its server."""

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
        #: Told of every transaction that was done.
        self.observers: list[Callable[[Commit], None]] = []
        #: Every session there ever was, and its client's name.
        self.clients_of: dict[int, str] = {}
        self._last_session = 0x1000
        self._clients: dict[str, FakeZooKeeper] = {}
        self._delivering = False

    def client(self, name: str, session_timeout: float, who: Who = ANONYMOUS) -> FakeZooKeeper:
        """Return a new client, connected if the ensemble is up. It may reuse the name of a dead one.

        `who` says as whom it logs in, and who may use the nodes that it makes.
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
        """What may happen next, in any order: each connection delivers its own things in theirs."""
        return [Arrival(client.name, kind) for client in self._clients.values() for kind in client.kinds()]

    def step(self, delivery: Arrival) -> None:
        """Let one of `pending` happen."""
        self._clients[delivery.client].step(delivery.kind)

    def deliver(self) -> int:
        """Let everything arrive: requests, each followed by its answer, clients in a random order; then watches.

        What that sets off waits for the next call. Returns how many things happened.
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
        """Expire sessions that were silent for too long, let clients ping, notice lost connections, and come back."""
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
        """The clock time at which the next session expires if nothing more is heard of it."""
        times = (session.heard_at + session.timeout for session in self._sessions.values())
        return min(times, default=float("inf")) if self.is_up else float("inf")

    @property
    def clients(self) -> Mapping[str, FakeZooKeeper]:
        """All clients by name, also those that are gone."""
        return self._clients

    # -- faults ------------------------------------------------------------------------------------------------------

    def expire_session(self, name: str) -> None:
        """Let the servers declare a client's session expired."""
        session = self._clients[name].session
        if session is not None:
            self.end(session.id)

    def disconnect(self, name: str, *, executed: int = 0, late: bool = False) -> None:
        """Break a client's connection. It cannot know what became of its requests in flight.

        The first `executed` of them are executed. The others are gone; with `late` they still reach the servers, and
        each may be executed as long as the session lives, also after later ones that it sent over a new connection
        (kind "late" of `pending`): a real ensemble does that, see docs/decisions/0014-late-requests.md.
        """
        self._clients[name].break_connection(executed=executed, late=late)

    def lose_answers(self, name: str, count: int = 1, *, after: int = 0) -> None:
        """Execute the client's next `count` requests without an answer, and break the connection after the last.

        The first `after` requests from now on are answered still. A connection that breaks before ends the fault.
        """
        self._clients[name].losing = range(after, after + count)

    def drop_requests(self, name: str, count: int = 1, *, after: int = 0, late: bool = False) -> None:
        """Like `lose_answers`, but the requests get lost on the way and are not executed; with `late`: not yet."""
        client = self._clients[name]
        client.dropping = range(after, after + count)
        client.dropped_arrive_late = late

    def stick(self, name: str, text: str) -> None:
        """Let the client's next request about `text` get stuck on its way: its connection breaks, and it may come late."""
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
        """Let the client's process go on. At the next `tick` it notices what happened to its session."""
        self._clients[name].frozen = False

    def lag(self, name: str) -> None:
        """Let the client's server fall behind: reads show the tree of now, watches don't fire, until it catches up.

        The client's own writes pull it up to the leader: a client always sees them.
        """
        if (wire := self._clients[name].wire) is not None:
            wire.lagging = True

    def catch_up(self, name: str, count: int | None = None) -> None:
        """Let the client's server take over the next `count` transactions; None: all, and it lags no more."""
        if (wire := self._clients[name].wire) is not None:
            wire.lagging = wire.lagging and count is not None
            wire.catch_up(count)

    def down(self) -> None:
        """Take the whole ensemble away. Sessions do not expire while no server counts."""
        self.is_up = False
        for client in self._clients.values():
            client.break_connection()

    def up(self) -> None:
        """Bring it back. A new leader gives every session its full time again, as the real one does."""
        self.is_up = True
        for session in self._sessions.values():
            session.heard_at = self.clock.now()

    # -- the servers' side -------------------------------------------------------------------------------------------

    def connect(self, name: str, old: Session | None, timeout: float) -> Session:
        """Take up a session again, or begin a new one where the old one has expired."""
        if old is not None and old.id in self._sessions:
            self.touch(old.id)
            return old
        self._last_session += 1
        self.clients_of[self._last_session] = name
        self._sessions[self._last_session] = _ServerSession(self._last_session, timeout, self.clock.now())
        return Session(self._last_session, timeout)

    def touch(self, session: int) -> None:
        """Take note of a sign of life."""
        self._sessions[session].heard_at = self.clock.now()

    def end(self, session: int) -> None:
        """End a session: by its client, or because it has expired."""
        if self._sessions.pop(session, None) is not None:
            self.tree.remove_ephemerals(session)

    def alive(self, session: int) -> bool:
        """Whether a session has not ended yet."""
        return session in self._sessions

    def _committed(self, commit: Commit) -> None:
        for client in self._clients.values():
            if client.wire is not None:
                client.wire.committed(commit)
        for observer in self.observers:
            observer(commit)
