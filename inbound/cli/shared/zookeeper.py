"""Runs a command's coroutine against ZooKeeper, within a time."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from inbound.clock import Clock, SystemClock
from inbound.config import ZooKeeperConfig
from inbound.controller.kazoo_zk import KazooZooKeeper
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call
from inbound.errors import InboundError
from inbound.process.zookeeper.client import zookeeper_client
from inbound.runtime.driver import Wakeup

T = TypeVar("T")

#: How long a command waits for a connection, and then for the end of its work. Seconds.
CONNECT_SECONDS, WORK_SECONDS = 5.0, 30.0
#: The longest wait without a chance for a signal. Seconds.
LONGEST_WAIT = 5.0


def with_zookeeper(
    settings: ZooKeeperConfig,
    work: Callable[[KazooZooKeeper], Coroutine[Call[Any], None, T]],
    *,
    former_password: Path | None = None,
    connect_seconds: float = CONNECT_SECONDS,
    clock: Clock | None = None,
) -> T:
    """Connect, run the coroutine of `work`, and disconnect.

    Returns the coroutine's result, or raises its error. `former_password`: see `zookeeper_client`.

    Raises:
        ConfigError: a file that the settings name cannot be used.
        InboundError: no server answers in time; the message names the servers, and says what to do.
    """
    return with_tasks(
        settings, lambda zk, _: work(zk), former_password=former_password, connect_seconds=connect_seconds, clock=clock
    )


def with_tasks(
    settings: ZooKeeperConfig,
    work: Callable[[KazooZooKeeper, Tasks], Coroutine[Call[Any], None, T]],
    *,
    former_password: Path | None = None,
    connect_seconds: float = CONNECT_SECONDS,
    work_seconds: float | None = WORK_SECONDS,
    clock: Clock | None = None,
) -> T:
    """Run the coroutine of `work`, which may start tasks, to its end.

    The tasks end with it. Without `work_seconds` the work has no time limit, not even while no server answers. Raises as
    `with_zookeeper`.
    """
    clock = clock or SystemClock()
    wakeup = Wakeup()
    zk = zookeeper_client(settings, clock, former_password=former_password, on_change=wakeup.set)
    tasks = Tasks(clock, wakeup.set)
    zk.start()
    try:
        deadline = clock.now() + connect_seconds
        while zk.connection is None:
            if clock.now() >= deadline:
                told = f" ({zk.problem})" if zk.problem is not None else ""
                raise InboundError(
                    f"{zk.where} does not answer within {connect_seconds:g} s; is it running? If so, see zookeeper.hosts{told}"
                )
            wakeup.wait(deadline - clock.now())
        until = float("inf") if work_seconds is None else clock.now() + work_seconds
        call = tasks.spawn(work(zk, tasks), "command")
        while True:
            due = tasks.step()
            if call.done:
                return call.result()
            now = clock.now()
            if now >= until:
                raise InboundError(
                    f"{zk.where} has not answered everything within {work_seconds:g} s; try again: that is safe"
                )
            # Never without end: a signal is only answered between two waits.
            wakeup.wait(min(until, due if due is not None else until, now + LONGEST_WAIT) - now)
    finally:
        tasks.close()
        zk.close()


def user_here() -> str:
    """Return the command's user, `user@host`, as ZooKeeper notes it."""
    return f"{getpass.getuser()}@{socket.gethostname()}"
