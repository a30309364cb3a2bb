"""How commands use ZooKeeper: one coroutine, run to its end, within a time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from inbound.clock import Clock, SystemClock
from inbound.config import ZooKeeperConfig
from inbound.controller.kazoo_zk import KazooZooKeeper
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call, ZooKeeper
from inbound.driver import Wakeup
from inbound.errors import InboundError

T = TypeVar("T")

#: How long a command waits for a connection, and then for the end of its work. Seconds.
CONNECT_SECONDS, WORK_SECONDS = 5.0, 30.0


def with_zookeeper(
    settings: ZooKeeperConfig,
    work: Callable[[ZooKeeper], Coroutine[Call[Any], None, T]],
    *,
    connect_seconds: float = CONNECT_SECONDS,
    clock: Clock | None = None,
) -> T:
    """Connect, run what `work` returns, disconnect. Returns its result, or raises what it raised.

    Raises:
        InboundError: no server answers, or not to the end; the message says which, and what to do.
    """
    clock = clock or SystemClock()
    wakeup = Wakeup()
    zk = KazooZooKeeper(settings.hosts, chroot=settings.chroot, session_timeout=settings.session_timeout, clock=clock)
    zk.on_change = wakeup.set
    tasks = Tasks(clock, wakeup.set)
    zk.start()
    try:
        deadline = clock.now() + connect_seconds
        while zk.connection is None:
            if clock.now() >= deadline:
                raise InboundError(
                    f"{zk.where} does not answer within {connect_seconds:g} s; is it running? If so, see zookeeper.hosts"
                )
            wakeup.wait(deadline - clock.now())
        deadline = clock.now() + WORK_SECONDS
        call = tasks.spawn(work(zk), "command")
        while True:
            due = tasks.step()
            if call.done:
                return call.result()
            if clock.now() >= deadline:
                raise InboundError(
                    f"{zk.where} has not answered everything within {WORK_SECONDS:g} s; try again: that is safe"
                )
            wakeup.wait(min(deadline, due if due is not None else deadline) - clock.now())
    finally:
        tasks.close()
        zk.close()
