"""Pauses of a group and requests for a rebalance, as nodes.

    /consumers/<group>/pauses/<holder>                  the whole group is paused
    /consumers/<group>/pauses/<holder>@<consumer id>    one member is
    /consumers/<group>/rebalance                        rewritten when every member is to evaluate at once

A holder is the operator or a reset. Each holds its own pauses, and a member reads again only when
none is left that is about it. The nodes are persistent: a pause outlives every process.
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

#: Who pauses by command.
OPERATOR = "operator"
#: What people wrote is cut after so many characters.
LONGEST_TEXT = 200


@dataclass(frozen=True)
class Pause:
    """One pause.

    `since` and `by` are for people, and empty where a node does not say them.
    """

    holder: str
    consumer: str | None = None  # None: the whole group
    since: str = ""  # ISO 8601
    by: str = ""
    reason: str | None = None

    def encode(self) -> bytes:
        return encode_object({"since": self.since, "by": self.by, "reason": self.reason})

    def concerns(self, consumer_id: str) -> bool:
        """Whether a member reads nothing because of it."""
        return self.consumer is None or self.consumer == consumer_id

    def told(self, channel: str) -> str:
        """Return who paused, since when, why, and what ends it; in one line."""
        whom = "" if self.consumer is None else f"member {self.consumer} "
        details = [f"since {self.since}"] * bool(self.since) + [f"by {self.by}"] * bool(self.by)
        text = " ".join([f"{whom}paused", *details]) + (f" ({self.reason})" if self.reason else "")
        if self.holder != OPERATOR:
            return f"{text}, held by {self.holder}, which ends it when it is done"
        return (
            f"{text}; goes on with `inbound resume {channel}{f' --consumer {self.consumer}' if self.consumer else ''}`"
        )


def named(name: str) -> Pause:
    """Return what the name of a pause's node says. Every name is a pause: to go on is what must be certain."""
    holder, at, consumer = name.partition("@")  # a holder has no '@', a consumer id may have some
    return Pause(holder, consumer if at else None)


def decode_pause(name: str, data: bytes) -> Pause:
    """Return a pause. What cannot be read, of a newer version or made by hand, is a pause all the same."""
    pause = named(name)
    try:
        body = json.loads(data)
        reason = body.get("reason")
        since, by = one_line(str(body.get("since", ""))), one_line(str(body.get("by", "")))
    except (ValueError, AttributeError, RecursionError):
        return pause
    return Pause(pause.holder, pause.consumer, since, by, None if reason is None else one_line(str(reason)))


def one_line(text: str) -> str:
    """Return what can be shown of a text in one line of a log or a status."""
    return " ".join(printable(text, " ").split())[:LONGEST_TEXT]


# -- a member's side -----------------------------------------------------------------------------------------------


class PauseReader:
    """Follows a group's pauses and requests for a rebalance. Controller's thread.

    A look costs one list of children, and one read for each pause that concerns the member.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        paths: GroupPaths,
        consumer_id: str,
        *,
        on_pause: Callable[[], None],
        on_rebalance: Callable[[], None],
    ) -> None:
        """`on_pause` and `on_rebalance` are called, by any thread, when something has changed since the last `read`."""
        self._zk = zk
        self._paths = paths
        self._consumer_id = consumer_id
        self._pauses = Watch(on_pause)
        self._rebalance = Watch(on_rebalance)

    async def read(self) -> tuple[int, tuple[Pause, ...]]:
        """Return the pauses that concern the member, and the generation of the connection that they were read on.

        Raises:
            TransientError: nothing is known: there is no connection, or no answer.
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
        found = [await self._read(name) for name in sorted(names) if named(name).concerns(self._consumer_id)]
        return connection.generation, tuple(pause for pause in found if pause is not None)

    async def _read(self, name: str) -> Pause | None:
        node = await self._zk.get(f"{self._paths.pauses}/{name}")
        return None if node is None else decode_pause(name, node.data)


# -- who pauses ----------------------------------------------------------------------------------------------------


async def read_pauses(zk: ZooKeeper, paths: GroupPaths) -> list[Pause]:
    """Return all pauses of a group, by their names only (without since, by, reason)."""
    return [named(name) for name in sorted(await zk.children(paths.pauses) or ())]


async def pause(zk: ZooKeeper, group: str, wanted: Pause) -> Pause | None:
    """Pause. Returns the pause that its holder had there already, which stays as it is; None: there was none.

    Raises:
        TransientError: ZooKeeper does not answer; whether it is paused is not known. Trying again is safe.
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
    """Take back a holder's pauses: that of `consumer`, or (None) the group's and all members'. Returns those that were.

    Raises:
        TransientError: ZooKeeper does not answer; what was taken back is not known. Trying again is safe.
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
    """Let every member of the group evaluate at once. `wish` says when, by whom and why, for people.

    Raises:
        TransientError: ZooKeeper does not answer. Trying again is safe.
    """
    paths = GroupPaths(group)
    await Ownership(zk, group, wish.holder).ensure_group()
    for _ in range(ATTEMPTS):
        if await attempted(zk, [SetData(paths.rebalance, wish.encode())]):
            return
    raise undecided(paths.rebalance)


async def members_alive(zk: ZooKeeper, paths: GroupPaths) -> list[str]:
    """Return the consumer ids that are registered now."""
    return sorted(await zk.children(paths.ids) or ())
