"""A process whose partitions can be stalled, each for another cause, on real servers; and whether it says why."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kafka
from kafka.admin import KafkaAdminClient, NewTopic
from kazoo.client import KazooClient

from inbound import Batch, BatchEventProcessor, BatchResponse
from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.config import Loaded, load
from inbound.coordinators.paths import GroupPaths
from inbound.embedded import EmbeddedCluster
from inbound.partition.partition import Partition
from inbound.process.application import Application
from inbound.processors.base import Context
from inbound.topic_partition import TopicPartition
from integration.processors.dispatch.dispatching import event_headers
from tests.waiting import Deadline, until

Behaviour = Callable[[Batch], BatchResponse]
#: What the processor of a channel does with a batch; by the channel's name.
BEHAVIOURS: dict[str, Behaviour] = {}
#: Ends a hanging processor.
LET_GO = threading.Event()


def advance(batch: Batch) -> BatchResponse:
    return BatchResponse.advance()


def hang(batch: Batch) -> BatchResponse:
    """A call that is not answered."""
    LET_GO.wait(600)
    return BatchResponse.advance()


class Told(BatchEventProcessor):
    """Does what the scene tells it."""

    def open(self, context: Context) -> None:
        self._name = context.channel

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        return BEHAVIOURS.get(self._name, advance)(batch)


class ToldLater(BatchEventProcessor):
    """The same on an event loop; what hangs there does so in an await."""

    async def open(self, context: Context) -> None:
        self._name = context.channel

    async def on_next_batch(self, batch: Batch) -> BatchResponse:
        behaviour = BEHAVIOURS.get(self._name, advance)
        while behaviour is hang and not LET_GO.is_set():
            await asyncio.sleep(0.05)
        return advance(batch) if behaviour is hang else behaviour(batch)


@dataclass
class Stage:
    """Channels by their names, each with a topic and a group of its own; `close` ends everything that was started."""

    cluster: EmbeddedCluster
    folder: Path
    interval: float = 2.0
    name: str = "explained"
    channels: dict[str, dict[str, Any]] = field(default_factory=dict)
    applications: list[Application] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.zk = KazooClient(self.cluster.zookeeper_hosts, timeout=30)
        self.zk.start(timeout=30)
        self._producer = kafka.KafkaProducer(bootstrap_servers=self.cluster.bootstrap_servers, acks="all")
        LET_GO.clear()
        BEHAVIOURS.clear()

    # -- channels ----------------------------------------------------------------------------------------------------

    def channel(
        self,
        name: str,
        behaviour: Behaviour = advance,
        *,
        partitions: int = 2,
        processor: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """Have a channel; its topic is made, unless there are to be no partitions."""
        BEHAVIOURS[name] = behaviour
        self.channels[name] = {
            "topics": [self.topic(name)],
            "group": self.group(name),
            "workers": 1,
            "shutdown_timeout": "2s",
            "processor": processor or {"type": "integration.observe.explain.explaining:Told"},
            **settings,
        }
        if partitions:
            admin = KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap_servers)
            admin.create_topics([NewTopic(self.topic(name), partitions, 1)])
            admin.close()

    def topic(self, name: str) -> str:
        return f"{self.name}-{name}"

    def group(self, name: str) -> str:
        return f"{self.name}-{name}-svc"

    def tp(self, name: str, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.topic(name), partition)

    def paths(self, name: str) -> GroupPaths:
        return GroupPaths(self.group(name))

    def loaded(self, names: Sequence[str], *, hosts: str | None = None, session: str = "6s") -> Loaded:
        """Return a configuration with these channels."""
        body = {
            "zookeeper": {"hosts": hosts or self.cluster.zookeeper_hosts, "session_timeout": session},
            "kafka": {"bootstrap.servers": self.cluster.bootstrap_servers},
            "admin": {"listen": "127.0.0.1:0"},
            "controller": {"join_delay": "200ms"},
            "explain": {"interval": f"{self.interval}s"},
            "ledger": {"path": str(self.folder / "ledger")},
            "channels": {name: self.channels[name] for name in names},
        }
        return load(json.dumps(body), filename=str(self.folder / "inbound.yaml"), environ={}, overrides={})

    def start(self, *names: str, hosts: str | None = None, session: str = "6s") -> Application:
        """Run these channels in a process of their own, as far as they can tell: this one."""
        application = Application(
            self.loaded(names, hosts=hosts, session=session), lock_dir=self.folder / f"locks-{len(self.applications)}"
        )
        self.applications.append(application)
        application.start()
        return application

    # -- what happens ------------------------------------------------------------------------------------------------

    def publish(self, name: str, partition: int = 0, count: int = 1, size: int = 10) -> None:
        """Publish events and wait until they are acknowledged."""
        headers = event_headers("1")
        sent = [
            self._producer.send(self.topic(name), b"x" * size, partition=partition, headers=headers)
            for _ in range(count)
        ]
        self._producer.flush()
        for one in sent:
            one.get(timeout=30)

    def running(self, name: str) -> InboundKafkaChannel:
        """Return the channel of the application that was started last with it."""
        return next(c for application in reversed(self.applications) for c in application.channels if c.name == name)

    def held(self, name: str, partition: int = 0) -> Partition | None:
        return self.running(name).parts.schedule.get(self.tp(name, partition))

    def cause(self, name: str, partition: int = 0) -> Callable[[], str | None]:
        """Return what tells the cause that is named for a partition, as `/status` does."""
        channel = self.running(name)

        def cause() -> str | None:
            status = next((p for p in channel.status().partitions if p.partition == partition), None)
            return status.cause if status is not None else None

        return cause

    def settled(self, name: str, partitions: int = 2, seconds: float = 120.0) -> None:
        """Wait until a channel has all partitions, and nothing to do."""

        def idle() -> bool:
            held = self.running(name).parts.schedule.held()
            return len(held) == partitions and all(p.stall.cause == "idle" for p in held)

        until(
            idle,
            seconds,
            lambda: f"{name} is idle: {[(p.tp, p.stall.cause) for p in self.running(name).parts.schedule.held()]}",
        )

    def stop(self, application: Application) -> None:
        """End an application."""
        LET_GO.set()
        application.stop()
        LET_GO.clear()
        self.applications.remove(application)

    def close(self) -> None:
        """End what still runs."""
        LET_GO.set()
        for application in self.applications:
            application.stop(at_once=lambda: True)
        self._producer.close(timeout=5)
        self.zk.stop()
        self.zk.close()


@dataclass(frozen=True)
class Named:
    """Whether a planted cause was named."""

    plant: str
    cause: str
    seconds: float | None  # after it was planted; None: it never was
    said: str | None  # what was said last

    def within(self, seconds: float) -> bool:
        return self.seconds is not None and self.seconds <= seconds


def watch(planted: Sequence[tuple[str, str, float, Callable[[], str | None]]], patience: float = 150.0) -> list[Named]:
    """Wait until each of (plant, cause, monotonic time of planting, what tells the cause) is named, `patience` seconds at most."""
    said: dict[str, str | None] = {}
    found: dict[str, float] = {}
    deadline = Deadline(patience)
    while len(found) < len(planted) and not deadline.passed():
        for plant, cause, at, tell in planted:
            if plant not in found:
                said[plant] = tell()
                if said[plant] == cause:
                    found[plant] = time.monotonic() - at
        time.sleep(0.05)
    return [Named(plant, cause, found.get(plant), said.get(plant)) for plant, cause, _, _ in planted]
