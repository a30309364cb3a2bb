"""The interface to ZooKeeper: requests that answer later, a session with doubt.

The real client is `inbound.controller.kazoo_zk.KazooZooKeeper`, the fake one `inbound.testing.FakeZooKeeper`. Neither ever
blocks: a request returns a `Call`, and coroutines that `Tasks` runs await it. So a seeded scheduler can drive the code that
runs in production.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from inbound.clock import Clock
from inbound.errors import InboundError, ZkAmbiguousError, ZkUnavailableError

T = TypeVar("T")

#: A transaction above this many operations or bytes is never built: ZooKeeper drops the connection above 1 MiB
#: (jute.maxbuffer), which then looks like an ambiguous answer.
MAX_TRANSACTION_OPS = 1000
MAX_TRANSACTION_BYTES = 512 * 1024
#: Attempts at a change while others change the same node, or answers are lost.
ATTEMPTS = 5
#: Requests in flight at once: a server answers them in one go, and other clients have their turns.
AT_ONCE = 300


class Stat(NamedTuple):
    """ZooKeeper's data about a node."""

    version: int
    ephemeral_owner: int  # session id; 0 where the node is persistent
    czxid: int
    mzxid: int
    ctime: float = 0.0  # made, in seconds since 1970; for people. 0: not known
    mtime: float = 0.0  # last written, in the same way


class Node(NamedTuple):
    """A node as read: a hint only, it may have changed since."""

    data: bytes
    stat: Stat


class Create(NamedTuple):
    """Create a node; refused where it exists or its parent does not."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


class SetData(NamedTuple):
    """Write a node; refused where it has another version (-1: any)."""

    path: str
    data: bytes
    version: int = -1


class Delete(NamedTuple):
    """Delete a node without children; refused in another version (-1: any)."""

    path: str
    version: int = -1


class Check(NamedTuple):
    """Refuse the transaction unless the node exists in this version."""

    path: str
    version: int


Op = Create | SetData | Delete | Check


class RefusedError(InboundError):
    """ZooKeeper refused a whole transaction, because of the operation `index`."""

    def __init__(self, index: int, op: Op, reason: str) -> None:
        super().__init__(f"{op.path}: {type(op).__name__.lower()} refused: {reason}")
        self.index = index
        self.op = op
        self.reason = reason


class Session(NamedTuple):
    """One ZooKeeper session."""

    id: int
    timeout: float  # seconds, as negotiated with the server


class Connection(NamedTuple):
    """A session on a live connection."""

    generation: int  # counts connections: watches do not outlive theirs
    session: Session


class Call(Generic[T]):
    """The answer to one request: completed once, awaited by any tasks."""

    __slots__ = ("_callbacks", "_error", "_lock", "_value", "deadline", "done", "sent_in", "what")

    def __init__(self, what: str = "", deadline: float | None = None) -> None:
        self.what = what
        self.deadline = deadline  #: on the clock; past it the awaiting task gets ZkAmbiguousError
        self.sent_in: int | None = None  #: the session that the request was sent in; None: it was not sent
        self.done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def succeed(self, value: T) -> None:
        """Complete the call with a value, unless it is completed already."""
        self._complete(value, None)

    def fail(self, error: BaseException) -> None:
        """Complete the call with an error, unless it is completed already."""
        self._complete(None, error)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` when done: at once, or on the completing thread."""
        with self._lock:
            if not self.done:
                self._callbacks.append(callback)
                return
        callback()

    @property
    def failed(self) -> bool:
        """Return whether the answer is an error."""
        return self._error is not None

    def result(self) -> T:
        """Return the answer or raise it; only once `done`."""
        if not self.done:
            raise RuntimeError(f"no answer yet: {self.what}")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[no-any-return]

    def __await__(self) -> Generator[Call[T], None, T]:
        if not self.done:
            yield self
        return self.result()

    def _complete(self, value: Any, error: BaseException | None) -> None:
        with self._lock:
            if self.done:
                return
            self._value, self._error = value, error
            self.done = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


@dataclass(frozen=True, slots=True)
class Contact:
    """The session of the last answered request, and when it was sent."""

    session: Session
    sent_at: float


class ZooKeeper(ABC):
    """A connection to ZooKeeper for one process.

    Every method may be called from any thread and returns at once.

    A request without a connection fails with ZkUnavailableError (it was never sent). A lost or late answer is a
    ZkAmbiguousError. A transaction fails with RefusedError where a node is not in the expected state, and with ZkNodeError
    where ZooKeeper refuses an operation for another reason: ZkDeniedError where the node's access rights forbid it.
    """

    #: Its name in messages.
    where = "ZooKeeper"

    def __init__(self, clock: Clock, call_timeout: float, on_change: Callable[[], None] = lambda: None) -> None:
        self.clock = clock
        self.call_timeout = call_timeout
        #: Called, on any thread, whenever the connection changed.
        self.on_change = on_change
        self._contact = Contact(Session(0, 0.0), float("-inf"))
        self._contact_lock = threading.Lock()

    @property
    @abstractmethod
    def connection(self) -> Connection | None:
        """Return the connection with its session, or None while there is none."""

    @property
    def problem(self) -> str | None:
        """Return why there is no usable connection, if known, for people."""
        return None

    @abstractmethod
    def get(self, path: str, watch: Callable[[], None] | None = None) -> Call[Node | None]:
        """Read a node; None where there is none.

        The watch (on a present or absent node) fires at most once. Watches on nodes that never change stay for as long as
        the connection, equal ones once: see `loosely`. A watch on a node that access rights hide is set, too, and is lost
        when the node changes before the rights do.
        """

    @abstractmethod
    def children(self, path: str, watch: Callable[[], None] | None = None) -> Call[list[str] | None]:
        """List a node's children, unsorted; None, and no watch, where absent."""

    @abstractmethod
    def transaction(self, ops: Sequence[Op]) -> Call[list[Stat | None]]:
        """Execute all of `ops` or none.

        The answer has an entry for each operation: the new Stat for SetData, else None.
        """

    @abstractmethod
    def close(self) -> None:
        """End the session with its ephemeral nodes, and free everything."""

    def session_for(self, what: str) -> int:
        """Return the connected session, or raise ZkUnavailableError, naming `what`."""
        connection = self.connection
        if connection is None:
            raise unavailable(what)
        return connection.session.id

    # -- doubt -------------------------------------------------------------------------------------------------------

    def heard(self, session: Session, sent_at: float) -> None:
        """Note that a request sent at `sent_at` was answered in `session`.

        The time of sending counts: the server renews a session when the request arrives, maybe long before a paused process
        reads the answer.
        """
        with self._contact_lock:
            if session.id != self._contact.session.id or sent_at > self._contact.sent_at:
                self._contact = Contact(session, sent_at)

    def doubtful_from(self, session: int) -> float:
        """Return the time on the clock from which `session` may have expired.

        That is two thirds of the negotiated time after the last answered request was sent; the rest is the margin for the
        delivery that follows a check. -inf: nothing is known of the session.
        """
        contact = self._contact
        return contact.sent_at + contact.session.timeout * 2 / 3 if contact.session.id == session else float("-inf")

    def certain_until(self, session: int) -> float:
        """Return `doubtful_from` while `session` is connected; else -inf."""
        connection = self.connection
        connected = connection is not None and connection.session.id == session
        return self.doubtful_from(session) if connected else float("-inf")

    def certain(self, session: int) -> bool:
        """Return whether `session` is connected and cannot have expired yet."""
        return self.clock.now() < self.certain_until(session)

    def _new_call(self, what: str) -> Call[Any]:
        return Call(what, self.clock.now() + self.call_timeout)


class _Loose:
    """Calls a method as long as its object lives."""

    __slots__ = ("_hash", "_method")

    def __init__(self, method: Callable[[], None]) -> None:
        self._method = weakref.WeakMethod(method)
        self._hash = hash(self._method)

    def __call__(self) -> None:
        if (call := self._method()) is not None:
            call()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Loose) and self._method == other._method

    def __hash__(self) -> int:
        return self._hash


def loosely(watch: Callable[[], None]) -> Callable[[], None]:
    """Return a weak reference to a watching method, which calls it.

    References to one method are equal. A client keeps a watch until its node changes, and most nodes never change: it would
    keep a closed channel with all its records. Keep the method's object for as long as the watch must work.
    """
    return _Loose(watch) if inspect.ismethod(watch) else watch


async def accepted(zk: ZooKeeper, ops: Iterable[Op]) -> bool:
    """Execute a transaction; return whether ZooKeeper accepted it."""
    try:
        await zk.transaction(list(ops))
    except RefusedError:
        return False
    return True


async def get_all(zk: ZooKeeper, paths: Iterable[str], at_once: int = AT_ONCE) -> list[Node | None]:
    """Read nodes, `at_once` in a round trip, in the order of `paths`."""
    wanted, found = list(paths), list[Node | None]()
    for start in range(0, len(wanted), at_once):
        calls = [zk.get(path) for path in wanted[start : start + at_once]]
        found += [await call for call in calls]
    return found


async def attempted(zk: ZooKeeper, ops: Iterable[Op]) -> bool | None:
    """Execute a transaction as `accepted`; return None if the answer was lost."""
    try:
        return await accepted(zk, ops)
    except ZkAmbiguousError:
        return None


def undecided(path: str) -> ZkUnavailableError:
    """Return the error for a change that failed `ATTEMPTS` times."""
    return ZkUnavailableError(
        f"ZooKeeper: {path} could not be changed in {ATTEMPTS} attempts: others change it, or answers are lost; try again"
    )


def unavailable(what: str) -> ZkUnavailableError:
    """Return the error for a request that was not sent."""
    return ZkUnavailableError(f"ZooKeeper: {what} was not sent: no connection; it is tried again after reconnecting")


def ambiguous(what: str, why: str) -> ZkAmbiguousError:
    """Return the error for a request whose answer did not come."""
    return ZkAmbiguousError(f"ZooKeeper: {what} may or may not have executed: {why}; the node is read back")


# -- watches -----------------------------------------------------------------------------------------------------------


class Watch:
    """Reads a node or its children, and sets a watch once.

    The client keeps each watch until it fires, and most nodes never change: a new watch with each read would pile up. Read
    by one thread, fired by any. `_set_in` is the connection that it was set on; watches do not outlive theirs.
    """

    __slots__ = ("__weakref__", "_changed", "_set_in")

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` reports that the node has changed since the read. Any thread."""
        self._changed = changed
        self._set_in = 0

    def stands(self, zk: ZooKeeper) -> bool:
        """Return whether it is set on this connection, and nothing has changed."""
        connection = zk.connection
        return connection is not None and self._set_in == connection.generation

    def get(self, zk: ZooKeeper, path: str) -> Call[Node | None]:
        """Read a node, present or absent; see `ZooKeeper.get`."""
        return self._read(zk, zk.get, path)

    def children(self, zk: ZooKeeper, path: str) -> Call[list[str] | None]:
        """List a node's children; see `ZooKeeper.children`."""
        return self._read(zk, zk.children, path, absent=False)

    def forget(self) -> None:
        """Have the next read set the watch again."""
        self._set_in = 0

    def fired(self) -> None:
        """Note a change, and report it. Any thread."""
        self._set_in = 0
        self._changed()

    def _read(self, zk: ZooKeeper, read: Callable[..., Call[T]], path: str, *, absent: bool = True) -> Call[T]:
        connection = zk.connection
        if connection is None or self._set_in == connection.generation:
            return read(path)
        self._set_in = connection.generation
        call = read(path, self.fired)
        call.when_done(partial(self._answered, call, connection.generation, absent))
        return call

    def _answered(self, call: Call[Any], generation: int, absent: bool) -> None:
        # Any thread. Without an answer the watch may not be set; a list sets none on an absent node.
        if (call.failed or (not absent and call.result() is None)) and self._set_in == generation:
            self._set_in = 0
