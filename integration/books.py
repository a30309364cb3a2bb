"""Load on a topic, and an account of every offset that does not ask inbound: journals of processors, nodes, the log."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import kafka
from kazoo.exceptions import NoNodeError

from tests.waiting import patient, until


class Handed(NamedTuple):
    """A batch that a processor was handed."""

    at: float  # seconds, by a clock that all processes of a machine share
    partition: int
    first: int
    next: int


@dataclass
class Account:
    """What became of every offset."""

    lost: dict[int, list[int]]  # partition: offsets nobody was handed
    repeated: dict[int, list[int]]  # partition: offsets delivered more than once
    seen: int

    @property
    def clean(self) -> bool:
        return not self.lost and not self.repeated


class Books:
    """What a scene with consumers knows of its topic and its group; where its consumers run is the scene's affair.

    A scene sets what is named here before it calls anything.
    """

    bootstrap_servers: str  # of the brokers, as they are reached from here
    zk: Any  # a kazoo client
    topic: str
    group: str
    partitions: int
    seen_folder: Path  # where processors keep their journals
    published: Counter[int]  # records by partition that Kafka has acknowledged
    _load: threading.Thread | None
    _stop_load: threading.Event

    # -- load --------------------------------------------------------------------------------------------------------

    def publish(self, per_partition: int) -> None:
        """Publish so many records to each partition now, acknowledged."""
        producer = kafka.KafkaProducer(bootstrap_servers=self.bootstrap_servers, acks="all", linger_ms=5)
        futures = [
            producer.send(self.topic, b"%d" % n, partition=p)
            for n in range(per_partition)
            for p in range(self.partitions)
        ]
        for future in futures:
            self.published[future.get(timeout=60).partition] += 1
        producer.close(timeout=5)

    def start_load(self, per_second: float = 40.0) -> None:
        """Publish to every partition at a steady rate until `end_load`."""
        self.start_bursts(per_second, 1)

    def start_bursts(self, per_second: float, records: int) -> None:
        """Publish so many records at once to every partition, so many times in a second, until `end_load`."""

        def run() -> None:
            producer = kafka.KafkaProducer(bootstrap_servers=self.bootstrap_servers, acks="all", linger_ms=2)
            futures = []
            while not self._stop_load.wait(1 / per_second):
                for _ in range(records):
                    futures += [producer.send(self.topic, b"x", partition=p) for p in range(self.partitions)]
            for future in futures:
                self.published[future.get(timeout=60).partition] += 1
            producer.close(timeout=5)

        self._stop_load.clear()  # `settle` may have ended an earlier load, or none
        self._load = threading.Thread(target=run, name="load")
        self._load.start()

    def end_load(self) -> None:
        """Stop the load; afterwards `published` is complete."""
        self._stop_load.set()
        if self._load is not None:
            self._load.join(timeout=patient(90))
            assert not self._load.is_alive(), (
                f"{self.topic}: the load has not ended, so what was published is not known"
            )
            self._load = None

    # -- the account -------------------------------------------------------------------------------------------------

    def journal(self, kind: bytes = b"", name: int | str | None = None) -> Iterator[list[bytes]]:
        """Yield the words of each whole line of this kind, of all journals or of one process's (its id, or its name)."""
        for path in self.seen_folder.glob("*.seen" if name is None else f"{name}.seen"):
            for line in path.read_bytes().split(b"\n")[:-1]:
                if line.startswith(kind):
                    yield line.split()

    def seen(self, name: int | str | None = None) -> Counter[tuple[int, int]]:
        """Return how often each (partition, offset) was delivered, to anybody or to one process."""
        return Counter((int(partition), int(offset)) for _, partition, offset in self.journal(b"R ", name))

    def batches(self, name: int | str | None = None) -> list[Handed]:
        """Return the batches that anybody or one process was handed, in the order in which they began."""
        found = self.journal(b"B ", name)
        return sorted(Handed(float(at), int(p), int(first), int(following)) for _, p, first, following, at in found)

    def last_batches(self, name: int | str) -> dict[int, set[int]]:
        """Return the offsets of the last batch of each partition that a process was handed; it may not have committed it."""
        return {batch.partition: set(range(batch.first, batch.next)) for batch in self.batches(name)}

    def inside(self, name: int | str) -> dict[int, int]:
        """Return, of a process, the partitions whose batch has begun and not ended: partition: first offset."""
        begun: dict[int, int] = {}
        for kind, partition, first, *_ in self.journal(name=name):
            if kind == b"B":
                begun[int(partition)] = int(first)
            elif kind == b"E":
                begun.pop(int(partition), None)
        return begun

    def first_seen(self, name: int | str) -> float | None:
        """Return when a process was handed its first batch."""
        return next((batch.at for batch in self.batches(name)), None)

    def account(self) -> Account:
        """Return what became of every published offset."""
        seen = self.seen()
        lost: dict[int, list[int]] = {}
        repeated: dict[int, list[int]] = {}
        for partition, count in self.published.items():
            for offset in range(count):
                times = seen[partition, offset]
                if times == 0:
                    lost.setdefault(partition, []).append(offset)
                elif times > 1:
                    repeated.setdefault(partition, []).append(offset)
        return Account(lost, repeated, sum(seen.values()))

    def everything_committed(self) -> bool:
        """Whether the group's offsets have come to the ends of the logs."""
        return all(self.offset(p) == self.published[p] for p in range(self.partitions))

    def wait_read(self, seconds: float = 60.0) -> None:
        """Wait until something of every partition is committed, after a load was started for those who own them.

        An owner node stands before its owner knows: who loses the answer to its claim claims again. So `all_owned` alone
        does not yet mean that the claims which can be seen are the ones that last.
        """
        until(
            lambda: all(self.offset(p) for p in range(self.partitions)),
            seconds,
            lambda: f"all partitions are read: {[self.offset(p) for p in range(self.partitions)]}",
        )

    def wait_more(self, records: int = 100) -> None:
        """Wait until so many more records than now are delivered: the group goes on under its load."""
        before = sum(self.seen().values())
        until(lambda: sum(self.seen().values()) >= before + records, 60, f"{records} more records are delivered")

    def offset(self, partition: int) -> int | None:
        """Return the group's offset as it stands in ZooKeeper."""
        path = f"/consumers/{self.group}/offsets/{self.topic}/{partition}"
        data = self.zk.get(path)[0] if self.zk.exists(path) else b""
        return int(data) if data else None

    def owners(self) -> dict[int, str]:
        """Return who owns each partition."""
        parent = f"/consumers/{self.group}/owners/{self.topic}"
        names = self.zk.get_children(parent) if self.zk.exists(parent) else []
        found = {}
        for name in names:
            with suppress(NoNodeError):  # released since it was listed
                found[int(name)] = self.zk.get(f"{parent}/{name}")[0].decode()
        return found

    def epochs(self) -> dict[int, int]:
        """Return each partition's epoch."""
        parent = f"/consumers/{self.group}/epochs/{self.topic}"
        return {p: self.zk.exists(f"{parent}/{p}").version for p in range(self.partitions)}

    def claims(self) -> dict[int, str]:
        """Return the nonce of each partition's last claim: a commit can move the epoch on, only a claim changes this."""
        parent = f"/consumers/{self.group}/epochs/{self.topic}"
        return {p: json.loads(self.zk.get(f"{parent}/{p}")[0])["nonce"] for p in range(self.partitions)}

    def all_owned(self, members: int) -> bool:
        """Whether every partition has an owner, and so many members own their shares, which differ by one at most.

        While a member takes over its share one by one, all may be owned in between with some members above theirs: who
        notes owners or claims then, or stops a member, comes after the rest of the move.
        """
        return self._shared_out(self.owners(), members)

    def _shared_out(self, owners: dict[int, str], members: int) -> bool:
        shares = Counter(owners.values()).values()
        return len(owners) == self.partitions and len(shares) == members and max(shares) - min(shares) <= 1

    def settle(self, seconds: float = 90.0) -> None:
        """End the load and wait until everything is committed."""
        self.end_load()
        until(
            self.everything_committed,
            seconds,
            lambda: f"all committed: {[self.offset(p) for p in range(self.partitions)]} of {dict(self.published)}",
        )
