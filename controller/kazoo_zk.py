"""ZooKeeper through kazoo, with what kazoo hides or leaves open put right.

- The negotiated session time-out is a local variable there: it is taken from what `_connect` returns.
- Requests made without a connection would wait in a queue without bound: they fail at once here.
- The reconnect delay grows to an hour by default: it is capped at a second.
- `stop()` can hang: it is bounded.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient, KazooState, TransactionRequest
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.protocol.states import ZnodeStat
from kazoo.retry import KazooRetry

from inbound.clock import Clock
from inbound.coordinators.zookeeper import (
    Call,
    Check,
    Connection,
    Create,
    Delete,
    Node,
    Op,
    RefusedError,
    Session,
    SetData,
    Stat,
    ZooKeeper,
    ambiguous,
    unavailable,
)
from inbound.errors import InboundError

log = logging.getLogger(__name__)

#: kazoo's own talk. Its warnings about every refused connection attempt are told once, by the controller.
kazoo_log = logging.getLogger("kazoo.client")

#: The answer may or may not have been lost on its way.
_LOST = (ConnectionLoss, SessionExpiredError, OperationTimeoutError, ConnectionClosedError)
_REASONS = {
    "BadVersionError": "BadVersion",
    "NoNodeError": "NoNode",
    "NodeExistsError": "NodeExists",
    "NotEmptyError": "NotEmpty",
}
MAX_RECONNECT_DELAY = 1.0
STOP_TIMEOUT = 5.0


class KazooZooKeeper(ZooKeeper):
    """See `ZooKeeper`. Answers are delivered on kazoo's threads, where only Calls are completed."""

    def __init__(
        self, hosts: str, *, chroot: str = "", session_timeout: float, clock: Clock, call_timeout: float | None = None
    ) -> None:
        """Make a client; `start` connects it. Times in seconds; `call_timeout` is half the session by default."""
        super().__init__(clock, call_timeout or max(1.0, session_timeout / 2))
        self.where = f"ZooKeeper at {hosts}{chroot}"
        self._chroot = chroot
        self._connection: Connection | None = None
        self._generation = 0
        self._client = KazooClient(
            hosts=f"{hosts}{chroot}",
            timeout=session_timeout,
            # Unlimited tries; an expired session is not an error to give up at but a reason to begin a new one.
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, max_delay=MAX_RECONNECT_DELAY, ignore_expire=False),
            logger=kazoo_log,
        )
        handler = self._client._connection
        self._kazoo_connect: Callable[..., tuple[float, float]] = handler._connect
        handler._connect = self._connect
        self._client.add_listener(self._state_changed)

    @property
    def connection(self) -> Connection | None:
        return self._connection

    def start(self) -> None:
        """Begin to connect, and go on trying until `close`. Returns at once."""
        self._client.start_async()

    def close(self) -> None:
        self._connection = None
        stopping = threading.Thread(target=self._stop, name="zookeeper-stop", daemon=True)
        stopping.start()
        stopping.join(STOP_TIMEOUT)
        if stopping.is_alive():
            log.warning(
                "%s: the client did not stop within %.0f s; its session is left to expire", self.where, STOP_TIMEOUT
            )

    # -- requests ----------------------------------------------------------------------------------------------------

    def get(self, path: str, watch: Callable[[], None] | None = None) -> Call[Node | None]:
        call: Call[Node | None] = self._new_call(f"read of {path}")
        connection = self._connected(call)
        if connection is not None:
            self._get(call, connection, path, _once(watch))
        return call

    def children(self, path: str, watch: Callable[[], None] | None = None) -> Call[list[str] | None]:
        call: Call[list[str] | None] = self._new_call(f"list of {path}")
        connection = self._connected(call)
        if connection is not None:
            sent_at = self.clock.now()

            def answered(result: Any) -> None:
                if isinstance(result.exception, NoNodeError):
                    self.heard(connection.session, sent_at)
                    call.succeed(None)
                elif self._good(call, connection, sent_at, result):
                    call.succeed(list(result.value))

            self._client.get_children_async(path, watch=_once(watch)).rawlink(answered)
        return call

    def transaction(self, ops: Sequence[Op]) -> Call[list[Stat | None]]:
        if not ops:
            raise ValueError("a transaction needs at least one operation")
        call: Call[list[Stat | None]] = self._new_call(_described(ops))
        connection = self._connected(call)
        if connection is None:
            return call
        request = TransactionRequest(self._client)
        for op in ops:
            _add(request, op)
        sent_at = self.clock.now()

        def answered(result: Any) -> None:
            if not self._good(call, connection, sent_at, result):
                return
            for index, (op, outcome) in enumerate(zip(ops, result.value, strict=True)):
                # Around the one to blame stand RolledBackError (before) and RuntimeInconsistency (after).
                reason = _REASONS.get(type(outcome).__name__)
                if reason is not None:
                    call.fail(RefusedError(index, op, reason))
                    return
            odd = next((outcome for outcome in result.value if isinstance(outcome, Exception)), None)
            if odd is not None:
                call.fail(
                    InboundError(f"{self.where}: {call.what} was refused: {odd!r}; check the nodes' access rights")
                )
                return
            call.succeed([_stat(o) if isinstance(o, ZnodeStat) else None for o in result.value])

        request.commit_async().rawlink(answered)
        return call

    # -- inside ------------------------------------------------------------------------------------------------------

    def _connected(self, call: Call[Any]) -> Connection | None:
        connection = self._connection
        if connection is None:
            call.fail(unavailable(call.what))
        return connection

    def _get(
        self, call: Call[Node | None], connection: Connection, path: str, watch: Callable[[Any], None] | None
    ) -> None:
        sent_at = self.clock.now()

        def answered(result: Any) -> None:
            if isinstance(result.exception, NoNodeError):
                self.heard(connection.session, sent_at)
                if watch is None:
                    call.succeed(None)
                else:
                    self._watch_absent(call, connection, path, watch)
            elif self._good(call, connection, sent_at, result):
                data, stat = result.value
                call.succeed(Node(data, _stat(stat)))

        self._client.get_async(path, watch=watch).rawlink(answered)

    def _watch_absent(
        self, call: Call[Node | None], connection: Connection, path: str, watch: Callable[[Any], None]
    ) -> None:
        """A read of an absent node sets no watch: ask whether it exists, which does. It may have come meanwhile."""
        sent_at = self.clock.now()

        def answered(result: Any) -> None:
            if not self._good(call, connection, sent_at, result):
                return
            if result.value is None:
                call.succeed(None)
            else:
                self._get(call, connection, path, watch)

        self._client.exists_async(path, watch=watch).rawlink(answered)

    def _good(self, call: Call[Any], connection: Connection, sent_at: float, result: Any) -> bool:
        """Deal with an error, and note the sign of life. Returns whether there is a value."""
        error = result.exception
        if isinstance(error, _LOST):
            call.fail(ambiguous(call.what, f"{type(error).__name__} before the answer"))
            return False
        self.heard(connection.session, sent_at)
        if error is not None:
            call.fail(InboundError(f"{self.where}: {call.what} failed: {error!r}; check the nodes' access rights"))
            return False
        return True

    def _connect(self, *arguments: Any, **options: Any) -> tuple[float, float]:
        """Connect, on kazoo's thread, and take note of what was negotiated.

        kazoo returns two thirds of the negotiated time as its read time-out, in milliseconds.
        """
        sent_at = self.clock.now()
        read_timeout, connect_timeout = self._kazoo_connect(*arguments, **options)
        session = Session(self._client.client_id[0], read_timeout * 1.5 / 1000)
        self.heard(session, sent_at)
        self._generation += 1
        connection = Connection(self._generation, session)
        if self._chroot and self._generation == 1:
            self._client.ensure_path_async("/").rawlink(lambda result: self._announce(connection))
        else:
            self._announce(connection)
        return read_timeout, connect_timeout

    def _announce(self, connection: Connection) -> None:
        if connection.generation == self._generation:
            self._connection = connection
            self.on_change()

    def _state_changed(self, state: str) -> None:
        if state != KazooState.CONNECTED:
            self._connection = None
            self.on_change()

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:
            log.warning("%s: the client could not be stopped: %s; its session is left to expire", self.where, error)


def _once(watch: Callable[[], None] | None) -> Callable[[Any], None] | None:
    """Wrap a watch for kazoo, which also fires it, with an event of type NONE, when the connection drops.

    That firing is passed on: it is one look too many at worst.
    """
    return None if watch is None else lambda event: watch()


def _add(request: TransactionRequest, op: Op) -> None:
    match op:
        case Create():
            request.create(op.path, op.data, ephemeral=op.ephemeral)
        case SetData():
            request.set_data(op.path, op.data, op.version)
        case Delete():
            request.delete(op.path, op.version)
        case Check():
            request.check(op.path, op.version)


def _described(ops: Sequence[Op]) -> str:
    more = f" and {len(ops) - 1} more operations" if len(ops) > 1 else ""
    return f"{type(ops[0]).__name__.lower()} of {ops[0].path}{more}"


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.version, stat.ephemeralOwner, stat.czxid, stat.mzxid)
