"""What a channel that serves a subscription says of it: in its id node, in `/status`, and in the group's node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from inbound.channel.schedule import Schedule
from inbound.clock import Clock
from inbound.coordinators.base import GroupView
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.subscriber_status import NAMED, SubscriberSaid, SubscriberStatus, status_of
from inbound.coordinators.zookeeper import Create, Node, Op, SetData, ZooKeeper
from inbound.errors import InboundError
from inbound.pausing import Pausing

log = logging.getLogger(__name__)

#: How soon to write again what could not be written, and how long trouble must stand before others are told. Seconds.
AGAIN = 1.0
STANDS = 1.0
#: The id node says so many reasons, each cut after so many characters; of the others only the number.
REASONS, LONGEST_REASON = NAMED, 500


@dataclass(eq=False, kw_only=True)
class SubscriberReport:
    """One channel's. Controller's thread, but for `refresh` (one thread), `said` and `status` (any)."""

    name: str
    clock: Clock
    zk: ZooKeeper
    paths: GroupPaths
    schedule: Schedule
    pausing: Pausing
    evaluate: Callable[[], None]
    look_again: Callable[[float], None]
    #: What this member serves; None: the channel is no subscription. Set by who makes or edits it, as a whole.
    serves: SubscriberSaid | None = field(default=None, init=False)
    #: The group as last seen. Replaced as a whole.
    view: GroupView | None = field(default=None, init=False)
    _trouble: tuple[tuple[str, ...], str | None] = field(default=((), None), init=False)
    _seen: tuple[tuple[str, ...], str | None] = field(default=((), None), init=False)
    _seen_at: float = field(default=0.0, init=False)
    _written: SubscriberStatus | None = field(default=None, init=False)

    def said(self) -> SubscriberSaid | None:
        """Return what our id node is to say."""
        serves, (stopped, note) = self.serves, self._trouble
        return replace(serves, stopped=stopped, note=note) if serves is not None else None

    def refresh(self, status: Mapping[str, Any]) -> None:
        """Look at how it goes; `status` is what the dispatcher says. Called every now and then.

        What has stood for a moment is told: others look at each change of an id node.
        """
        note = status.get("subscriber_problem")
        waiting = status.get("partitions") or {} if note is None else {}  # for the subscriber: that says the note
        stopped = [pause.told(self.name) for pause in self.pausing.pauses]
        stopped += [f"stopped at {p.tp}: {p.failure.held}" for p in self.schedule.held() if p.failure.held is not None]
        stopped += [f"stopped at {where}: {why}" for where, why in waiting.items()]
        found = (_bounded(sorted(stopped)), None if note is None else _cut(f"the subscriber: {note}"))
        now = self.clock.now()
        if found != self._seen:
            self._seen, self._seen_at = found, now
        if found != self._trouble and now >= self._seen_at + STANDS:
            self._trouble = found
            self.evaluate()

    def status(self) -> SubscriberStatus | None:
        """Return the subscription's condition as this member sees it; None: the channel is no subscription."""
        said = self.said()
        if said is None:
            return None
        return status_of(said, self._view_now(), connected=self.zk.connection is not None)

    async def write(self) -> None:
        """Put the condition into the group's node, if that is ours to do and it has changed. Raises nothing of ZooKeeper's."""
        view = self._view_now()
        if self.serves is None or view is None:
            return
        first = min(view.members, key=lambda m: (m.joined, m.consumer_id), default=None)
        if first is None or first.consumer_id != view.me:
            self._written = None  # whoever writes it now may write something else
            return
        status = self.status()
        if status is not None and status != self._written:
            await self._tell(status)

    async def write_last(self) -> None:
        """Say that nobody serves it any more, if nobody else is there. Called once we left; raises nothing of ZooKeeper's.

        The ids are read anew: what was last seen may still list one that died since. They are read after the node
        that is written, so that whoever joins and writes in between is either listed, or has moved the node's version on.
        """
        said, view, paths = self.said(), self.view, self.paths
        if said is None or view is None:
            return
        ours = paths.member(view.me).rpartition("/")[2]
        try:
            node = await self.zk.get(paths.subscriber)
            if set(await self.zk.children(paths.ids) or ()) <= {ours}:
                await self._put(status_of(said, replace(view, members=()), connected=True), node)
        except InboundError as error:
            log.debug("channel %s: that the group has no member is not written: %s", self.name, error)

    async def _tell(self, status: SubscriberStatus) -> None:
        try:
            await self._put(status, await self.zk.get(self.paths.subscriber))
        except InboundError as error:
            log.debug("channel %s: its status is not written: %s", self.name, error)
            self.look_again(self.clock.now() + AGAIN)

    async def _put(self, status: SubscriberStatus, node: Node | None) -> None:
        path, data = self.paths.subscriber, status.encode()
        op: Op = Create(path, data) if node is None else SetData(path, data, node.stat.version)
        if node is None or node.data != data:
            await self.zk.transaction([op])
        self._written = status

    def _view_now(self) -> GroupView | None:
        """Return the group as last seen, and what we have claimed since."""
        view = self.view
        if view is None:
            return None
        return replace(view, owned=view.owned | {p.tp for p in self.schedule.held()})


def _bounded(reasons: list[str]) -> tuple[str, ...]:
    if len(reasons) > REASONS:
        reasons = [*reasons[: REASONS - 1], f"{len(reasons) - REASONS + 1} more"]
    return tuple(map(_cut, reasons))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 3]}..."
