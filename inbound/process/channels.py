"""A process's channels: added, edited, removed while the others go on."""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.clock import Clock
from inbound.config import ChannelConfig
from inbound.controller.kafka_controller import KafkaController
from inbound.coordinators.nodes import MemberInfo
from inbound.coordinators.paths import path_part
from inbound.coordinators.subscriber_status import SubscriberSaid
from inbound.coordinators.zookeeper import Call
from inbound.errors import ConfigError, ConsumerIdTakenError, InboundError
from inbound.kafka.base import LogClient
from inbound.kafka.clients.outlets import Outlets
from inbound.mirror.plan import Connect
from inbound.plan.plan import PlannedChannel
from inbound.plan.plugins import made
from inbound.plan.subscriptions import SubscriberRef
from inbound.process.ledgers import Ledgers
from inbound.process.reload.changes import Reconfigurable, differing
from inbound.process.reload.reconfiguration import Channels
from inbound.process.zookeeper.coordination import Coordination
from inbound.processors.base import BatchEventProcessor

# -- the consumer id ---------------------------------------------------------------------------------------------------


class IdLock:
    """A lock file that the process holds; the kernel frees it.

    It proves to a restarted process that its predecessor is dead: the process takes over at once, without waiting for
    the session to expire.
    """

    def __init__(self, directory: Path, group: str, consumer_id: str) -> None:
        """Take the lock.

        Raises:
            ConsumerIdTakenError: a live process on this machine holds it.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"{path_part(group, 'group')}--{path_part(consumer_id, 'consumer id')}.lock"
        self._file = open(self.path, "a+b")  # noqa: SIM115 - held until close
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise ConsumerIdTakenError(
                f"consumer id {consumer_id!r} of group {group!r} is in use by another live process on this machine (it "
                f"holds {self.path}); stop that one, or give this one another consumer_id"
            ) from None
        stat = os.fstat(self._file.fileno())
        self.token = f"{_boot_id()}:{stat.st_dev}:{stat.st_ino}"

    def proves_dead(self, info: MemberInfo) -> bool:
        """Whether the process that wrote `info` held this same file."""
        return info.lock == self.token

    def close(self) -> None:
        self._file.close()


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


log = logging.getLogger(__name__)


@dataclass(eq=False)
class Running:
    """One channel, with the parts that are closed with it."""

    planned: PlannedChannel
    channel: InboundKafkaChannel
    controller: KafkaController
    outlets: Outlets | None = None  # its producers
    lock: IdLock | None = None
    #: Returns a maker of the reading client, with the current settings of Kafka.
    connect: Callable[[PlannedChannel], Callable[[], LogClient]] | None = None
    #: The same for the mirror's client.
    connect_mirror: Callable[[PlannedChannel], Connect] | None = None
    #: In use, and so kept open.
    coordination: Coordination | None = None
    ledgers: Ledgers | None = None
    leaving: Call[None] | None = None
    overdue: float = float("inf")  # when to log that it is still leaving

    def close(self) -> None:
        """Close the channel after it left its group, or at the end."""
        self.channel.close()
        if self.outlets is not None:
            self.outlets.close()

    def leave(self) -> Call[None]:
        """Let the channel leave its group at the process's end, once."""
        channel = self.channel
        return self.leaving or channel.tasks.spawn(channel.leave_group(), f"leaving of {channel.name}")

    def unlock(self) -> None:
        """Free the consumer id: no node in ZooKeeper is ours any more."""
        if self.lock is not None:
            self.lock.close()


def collect_all() -> None:
    """Free the memory of closed channels.

    The parts of a channel refer to each other, and the garbage collector is set to run rarely, and never over objects
    from the process's start.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class RunningChannels(Channels):
    """Makes, edits and removes channels.

    One thread at a time, but any for `channels` and `configs`.
    """

    def __init__(
        self,
        make: Callable[[str, PlannedChannel], Running],
        clock: Clock,
        *,
        collect: Callable[[], None] = collect_all,
    ) -> None:
        """`make` makes a channel, unopened; it raises ConfigError or ConsumerIdTakenError.

        `collect` is called after channels were closed.
        """
        self._collect = collect
        self._make = make
        self._clock = clock
        self._running: dict[str, Running] = {}
        #: Replaced as a whole.
        self.channels: list[InboundKafkaChannel] = []
        self.configs: dict[str, ChannelConfig] = {}

    def make(self, name: str, planned: PlannedChannel) -> Running:
        """Make an inactive channel: `open` it, `start` it, let it `join`."""
        running = self._make(name, planned)
        running.channel.membership.report.serves = said(planned.subscriber)
        self._running[name] = running
        self.configs[name] = planned.config
        self.channels = [r.channel for r in self._running.values()]
        return running

    def add(self, name: str, planned: PlannedChannel) -> None:
        """Make a channel, and have it join its group.

        Raises:
            ConfigError: the channel cannot be made, or its processor not be opened; it is removed again.
            ConsumerIdTakenError: another process has its consumer id.
        """
        running = self.make(name, planned)
        try:
            open_processor(running.channel)
        except ConfigError:
            self._forget(name)
            running.close()
            running.unlock()
            raise
        running.channel.start()
        running.channel.join()
        log.info("channel %s: added", name)

    def edit(self, name: str, planned: PlannedChannel) -> None:
        """Apply other settings to a channel, which keeps its partitions.

        Raises:
            ConfigError: its processor cannot use the options; it goes on as before.
        """
        running = self._running[name]
        before, channel, ref = running.planned, running.channel, planned.subscriber
        asked_for = (before.options, before.files, before.subscriber) != (planned.options, planned.files, ref)
        other_kafka = before.kafka != planned.kafka
        if asked_for:
            self._give_options(channel, planned)
        channel.configure(planned.config)
        if running.outlets is not None and (
            other_kafka or before.config.on_error.dead_letter_topic != planned.config.on_error.dead_letter_topic
        ):
            kafka = planned.kafka[0] if planned.kafka else {}
            running.outlets.configure(kafka, planned.config.on_error.dead_letter_topic)
        if running.connect is not None and (other_kafka or _reading(before) != _reading(planned)):
            channel.reader.reconnect(running.connect(planned))
        if running.connect_mirror is not None and other_kafka:
            channel.parts.mirror.reconnect(running.connect_mirror(planned))
        running.planned = planned
        self.configs[name] = planned.config
        channel.membership.report.serves = said(ref)
        channel.try_again()
        channel.parts.evaluate()
        keys = ", ".join(differing(before.config, planned.config)) or "options"
        channel.note("reconfigured", f"goes on with other settings ({keys}), and keeps its partitions")

    def _give_options(self, channel: InboundKafkaChannel, planned: PlannedChannel) -> None:
        processor, ref = channel.parts.service.processor, planned.subscriber
        try:
            if isinstance(processor, Reconfigurable):
                processor.reconfigure(planned.options, ref.generation if ref is not None else None)
            else:
                channel.exchange(made(channel.name, planned.processor), planned.options)
        except ConfigError:
            raise
        except Exception as error:
            log.debug("channel %s: where it failed", channel.name, exc_info=True)
            raise ConfigError(_not_opened(channel, planned.processor, error)) from None

    def troubles(self, sections: Collection[str]) -> list[str]:
        """Return why channels fail with new settings of ZooKeeper or Kafka."""
        found = []
        for name, running in self._running.items():
            if running.leaving is not None:
                continue
            channel = running.channel
            if "zookeeper" in sections and not channel.membership.registered:
                found.append(f"channel {name}: not a member of its group yet")
            if "kafka" in sections and (trouble := channel.reader.trouble) is not None:
                found.append(f"channel {name}: {trouble}")
        return found

    def uses(self, thing: object) -> bool:
        """Whether a channel, maybe a leaving one, uses a connection or ledgers."""
        return any(thing is running.coordination or thing is running.ledgers for running in self._running.values())

    def remove(self, name: str) -> None:
        """Let a channel leave its group gracefully; `finish` closes it afterwards."""
        running = self._running[name]
        channel = running.channel
        channel.removed = True
        channel.stop()
        running.overdue = self._clock.now() + running.planned.config.shutdown_timeout
        running.leaving = channel.tasks.spawn(self._leave(running), f"leaving of {name}")
        log.info("channel %s: removed; batches in flight end, commits are written, partitions released", name)

    def finish(self) -> bool:
        """Close channels that have left. Returns whether some are not done."""
        # By name, and each in its own call: no local variable refers to a channel when its memory is collected.
        names = list(self._running)
        more = [self._finish(name) for name in names]
        if len(self._running) < len(names):
            self._collect()
        return any(more)

    def _finish(self, name: str) -> bool:
        running = self._running[name]
        more = running.channel.clear_up()
        if running.leaving is None:
            return more
        if running.leaving.done or self._is_cut_off(running):
            report(running.channel, running.leaving)
            running.close()
            running.unlock()
            self._forget(name)
            log.info("channel %s: closed", name)
            return more
        if self._clock.now() >= running.overdue:
            running.overdue = float("inf")
            log.warning(
                "channel %s: still leaving after %.0f s; what is in flight is neither given up nor read by others before "
                "it has ended",
                name, running.planned.config.shutdown_timeout,
            )  # fmt: skip
        return True

    def _is_cut_off(self, running: Running) -> bool:
        """Whether a leaving channel has lost its retired ZooKeeper connection.

        Its owner nodes go with its session.
        """
        coordination, channel = running.coordination, running.channel
        if coordination is None or not coordination.retired or coordination.zk.connection is not None:
            return False
        if not channel.membership.claims.nothing_to_commit and running.overdue < float("inf"):
            return False
        channel.abandon()
        return True

    def on(self, coordination: Coordination) -> list[InboundKafkaChannel]:
        """Return the channels that use a connection. Any thread."""
        return [running.channel for running in list(self._running.values()) if running.coordination is coordination]

    def all(self) -> list[Running]:
        """Return every channel, leaving ones too."""
        return list(self._running.values())

    def staying(self) -> dict[str, PlannedChannel]:
        """Return the channels that run and are not leaving."""
        return {name: running.planned for name, running in self._running.items() if running.leaving is None}

    def leaving(self) -> dict[str, PlannedChannel]:
        """Return the leaving channels: their names and groups are still taken."""
        return {name: running.planned for name, running in self._running.items() if running.leaving is not None}

    async def _leave(self, running: Running) -> None:
        channel = running.channel
        await channel.leave_group()
        await running.controller.remove(channel.membership)
        await channel.clear_up_group()

    def _forget(self, name: str) -> None:
        del self._running[name]
        del self.configs[name]
        self.channels = [r.channel for r in self._running.values()]


def said(ref: SubscriberRef | None) -> SubscriberSaid | None:
    """Return the subscription that a member writes to its id node."""
    return None if ref is None else SubscriberSaid(uid=ref.uid, generation=ref.generation, digest=ref.digest)


def open_processor(channel: InboundKafkaChannel) -> None:
    """Open the channel's processor.

    Raises:
        ConfigError: it failed.
    """
    try:
        channel.open()
    except Exception as error:
        log.debug("channel %s: where open failed", channel.name, exc_info=True)
        raise ConfigError(_not_opened(channel, type(channel.parts.service.processor), error)) from None


def _not_opened(channel: InboundKafkaChannel, processor: type[BatchEventProcessor], error: Exception) -> str:
    return (
        f"channel {channel.name}: {processor.__name__}.open failed: {type(error).__name__}: {error}; the processor cannot do "
        "its work without it"
    )


def _reading(planned: PlannedChannel) -> object:
    """Return the settings that the reading client is made with."""
    config, reader = planned.config, planned.config.reader
    return (
        config.isolation, reader.batch_bytes, reader.max_decompressed_bytes, reader.prefetch_bytes, reader.idle_wait
    )  # fmt: skip


def report(channel: InboundKafkaChannel, call: Call[None]) -> None:
    """Log a leaving channel's error, if there was one."""
    if not call.done:
        return
    try:
        call.result()
    except InboundError as error:
        log.warning("channel %s: %s", channel.name, error)
