"""Hands in the nodes of a partition: what holds its offset is gone, or ZooKeeper refuses a node of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inbound.coordinators.zookeeper import Create, Delete, Op, SetData
from inbound.testing.simulation.plan import Action
from inbound.testing.simulation.stage import Stage
from inbound.testing.zookeeper import NOBODY, Who
from inbound.topic_partition import TopicPartition

#: Whose node it becomes: others may read it at most.
ADMIN, READABLE = Who("admin", "creator"), Who("admin", "readable")

#: Of so large actions the owner of the partition dies.
WITH_ITS_OWNER = 6

#: What ends a fault; None where it is over at once.
End = Callable[[], None] | None


def _emptied(stage: Stage, action: Action) -> End:
    """Somebody empties the node of the group's offset; in the end (flag) what was there is written again."""
    return _take(stage, action, b"", mended=action.flag)


def _deleted(stage: Stage, action: Action) -> End:
    """The same with a deletion."""
    return _take(stage, action, None, mended=action.flag)


def _garbled(stage: Stage, action: Action) -> End:
    """Somebody writes into it what is no offset; in the end, what was there."""
    stage.judge.refused.add(_partition(stage, action))
    return _take(stage, action, b"rubbish", mended=True)


def _take(stage: Stage, action: Action, data: bytes | None, *, mended: bool) -> End:
    tp, tree = _partition(stage, action), stage.ensemble.tree
    path = stage.paths.offset(*tp)
    if stage.judge.commit_of(tp) is None or tree.get(path) is None:
        return None
    for owner in stage.living() if action.size == WITH_ITS_OWNER else ():
        if owner.name == stage.judge.owners()[tp] and len(stage.living()) > 1:
            stage.kill(owner)  # else its next commit puts the offset back
    stage.judge.offset_taken(tp)
    tree.transaction([Delete(path) if data is None else SetData(path, data)], session=0)
    zxid = tree.zxid

    def end() -> None:
        node = tree.get(path)
        if (
            (data is None) if node is None else (data is not None and node.stat.mzxid == zxid)
        ):  # no member has committed
            stage.judge.offset_mended(tp)
            offset = b"%d" % (stage.judge.commit_of(tp) or 0)
            write: Op = Create(path, offset) if data is None else SetData(path, offset)
            tree.transaction([write], session=0)

    return end if mended else None


def _offset_refused(stage: Stage, action: Action) -> End:
    """Nobody in the group may write the offset, nor (flag) read it."""
    tp = _partition(stage, action)
    return _refuse(stage, tp, stage.paths.offset(*tp), ADMIN if action.flag else READABLE)


def _epoch_refused(stage: Stage, action: Action) -> End:
    """The same of the epoch: nothing can be claimed, or committed where another leader has written."""
    tp = _partition(stage, action)
    return _refuse(stage, tp, stage.paths.epoch(*tp), ADMIN if action.flag else READABLE)


def _partition(stage: Stage, action: Action) -> TopicPartition:
    """Return the partition that it is about: of the larger actions one that has no owner, if there is one."""
    owners = stage.judge.owners()
    unowned = [tp for tp in stage.partitions() if owners.get(tp) is None]
    return unowned[action.where % len(unowned)] if unowned and action.size > 1 else stage.partition(action)


def _refuse(stage: Stage, tp: TopicPartition, path: str, who: Who) -> End:
    tree = stage.ensemble.tree
    if tree.get(path) is None:
        return None
    stage.judge.refused.add(tp)
    tree.give(path, who)

    def end() -> None:
        if tree.get(path) is not None:
            tree.give(path, NOBODY)

    return end


#: Members leave a partition alone of which a node is refused, or holds what is no offset; the others go on.
REFUSALS: Mapping[str, Callable[[Stage, Action], End]] = {
    "offset garbled": _garbled,
    "offset refused": _offset_refused,
    "epoch refused": _epoch_refused,
}
NODE_KINDS: Mapping[str, Callable[[Stage, Action], End]] = {
    "offset emptied": _emptied,
    "offset deleted": _deleted,
    **REFUSALS,
}
