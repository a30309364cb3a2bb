"""Several brokers, load that one of them cannot hold up, and how long each partition was stalled."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any
from urllib.request import urlopen

import confluent_kafka

from inbound.embedded.kafka import KafkaServer
from integration.harness import Scene
from tests.embedded.leaders import partition_leaders
from tests.waiting import until


def now() -> float:
    """Return the time on the recorder's clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Load:
    """Publishes to every partition at a steady rate. Partitions with a leader do not wait for those without."""

    def __init__(self, scene: Scene, per_second: float = 40.0) -> None:
        self._scene = scene
        self._interval = 1 / per_second
        self._stop = threading.Event()
        self._acknowledged: dict[int, list[float]] = defaultdict(list)
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": scene.cluster.bootstrap_servers,
                "enable.idempotence": True,  # a repeat in the log would be taken for an undelivered record
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 50,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "socket.timeout.ms": 5000,
                "message.timeout.ms": 180_000,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()

    def end(self) -> None:
        """Stop, and wait until everything is acknowledged; then the scene's `published` is complete."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0, "not everything that was sent was acknowledged within 60 s"

    def published_since(self, times: dict[int, float]) -> dict[int, float]:
        """Wait until a record of each partition was acknowledged after its time; return when. It may have been late."""

        def found() -> dict[int, float]:
            return {p: next(t for t in self._acknowledged[p] if t >= at) for p, at in times.items() if later(p, at)}

        def later(partition: int, at: float) -> bool:
            return any(one >= at for one in self._acknowledged[partition])

        until(lambda: len(found()) == len(times), 60, f"partitions {sorted(times)} can be published to")
        return found()

    def acknowledged(self, partition: int) -> list[float]:
        """Return when each record of a partition was acknowledged, by offset: there is no other publisher, and no repeat."""
        return list(self._acknowledged[partition])

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            for partition in range(self._scene.partitions):
                self._producer.produce(self._scene.topic, b"x", partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: object, message: Any) -> None:
        assert error is None, error
        self._scene.published[message.partition()] += 1
        self._acknowledged[message.partition()].append(now())


def leaders(scene: Scene, asked: KafkaServer) -> dict[int, int]:
    """Return each partition's leader (a node id, -1 for none) as one broker tells it."""
    return partition_leaders(asked.port, scene.topic, 2.0)


def balance(scene: Scene) -> None:
    """Wait until every partition is led by its first replica, two by each of three brokers."""

    def even() -> bool:
        shares = Counter(leaders(scene, scene.cluster.brokers[0]).values())
        return sorted(shares.values()) == [scene.partitions // 3] * 3 and -1 not in shares

    until(even, 60, "each broker leads its share")


def await_election(scene: Scene, asked: KafkaServer, partitions: Iterable[int], dead: int) -> dict[int, float]:
    """Wait until a live broker names other leaders than `dead`. Returns when it did, by partition."""
    elected: dict[int, float] = {}
    missing = set(partitions)

    def all_elected() -> bool:
        known = leaders(scene, asked)
        at = now()
        elected.update({p: at for p in missing - elected.keys() if known.get(p, -1) not in (dead, -1)})
        return elected.keys() == missing

    until(all_elected, 60, lambda: f"new leaders for {missing - elected.keys()}", look=0.01)
    return elected


def begun(scene: Scene) -> dict[int, list[float]]:
    """Return when batches of each partition began, on the clock of `now`."""
    times: dict[int, list[float]] = defaultdict(list)
    for batch in scene.batches():
        times[batch.partition].append(batch.at)
    return times


def longest_pause(scene: Scene, partitions: Iterable[int], since: float, till: float) -> float:
    """Return the longest time between two batches of any of these partitions, both ends of the window counting."""
    times = begun(scene)
    return max(
        later - earlier
        for partition in partitions
        for inside in [[since, *(at for at in times.get(partition, ()) if since < at < till), till]]
        for earlier, later in pairwise(inside)
    )


def longest_wait(scene: Scene, load: Load, partitions: Iterable[int], since: float, till: float) -> float:
    """Return how long a record of these partitions that was acknowledged in the window waited for its delivery at most.

    A pause between two batches may be the load's own: there was nothing to deliver. Seconds; a record that no consumer was
    handed yet waits still.
    """
    handed: dict[tuple[int, int], float] = {}
    for batch in scene.batches():
        for offset in range(batch.first, batch.next):
            handed.setdefault((batch.partition, offset), batch.at)
    waits = [
        handed.get((partition, offset), now()) - at
        for partition in partitions
        for offset, at in enumerate(load.acknowledged(partition))
        if since < at < till
    ]
    assert waits, "nothing was published in the window"
    return max(waits)


def resumed(scene: Scene, since: dict[int, float]) -> dict[int, float]:
    """Wait until each partition had a delivery after its time. Returns the seconds from then, by partition."""

    def found() -> dict[int, float]:
        times = begun(scene)
        return {
            p: later[0] - at for p, at in since.items() if (later := [one for one in times.get(p, ()) if one >= at])
        }

    until(lambda: len(found()) == len(since), 60, f"partitions {sorted(since)} are delivered again")
    return found()


def status(url: str) -> dict[str, Any]:
    """Return the only channel's status."""
    with urlopen(f"{url}/status", timeout=30) as answer:
        channel: dict[str, Any] = json.loads(answer.read())["channels"][0]
        return channel


def healthy(url: str) -> bool:
    """Whether `/healthz` answers 200."""
    with urlopen(f"{url}/healthz", timeout=30) as answer:
        return bool(answer.status == 200)


def advertise(server: KafkaServer, port: int) -> None:
    """Restart a broker so that clients and other brokers are sent to another port."""
    settings = server.folder / "server.properties"
    lines = settings.read_text().splitlines()
    kept = [line for line in lines if not line.startswith("advertised.listeners=")]
    settings.write_text("\n".join([*kept, f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}", ""]))
    server.stop()
    server.start()
