"""A scene whose consumers dispatch events to HTTP subscribers, and the account of what became of each event."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import kafka
from kafka.admin import KafkaAdminClient, NewTopic

from inbound.admin.client import fetch_status
from integration.harness import Scene
from integration.whole_topic import read_topic
from tests.waiting import until

#: The name of the first subscription; its group is the scene's.
FIRST = "orders"

Header = tuple[str, bytes | None]


class Event(NamedTuple):
    """One event, in binary mode; `id` is the partition and the offset, such as `0-17`."""

    id: str
    key: bytes | None
    data: bytes | None
    headers: Sequence[Header]


def event_headers(id: str, **attributes: str) -> list[Header]:
    """Return the headers of a record that carries an event in binary mode."""
    named = {"specversion": "1.0", "id": id, "source": "/tests", "type": "order", **attributes}
    written = [(f"ce_{name}", text.encode()) for name, text in named.items()]
    return [*written, ("content-type", b"application/octet-stream")]


def partition_of(id: str) -> int:
    """Return where the event of this id was published."""
    return int(id.split("-")[0])


def offset_of(id: str) -> int:
    """Return the offset of the event of this id."""
    return int(id.split("-")[1])


def by_partition(ids: Sequence[str]) -> dict[int, list[int]]:
    """Return the offsets in the order of `ids`, for each partition."""
    found: dict[int, list[int]] = {}
    for id in ids:
        found.setdefault(partition_of(id), []).append(offset_of(id))
    return found


#: Makes one.
MakeScene = Callable[..., "Dispatching"]


@dataclass
class Dispatching(Scene):
    """Subscriptions to one topic, each a channel with a group of its own, all in the same processes."""

    #: Longer than the machine may stall: after a session that expired, events would be sent again, rightly.
    session: float = 15.0
    subscriptions: dict[str, dict[str, Any]] = field(default_factory=dict)
    reader: dict[str, Any] = field(default_factory=dict)
    topic_configs: dict[str, str] = field(default_factory=dict)
    events: dict[str, Event] = field(default_factory=dict)

    def _new_topic(self) -> NewTopic:
        return NewTopic(self.topic, self.partitions, 1, topic_configs=self.topic_configs)

    def write_config(self, **channel: str) -> None:
        """Write the configuration; JSON is YAML too."""
        assert not channel, "its settings are options of the dispatcher"
        body = {
            "zookeeper": {"hosts": self.cluster.zookeeper_hosts, "session_timeout": f"{self.session}s"},
            "kafka": {"bootstrap.servers": self.cluster.bootstrap_servers},
            "admin": {"listen": "127.0.0.1:0"},
            "controller": {"join_delay": "200ms"},
            "ledger": {"path": str(self.folder / "ledger")},
            **self._sections(),
        }
        self.config.write_text(json.dumps(body, indent=1))

    def _sections(self) -> dict[str, Any]:
        """Return what the configuration says of the subscriptions."""
        channels = {
            name: {
                "topics": [self.topic],
                "group": self.group_of(name),
                "reader": {"client": self.client, **self.reader},
                "processor": {"type": "dispatch", "options": options},
            }
            for name, options in self.subscriptions.items()
        }
        return {"channels": channels}

    def subscribe(self, name: str = FIRST, **options: Any) -> None:
        """Have the processes that are started from now on dispatch to `options["subscriberUri"]`."""
        self.subscriptions[name] = options
        self.write_config()

    def group_of(self, name: str) -> str:
        """Return the group of a subscription."""
        return self.group if name == FIRST else f"{self.group}-{name}"

    def run(self, members: int = 1) -> list[subprocess.Popen[bytes]]:
        """Start consumers and wait until they own all partitions of the first subscription."""
        started = [self.start() for _ in range(members)]
        until(
            lambda: self.all_owned(members) or any(process.poll() is not None for process in started),
            60,
            lambda: f"{members} own all: {self.log(started[0])[-2000:]}",
        )
        assert [process.poll() for process in started] == [None] * members, self.log(started[0])[-2000:]
        return started

    def make_topic(self, name: str) -> str:
        """Create one more topic, of one partition and with the same settings; returns its whole name."""
        topic = f"{name}-{self.folder.name}"
        admin = KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap_servers)
        admin.create_topics([NewTopic(topic, 1, 1, topic_configs=self.topic_configs)])
        admin.close()
        return topic

    # -- events ------------------------------------------------------------------------------------------------------

    def send(
        self,
        count: int = 1,
        *,
        partitions: Sequence[int] | None = None,
        key: Callable[[int], str | None] = lambda n: None,
        data: bytes | None = b"data",
        **attributes: str,
    ) -> list[str]:
        """Publish so many events to each of `partitions` (all), acknowledged; returns their ids in their order."""
        numbers = range(count)
        chosen = range(self.partitions) if partitions is None else partitions
        producer = self._producer(linger_ms=5)
        futures = [self._publish(producer, p, key(n), data, attributes) for n in numbers for p in chosen]
        for _, future in futures:
            future.get(timeout=60)
        producer.close(timeout=5)
        return [id for id, _ in futures]

    def coming(self, count: int = 1, partition: int = 0) -> list[str]:
        """Return the ids that the next events of a partition will have: instructions about an event must come before it."""
        return [f"{partition}-{self.published[partition] + number}" for number in range(count)]

    def send_raw(self, value: bytes | None, headers: Sequence[Header] = (), partition: int = 0) -> int:
        """Publish one record as it is; returns its offset."""
        producer = self._producer()
        key = b"k" if value is None else None  # the producer's own rule
        sent = producer.send(self.topic, value, key=key, headers=list(headers), partition=partition)
        offset: int = sent.get(60).offset
        producer.close(timeout=5)
        self.published[partition] += 1
        return offset

    def start_load(self, per_second: float = 40.0) -> None:
        """Publish an event to every partition at a steady rate until `end_load`, with five keys in turn."""

        def run() -> None:
            producer = self._producer(linger_ms=2)
            futures, number = [], 0
            while not self._stop_load.wait(1 / per_second):
                futures += [self._publish(producer, p, f"k{number % 5}", b"x", {}) for p in range(self.partitions)]
                number += 1
            for _, future in futures:
                future.get(timeout=60)
            producer.close(timeout=5)

        self._stop_load = threading.Event()
        self._load = threading.Thread(target=run, name="load")
        self._load.start()

    def _producer(self, **settings: Any) -> kafka.KafkaProducer:
        return kafka.KafkaProducer(
            bootstrap_servers=self.cluster.bootstrap_servers, acks="all", max_request_size=2**24, **settings
        )

    def _publish(
        self, producer: kafka.KafkaProducer, partition: int, key: str | None, data: bytes | None, more: dict[str, str]
    ) -> tuple[str, Any]:
        id = f"{partition}-{self.published[partition]}"
        self.published[partition] += 1
        event = Event(id, None if key is None else key.encode(), data, event_headers(id, **more))
        self.events[id] = event
        sent = producer.send(self.topic, data, key=event.key, headers=list(event.headers), partition=partition)
        return id, sent

    def read(self, topic: str, count: int) -> list[Any]:
        """Return the records of another topic, waiting until there are `count`."""
        return read_topic(self.cluster.bootstrap_servers, topic, count)

    # -- what became of them -----------------------------------------------------------------------------------------

    def committed(self, name: str = FIRST) -> dict[int, int]:
        """Return the offsets of a subscription's group, as they stand in ZooKeeper."""
        found = {}
        for partition in range(self.partitions):
            path = f"/consumers/{self.group_of(name)}/offsets/{self.topic}/{partition}"
            data = self.zk.get(path)[0] if self.zk.exists(path) else b""
            found[partition] = int(data) if data else 0
        return found

    def drained(self, name: str = FIRST, seconds: float = 60.0) -> None:
        """End the load, and wait until a subscription has committed everything that was published."""
        self.end_load()
        wanted = {partition: self.published[partition] for partition in range(self.partitions)}
        until(
            lambda: self.committed(name) == wanted,
            seconds,
            lambda: f"{name} has committed {self.committed(name)} of {wanted}: {self.log(self.processes[-1])[-3000:]}",
        )

    def lost(self, taken: Sequence[str]) -> set[str]:
        """Return the published events that are not among `taken`."""
        return set(self.events) - set(taken)


def repeats(taken: Sequence[str]) -> dict[str, int]:
    """Return how many times too often each event was taken, but for those that were not."""
    return {id: count - 1 for id, count in Counter(taken).items() if count > 1}


# -- what a process costs and says -----------------------------------------------------------------------------------


def channel_status(scene: Scene, process: subprocess.Popen[bytes], name: str = FIRST) -> dict[str, Any]:
    """Return what a process's /status says of one subscription."""
    channels = fetch_status(scene.admin_url(process), 30)["channels"]
    return dict(next(channel for channel in channels if channel["name"] == name))


def reloads(url: str) -> dict[str, Any]:
    """Return what the process behind an admin port says of changes of its configuration."""
    found: dict[str, Any] = fetch_status(url, 30)["reload"]
    return found


def metrics(scene: Scene, process: subprocess.Popen[bytes]) -> dict[str, float]:
    """Return a process's metrics: name with labels as they stand, and value."""
    with urlopen(f"{scene.admin_url(process)}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """Return the CPU time of a process up to now."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def peak_memory(process: subprocess.Popen[bytes]) -> float:
    """Return the most memory that a process had since `reset_peak`, in MiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found.group(1)) / 1024


def reset_peak(process: subprocess.Popen[bytes]) -> float:
    """Forget the peak up to now; returns the memory of this moment, in MiB."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    return peak_memory(process)
