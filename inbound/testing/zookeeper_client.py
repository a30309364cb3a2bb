"""One client of `inbound.testing.zookeeper`, and its connection."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from inbound.coordinators.zookeeper import (
    Call,
    Check,
    Connection,
    Delete,
    Node,
    Op,
    Session,
    Stat,
    ZooKeeper,
    ambiguous,
    loosely,
    unavailable,
)
from inbound.errors import InboundError
from inbound.testing.zookeeper_tree import ANONYMOUS, Commit, Snapshot, WatchKey, Who

if TYPE_CHECKING:
    from inbound.testing.zookeeper import FakeEnsemble


@dataclass(eq=False)
class WireRequest:
    """A request, which the server that it reaches executes."""

    call: Call[Any]
    execute: Callable[[Wire], Any]
    sent_at: float
    size: int = 0  # bytes of paths and data


class _WireAnswer(NamedTuple):
    number: int  # the place in what the server has sent over this connection
    request: WireRequest
    result: Any
    error: InboundError | None


class _WireEvent(NamedTuple):
    number: int
    watch: Callable[[], None]


class Wire:
    """One connection, first in, first out in both directions.

    Only a watch may fire later than an answer that was sent after it. The server may lag behind the leader (`lagging`): it
    shows an older tree until it catches up, but never an older one than before, and a client sees its own writes.
    """

    def __init__(self, session: Session, view: Snapshot) -> None:
        self.session = session
        self.requests: deque[WireRequest] = deque()
        #: Executed, but the answer is lost.
        self.unanswered: list[WireRequest] = []
        self.view = view
        self.lagging = False
        #: The connection is gone; its client may not have noticed.
        self.broken = False
        self._behind: deque[Commit] = deque()
        self._watches: dict[WatchKey, dict[Callable[[], None], Who]] = {}
        self._answers: deque[_WireAnswer] = deque()
        self._events: deque[_WireEvent] = deque()
        self._sent = 0

    # -- the server's side -------------------------------------------------------------------------------------------

    def read(self, path: str, watch: Callable[[], None] | None, who: Who = ANONYMOUS) -> Any:
        if watch is not None:
            self._watches.setdefault(("data", path), {})[loosely(watch)] = who
        return self.view.get(path, who)

    def names(self, path: str, watch: Callable[[], None] | None, who: Who = ANONYMOUS) -> Any:
        names = self.view.children(path, who)
        if watch is not None and names is not None:
            self._watches.setdefault(("children", path), {})[loosely(watch)] = who
        return names

    def execute(self, request: WireRequest, *, answer: bool = True) -> None:
        """Execute a request, and send its answer or lose it."""
        result, error = None, None
        try:
            result = request.execute(self)
        except InboundError as refused:
            error = refused
        if answer:
            self._sent += 1
            self._answers.append(_WireAnswer(self._sent, request, result, error))
        else:
            self.unanswered.append(request)

    def committed(self, commit: Commit) -> None:
        """Receive a transaction from the leader."""
        self._behind.append(commit)
        if not self.lagging:
            self.catch_up()

    def catch_up(self, count: int | None = None) -> None:
        """Apply the next `count` transactions, or all, and fire their watches.

        A watch on a node that its client may not read is dropped without an event (as by ZooKeeper 3.9.2 and later).
        """
        for _ in range(len(self._behind) if count is None else min(count, len(self._behind))):
            commit = self._behind.popleft()
            before, self.view = self.view, commit.after
            for key in commit.changed:
                for watch, who in self._watches.pop(key, {}).items():
                    if self.view.may_read(key[1], who) and before.may_read(key[1], who):
                        self._sent += 1
                        self._events.append(_WireEvent(self._sent, watch))

    def successor(self, session: Session) -> Wire:
        """Return the next connection, to a server that lags as much."""
        wire = Wire(session, self.view)
        wire.lagging = self.lagging
        wire._behind.extend(self._behind)
        if not wire.lagging:
            wire.catch_up()
        return wire

    @property
    def watches(self) -> dict[WatchKey, int]:
        """The number of callbacks on each node and list of children."""
        return {key: len(callbacks) for key, callbacks in self._watches.items()}

    # -- the client's side -------------------------------------------------------------------------------------------

    @property
    def answers(self) -> int:
        """The number of answers in flight."""
        return len(self._answers)

    @property
    def events(self) -> int:
        """The number of watches in flight."""
        return len(self._events)

    @property
    def has_event(self) -> bool:
        """Whether a watch may fire: earlier answers must have arrived."""
        return bool(self._events) and not (self._answers and self._answers[0].number < self._events[0].number)

    def take_answer(self) -> _WireAnswer:
        return self._answers.popleft()

    def fire(self) -> None:
        """Let the oldest watch fire."""
        self._events.popleft().watch()

    def lost(self) -> list[WireRequest]:
        """Return, in order, the requests that will get no answer."""
        return [*(answer.request for answer in self._answers), *self.unanswered, *self.requests]


#: How long a client takes to notice a lost connection and reconnect, in seconds of the clock.
RECONNECT_DELAY = 0.1


class FakeZooKeeper(ZooKeeper):
    """One client; `FakeEnsemble.client` makes it."""

    def __init__(self, ensemble: FakeEnsemble, name: str, session_timeout: float, who: Who = ANONYMOUS) -> None:
        super().__init__(ensemble.clock, session_timeout / 2)
        self.where = "ZooKeeper (fake)"
        self.name = name
        self.who = who
        self.requests = 0  # sent so far
        self.session: Session | None = None
        self.wire: Wire | None = None
        #: Which coming requests (0 is the next) get no answer, or are lost.
        self.losing = self.dropping = range(0)
        self.dropped_arrive_late = False
        #: The next request whose description contains this is delayed.
        self.sticking: str | None = None
        self.is_cut_off = False
        self.frozen = False
        self.closed = False
        self._ensemble = ensemble
        self._timeout = session_timeout
        self._connection: Connection | None = None
        self._generation = 0
        self._dropped_at = float("-inf")
        self._late: deque[WireRequest] = deque()

    @property
    def connection(self) -> Connection | None:
        return self._connection

    @property
    def reachable(self) -> bool:
        """Whether its pings reach a server."""
        return self._connected and not self.frozen

    # -- requests ----------------------------------------------------------------------------------------------------

    def get(self, path: str, watch: Callable[[], None] | None = None) -> Call[Node | None]:
        return self._send(f"read of {path}", lambda wire: wire.read(path, watch, self.who))

    def children(self, path: str, watch: Callable[[], None] | None = None) -> Call[list[str] | None]:
        return self._send(f"list of {path}", lambda wire: wire.names(path, watch, self.who))

    def transaction(self, ops: Sequence[Op]) -> Call[list[Stat | None]]:
        if not ops:
            raise ValueError("a transaction needs at least one operation")
        ops = tuple(ops)

        def execute(wire: Wire) -> list[Stat | None]:
            try:
                return self._ensemble.tree.transaction(ops, wire.session.id, who=self.who)
            finally:
                wire.catch_up()

        size = sum(len(op.path) + (0 if isinstance(op, (Check, Delete)) else len(op.data)) for op in ops)
        return self._send(f"transaction at {ops[0].path}", execute, size)

    def close(self) -> None:
        if self._connected and self.session is not None:
            while "execute" in self.kinds():  # the end of a session comes after what was sent
                self.step("execute")
            while self.wire is not None and self.wire.answers:
                self.step("answer")
            self._ensemble.end(self.session.id)
        self.closed = True
        self._notice()

    def _send(self, what: str, execute: Callable[[Wire], Any], size: int = 0) -> Call[Any]:
        call = self._new_call(what)
        if self._connection is None or self.wire is None:
            call.fail(unavailable(what))
        else:
            self.requests += 1
            call.sent_in = self._connection.session.id
            # A broken connection that the client has not noticed accepts it, too.
            self.wire.requests.append(WireRequest(call, execute, self.clock.now(), size))
            if self._ensemble.auto:
                self._ensemble.deliver_all()
        return call

    # -- the network -------------------------------------------------------------------------------------------------

    @property
    def _connected(self) -> bool:
        return self.wire is not None and not self.wire.broken

    def kinds(self) -> list[str]:
        """Return what may happen to this client next; see `Arrival`."""
        wire, kinds = self.wire, []
        if self._late and self.session is not None and self._ensemble.is_up and self._ensemble.alive(self.session.id):
            kinds.append("late")
        if wire is None:
            return kinds
        if wire.requests and not wire.broken and self._ensemble.alive(wire.session.id):
            kinds.append("execute")
        if wire.answers and not self.frozen:
            kinds.append("answer")
        if wire.has_event and not self.frozen:
            kinds.append("watch")
        return kinds

    def waiting(self, kind: str) -> int:
        """Return how many requests, or watches, are in flight."""
        if self.wire is None:
            return 0
        return self.wire.events if kind == "watch" else max(len(self.wire.requests), self.wire.answers)

    def step(self, kind: str) -> None:
        """Let one event of `kinds` happen."""
        wire = self.wire
        if kind == "late":
            assert self.session is not None
            old = Wire(self.session, self._ensemble.tree.now())
            old.execute(self._late.popleft(), answer=False)
        elif wire is None:
            raise RuntimeError(f"{self.name}: nothing is in flight")
        elif kind == "execute":
            self._execute(wire)
        elif kind == "answer":
            _, request, result, error = wire.take_answer()
            self.heard(wire.session, request.sent_at)
            if error is not None:
                request.call.fail(error)
            else:
                request.call.succeed(result)
        else:
            wire.fire()

    def _execute(self, wire: Wire) -> None:
        request = wire.requests.popleft()
        if self.sticking is not None and self.sticking in request.call.what:
            self.sticking = None
            wire.unanswered.append(request)
            self._late.append(request)
            self.break_connection()
            return
        if request.size > self._ensemble.largest_request:
            wire.unanswered.append(request)
            self.break_connection()
            return
        drop, lose = 0 in self.dropping, 0 in self.losing
        self.dropping, self.losing = _next(self.dropping), _next(self.losing)
        if drop:
            wire.unanswered.append(request)
            if self.dropped_arrive_late:
                self._late.append(request)
        else:
            self._ensemble.touch(wire.session.id)
            wire.execute(request, answer=not lose)
        if (drop and not self.dropping) or (lose and not self.losing):
            self.break_connection()

    def break_connection(self, *, executed: int = 0, late: bool = False) -> None:
        """Break the connection; a running client notices at once."""
        wire = self.wire
        self.losing = self.dropping = range(0)
        if wire is not None and not wire.broken:
            for _ in range(min(executed, len(wire.requests))):
                wire.execute(wire.requests.popleft(), answer=False)
            if late:
                self._late.extend(wire.requests)
            wire.broken = True
        if not self.frozen:
            self._notice()

    @property
    def next_notice(self) -> float:
        """The clock time at which `tick` next has work; inf for none."""
        if self.frozen or self.closed:
            return float("inf")
        if self._connection is not None:
            well = self._connected and self._ensemble.alive(self._connection.session.id)
            return float("inf") if well else self.clock.now()
        return self._dropped_at + RECONNECT_DELAY if self._ensemble.is_up and not self.is_cut_off else float("inf")

    def tick(self) -> None:
        """Notice a lost connection or an expired session, and reconnect if possible."""
        if self.frozen or self.closed:
            return
        if self._connection is not None:
            if not self._connected or not self._ensemble.alive(self._connection.session.id):
                self.break_connection()
        elif self.clock.now() >= self.next_notice:  # not a difference: rounded otherwise, it would never be due
            self.reconnect()

    def reconnect(self) -> None:
        """Connect if possible, in the same session unless it has expired."""
        if not self._ensemble.is_up or self.is_cut_off or self.closed:
            return
        before = self.session
        self.session = self._ensemble.connect(self.name, before, self._timeout)
        if self.session != before:
            self._late.clear()  # requests of a session that has ended are refused
        wire, now = self.wire, self._ensemble.tree.now()
        self.wire = Wire(self.session, now) if wire is None else wire.successor(self.session)
        self._generation += 1
        self._connection = Connection(self._generation, self.session)
        self.heard(self.session, self.clock.now())
        self.on_change()

    def _notice(self) -> None:
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


def _next(fault: range) -> range:
    """Return what is left of a fault after one request."""
    return range(max(0, fault.start - 1), fault.stop - 1) if fault else fault
