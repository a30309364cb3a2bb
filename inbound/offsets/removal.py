"""Deletes a group: every node of it, once no process can return to it with an old claim.

Epoch nodes may go only with the group. A recreated one counts from 0 again, and a process that was cut off all
the while, with a claim under the same number, would be accepted (design, rule 1). Against that: no member, no owner, and
nothing that changes for as long as a session lives. A process that is silent for so long has no session any more, and
its claim's nonce shows it that it does not own its partitions.
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
from inbound.offsets.changes import ATTEMPTS, OffsetsError, alive
from inbound.offsets.nodes import many, reconnected

log = logging.getLogger(__name__)

#: What an operation takes in a transaction besides its path, in bytes: less than this.
_OP_BYTES = 40
_NONE = Stat(-1, 0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class Look:
    """All nodes of a group as they were found."""

    group: str
    nodes: Mapping[str, Stat] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    owned: tuple[str, ...] = ()  # paths
    closed: tuple[str, ...] = ()  # paths of gates that a reset has closed
    session: float = 0.0  # seconds: the timeout of a session here, as negotiated

    def refuse(self) -> None:
        """Raise OffsetsError if the group may not be deleted as it is."""
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
        """Return the path of a node that has come, or was written, since `before`; None: there is none."""
        return next((p for p, stat in sorted(self.nodes.items()) if before.nodes.get(p, _NONE)[:4] != stat[:4]), None)

    def changed_since(self, before: Look) -> str | None:
        """Return the path of a node that has come, gone or was written since `before`; None: silence."""
        gone = sorted(before.nodes.keys() - self.nodes.keys())
        return gone[0] if gone else self.stirred_since(before)


class DisturbedError(InboundError):
    """A group that is being deleted is in use; the message says how much of it was deleted by then."""


async def look(zk: ZooKeeper, group: str) -> Look:
    """Return all nodes of a group; none if there is no such group.

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
    """Delete the group's nodes if none has come or been written since `before`. Returns how many there were.

    Large groups take several transactions, each of which fails if a member registers; the offsets
    that are left then are whole partitions', and deleting again goes on.

    Raises:
        DisturbedError: something has changed, or a member came; the message says what is deleted by then.
        OffsetsError: the group is in use.
        TransientError: ZooKeeper does not answer; deleting again is safe.
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
            log.debug("%s; looking again", refused)  # what has changed says why
        except TransientError as error:
            log.debug("%s; looking again", error)
            await reconnected(zk)
    raise ZkUnavailableError(
        f"{before.group}: could not be deleted in {ATTEMPTS} attempts: others change its nodes, or answers are lost; {deleted:,} "
        f"of {len(before.nodes):,} nodes are deleted; try again"
    )


# -- inside ----------------------------------------------------------------------------------------------------------


def _next(now: Look) -> list[Op]:
    """Return what deletes as much as one transaction takes, children first, as long as no member registers."""
    ids = GroupPaths(now.group).ids
    # A node with children cannot be deleted, and one that is there not be created: either way no member is there.
    ops: list[Op] = [Delete(ids)] if ids in now.nodes else [Create(ids), Delete(ids)]
    room = MAX_TRANSACTION_BYTES
    for path in sorted(now.nodes, key=lambda path: (-path.count("/"), path)):
        room -= _OP_BYTES + len(path.encode())
        if room < 0:
            break
        if path != ids:
            ops.append(Delete(path, now.nodes[path].version))
    return ops


def disturbed(before: Look, path: str, deleted: int = 0) -> DisturbedError:
    """Return the error for a group that was to be silent, and in which `path` has changed."""
    done = f"{deleted:,} of {len(before.nodes):,} nodes are deleted" if deleted else "nothing was deleted"
    return DisturbedError(
        f"{before.group}: {path} has changed while the group was to be silent: it is in use; {done}. Stop its members, "
        "and try again"
    )
