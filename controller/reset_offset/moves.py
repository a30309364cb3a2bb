"""The transactions of a move, and how its partitions are dealt out to them. Pure but for the random nonce."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from inbound.controller.reset_offset.command import PATHS, ResetCommand, encode, encode_targets
from inbound.controller.reset_offset.model import Moved
from inbound.coordinators.nodes import BadNodeError, EpochInfo, decode_epoch, encode_offset
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import (
    MAX_TRANSACTION_BYTES,
    MAX_TRANSACTION_OPS,
    Check,
    Create,
    Delete,
    Node,
    Op,
    SetData,
)

T = TypeVar("T")

#: What an operation takes besides its path and its data: its header, two lengths, a version. Rounded up.
OVERHEAD = 32
#: By how much a command's node may grow between storing the targets and moving: what its conditions say.
GROWTH = 8192
#: Who is named as the last claimant in an epoch that a reset has written.
CLAIMANT = "reset"


@dataclass(frozen=True)
class Epoch:
    """An epoch node as it was read: what a change of it is conditional on, and what must be kept."""

    version: int
    info: EpochInfo


def size(ops: Iterable[Op]) -> int:
    """Return how many bytes `ops` take in a transaction, or a few more."""
    return sum(
        OVERHEAD + len(op.path.encode()) + (len(op.data) if isinstance(op, Create | SetData) else 0) for op in ops
    )


def read_epoch(path: str, node: Node) -> Epoch:
    """Return what an epoch node says. One that cannot be read is overwritten, as a claim would do."""
    try:
        info = decode_epoch(path, node.data)
    except BadNodeError:
        info = None
    return Epoch(node.stat.version, info or EpochInfo(CLAIMANT, 0, ""))


def fence_ops(paths: GroupPaths, topic: str, epochs: Mapping[int, Epoch], owned: Iterable[int]) -> list[list[Op]]:
    """Return, for each partition, what takes it from whoever held it: no commit of theirs can land any more.

    The nonce is a new one: by the old one the last owner would know the epoch as its own, and move it on with a write that
    went unanswered (see docs/decisions/0014-late-requests.md). What else stands in the node stays. An owner node that is
    left is deleted; the closed gate keeps its session from making it again.
    """
    left = frozenset(owned)
    result: list[list[Op]] = []
    for partition, epoch in sorted(epochs.items()):
        before = epoch.info
        notes = replace(before, reset=before.noted(), claimed=before.was_claimed)
        info = replace(notes, consumer=CLAIMANT, session=0, nonce=_nonce())
        ops: list[Op] = [SetData(paths.epoch(topic, partition), info.encode(), epoch.version)]
        if partition in left:
            ops.append(Delete(paths.owner(topic, partition)))
        result.append(ops)
    return result


def move_ops(
    command: ResetCommand, paths: GroupPaths, topic: str, epochs: Mapping[int, Epoch], targets: Iterable[Moved]
) -> list[Op]:
    """Return what moves `targets`: each partition's offset, and its epoch with a note of it for who claims next.

    The offset is about the topic that the brokers named when the targets were resolved. Should that have been deleted and
    created anew since, the claimant sees another id, and begins at its start.
    """
    ops: list[Op] = []
    for moved in targets:
        epoch = epochs[moved.partition]
        before = epoch.info.before_a_move(command.topic_id, moved.old)
        note = before.moved(command.path, moved.old, moved.new)
        notes = replace(before, reset=note, claimed=before.was_claimed, leader_epoch=None)
        moved_on = replace(notes, consumer=CLAIMANT, session=0, nonce=_nonce())
        info = moved_on.of_topic(command.topic_id)
        ops.append(SetData(paths.offset(topic, moved.partition), encode_offset(moved.new)))
        ops.append(SetData(paths.epoch(topic, moved.partition), info.encode(), epoch.version))
    return ops


def chunks(
    command: ResetCommand,
    paths: GroupPaths,
    topic: str,
    epochs: Mapping[int, Epoch],
    targets: Sequence[Moved],
    largest: int = MAX_TRANSACTION_BYTES,
) -> list[tuple[Moved, ...]]:
    """Deal `targets` out to as few transactions of `largest` bytes as hold them. At least one."""
    around: list[Op] = [
        SetData(command.path, encode(command)),
        Check(paths.gate(topic), 0),
        Create(PATHS.applied(command.name, len(targets))),
    ]
    room = largest - size(around) - GROWTH
    costs = [(moved, size(move_ops(command, paths, topic, epochs, [moved]))) for moved in targets]
    return [tuple(chunk) for chunk in packed(costs, room)] or [()]


def target_ops(
    command: ResetCommand, parts: Sequence[Sequence[Moved]], largest: int = MAX_TRANSACTION_BYTES
) -> list[list[Op]]:
    """Return what stores the targets, dealt out to transactions that each leave room for the command's node."""
    creates: list[Op] = [
        Create(PATHS.targets(command.name, command.targets, k), encode_targets(part)) for k, part in enumerate(parts)
    ]
    room = largest - size([SetData(command.path, encode(command))]) - GROWTH
    return [list(pack) for pack in packed([(op, size([op])) for op in creates], room)]


def grouped(ops: Sequence[Sequence[Op]], first: Op, largest: int = MAX_TRANSACTION_BYTES) -> list[list[Op]]:
    """Deal operations that belong together out to transactions that each begin with `first`."""
    room = largest - size([first])
    packs = packed([(some, size(some)) for some in ops], room, most=(MAX_TRANSACTION_OPS - 1) // 2)
    return [[first, *(op for some in pack for op in some)] for pack in packs]


def packed(items: Iterable[tuple[T, int]], room: int, most: int | None = None) -> Iterator[list[T]]:
    """Yield items, each given with its size, in packs that are no larger than `room`, and of no more than `most`."""
    pack: list[T] = []
    used = 0
    for item, cost in items:
        if pack and (used + cost > room or len(pack) == most):
            yield pack
            pack, used = [], 0
        pack.append(item)
        used += cost
    if pack:
        yield pack


def _nonce() -> str:
    return f"{CLAIMANT}-{os.urandom(8).hex()}"
