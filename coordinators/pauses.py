"""Pauses of a group and requests for a rebalance, as nodes.

    /consumers/<group>/pauses/<holder>                  the whole group is paused
    /consumers/<group>/pauses/<holder>@<consumer id>    one member is paused
    /consumers/<group>/rebalance                        rewritten to have every member evaluate at once

A holder is the operator or a reset. Each holds its own pauses; a member resumes when no pause is left that concerns it. The
nodes are persistent: a pause outlives every process.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from inbound.coordinators.nodes import encode_object
from inbound.coordinators.ownership import Ownership
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import (
    ATTEMPTS,
    MAX_TRANSACTION_OPS,
    Create,
    Delete,
    SetData,
    Watch,
    ZooKeeper,
    attempted,
    unavailable,
    undecided,
)
from inbound.runtime.text import printable

OPERATOR = "operator"  # the holder of pauses by command
LONGEST_TEXT = 200  # characters; longer texts of people are cut


@dataclass(frozen=True)
class Pause:
    """One pause of a group or of a member."""

    holder: str
    consumer: str | None = None  # None: the whole group
    since: str = ""  # ISO 8601, for people; empty where the node has none
    by: str = ""  # for people
    reason: str | None = None

    def encode(self) -> bytes:
        return encode_object({"since": self.since, "by": self.by, "reason": self.reason})

    def concerns(self, consumer_id: str) -> bool:
        return self.consumer in (None, consumer_id)

    def told(self, channel: str) -> str:
        """Return the pause's author, time, reason and end, in one line."""
        whom = "" if self.consumer is None else f"member {self.consumer} "
        details = [f"since {self.since}"] * bool(self.since) + [f"by {self.by}"] * bool(self.by)
        text = " ".join([f"{whom}paused", *details]) + (f" ({self.reason})" if self.reason else "")
        if self.holder != OPERATOR:
            return f"{text}, held by {self.holder}, which ends it when it is done"
        return (
            f"{text}; goes on with `inbound resume {channel}{f' --consumer {self.consumer}' if self.consumer else ''}`"
        )


def named(name: str) -> Pause:
    """Return the pause of a node's name; every name is a pause."""
    holder, at, consumer = name.partition("@")  # a holder has no '@', a consumer id may have some
    return Pause(holder, consumer if at else None)


def decode_pause(name: str, data: bytes) -> Pause:
    """Return the pause in a node; unreadable data is a pause, too."""
    pause = named(name)
    try:
        body = json.loads(data)
        reason = body.get("reason")
        since, by = one_line(str(body.get("since", ""))), one_line(str(body.get("by", "")))
    except (ValueError, AttributeError, RecursionError):
        return pause
    return Pause(pause.holder, pause.consumer, since, by, None if reason is None else one_line(str(reason)))


def one_line(text: str) -> str:
    """Return the text as one printable line, cut."""
    return " ".join(printable(text, " ").split())[:LONGEST_TEXT]


class PauseReader:
    """Follows a group's pauses and requests for a rebalance. Controller's thread.

    A read costs one list of children, and one more request for each pause that concerns the member.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        paths: GroupPaths,
        me: str,
        *,
        on_pause: Callable[[], None],
        on_rebalance: Callable[[], None],
    ) -> None:
        """`on_pause` and `on_rebalance` report changes since the last `read`. Any thread."""
        self._zk = zk
        self._paths = paths
        self._me = me
        self._pauses = Watch(on_pause)
        self._rebalance = Watch(on_rebalance)

    async def read(self) -> tuple[int, tuple[Pause, ...]]:
        """Return the generation of the connection, and the member's pauses.

        Raises:
            TransientError: there is no connection, or no answer: nothing is known.
        """
        connection = self._zk.connection
        if connection is None:
            raise unavailable(f"list of {self._paths.pauses}")
        listing = self._pauses.children(self._zk, self._paths.pauses)
        if not self._rebalance.stands(self._zk):
            await self._rebalance.get(self._zk, self._paths.rebalance)
        names = await listing
        if names is None:  # the folder was deleted by hand; its return is watched for instead
            names = []
            await self._pauses.get(self._zk, self._paths.pauses)
        found = [await self._read(name) for name in sorted(names) if named(name).concerns(self._me)]
        return connection.generation, tuple(pause for pause in found if pause is not None)

    async def _read(self, name: str) -> Pause | None:
        node = await self._zk.get(f"{self._paths.pauses}/{name}")
        return None if node is None else decode_pause(name, node.data)


async def read_pauses(zk: ZooKeeper, paths: GroupPaths) -> list[Pause]:
    """Return all pauses of a group, without `since`, `by` and `reason`."""
    return [named(name) for name in sorted(await zk.children(paths.pauses) or ())]


async def pause(zk: ZooKeeper, group: str, wanted: Pause) -> Pause | None:
    """Create a pause, and return the holder's earlier one.

    An earlier pause stays as it is; None: there was none.

    Raises:
        TransientError: ZooKeeper does not answer, so the pause may exist. A retry is safe.
    """
    paths = GroupPaths(group)
    path = paths.pause(wanted.holder, wanted.consumer)
    await Ownership(zk, group, wanted.holder).ensure_group()  # the group may not have had a member yet
    mine = wanted.encode()
    for _ in range(ATTEMPTS):
        node = await zk.get(path)
        if node is not None:  # the time and the author tell ours from another's
            return None if node.data == mine else decode_pause(path.rsplit("/", 1)[1], node.data)
        await attempted(zk, [Create(path, mine)])  # done, refused or unknown: the node says which
    raise undecided(path)


async def resume(zk: ZooKeeper, group: str, holder: str, consumer: str | None = None) -> list[Pause]:
    """End a holder's pauses, all or those of `consumer`; return them.

    Raises:
        TransientError: ZooKeeper does not answer, so some pauses may have ended. A retry is safe.
    """
    paths = GroupPaths(group)
    ended: dict[Pause, None] = {}
    for _ in range(ATTEMPTS):
        mine = [p for p in await read_pauses(zk, paths) if p.holder == holder and consumer in (None, p.consumer)]
        if not mine:
            return list(ended)
        done = True
        for start in range(0, len(mine), MAX_TRANSACTION_OPS):
            some = mine[start : start + MAX_TRANSACTION_OPS]
            answer = await attempted(zk, [Delete(paths.pause(p.holder, p.consumer)) for p in some])
            if answer is not False:  # an answer that was lost is looked up in the next round
                ended |= dict.fromkeys(some)
            done &= answer is True
        if done:
            return list(ended)
    raise undecided(paths.pauses)


async def ask_rebalance(zk: ZooKeeper, group: str, wish: Pause) -> None:
    """Have all members evaluate at once; `wish` has author, time and reason.

    Raises:
        TransientError: ZooKeeper does not answer. A retry is safe.
    """
    paths = GroupPaths(group)
    await Ownership(zk, group, wish.holder).ensure_group()
    for _ in range(ATTEMPTS):
        if await attempted(zk, [SetData(paths.rebalance, wish.encode())]):
            return
    raise undecided(paths.rebalance)


async def members_alive(zk: ZooKeeper, paths: GroupPaths) -> list[str]:
    return sorted(await zk.children(paths.ids) or ())
