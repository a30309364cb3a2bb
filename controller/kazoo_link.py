"""Keeps one connection to ZooKeeper, and closes kazoo's gaps.

No other file touches kazoo's internals.

- The negotiated session time-out is a local variable there: it is taken from what `_connect` returns.
- Requests made without a connection wait in a queue without bound, and what is queued between the drop and its
  announcement is sent after reconnecting, maybe long after: here a request is queued only while its connection stands.
- Answers come through a second thread: here on the connection's own, one switch of threads less per request.
- Waiting for a socket makes and closes an epoll, six system calls that each release the interpreter: here it is one.
  While callbacks compute, getting it back takes milliseconds each time, and a transaction waits six times.
- A server that does not answer may take the whole session time for a connect: here a third of it for all servers.
- The reconnect delay grows to an hour by default: it is capped at a second.
- An unexpected error, or a refused authentication, ends kazoo's thread for good: here it is logged and tried again.
- The chroot is not created, but for its last part.
- `stop()` can hang: it is bounded.
- TLS and log-in: see `zookeeper_access`.
"""

from __future__ import annotations

import inspect
import logging
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

import kazoo
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, NodeExistsError, NoNodeError, SessionExpiredError
from kazoo.protocol import serialization as wire
from kazoo.protocol.connection import STOP_CONNECTING
from kazoo.protocol.states import KeeperState
from kazoo.retry import ForceRetryError, KazooRetry

from inbound.clock import Clock
from inbound.controller.zookeeper_access import OPEN, Access, KazooSecurity
from inbound.coordinators.zookeeper import Connection, Session
from inbound.errors import ConfigError, InboundError

log = logging.getLogger(__name__)

#: kazoo's own log warns at every refused connection attempt; ours says each reason once. Below INFO it shows requests
#: with passwords.
kazoo_log = logging.getLogger("kazoo.client.inbound")
kazoo_log.addFilter(lambda record: record.levelno >= logging.INFO)

MAX_RECONNECT_DELAY = 1.0
#: Different reasons for a missing connection that are remembered as logged.
MOST_TOLD = 100
_JITTER = 0.4
#: Bounds on the time that one server gets to accept a TCP connection. Seconds.
MIN_CONNECT_TIMEOUT, MAX_CONNECT_TIMEOUT = 0.5, 2.0

#: Called with the request's connection, and the value or the error that was its answer.
Answered = Callable[[Connection, Any, Exception | None], None]


def _select(
    readers: list[socket.socket],
    writers: list[socket.socket],
    others: list[socket.socket],
    seconds: float | None = None,
) -> tuple[list[socket.socket], list[socket.socket], list[socket.socket]]:
    """Do `select.select` with one `poll`, also for high descriptors; `others` stay empty."""
    poll, wanted = select.poll(), {sock.fileno(): sock for sock in (*readers, *writers)}
    for sock in readers:
        poll.register(sock, select.POLLIN)
    for sock in writers:
        poll.register(sock, select.POLLOUT)
    ready = [wanted[number] for number, _ in poll.poll(None if seconds is None else max(0, ceil(seconds * 1000)))]
    return [sock for sock in readers if sock in ready], [sock for sock in writers if sock in ready], []


class KazooLink:
    """One connection to ZooKeeper, re-established until `stop`.

    `on_contact(session, sent_at)` is called when a connect request that was sent at `sent_at` was answered, `on_change`
    whenever `connection` changed; both on kazoo's thread, which also sends the heartbeats: they must not block.
    """

    def __init__(
        self,
        hosts: str,
        chroot: str,
        session_timeout: float,
        clock: Clock,
        on_contact: Callable[[Session, float], None],
        on_change: Callable[[], None],
        access: Access = OPEN,
    ) -> None:
        self.where = f"ZooKeeper at {hosts}{chroot}"
        self.chroot = chroot.rstrip("/")
        self._clock = clock
        self._on_contact = on_contact
        self._on_change = on_change
        self._lock = threading.Lock()  # never held while anything blocks: kazoo's thread takes it
        #: The connection that stands now; requests go over it. Written by kazoo's thread and `stop`.
        self.connection: Connection | None = None
        self._generation = 0
        self._stopping = False
        self._has_chroot = not self.chroot
        self._troubles: dict[str, str] = {}
        self._told: set[tuple[str, str]] = set()  # reasons logged since the last connection
        self._refused_at = float("-inf")
        self.security = KazooSecurity(access)
        try:
            # Without the chroot: paths contain it already, and it has to be made first.
            self._client = KazooClient(
                hosts=hosts,
                timeout=session_timeout,
                connection_retry=KazooRetry(
                    max_tries=-1, delay=0.1, max_delay=MAX_RECONNECT_DELAY / (1 + _JITTER), max_jitter=_JITTER
                ),
                logger=kazoo_log,
            )
        except ValueError as error:
            raise ConfigError(f"zookeeper.hosts {hosts!r}: {error}; write host:port,host:port") from None
        self._take_over(session_timeout)

    @property
    def trouble(self) -> str | None:
        """The latest reason why there is no connection; None if connected."""
        said = list(self._troubles.items())
        return ": ".join(said[-1]) if said and self.connection is None else None

    def reconnect(self) -> None:
        """Break the connection, to reconnect with present files. Any thread."""
        try:
            if self.connection is not None:
                self._client._connection._socket.shutdown(socket.SHUT_RDWR)
        except (OSError, AttributeError):
            pass  # it broke before

    def start(self) -> None:
        """Begin to connect, in the background."""
        self._client.start_async()

    def stop(self, seconds: float) -> bool:
        """End the session; False if it took too long, and will expire."""
        with self._lock:
            self._stopping = True
            self.connection = None
        stopping = threading.Thread(target=self._stop, name="zookeeper-stop", daemon=True)
        stopping.start()
        stopping.join(seconds)
        return not stopping.is_alive()

    def send(self, request: Any, answered: Answered) -> Connection | None:
        """Queue a request; return its connection, or None if there is none.

        `answered` is called once, on kazoo's thread: it must do next to nothing. A request either goes over the
        connection that stands now, or is answered with a ConnectionLoss (then it may have gone) when that one drops.
        """
        with self._lock:
            connection = self.connection
            if connection is None:
                return None
            self._client._queue.append((request, _Answer(connection, answered)))
        # Outside of the lock: with hundreds of requests waiting this blocks until kazoo's thread has sent some, and
        # that thread needs the lock to drop a connection.
        try:
            self._client._connection._write_sock.send(b"\0")
        except (OSError, AttributeError):
            pass  # stopped before; its thread answers, at its end, everything that is still queued
        return connection

    # -- taking over from kazoo --------------------------------------------------------------------------------------

    def _take_over(self, session_timeout: float) -> None:
        client = self._client
        try:
            handler, threads = client._connection, client.handler
            wanted = inspect.signature(handler._connect).parameters
            known = list(wanted) == ["host", "hostip", "port"] and isinstance(client._queue, deque)
            known = known and handler._write_sock is None and client._session_id is None
            self._kazoo_connect = handler._connect
            self._kazoo_connect_loop = handler._connect_loop
            self._kazoo_notify_pending = client._notify_pending
            self._kazoo_invoke = handler._invoke
            self._kazoo_create_connection = threads.create_connection
            known = known and handler.sasl_options is None and callable(threads.select)
        except AttributeError:
            known = False
        if not known:
            raise InboundError(
                f"kazoo {kazoo.__version__} is built differently from what inbound knows; install kazoo 2.11"
            )
        share = session_timeout / 3 / len(client.hosts)
        self._connect_timeout = min(max(share, MIN_CONNECT_TIMEOUT), MAX_CONNECT_TIMEOUT)
        self._usual = (ConnectionDropped, threads.timeout_exception)
        self._handshake_timeout = self._connect_timeout
        handler._connect = self._connect
        handler._invoke = self._handshake
        handler._connect_loop = self._connect_loop
        client._notify_pending = self._notify_pending
        threads.create_connection = self._create_connection
        threads.select = _select if self.security.access.tls is None else self.security.select(_select)

    def _create_connection(self, *arguments: Any, hostname: str, timeout: float, **options: Any) -> Any:
        connection = self._kazoo_create_connection(
            *arguments, hostname=hostname, timeout=min(timeout, self._connect_timeout), **options
        )
        if self.security.access.tls is None:
            return connection
        connection.settimeout(min(timeout, self._handshake_timeout))
        try:
            return self.security.encrypt(connection, hostname)
        except TimeoutError:
            self._handshake_timeout *= 2  # as in `_handshake`
            raise

    def _handshake(self, timeout: float, request: Any, xid: Any = None) -> Any:
        """Ask for the session; a starting server connects, and does not answer.

        kazoo would wait for a whole session, which then has expired when the server is ready. The time doubles with
        every failed attempt, for servers that are only slow.
        """
        if isinstance(request, wire.Connect):
            timeout = min(timeout, self._handshake_timeout)
            self._handshake_timeout *= 2
        return self._kazoo_invoke(timeout, request, xid)

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        """Connect, and return what was negotiated.

        kazoo returns two thirds of the negotiated time as its read time-out, in milliseconds.
        """
        self._client._stopped.wait(self._refused_at + MAX_RECONNECT_DELAY - self._clock.now())
        sent_at, handler, before = self._clock.now(), self._client._connection, self._client._state
        try:
            handler.sasl_options = self.security.begin()
            read_timeout, connect_timeout = self._kazoo_connect(host, hostip, port)
            self.security.log_in(lambda request, xid: self._kazoo_invoke(connect_timeout / 1000, request, xid))
            self._look_at_chroot(connect_timeout / 1000)
        except SessionExpiredError:
            raise  # the next attempt begins a new one
        except Exception as error:
            got_session = self._client._state != before
            self._tell(f"{host}:{port}", self.security.explain(error, session=got_session))
            if isinstance(error, self._usual):
                raise
            self._refused_at = self._clock.now()  # kazoo forgets its delay whenever it had a session
            raise ConnectionDropped(
                f"{type(error).__name__} while connecting"
            ) from error  # it would end kazoo's thread
        finally:
            handler.sasl_options = None
        session = Session(self._client._session_id, read_timeout * 1.5 / 1000)
        self._on_contact(session, sent_at)
        with self._lock:
            if not self._stopping:
                self._generation += 1
                self.connection = Connection(self._generation, session)
        self._troubles.clear()
        self._told.clear()
        self._handshake_timeout = self._connect_timeout
        self._on_change()
        return read_timeout, connect_timeout

    def _look_at_chroot(self, timeout: float) -> None:
        """Create the chroot, parents first, before the connection is announced.

        If it exists, the answer alone counts: servers refuse a client that did not log in at its first request.
        """
        try:
            self._kazoo_invoke(timeout, wire.Exists(self.chroot or "/", None), xid=1)
        except NoNodeError:
            parts = [] if self._has_chroot else self.chroot.split("/")
            for depth in range(2, len(parts) + 1):
                path = "/".join(parts[:depth])
                try:
                    self._kazoo_invoke(timeout, wire.Create(path, b"", self.security.acl, 0), xid=1)
                except NodeExistsError:
                    pass  # the parent, or another consumer was faster
        self._has_chroot = True

    def _connect_loop(self, retry: Any) -> Any:
        """Try every server once, and end only for a retry or `stop`."""
        try:
            outcome = self._kazoo_connect_loop(retry)
        except ForceRetryError as error:
            if not self._client.hosts or "resolve" in str(error):
                self._tell("all hosts", "no name could be resolved")
            raise
        except Exception as error:
            if self._client._state != KeeperState.CONNECTING:
                self._client._session_callback(KeeperState.CONNECTING)
            self._tell("the connection", f"{type(error).__name__}: {error}")
            raise ForceRetryError("unexpected error") from error
        if outcome is STOP_CONNECTING and not self._client._stopped.is_set():
            self._tell("the session", "the server closed it; if it asks for authentication, check the credentials")
            raise ForceRetryError("closed by the server")
        return outcome

    def _notify_pending(self, state: Any) -> None:
        """Handle a drop: kazoo calls this first, to answer pending requests.

        From here on nothing more may be queued, or it would be sent over another connection.
        """
        with self._lock:
            self.connection = None
        self._kazoo_notify_pending(state)
        self._on_change()

    def _tell(self, what: str, why: str) -> None:
        """Log a reason for a missing connection, once until there is one.

        Also if reasons alternate: a server that refuses us may be too slow to say so every other time.
        """
        self._troubles.pop(what, None)
        self._troubles[what] = why  # the last one said stands last
        if (what, why) not in self._told and not self._stopping:
            if len(self._told) >= MOST_TOLD:
                self._told.clear()  # something in them is new each time
            self._told.add((what, why))
            log.warning("%s: %s: %s; trying again at most every %.0f s", self.where, what, why, MAX_RECONNECT_DELAY)

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:
            log.warning("%s: the client could not be stopped: %s; its session is left to expire", self.where, error)


@dataclass(frozen=True, slots=True)
class _Answer:
    """Replaces kazoo's result object, and passes the answer on at once."""

    connection: Connection
    answered: Answered

    def set(self, value: Any = None) -> None:
        self._tell(value, None)

    def set_exception(self, error: Exception) -> None:
        self._tell(None, error)

    def _tell(self, value: Any, error: Exception | None) -> None:
        try:
            self.answered(self.connection, value, error)
        except Exception:  # on kazoo's thread it would end the connection
            log.exception("an answer of ZooKeeper could not be taken; this is a defect of inbound, please report it")
