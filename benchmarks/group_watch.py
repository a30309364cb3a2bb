"""A group as an outsider sees it: its nodes over a ZooKeeper connection of its own, and what its processors wrote down."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from inbound import Batch, BatchEventProcessor, BatchResponse

#: Nothing has moved for so long: then nothing moves any more. Longer than members wait before they look again.
QUIET = 1.0
LOOK_EVERY = 0.05


class Writing(BatchEventProcessor):
    """Writes down each batch: `partition first_offset next_offset delivered published`, the times in Unix milliseconds.

    `published` is when the oldest of its records was.
    """

    def open(self, context: object) -> None:
        folder = Path(context.options["folder"])  # type: ignore[attr-defined]
        self._file = open(folder / f"{os.getpid()}.txt", "ab", buffering=0)  # noqa: SIM115 - closed in close()

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        oldest = batch.records[0].timestamp
        line = (batch.partition, batch.first_offset, batch.next_offset, time.time() * 1000, oldest)
        self._file.write(b"%d %d %d %.1f %d\n" % line)
        return BatchResponse.advance()

    def close(self) -> None:
        self._file.close()


class HandedOut(NamedTuple):
    """One batch, as the processor of process `pid` wrote it down. Times in Unix seconds."""

    pid: int
    partition: int
    next_offset: int
    at: float
    published: float
    first_offset: int


class Seen:
    """Reads what the processors wrote, each line once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def new(self) -> list[HandedOut]:
        """Return what was written since the last call, by the time of writing."""
        found = []
        for path in self._folder.glob("*.txt"):
            with open(path, "rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for line in whole.splitlines():
                partition, first, next_offset, at, published = line.split()
                found.append(
                    HandedOut(
                        int(path.stem), int(partition), int(next_offset), float(at) / 1000, float(published) / 1000,
                        int(first),
                    )
                )  # fmt: skip
        return sorted(found, key=lambda batch: batch.at)


class Settled(NamedTuple):
    """A group that does not move any more."""

    owners: dict[int, str]
    at: float  # when the last owner node was created, by the server's clock; Unix seconds
    claims: int  # of all partitions, since the group exists
    claimed: dict[int, float]  # when each partition was last claimed, by the server's clock


class GroupWatch:
    """Looks at a group's nodes. Cheap while things move: it asks for one node's Stat again and again."""

    def __init__(self, hosts: str, group: str, topic: str, partitions: int) -> None:
        self.partitions = partitions
        self._root = f"/consumers/{group}"
        self._owners = f"{self._root}/owners/{topic}"
        self._epochs = f"{self._root}/epochs/{topic}"
        self._zk = KazooClient(hosts, timeout=30)
        self._zk.start(timeout=30)

    def close(self) -> None:
        self._zk.stop()
        self._zk.close()

    def members(self) -> dict[str, float]:
        """Return each member, and when it registered; Unix seconds."""
        with suppress(NoNodeError):
            found = {}
            for name in self._zk.get_children(f"{self._root}/ids"):
                with suppress(NoNodeError):
                    found[name] = self._zk.get(f"{self._root}/ids/{name}")[1].ctime / 1000
            return found
        return {}

    def await_member(self, before: Iterable[str], alive: Callable[[], bool], seconds: float = 30) -> tuple[str, float]:
        """Wait for a member that is not among `before`. Returns it, and when it registered."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and alive():
            for name, at in self.members().items():
                if name not in before:
                    return name, at
            time.sleep(LOOK_EVERY)
        raise SystemExit(f"no new member of {self._root} within {seconds:.0f} s, or its process has ended")

    def settled(self, members: int, seconds: float = 120) -> Settled:
        """Wait until every partition is owned, everybody has an even share and nothing moves any more."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._await_quiet(deadline)
            found = self._look()
            if found is not None:
                shares = Counter(found.owners.values())
                if len(shares) == members and max(shares.values()) - min(shares.values()) <= 1:
                    return found
        raise SystemExit(f"{self._owners}: no even shares of {members} members within {seconds:.0f} s")

    def _await_quiet(self, deadline: float) -> None:
        last, since = -1, time.monotonic()
        while time.monotonic() < deadline:
            stat = self._zk.exists(self._owners)
            now = time.monotonic()
            if stat is None or stat.pzxid != last or stat.numChildren < self.partitions:
                last, since = -1 if stat is None else stat.pzxid, now
            elif now - since >= QUIET:
                return
            time.sleep(LOOK_EVERY)

    def _look(self) -> Settled | None:
        owners = self._all(self._zk.get_async, self._owners)
        epochs = self._all(self._zk.exists_async, self._epochs)
        if any(node is None for node in owners):
            return None
        created = {p: node[1].ctime / 1000 for p, node in enumerate(owners)}
        names = {p: node[0].decode() for p, node in enumerate(owners)}
        return Settled(names, max(created.values()), sum(stat.version for stat in epochs if stat), created)

    def _all(self, ask: Callable[[str], Any], parent: str) -> list[Any]:
        calls = [ask(f"{parent}/{p}") for p in range(self.partitions)]
        found = []
        for call in calls:
            try:
                found.append(call.get(timeout=30))
            except NoNodeError:
                found.append(None)
        return found

    def tell_deletions(self, partitions: Iterable[int], on_deletion: Callable[[int, float], None]) -> None:
        """Call `on_deletion(partition, Unix seconds)` once for each owner node that goes; on the watch thread."""
        calls = []
        for partition in partitions:

            def gone(event: Any, partition: int = partition) -> None:
                if event.type == "DELETED":
                    on_deletion(partition, time.time())

            calls.append(self._zk.exists_async(f"{self._owners}/{partition}", watch=gone))
        for call in calls:
            call.get(timeout=30)


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the smallest value that so many percent of `values` do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else math.nan


def middle(values: Iterable[float]) -> float:
    """Return the median; not a number where there are no values."""
    return statistics.median([*values] or [math.nan])
