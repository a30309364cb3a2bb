"""Deletes all nodes of a group, when no old claim can return.

Epoch nodes are deleted only with the group. A recreated one counts from 0 again, and a process that was cut off before, with a
claim under the same number, would be accepted (design, rule 1). Therefore a group must have no member, no owner, and no change for
the length of a session. A process that is silent for so long has lost its session, and its claim's nonce shows it that it does not
own its partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from inbound.coordinators.nodes import OPEN
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import (
    AT_ONCE,
    MAX_TRANSACTION_BYTES,
    Create,
    Delete,
    Node,
    Op,
    RefusedError,
    Stat,
    ZooKeeper,
    get_all,
    unavailable,
)
from inbound.errors import InboundError, TransientError, ZkUnavailableError
from inbound.offsets.changes import ATTEMPTS, OP_BYTES, OffsetsError, alive
from inbound.offsets.nodes import many, reconnected

log = logging.getLogger(__name__)

_NONE = Stat(-1, 0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class Look:
    """A snapshot of all nodes of a group."""

    group: str
    nodes: Mapping[str, Stat] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    owned: tuple[str, ...] = ()  # paths
    closed: tuple[str, ...] = ()  # paths of gates that a reset has closed
    session: float = 0.0  # seconds: the timeout of a session here, as negotiated

    def refuse(self) -> None:
        """Raise OffsetsError if the group is in use."""
        if self.members:
            raise alive(self.group, self.members)
        if self.owned:
            raise OffsetsError(
                f"{self.group}: {self.owned[0]} is there: its owner is not registered, and its session has not expired yet; try "
                "again in some seconds"
            )
        if self.closed:
            raise OffsetsError(
                f"{self.group}: a reset has closed {self.closed[0]}; wait for it to end, or cancel it, then delete"
            )

    def stirred_since(self, before: Look) -> str | None:
        """Return a node that was created or written since `before`, if any."""
        return next((p for p, stat in sorted(self.nodes.items()) if before.nodes.get(p, _NONE)[:4] != stat[:4]), None)

    def changed_since(self, before: Look) -> str | None:
        """Return a node that was created, written or deleted since `before`."""
        gone = sorted(before.nodes.keys() - self.nodes.keys())
        return gone[0] if gone else self.stirred_since(before)


class DisturbedError(InboundError):
    """A group that is being deleted is in use.

    The message says how much of it was deleted.
    """


async def look(zk: ZooKeeper, group: str) -> Look:
    """Return all nodes of a group; none if it does not exist.

    Raises:
        TransientError: ZooKeeper does not answer.
        ConfigError: the group's name cannot be part of a path.
    """
    paths = GroupPaths(group)
    connection = zk.connection
    if connection is None:
        raise unavailable(f"list of {paths.root}")
    nodes: dict[str, Node] = {}
    level = [paths.root]
    while level:
        below: list[str] = []
        found = zip(level, await get_all(zk, level), strict=True)
        nodes |= {path: node for path, node in found if node is not None}
        for start in range(0, len(level), AT_ONCE):
            some = [path for path in level[start : start + AT_ONCE] if path in nodes]
            listed = await many([zk.children(path) for path in some])
            below += [f"{path}/{name}" for path, names in zip(some, listed, strict=True) for name in names or ()]
        level = below
    return Look(
        group=group,
        nodes={path: node.stat for path, node in nodes.items()},
        members=tuple(sorted(path.rsplit("/", 1)[1] for path in nodes if path.startswith(f"{paths.ids}/"))),
        owned=tuple(
            sorted(p for p, node in nodes.items() if p.startswith(f"{paths.all_owners}/") and node.stat.ephemeral_owner)
        ),
        closed=tuple(
            sorted(p for p, node in nodes.items() if p.startswith(f"{paths.all_gates}/") and node.data != OPEN)
        ),
        session=connection.session.timeout,
    )


async def delete_group(zk: ZooKeeper, before: Look) -> int:
    """Delete an unchanged group's nodes, and return their number.

    No node may have changed since `before`. Large groups take several transactions, each of which fails if a member registers;
    the remaining offsets then belong to whole partitions, and another attempt goes on.

    Raises:
        DisturbedError: a node has changed, or a member has registered; the message says how much is deleted.
        OffsetsError: the group is in use.
        TransientError: ZooKeeper does not answer; another attempt is safe.
    """
    deleted = 0
    for _ in range(ATTEMPTS):
        try:
            while True:
                now = await look(zk, before.group)
                stirred = now.stirred_since(before)
                if stirred is not None:
                    raise disturbed(before, stirred, deleted)
                now.refuse()
                deleted = len(before.nodes) - len(now.nodes)
                if not now.nodes:
                    return deleted
                await zk.transaction(_next(now))
        except RefusedError as refused:
            log.debug("%s; looking again", refused)  # the next look finds the change
        except TransientError as error:
            log.debug("%s; looking again", error)
            await reconnected(zk)
    raise ZkUnavailableError(
        f"{before.group}: could not be deleted in {ATTEMPTS} attempts: others change its nodes, or answers are lost; {deleted:,} "
        f"of {len(before.nodes):,} nodes are deleted; try again"
    )


# -- inside ----------------------------------------------------------------------------------------------------------


def _next(now: Look) -> list[Op]:
    """Return a full transaction's deletes, children first, while no member registers."""
    ids = GroupPaths(now.group).ids
    # A node with children cannot be deleted, and an existing one not be created: either way there is no member.
    ops: list[Op] = [Delete(ids)] if ids in now.nodes else [Create(ids), Delete(ids)]
    room = MAX_TRANSACTION_BYTES
    for path in sorted(now.nodes, key=lambda path: (-path.count("/"), path)):
        room -= OP_BYTES + len(path.encode())
        if room < 0:
            break
        if path != ids:
            ops.append(Delete(path, now.nodes[path].version))
    return ops


def disturbed(before: Look, path: str, deleted: int = 0) -> DisturbedError:
    """Return the error for a group whose node `path` has changed."""
    done = f"{deleted:,} of {len(before.nodes):,} nodes are deleted" if deleted else "nothing was deleted"
    return DisturbedError(
        f"{before.group}: {path} has changed while the group was to be silent: it is in use; {done}. Stop its members, "
        "and try again"
    )
