"""The interface to ZooKeeper: requests that answer later, a session with doubt.

The real client is `inbound.controller.kazoo_zk.KazooZooKeeper`, the fake one `inbound.testing.FakeZooKeeper`. Both are
used without ever blocking: a request returns a `Call`, and coroutines run by `Tasks` await it. That is what lets a
seeded scheduler drive the very code that runs in production.
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
#: How often a change is tried while others change the same node, or answers are lost.
ATTEMPTS = 5
#: So many requests are in flight at once: a server answers them in one go, and other clients have their turns.
AT_ONCE = 300


class Stat(NamedTuple):
    """What ZooKeeper keeps about a node."""

    version: int
    ephemeral_owner: int  # session id; 0 where the node is persistent
    czxid: int
    mzxid: int
    ctime: float = 0.0  # when it was made and written last, in seconds since 1970; for people. 0: not known
    mtime: float = 0.0


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
    """Write a node; refused where its version is another one (-1: any)."""

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
    """ZooKeeper refused a transaction as a whole: nothing of it was done.

    `index` is the operation to blame.
    """

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
    """A session on a live connection.

    `generation` counts connections: watches do not outlive theirs.
    """

    generation: int
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
        """Give the answer. A second answer is ignored: the first one, or a time-out, was already acted on."""
        self._complete(value, None)

    def fail(self, error: BaseException) -> None:
        """Give an error as the answer."""
        self._complete(None, error)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the answer is there: at once if it is, else on the completing thread."""
        with self._lock:
            if not self.done:
                self._callbacks.append(callback)
                return
        callback()

    @property
    def failed(self) -> bool:
        """Whether an error was the answer."""
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
    """The moment the last answered request was sent, and in which session."""

    session: Session
    sent_at: float


class ZooKeeper(ABC):
    """A connection to ZooKeeper for one process.

    Every method may be called from any thread and returns at once.

    A request made while there is no connection fails with ZkUnavailableError (it was never sent). One whose answer is
    lost, or late, fails with ZkAmbiguousError. A transaction fails with RefusedError where a node is not as it expects it,
    and with ZkNodeError where ZooKeeper does not do an operation for another reason: ZkDeniedError where a node's access
    rights do not allow it.
    """

    #: What messages call it.
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
        """The connection with its session, or None while there is none."""

    @property
    def problem(self) -> str | None:
        """Why there is no connection, or why it is of no use: what to do, for people. None: all is well, or unknown."""
        return None

    @abstractmethod
    def get(self, path: str, watch: Callable[[], None] | None = None) -> Call[Node | None]:
        """Read a node; None where there is none. The watch (on a present or absent node) fires at most once.

        Watches on nodes that never change stay for as long as the connection, equal ones once: see `loosely`. On a node
        that may not be read one is set, too, and is lost when the node changes while that is so.
        """

    @abstractmethod
    def children(self, path: str, watch: Callable[[], None] | None = None) -> Call[list[str] | None]:
        """List a node's children, unsorted; None where the node does not exist (then no watch is set)."""

    @abstractmethod
    def transaction(self, ops: Sequence[Op]) -> Call[list[Stat | None]]:
        """Do all of `ops` or none. Answers one entry per operation: the new Stat for SetData, else None."""

    @abstractmethod
    def close(self) -> None:
        """End the session gracefully (its ephemeral nodes go at once) and free everything."""

    def session_for(self, what: str) -> int:
        """Return the session that we are connected in, for `what`. Raises ZkUnavailableError: there is no connection."""
        connection = self.connection
        if connection is None:
            raise unavailable(what)
        return connection.session.id

    # -- doubt -------------------------------------------------------------------------------------------------------

    def heard(self, session: Session, sent_at: float) -> None:
        """Take note that a request sent at `sent_at` was answered in `session`.

        The time of sending counts: the server renews a session when the request arrives, which is after it was sent
        and maybe long before a paused process reads the answer.
        """
        with self._contact_lock:
            if session.id != self._contact.session.id or sent_at > self._contact.sent_at:
                self._contact = Contact(session, sent_at)

    def doubtful_from(self, session: int) -> float:
        """Return the time on the clock from which `session` may have expired; -inf where nothing is known.

        Two thirds of the negotiated time after the last answered request was sent; the rest is the margin for the
        delivery that follows a check.
        """
        contact = self._contact
        return contact.sent_at + contact.session.timeout * 2 / 3 if contact.session.id == session else float("-inf")

    def certain_until(self, session: int) -> float:
        """Return `doubtful_from` while we are connected in `session`; else -inf."""
        connection = self.connection
        connected = connection is not None and connection.session.id == session
        return self.doubtful_from(session) if connected else float("-inf")

    def certain(self, session: int) -> bool:
        """Whether `session` is connected and cannot have expired by now."""
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
    """Return what calls `watch`, and does not keep the object alive whose method it is; of one method, equals.

    A client keeps a watch until its node changes, which most never do; a channel that was closed long ago would be kept
    with it, and all that it has read. Keep the object of a watching method for as long as it is to be called.
    """
    return _Loose(watch) if inspect.ismethod(watch) else watch


async def accepted(zk: ZooKeeper, ops: Iterable[Op]) -> bool:
    """Do a transaction. Returns False where ZooKeeper refused it: nothing of it was done then."""
    try:
        await zk.transaction(list(ops))
    except RefusedError:
        return False
    return True


async def get_all(zk: ZooKeeper, paths: Iterable[str], at_once: int = AT_ONCE) -> list[Node | None]:
    """Read nodes, `at_once` in a round trip; return them in the order of `paths`."""
    wanted, found = list(paths), list[Node | None]()
    for start in range(0, len(wanted), at_once):
        calls = [zk.get(path) for path in wanted[start : start + at_once]]
        found += [await call for call in calls]
    return found


async def attempted(zk: ZooKeeper, ops: Iterable[Op]) -> bool | None:
    """Do a transaction. Returns whether ZooKeeper accepted it; None where the answer was lost."""
    try:
        return await accepted(zk, ops)
    except ZkAmbiguousError:
        return None


def undecided(path: str) -> ZkUnavailableError:
    """Return the error for a change that was refused or not answered `ATTEMPTS` times."""
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
    """Reads a node or its children, and sets a watch unless one stands.

    The client keeps each watch until it fires, and most nodes never change: a new one with each look would pile up. Read
    by one thread, fired by any. `_set_in` is the connection that it was set on; watches do not outlive theirs.
    """

    __slots__ = ("__weakref__", "_changed", "_set_in")

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called, by any thread, when what was read is not as it was any more."""
        self._changed = changed
        self._set_in = 0

    def stands(self, zk: ZooKeeper) -> bool:
        """Whether it is set on this connection, and nothing has changed since."""
        connection = zk.connection
        return connection is not None and self._set_in == connection.generation

    def get(self, zk: ZooKeeper, path: str) -> Call[Node | None]:
        """Read a node, present or absent; see `ZooKeeper.get`."""
        return self._read(zk, zk.get, path)

    def children(self, zk: ZooKeeper, path: str) -> Call[list[str] | None]:
        """List a node's children; see `ZooKeeper.children`. On an absent node no watch is set."""
        return self._read(zk, zk.children, path, absent=False)

    def forget(self) -> None:
        """What was read last is not taken over: the next read sets it again."""
        self._set_in = 0

    def fired(self) -> None:
        """Something has changed. Any thread."""
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
        """Any thread. Without an answer it is not known whether the watch was set; on an absent node a list sets none."""
        if (call.failed or (not absent and call.result() is None)) and self._set_in == generation:
            self._set_in = 0
