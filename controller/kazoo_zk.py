"""Sends requests to ZooKeeper through kazoo, and converts answers and refusals.

`kazoo_link` changes kazoo's connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    NoAuthError,
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

from inbound.clock import Clock
from inbound.controller.kazoo_link import KazooLink
from inbound.controller.zookeeper_access import OPEN, Access
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
    loosely,
    unavailable,
)
from inbound.errors import InboundError, ZkDeniedError, ZkNodeError

log = logging.getLogger(__name__)

#: The answer was lost, or says that the outcome is unknown: the request may have executed.
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
#: Seconds for which a refused access to a node is the problem: all refused requests are repeated before.
DENIAL_SHOWN = 15.0
#: Least seconds between looks at the password's file, after refusals.
LOOK_AT_PASSWORD = 1.0


class KazooZooKeeper(ZooKeeper):
    """A ZooKeeper client on kazoo; see `ZooKeeper`.

    Answers come on kazoo's connection thread, where only Calls are completed. A watch fires on kazoo's callback thread,
    and once when its connection drops: that is one look too many at worst.
    """

    def __init__(
        self,
        hosts: str,
        *,
        chroot: str = "",
        session_timeout: float,
        clock: Clock,
        call_timeout: float | None = None,
        access: Access = OPEN,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Make a client; `start` connects it.

        Times are in seconds; `call_timeout` is half the session by default. `access` says how the client connects and
        authenticates, and who may use its nodes. `on_change`: see `ZooKeeper`.

        Raises:
            ConfigError: `hosts` is no list of host:port, or a library for `access` is not installed.
            InboundError: the installed kazoo is of a version that inbound does not know.
        """
        super().__init__(clock, call_timeout or max(1.0, session_timeout / 2), on_change)
        self._link = KazooLink(hosts, chroot, session_timeout, clock, self.heard, lambda: self.on_change(), access)
        self._denied: tuple[float, str] = (float("-inf"), "")
        self._looked_at = float("-inf")
        self.where = self._link.where
        self._chroot = self._link.chroot

    @property
    def connection(self) -> Connection | None:
        return self._link.connection

    @property
    def problem(self) -> str | None:
        at, denied = self._denied
        return self._link.trouble or (denied if self.clock.now() < at + DENIAL_SHOWN else None)

    def reconnect(self) -> None:
        """Reconnect in the same session, with passwords and certificates read again.

        Any thread. Requests without an answer become ambiguous, as at any loss of a connection.
        """
        self._link.reconnect()

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
            # Reading an absent node sets no watch; asking whether it exists does, present or absent. The read follows on
            # the same connection, so the watch fires for every change that the read does not see.
            self._send(call, wire.Exists(full, _Once(loosely(watch))), lambda value: None, path=path, answers=False)
        self._send(call, wire.GetData(full, None), _node, path=path, absent=True)
        return call

    def children(self, path: str, watch: Callable[[], None] | None = None) -> Call[list[str] | None]:
        call: Call[list[str] | None] = self._new_call(f"list of {path}")
        watcher = None if watch is None else _Once(loosely(watch))
        self._send(call, wire.GetChildren(self._full(path), watcher), list, path=path, absent=True)
        return call

    def transaction(self, ops: Sequence[Op]) -> Call[list[Stat | None]]:
        if not ops:
            raise ValueError("a transaction needs at least one operation")
        call: Call[list[Stat | None]] = self._new_call(_described(ops))
        request = wire.Transaction([self._encoded(op) for op in ops])
        self._send(call, request, lambda results: self._stats(call, ops, results))
        return call

    # -- access rights -----------------------------------------------------------------------------------------------

    @property
    def closes_nodes(self) -> bool:
        """Whether its nodes are not open to all."""
        return self._link.security.access.acl != "open"

    def differs(self, path: str) -> Call[bool | None]:
        """Return whether a node's access rights are not ours; None: no node."""
        call: Call[bool | None] = self._new_call(f"look at the access rights of {path}")
        security = self._link.security
        request = wire.GetACL(self._full(path))
        self._send(call, request, lambda answer: security.differs(answer[0]), path=path, absent=True)
        return call

    def correct(self, path: str) -> Call[None]:
        """Give a node the access rights of our nodes, if it exists."""
        call: Call[None] = self._new_call(f"change of the access rights of {path}")
        request = wire.SetACL(self._full(path), self._link.security.acl, -1)
        self._send(call, request, lambda answer: None, path=path, absent=True)
        return call

    # -- inside ------------------------------------------------------------------------------------------------------

    def _send(
        self,
        call: Call[Any],
        request: Any,
        convert: Callable[[Any], Any],
        *,
        path: str = "",
        absent: bool = False,
        answers: bool = True,
    ) -> None:
        """Send `request`, about the node at `path`; the converted answer completes `call`.

        `absent`: NoNode is an answer, None. `answers` is False if another request's answer completes the call.
        """
        sent_at = self.clock.now()  # before it can have reached a server

        def answered(connection: Connection, value: Any, error: Exception | None) -> None:
            if isinstance(error, _LOST):
                call.fail(ambiguous(call.what, f"{type(error).__name__} before the answer"))
                return
            self.heard(connection.session, sent_at)
            if error is not None and not (absent and isinstance(error, NoNodeError)):
                call.fail(self._odd(call, error, path))
            elif answers:
                try:
                    result = None if error is not None else convert(value)
                except InboundError as refused:
                    call.fail(refused)
                else:
                    call.succeed(result)

        connection = self._link.send(request, answered)
        if connection is None:
            call.fail(unavailable(call.what))
        elif answers:
            call.sent_in = connection.session.id

    def _full(self, path: str) -> str:
        return self._chroot + path if path != "/" or not self._chroot else self._chroot

    def _encoded(self, op: Op) -> Any:
        path = self._full(op.path)
        match op:
            case Create():
                return wire.Create(path, op.data, self._link.security.acl, _EPHEMERAL if op.ephemeral else 0)
            case SetData():
                return wire.SetData(path, op.data, op.version)
            case Delete():
                return wire.Delete(path, op.version)
            case Check():
                return wire.CheckVersion(path, op.version)

    def _stats(self, call: Call[Any], ops: Sequence[Op], results: Sequence[Any]) -> list[Stat | None]:
        """Return a transaction's answers, or raise for the operation to blame."""
        # Around that operation's error stand RolledBackError (before) and RuntimeInconsistency (after).
        for index, (op, outcome) in enumerate(zip(ops, results, strict=True)):
            if isinstance(outcome, Exception) and not isinstance(outcome, (RolledBackError, RuntimeInconsistency)):
                reason = _REASONS.get(type(outcome).__name__)
                raise (
                    self._node_error(call, outcome, op.path, index)
                    if reason is None
                    else RefusedError(index, op, reason)
                )
        return [_stat(outcome) if isinstance(outcome, ZnodeStat) else None for outcome in results]

    def _odd(self, call: Call[Any], error: Exception, path: str) -> InboundError:
        if isinstance(error, (InvalidACLError, NoAuthError)):
            return self._node_error(call, error, path, 0)
        return InboundError(f"{self.where}: {call.what} failed: {error!r}; see the server's log")

    def _node_error(self, call: Call[Any], error: Exception, path: str, index: int) -> ZkNodeError:
        security = self._link.security
        what = call.what if path in call.what else f"{call.what} (at {path})"
        if isinstance(error, InvalidACLError):
            return ZkDeniedError(f"{self.where}: {what}: {security.explain(error, session=True)}", path, index)
        if not isinstance(error, NoAuthError):
            return ZkNodeError(f"{self.where}: {what} failed: {error!r}; see the server's log", path, index)
        who = security.access.identity
        text = f"{what} is not allowed to {who}: {security.denied()}"
        now = self.clock.now()
        self._denied = (now, text)
        if now >= self._looked_at + LOOK_AT_PASSWORD:
            self._looked_at = now
            if security.outdated():
                log.info("%s: the password of %s has changed; reconnecting with it", self.where, who)
                self.reconnect()
        return ZkDeniedError(f"{self.where}: {text}", path, index)


@dataclass(slots=True, unsafe_hash=True)
class _Once:
    """A watch for kazoo that fires once; kazoo keeps equal ones once."""

    watch: Callable[[], None]
    left: bool = field(default=True, compare=False)

    def __call__(self, event: Any) -> None:
        if self.left:  # all watches of one client fire on one thread
            self.left = False
            self.watch()


def _described(ops: Sequence[Op]) -> str:
    more = f" and {len(ops) - 1} more operations" if len(ops) > 1 else ""
    return f"{type(ops[0]).__name__.lower()} of {ops[0].path}{more}"


def _node(answer: tuple[bytes, ZnodeStat]) -> Node:
    data, stat = answer
    return Node(data, _stat(stat))


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.version, stat.ephemeralOwner, stat.czxid, stat.mzxid, stat.ctime / 1000, stat.mtime / 1000)
