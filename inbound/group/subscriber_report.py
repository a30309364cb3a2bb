"""Reports a subscription in the id node, `/status`, and its own node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from inbound.coordinators.base import GroupView
from inbound.coordinators.subscriber_status import NAMED, SubscriberSaid, SubscriberStatus, status_of
from inbound.coordinators.zookeeper import Create, Node, Op, SetData
from inbound.errors import InboundError
from inbound.group.parts import MemberParts

log = logging.getLogger(__name__)

#: Seconds until a failed write is tried again, and for which a problem must stand before it is written.
AGAIN = 1.0
STANDS = 1.0
#: The id node lists so many reasons, each cut after so many characters; of the others only the number.
REASONS, LONGEST_REASON = NAMED, 500


class SubscriberReport:
    """The report of one channel's subscription.

    Controller's thread, but for `refresh` (one thread), `said` and `status` (any).
    """

    def __init__(self, parts: MemberParts, look_again: Callable[[float], None]) -> None:
        self._parts = parts
        self._look_again = look_again
        #: The subscription that this member serves; None: none. Replaced as a whole when it is made or edited.
        self.serves: SubscriberSaid | None = None
        #: The group as last seen. Replaced as a whole.
        self.view: GroupView | None = None
        self._trouble: tuple[tuple[str, ...], str | None] = ((), None)
        self._seen: tuple[tuple[str, ...], str | None] = ((), None)
        self._seen_at = 0.0
        self._written: SubscriberStatus | None = None

    def said(self) -> SubscriberSaid | None:
        """Return the subscription as our id node has to show it."""
        serves, (stopped, note) = self.serves, self._trouble
        return replace(serves, stopped=stopped, note=note) if serves is not None else None

    def refresh(self, status: Mapping[str, Any]) -> None:
        """Update the report from `status`, the dispatcher's. Called now and then.

        A problem is written once it has stood for a moment: each change of an id node makes other members look.
        """
        note = status.get("subscriber_problem")
        waiting = (
            status.get("partitions") or {} if note is None else {}
        )  # else they wait for the subscriber: see the note
        stopped = [pause.told(self._parts.name) for pause in self._parts.pause_state.pauses]
        stopped += [
            f"stopped at {p.tp}: {p.failure.held}" for p in self._parts.schedule.held() if p.failure.held is not None
        ]
        stopped += [f"stopped at {where}: {why}" for where, why in waiting.items()]
        found = (_bounded(sorted(stopped)), None if note is None else _cut(f"the subscriber: {note}"))
        now = self._parts.clock.now()
        if found != self._seen:
            self._seen, self._seen_at = found, now
        if found != self._trouble and now >= self._seen_at + STANDS:
            self._trouble = found
            self._parts.evaluate()

    def status(self) -> SubscriberStatus | None:
        """Return the subscription's condition as this member sees it. None: no subscription."""
        said = self.said()
        if said is None:
            return None
        return status_of(said, self._view_now(), connected=self._parts.zk.connection is not None)

    async def write(self) -> None:
        """Write the condition to the group's node. Raises no error of ZooKeeper."""
        view = self._view_now()
        if self.serves is None or view is None:
            return
        first = min(view.members, key=lambda m: (m.joined, m.consumer_id), default=None)
        if first is None or first.consumer_id != view.me:
            self._written = None  # the member that writes it now may write another status
            return
        status = self.status()
        if status is None or status == self._written:
            return
        try:
            await self._put(status, await self._parts.zk.get(self._parts.paths.subscriber))
        except InboundError as error:
            log.debug("channel %s: its status is not written: %s", self._parts.name, error)
            self._look_again(self._parts.clock.now() + AGAIN)

    async def write_last(self) -> None:
        """Write that no member serves the subscription, if none is left.

        Called after leaving; raises no error of ZooKeeper. The ids are read again: the last view may list a member that
        died since. They are read after the node that is written, so that a member that joins and writes in between is
        either listed, or has moved the node's version on.
        """
        said, view, paths = self.said(), self.view, self._parts.paths
        if said is None or view is None:
            return
        ours = paths.member(view.me).rpartition("/")[2]
        try:
            node = await self._parts.zk.get(paths.subscriber)
            if set(await self._parts.zk.children(paths.ids) or ()) <= {ours}:
                await self._put(status_of(said, replace(view, members=()), connected=True), node)
        except InboundError as error:
            log.debug("channel %s: cannot write that the group has no member: %s", self._parts.name, error)

    async def _put(self, status: SubscriberStatus, node: Node | None) -> None:
        path, data = self._parts.paths.subscriber, status.encode()
        op: Op = Create(path, data) if node is None else SetData(path, data, node.stat.version)
        if node is None or node.data != data:
            await self._parts.zk.transaction([op])
        self._written = status

    def _view_now(self) -> GroupView | None:
        view = self.view
        if view is None:
            return None
        return replace(view, owned=view.owned | {p.tp for p in self._parts.schedule.held()})


def _bounded(reasons: list[str]) -> tuple[str, ...]:
    if len(reasons) > REASONS:
        reasons = [*reasons[: REASONS - 1], f"{len(reasons) - REASONS + 1} more"]
    return tuple(map(_cut, reasons))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 3]}..."
