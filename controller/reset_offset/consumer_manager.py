"""Stops, starts and locks each group that a process runs.

    manager = ConsumerManager(clock.now)
    manager.add("orders-svc", lifecycle)          # has `stop()` and `start()`
    await manager.stop("orders-svc", token)       # locks it first
    manager.request("orders-svc", "resume", f)    # False: it waits, and is carried out when the group is unlocked
    await manager.start("orders-svc", token)      # and unlocks it

Inbound's own consumers need no such lock: the gate is part of each transaction that claims a partition, so an operation
or a new configuration takes effect when it opens (`inbound.group.reset_participant`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from inbound.coordinators.zookeeper import Call
from inbound.errors import ResetError

log = logging.getLogger(__name__)

#: A lock expires after so many seconds without renewal. Its owner repeats its requests much more often, and another leader
#: that replaces it needs only some seconds.
LOCK_SECONDS = 60.0


class GroupLockedError(ResetError):
    """Another reset has locked the group: wait for its end or expiry."""


class GroupLifecycle(Protocol):
    """Stops and starts the consumers of one group.

    Both are idempotent, never block, and are called by any thread.
    """

    def stop(self) -> Call[None]:
        """Begin to stop; completes when batches are committed and none reads."""

    def start(self) -> Call[None]:
        """Begin to start; the Call completes when the consumers run."""


class Life(Enum):
    """The state of a group's consumers."""

    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    STARTING = "starting"


@dataclass(frozen=True)
class GroupStatus:
    """The state of a group, its lock, and the waiting requests."""

    group: str
    life: Life
    token: str | None = None  # of the lock; None: it is not locked
    owner: str = ""  # who has locked it, for people
    expires_in: float | None = None  # seconds
    waiting: tuple[str, ...] = ()  # requests that wait for its end, in their order

    def told(self) -> str:
        """Return the status in one line for people."""
        if self.token is None:
            return f"group {self.group}: {self.life.value}"
        by = f" by {self.owner}" if self.owner else ""
        waits = f"; waiting for its end: {', '.join(self.waiting)}" if self.waiting else ""
        return (
            f"group {self.group}: {self.life.value}, locked{by} ({self.token}) for another {self.expires_in or 0.0:.0f} s "
            f"at most{waits}"
        )


@dataclass
class _Lock:
    token: str
    owner: str
    seconds: float
    until: float


@dataclass
class _Group:
    lifecycle: GroupLifecycle
    moving: Call[None]  # the stop or start that is in progress, or was the last one
    life: Life = Life.RUNNING
    lock: _Lock | None = None
    waiting: dict[str, Callable[[], object]] = field(default_factory=dict)
    catching_up: bool = False  # waiting requests are carried out; new ones queue behind them


class ConsumerManager:
    """Lifecycles and locks of groups; only a lock's token starts its group.

    Any thread; the thread that ends a lock carries out the requests that waited.
    """

    def __init__(self, now: Callable[[], float], *, lock_seconds: float = LOCK_SECONDS) -> None:
        """`now` returns seconds of a monotonic clock; locks expire by it."""
        self._now = now
        self._lock_seconds = lock_seconds
        self._mutex = threading.Lock()
        self._groups: dict[str, _Group] = {}

    # -- groups --------------------------------------------------------------------------------------------------------

    def add(self, group: str, lifecycle: GroupLifecycle) -> None:
        """Add a running group, or replace a known group's lifecycle; locks stay."""
        with self._mutex:
            running: Call[None] = Call(f"start of group {group}")
            running.succeed(None)
            self._groups.setdefault(group, _Group(lifecycle, running)).lifecycle = lifecycle

    def remove(self, group: str) -> None:
        """Forget a group, with its lock and its waiting requests."""
        with self._mutex:
            self._groups.pop(group, None)

    def status(self, group: str) -> GroupStatus:
        """Return the status of a group.

        Raises:
            ResetError: it is not known.
        """
        self.expire()
        with self._mutex:
            return self._status(group, self._known(group))

    def statuses(self) -> list[GroupStatus]:
        """Return the status of all groups, by name."""
        self.expire()
        with self._mutex:
            return [self._status(name, found) for name, found in sorted(self._groups.items())]

    # -- the lock ------------------------------------------------------------------------------------------------------

    def lock(self, group: str, token: str, *, owner: str = "", seconds: float | None = None) -> None:
        """Lock a group for `seconds`, or renew the lock of `token`.

        Raises:
            GroupLockedError: another token has locked it, and that has not expired.
            ResetError: the group is not known.
        """
        self.expire()
        with self._mutex:
            self._take(group, token, owner, seconds)

    def unlock(self, group: str, token: str) -> tuple[str, ...]:
        """End the lock of `token`; return the waiting requests carried out.

        Without a lock, or if another token has it, nothing happens: unlocking twice is safe. It does not start the
        group.

        Raises:
            ResetError: the group is not known.
        """
        with self._mutex:
            found = self._known(group)
            if found.lock is None or found.lock.token != token:
                return ()
            found.lock = None
        return self._catch_up(group, found)

    def expire(self) -> list[str]:
        """End the locks that were not renewed; start and return their groups.

        Every other method calls it. An embedding program calls it now and then, so that locks end in time.
        """
        now = self._now()
        with self._mutex:
            over = [(name, g, g.lock) for name, g in self._groups.items() if g.lock is not None and g.lock.until <= now]
            for _, group, _ in over:
                group.lock = None
        for name, group, lock in over:
            assert lock is not None
            log.warning(
                "group %s: the lock of %s (%s) was not renewed for %.0f s and is free; the group is started again", name,
                lock.owner or "an unknown owner", lock.token, lock.seconds,
            )  # fmt: skip
            self._move(group, Life.STARTING)
            self._catch_up(name, group)
        return [name for name, _, _ in over]

    # -- requests of a reset ---------------------------------------------------------------------------------------------

    def stop(self, group: str, token: str, *, owner: str = "", seconds: float | None = None) -> Call[None]:
        """Lock a group, or renew its lock, and have it stopped.

        A repeated call returns the first one's Call.

        Raises:
            GroupLockedError: another token has locked it.
            ResetError: the group is not known.
        """
        self.expire()
        with self._mutex:
            found = self._take(group, token, owner, seconds)
        return self._move(found, Life.STOPPING)

    def start(self, group: str, token: str) -> Call[None]:
        """Start a group, then unlock it and carry out waiting requests.

        Without a lock (it has expired, or this was done before) the group is started if it does not run.

        Raises:
            GroupLockedError: another token has locked it, and must start it.
            ResetError: the group is not known.
        """
        self.expire()
        with self._mutex:
            found = self._known(group)
            self._refuse_other(group, found, token)
        started = self._move(found, Life.STARTING)
        started.when_done(lambda: self._started(group, token))
        return started

    # -- requests of others ------------------------------------------------------------------------------------------------

    def request(self, group: str, what: str, action: Callable[[], object]) -> bool:
        """Carry out `action`, or let it wait while the group is locked.

        An action is a resume, a reload, an edit, a rebalance; `what` names it for people. Of several with one name only
        the last one waits. Returns False if it waits. An error of a waiting action is logged; one of an immediate
        action is raised.

        Raises:
            ResetError: the group is not known.
        """
        self.expire()
        with self._mutex:
            found = self._known(group)
            if found.lock is not None or found.catching_up:
                found.waiting.pop(what, None)  # the new one goes to the end
                found.waiting[what] = action
                return False
        action()
        return True

    # -- inside ------------------------------------------------------------------------------------------------------------

    def _known(self, group: str) -> _Group:
        found = self._groups.get(group)
        if found is None:
            raise ResetError(
                f"group {group}: this process does not run it; it runs {', '.join(sorted(self._groups)) or 'none'}"
            )
        return found

    def _status(self, group: str, found: _Group) -> GroupStatus:
        lock, waiting = found.lock, tuple(found.waiting)
        if lock is None:
            return GroupStatus(group, found.life, waiting=waiting)
        return GroupStatus(group, found.life, lock.token, lock.owner, self._left(lock), waiting)

    def _left(self, lock: _Lock) -> float:
        return max(0.0, lock.until - self._now())

    def _refuse_other(self, group: str, found: _Group, token: str) -> None:
        lock = found.lock
        if lock is not None and lock.token != token:
            raise GroupLockedError(
                f"group {group}: locked by {lock.owner or 'another reset'} ({lock.token}); wait until that is over, it "
                f"expires in {self._left(lock):.0f} s if it is not renewed"
            )

    def _take(self, group: str, token: str, owner: str, seconds: float | None) -> _Group:
        found = self._known(group)
        self._refuse_other(group, found, token)
        lasts = self._lock_seconds if seconds is None else seconds
        name = owner or (found.lock.owner if found.lock is not None else "")
        found.lock = _Lock(token, name, lasts, self._now() + lasts)
        return found

    def _move(self, found: _Group, to: Life) -> Call[None]:
        """Stop or start a group, unless that is in progress or done."""
        there = Life.STOPPED if to is Life.STOPPING else Life.RUNNING
        with self._mutex:
            if found.life in (there, to) and not found.moving.failed:
                return found.moving
            moving = found.moving = Call(f"{to.value} of a group")
            found.life, lifecycle = to, found.lifecycle
        try:
            answer = lifecycle.stop() if to is Life.STOPPING else lifecycle.start()
        except Exception as error:
            answer = Call(moving.what)
            answer.fail(error)
        answer.when_done(lambda: self._answered(found, moving, to, there, answer))
        return moving

    def _answered(self, found: _Group, moving: Call[None], to: Life, there: Life, answer: Call[None]) -> None:
        try:
            answer.result()
        except BaseException as error:
            log.error("a group could not come through %s: %s; it is tried when it is asked for again", to.value, error)
            moving.fail(error)
            return
        with self._mutex:
            if found.moving is moving:  # else another stop or start was asked for since
                found.life = there
        moving.succeed(None)

    def _started(self, group: str, token: str) -> None:
        """Unlock a running group; after a failure its lock stays."""
        with self._mutex:
            found = self._groups.get(group)
        if found is not None and found.life is Life.RUNNING:  # else stopped again since: that is another lock
            self.unlock(group, token)

    def _catch_up(self, group: str, found: _Group) -> tuple[str, ...]:
        """Carry out the waiting requests in order; new ones go last."""
        done: list[str] = []
        with self._mutex:
            if found.catching_up:
                return ()
            found.catching_up = True
        while True:
            with self._mutex:
                if found.lock is not None or not found.waiting:  # locked again: the rest keeps waiting
                    found.catching_up = False
                    return tuple(done)
                what = next(iter(found.waiting))
                action = found.waiting.pop(what)
            done.append(what)
            try:
                action()
            except Exception as error:
                log.error(
                    "group %s: %s, which had waited for a reset, failed: %s; ask for it again", group, what, error
                )
                log.debug("group %s: where it failed", group, exc_info=True)
