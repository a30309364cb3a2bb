"""Sets or deletes a stopped group's offsets in one transaction per topic.

No live member can overlap it. A child list cannot be checked in a transaction, but a node with children cannot be deleted.
So the transaction deletes `ids` and `owners/<topic>` and creates them again: it is refused while any member is registered, or
any partition owned.

    1. no member is registered when we look;  2. a member registers;  3. our transaction is refused, nothing is done.
    1. our transaction is done;  2. a member registers and claims;  3. it reads the offset after its claim: the new one.

The transaction increments every epoch with its offset. So the requests in flight of a zombie (a process that is cut off, or was
stopped by SIGSTOP, and still believes in its claim) are refused: commit, release and recovery check the epoch.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from inbound.coordinators.nodes import (
    OPEN,
    BadNodeError,
    EpochInfo,
    decode_epoch,
    decode_offset,
    encode_offset,
)
from inbound.coordinators.ownership import Ownership
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import (
    MAX_TRANSACTION_BYTES,
    Check,
    Create,
    Delete,
    Node,
    Op,
    RefusedError,
    SetData,
    ZooKeeper,
    get_all,
)
from inbound.errors import InboundError, TransientError, ZkUnavailableError
from inbound.offsets.model import Logs
from inbound.offsets.nodes import many, reconnected
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")

#: The last claimant in the epoch nodes.
BY = "inbound offsets"
#: The cause of the move for a claim's `on_reset` and the ledger, in place of a reset's path.
IMPORT = "inbound offsets import"
#: Attempts at a change while others change the same nodes, or answers are lost.
ATTEMPTS = 5
#: An upper bound of an operation's bytes in a transaction, without its path and data.
OP_BYTES = 40
_NAMED = 5


class OffsetsError(InboundError):
    """A request about a group's offsets is refused; nothing was done."""


@dataclass(frozen=True)
class Change:
    """One partition's offset, before and after. None: nothing is committed."""

    topic: str
    partition: int
    old: int | None
    new: int | None


def outside(topic: str, offsets: Mapping[int, int], logs: Logs) -> list[str]:
    """Return a line for each offset outside its partition's log. Pure."""
    meta = logs.topics.get(topic)
    if meta is None:
        return [f"{topic}: the brokers have no such topic; create it, or correct its name"]
    problems = []
    for partition, offset in sorted(offsets.items()):
        limits = logs.ranges.get(TopicPartition(topic, partition))
        if partition >= meta.partitions:
            problems.append(
                f"{topic}/{partition}: the topic has {meta.partitions} partitions, 0 to {meta.partitions - 1}"
            )
        elif limits is None:
            problems.append(f"{topic}/{partition}: its leader does not answer, so offset {offset} cannot be checked")
        elif not limits.start <= offset <= limits.end:
            problems.append(
                f"{topic}/{partition}: offset {offset} is outside the log; valid are {limits.start} to {limits.end}"
            )
    return problems


class TopicOffsets:
    """Changes one group's offsets of one topic. For one coroutine."""

    def __init__(self, zk: ZooKeeper, group: str, topic: str, *, topic_id: str | None = None) -> None:
        """`topic_id` names the topic of the new offsets; None: see the nodes."""
        self._zk = zk
        self._group = group
        self._topic = topic
        self._topic_id = topic_id
        self._paths = GroupPaths(group)

    async def plan(self, new: Mapping[int, int | None]) -> list[Change]:
        """Return the changes that `change` would make. Reads only.

        Raises:
            OffsetsError: `change` would be refused.
            TransientError: ZooKeeper does not answer.
        """
        gate = await self._zk.get(self._paths.gate(self._topic))
        await self._refuse_if_alive(gate)
        nodes = await get_all(self._zk, [self._paths.offset(self._topic, p) for p in sorted(new)])
        return [
            Change(self._topic, p, self._offset(p, node), new[p]) for p, node in zip(sorted(new), nodes, strict=True)
        ]

    async def change(self, new: Mapping[int, int | None], partitions: int) -> list[Change]:
        """Set the offsets in `new`, all or none; None deletes an offset.

        A partition without an offset is as if nothing had ever been committed. Missing nodes of the topic's first `partitions`
        are created before.

        Raises:
            OffsetsError: a member is alive, a reset has closed the gate, or it does not fit in one transaction.
            TransientError: ZooKeeper does not answer; the change may have happened. Another attempt is safe.
        """
        if not new:
            return []
        tried: dict[str, list[Change]] = {}  # attempts without an answer, by the nonce in the epochs
        for _ in range(ATTEMPTS):
            try:
                if tried and (done := tried.get(await self._nonce(min(new)))) is not None:
                    return done
                await self._refuse_if_alive(await self._zk.get(self._paths.gate(self._topic)))
                # A new one each time: it remembers its created nodes, and another process may have deleted them.
                await Ownership(self._zk, self._group, BY).ensure(self._topic, max(partitions, max(new) + 1))
                nonce = os.urandom(8).hex()
                changes, ops = await self._operations(new, nonce)
                self._refuse_if_too_large(ops, len(changes))
                # If the transaction arrives late, a later attempt has incremented the epochs before, or finds its nonce.
                tried[nonce] = changes
                await self._zk.transaction(ops)
            except RefusedError as refused:
                log.debug("%s; looking again", refused)
            except TransientError as error:
                log.debug("%s; looking again", error)
                await reconnected(self._zk)
            else:
                return changes
        raise ZkUnavailableError(
            f"{self._group}: {self._topic}: could not be changed in {ATTEMPTS} attempts: others change its nodes, or answers "
            "are lost; try again"
        )

    # -- inside ------------------------------------------------------------------------------------------------------

    async def _operations(self, new: Mapping[int, int | None], nonce: str) -> tuple[list[Change], list[Op]]:
        zk, paths, topic = self._zk, self._paths, self._topic
        numbers = sorted(new)
        gate, ids, owners = await many([zk.get(path) for path in (paths.gate(topic), paths.ids, paths.owners(topic))])
        epochs = await get_all(zk, [paths.epoch(topic, p) for p in numbers])
        offsets = await get_all(zk, [paths.offset(topic, p) for p in numbers])
        changes: list[Change] = []
        ops: list[Op] = [
            Delete(paths.ids),
            Create(paths.ids, ids.data if ids is not None else b""),
            Delete(paths.owners(topic)),
            Create(paths.owners(topic), owners.data if owners is not None else b""),
            # A node that was deleted since has no version 0 either: the transaction is refused, and we look again.
            Check(paths.gate(topic), gate.stat.version if gate is not None else 0),
        ]
        for p, epoch, offset in zip(numbers, epochs, offsets, strict=True):
            before = self._decoded(decode_epoch, paths.epoch(topic, p), epoch) or EpochInfo("", 0, "")
            old = self._offset(p, offset) if before.is_about(self._topic_id) else None
            to = new[p]
            info = self._moved(before, nonce, old, to)
            ops += [
                SetData(paths.epoch(topic, p), info.encode(), epoch.stat.version if epoch is not None else 0),
                SetData(
                    paths.offset(topic, p),
                    b"" if to is None else encode_offset(to),
                    offset.stat.version if offset is not None else 0,
                ),
            ]
            changes.append(Change(topic, p, old, to))
        return changes, ops

    def _moved(self, before: EpochInfo, nonce: str, old: int | None, new: int | None) -> EpochInfo:
        """Return the epoch node's new content, with a note of the move."""
        before = before.before_a_move(self._topic_id, old)
        note = before.noted() if old == new else None
        if new is not None and new != old:
            # The next owner reports the move to processor and ledger.
            note = before.moved(IMPORT, old, new)
        # The offsets are about the brokers' current topic. With an older topic's id, the first claim would take the topic for
        # recreated since, and begin at 0.
        notes = replace(before, reset=note, claimed=before.was_claimed, leader_epoch=None)
        return replace(notes, consumer=BY, session=0, nonce=nonce).of_topic(self._topic_id)

    def _offset(self, p: int, node: Node | None) -> int | None:
        return self._decoded(decode_offset, self._paths.offset(self._topic, p), node)

    def _decoded(self, decode: Callable[[str, bytes], T | None], path: str, node: Node | None) -> T | None:
        try:
            return decode(path, node.data) if node is not None else None
        except BadNodeError as error:
            log.warning("%s; its content is overwritten", error)
            return None

    async def _refuse_if_alive(self, gate: Node | None) -> None:
        members = sorted(await self._zk.children(self._paths.ids) or ())
        if members:
            raise alive(self._group, members)
        if gate is not None and gate.data != OPEN:
            raise OffsetsError(
                f"{self._group}: {self._topic}: a reset has closed the gate ({gate.data.decode(errors='replace')}); wait for "
                "it to end, or cancel it"
            )
        owned = await self._zk.children(self._paths.owners(self._topic))
        if owned:
            some = ", ".join(sorted(owned, key=lambda name: (len(name), name))[:_NAMED])
            raise OffsetsError(
                f"{self._group}: {self._topic}: partitions have an owner that is not registered ({some}): its session has not "
                "expired yet; try again in some seconds"
            )

    def _refuse_if_too_large(self, ops: Sequence[Op], partitions: int) -> None:
        size = sum(OP_BYTES + len(op.path.encode()) + len(getattr(op, "data", b"")) for op in ops)
        if size > MAX_TRANSACTION_BYTES:
            raise OffsetsError(
                f"{self._group}: {self._topic}: {partitions:,} partitions are {size // 1024:,} KiB in one transaction, more than "
                f"the {MAX_TRANSACTION_BYTES // 1024} that ZooKeeper is sent; nothing was done: use `inbound offsets reset "
                "--from-file`, which does it in parts behind a closed gate"
            )

    async def _nonce(self, p: int) -> str:
        path = self._paths.epoch(self._topic, p)
        node = await self._zk.get(path)
        info = decode_epoch(path, node.data) if node is not None else None
        return info.nonce if info is not None else ""


def alive(group: str, members: Sequence[str]) -> OffsetsError:
    """Return the error for a group that has members."""
    more = f" and {len(members) - _NAMED} more" if len(members) > _NAMED else ""
    return OffsetsError(
        f"{group}: has {len(members)} live member{'s' if len(members) != 1 else ''} ({', '.join(members[:_NAMED])}{more}); stop "
        "them first. To move the offsets of a running group, use `inbound offsets reset` (--from-file takes a CSV)"
    )
