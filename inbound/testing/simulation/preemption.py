"""Stops a thread of a process where it lets go of a lock, or has sent something to ZooKeeper, and lets others of it go on first.

Parts are stepped one after the other, so what a thread of theirs could be stopped between would else happen at once: a
release is asked for, and begins; a turn ends, and its partition is noted as passed on.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from inbound.testing.world import Consumer


class _Lock:
    """In the place of one of a process's locks. One thread plays all, so it need not lock; `held` are those of the process."""

    def __init__(self, held: list[_Lock], released: Callable[[], None]) -> None:
        self._held = held
        self._released = released

    def __enter__(self) -> None:
        self._held.append(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._held.pop()
        if not self._held and kind is None:
            self._released()


def make_preemptible(consumer: Consumer, preempt: Callable[[], None]) -> None:
    """Have `preempt` called wherever another thread of the process may go on first."""
    channel, held = consumer.channel, list[_Lock]()
    owners: list[Any] = [
        channel.parts.schedule,
        channel.parts.committer,
        channel.reader,
        consumer.tasks,
        consumer.ledger,
    ]
    for owner in owners:
        assert hasattr(owner, "_lock")
        owner._lock = _Lock(held, preempt)
    zk: Any = consumer.zk
    send = zk._send

    def sending(*arguments: Any) -> Any:
        call = send(*arguments)
        if not held:
            preempt()
        return call

    zk._send = sending
