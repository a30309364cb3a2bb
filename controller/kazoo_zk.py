"""ZooKeeper through kazoo: requests, answers, refusals. What is done to kazoo's connection is in `kazoo_link`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    NoNodeError,
    OperationTimeoutError,
    RequestTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from inbound.clock import Clock
from inbound.controller.kazoo_link import KazooLink
from inbound.coordinators.zookeeper import (
    Call,
    Check,
    Connection,
    Create,
    Delete,
    Node,
    Op,
    RefusedError,
    SetData,
    Stat,
    ZooKeeper,
    ambiguous,
    unavailable,
)
from inbound.errors import InboundError

log = logging.getLogger(__name__)

#: The answer was lost, or says that nobody knows: the request may have executed.
_LOST = (
    ConnectionLoss,
    SessionExpiredError,
    OperationTimeoutError,
    ConnectionClosedError,
    SessionMovedError,
    RequestTimeoutError,
)
_REASONS = {
    "BadVersionError": "BadVersion",
    "NoNodeError": "NoNode",
    "NodeExistsError": "NodeExists",
    "NotEmptyError": "NotEmpty",
    "NoChildrenForEphemeralsError": "NoChildrenForEphemerals",
}
_EPHEMERAL = 1
STOP_TIMEOUT = 5.0


class KazooZooKeeper(ZooKeeper):
    """See `ZooKeeper`. Answers are delivered on kazoo's connection thread, where only Calls are completed.

    A watch fires on kazoo's callback thread; also, once, when its connection drops. That is one look too many at worst.
    """

    def __init__(
        self, hosts: str, *, chroot: str = "", session_timeout: float, clock: Clock, call_timeout: float | None = None
    ) -> None:
        """Make a client; `start` connects it. Times in seconds; `call_timeout` is half the session by default.

        Raises:
            ConfigError: `hosts` is no list of host:port.
            InboundError: the installed kazoo is of a version that inbound does not know.
        """
        super().__init__(clock, call_timeout or max(1.0, session_timeout / 2))
        self._link = KazooLink(hosts, chroot, session_timeout, clock, self.heard, lambda: self.on_change())
        self.where = self._link.where
        self._chroot = self._link.chroot

    @property
    def connection(self) -> Connection | None:
        return self._link.connection

    def start(self) -> None:
        """Begin to connect, and go on trying until `close`. Returns at once."""
        self._link.start()

    def close(self) -> None:
        if not self._link.stop(STOP_TIMEOUT):
            log.warning(
                "%s: the client did not stop within %.0f s; its session is left to expire", self.where, STOP_TIMEOUT
            )

    # -- requests ----------------------------------------------------------------------------------------------------

    def get(self, path: str, watch: Callable[[], None] | None = None) -> Call[Node | None]:
        call: Call[Node | None] = self._new_call(f"read of {path}")
        full = self._full(path)
        if watch is not None:
            # Reading an absent node sets no watch; asking whether it exists does, present or absent. Right behind it
            # on the same connection, the read cannot miss a change that the watch does not tell of.
            watcher = _once(watch)
            self._send(call, wire.Exists(full, watcher), lambda value: None, answers=False)
        self._send(call, wire.GetData(full, None), _node, absent=True)
        return call

    def children(self, path: str, watch: Callable[[], None] | None = None) -> Call[list[str] | None]:
        call: Call[list[str] | None] = self._new_call(f"list of {path}")
        watcher = None if watch is None else _once(watch)
        self._send(call, wire.GetChildren(self._full(path), watcher), list, absent=True)
        return call

    def transaction(self, ops: Sequence[Op]) -> Call[list[Stat | None]]:
        if not ops:
            raise ValueError("a transaction needs at least one operation")
        call: Call[list[Stat | None]] = self._new_call(_described(ops))
        request = wire.Transaction([self._encoded(op) for op in ops])
        self._send(call, request, lambda results: self._stats(call, ops, results))
        return call

    # -- inside ------------------------------------------------------------------------------------------------------

    def _send(
        self,
        call: Call[Any],
        request: Any,
        convert: Callable[[Any], Any],
        *,
        absent: bool = False,
        answers: bool = True,
    ) -> None:
        """Send `request`; its answer, converted, completes `call`.

        `absent`: NoNode is an answer like any other, None. `answers` is False where another request's answer does.
        """
        sent_at = self.clock.now()  # before it can have reached anybody

        def answered(connection: Connection, value: Any, error: Exception | None) -> None:
            if isinstance(error, _LOST):
                call.fail(ambiguous(call.what, f"{type(error).__name__} before the answer"))
                return
            self.heard(connection.session, sent_at)
            if error is not None and not (absent and isinstance(error, NoNodeError)):
                call.fail(self._odd(call, error))
            elif answers:
                try:
                    result = None if error is not None else convert(value)
                except InboundError as refused:
                    call.fail(refused)
                else:
                    call.succeed(result)

        if not self._link.send(request, answered):
            call.fail(unavailable(call.what))

    def _full(self, path: str) -> str:
        return self._chroot + path if path != "/" or not self._chroot else self._chroot

    def _encoded(self, op: Op) -> Any:
        path = self._full(op.path)
        match op:
            case Create():
                return wire.Create(path, op.data, OPEN_ACL_UNSAFE, _EPHEMERAL if op.ephemeral else 0)
            case SetData():
                return wire.SetData(path, op.data, op.version)
            case Delete():
                return wire.Delete(path, op.version)
            case Check():
                return wire.CheckVersion(path, op.version)

    def _stats(self, call: Call[Any], ops: Sequence[Op], results: Sequence[Any]) -> list[Stat | None]:
        """Return what a transaction answered, or raise for the operation to blame.

        Around that one stand RolledBackError (before) and RuntimeInconsistency (after).
        """
        for index, (op, outcome) in enumerate(zip(ops, results, strict=True)):
            if isinstance(outcome, Exception) and not isinstance(outcome, (RolledBackError, RuntimeInconsistency)):
                reason = _REASONS.get(type(outcome).__name__)
                raise self._odd(call, outcome) if reason is None else RefusedError(index, op, reason)
        return [_stat(outcome) if isinstance(outcome, ZnodeStat) else None for outcome in results]

    def _odd(self, call: Call[Any], error: Exception) -> InboundError:
        return InboundError(f"{self.where}: {call.what} failed: {error!r}; check the nodes' access rights")


def _once(watch: Callable[[], None]) -> Callable[[Any], None]:
    """Wrap a watch for kazoo. All watches of one client fire on one thread."""
    left = [watch]

    def fire(event: Any) -> None:
        if left:
            left.pop()()

    return fire


def _described(ops: Sequence[Op]) -> str:
    more = f" and {len(ops) - 1} more operations" if len(ops) > 1 else ""
    return f"{type(ops[0]).__name__.lower()} of {ops[0].path}{more}"


def _node(answer: tuple[bytes, ZnodeStat]) -> Node:
    data, stat = answer
    return Node(data, _stat(stat))


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.version, stat.ephemeralOwner, stat.czxid, stat.mzxid)
