"""Nodes whose access rights are not those that the configuration asks for: made before it did, or by another user."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from inbound.controller.kazoo_zk import KazooZooKeeper
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.tasks import Tasks
from inbound.errors import InboundError, TransientError, ZkDeniedError

log = logging.getLogger(__name__)

#: So many requests are on their way at a time.
_AT_ONCE = 64
#: How often the first look is tried, in seconds, and how soon again after one that was not answered.
_LOOK, _AGAIN = 0.5, 5.0
#: At a start only the group, its folders and those of its topics are looked at: nodes of partitions are many, and made
#: by whom theirs were.
_FIRST_LOOK = 3


@dataclass(frozen=True)
class Found:
    """What a look at the nodes found, by path."""

    looked_at: int
    differ: tuple[str, ...]  # their access rights are others, and can be looked at
    closed: tuple[str, ...]  # they let us not even look


async def look(zk: KazooZooKeeper, roots: Collection[str], *, levels: int | None = None) -> Found:
    """Look at `roots` and all below them, or so many levels of it. Raises TransientError: ZooKeeper does not answer."""
    differ: list[str] = []
    closed: list[str] = []
    count = 0
    level = list(dict.fromkeys(roots))
    while level:
        below: list[str] = []
        for some in _portions(level):
            calls = [(path, zk.differs(path), zk.children(path)) for path in some]
            for path, differs, children in calls:
                try:
                    found = await differs
                    names = await children or []
                except ZkDeniedError:
                    closed.append(path)
                    count += 1
                    continue
                count += found is not None
                if found:
                    differ.append(path)
                below += [f"{path.rstrip('/')}/{name}" for name in names]
        levels = None if levels is None else levels - 1
        level = below if levels != 0 else []
    return Found(count, tuple(differ), tuple(closed))


async def correct(zk: KazooZooKeeper, paths: Sequence[str]) -> None:
    """Give nodes the access rights that the configuration asks for, children before their parents.

    Raises:
        ZkDeniedError: one does not let us; those before it are done.
        TransientError: ZooKeeper does not answer; doing it again is safe.
    """
    for some in _portions(sorted(paths, key=lambda path: -path.count("/"))):
        for call in [zk.correct(path) for path in some]:
            await call


def roots_of(groups: Iterable[str]) -> list[str]:
    """Return what is the groups' own: nothing that they share with others."""
    return [GroupPaths(group).root for group in sorted(set(groups))]


async def tell(zk: KazooZooKeeper, tasks: Tasks, groups: Callable[[], Iterable[str]]) -> None:
    """Say in the log, once ZooKeeper answers, which groups have nodes that are not as the configuration asks for."""
    if not zk.closes_nodes:
        return
    while zk.connection is None:
        await tasks.sleep(_LOOK)
    for group in sorted(set(groups())):
        while True:
            try:
                found = await look(zk, roots_of([group]), levels=_FIRST_LOOK)
            except TransientError:
                await tasks.sleep(_AGAIN)
                continue
            except InboundError as error:
                log.warning("group %s: who may use its nodes cannot be looked at: %s", group, error)
            else:
                _tell(group, found)
            break


def _tell(group: str, found: Found) -> None:
    if found.differ:
        log.warning(
            "group %s: %d of %d folders in ZooKeeper have other access rights than zookeeper.acl asks for, such as %s: they "
            "were made before it did; `inbound acl --apply` corrects them",
            group, len(found.differ), found.looked_at, found.differ[0],
        )  # fmt: skip
    if found.closed:
        log.warning(
            "group %s: %d of its nodes in ZooKeeper are closed to us, such as %s: another user made them; see "
            "docs/security-zookeeper.md",
            group, len(found.closed), found.closed[0],
        )  # fmt: skip


def _portions(paths: Sequence[str]) -> Iterable[Sequence[str]]:
    return (paths[begin : begin + _AT_ONCE] for begin in range(0, len(paths), _AT_ONCE))
