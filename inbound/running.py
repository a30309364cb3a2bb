"""The channels that a process runs: each can be added and removed while the others go on."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from inbound.changes import Reconfigurable, differing
from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.clock import Clock
from inbound.config import ChannelConfig
from inbound.controller.kafka_controller import KafkaController
from inbound.coordination import Coordination
from inbound.coordinators.subscriber_status import SubscriberSaid
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call
from inbound.errors import ConfigError, InboundError
from inbound.identity import IdLock
from inbound.kafka.base import LogClient
from inbound.kafka.mirror_base import Connect
from inbound.kafka.outlets import Outlets
from inbound.ledgers import Ledgers
from inbound.planning import PlannedChannel
from inbound.plugins import made
from inbound.processors.base import BatchEventProcessor
from inbound.subscriptions import SubscriberRef

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Running:
    """One channel, and what is closed with it."""

    planned: PlannedChannel
    channel: InboundKafkaChannel
    outlets: Outlets | None = None  # what it publishes with
    lock: IdLock | None = None
    #: Returns what makes the client to read with, as Kafka is reached now.
    connect: Callable[[PlannedChannel], Callable[[], LogClient]] | None = None
    #: The same for the client that offsets are mirrored with.
    connect_mirror: Callable[[PlannedChannel], Connect] | None = None
    #: What it stands on; kept open while somebody does.
    coordination: Coordination | None = None
    ledgers: Ledgers | None = None
    leaving: Call[None] | None = None
    overdue: float = float("inf")  # when to mention that it is still leaving

    def close(self) -> None:
        """Close the channel; it has left its group, or the process ends."""
        self.channel.close()
        if self.outlets is not None:
            self.outlets.close()

    def unlock(self) -> None:
        """Let others have the consumer id; nothing in ZooKeeper is ours any more."""
        if self.lock is not None:
            self.lock.close()


def collect_all() -> None:
    """Free the memory of what was closed.

    The parts of a channel know each other, and the collector is set to come by rarely, and not at all to what was there when
    the process began.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class RunningChannels:
    """Makes, edits and removes channels. One thread at a time, but for `channels` and `configs`, which any may read."""

    def __init__(
        self,
        make: Callable[[str, PlannedChannel], Running],
        controller: KafkaController,
        tasks: Tasks,
        clock: Clock,
        *,
        collect: Callable[[], None] = collect_all,
    ) -> None:
        """`make` makes a channel and opens nothing. Raises ConfigError or ConsumerIdTakenError where it cannot.

        `controller` and `tasks` are for channels that name no `coordination` of their own. `collect` is called when channels
        were closed.
        """
        self._collect = collect
        self._make = make
        self._controller = controller
        self._tasks = tasks
        self._clock = clock
        self._running: dict[str, Running] = {}
        #: Replaced as a whole.
        self.channels: list[InboundKafkaChannel] = []
        self.configs: dict[str, ChannelConfig] = {}

    def make(self, name: str, planned: PlannedChannel) -> Running:
        """Make a channel that does nothing yet: `open` it, `start` it, let it `join`."""
        running = self._make(name, planned)
        running.channel.membership.report.serves = said(planned.subscriber)
        self._running[name] = running
        self.configs[name] = planned.config
        self.channels = [r.channel for r in self._running.values()]
        return running

    def add(self, name: str, planned: PlannedChannel) -> None:
        """Make a channel and let it take part.

        Raises:
            ConfigError: it cannot be made, or its processor not be opened; it is gone again.
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
        """Let a channel go on with other settings, of which none makes it another one; it keeps its partitions.

        Raises:
            ConfigError: its processor cannot use the options; it goes on as it was.
        """
        running = self._running[name]
        before, channel, ref = running.planned, running.channel, planned.subscriber
        asked_for = (before.options, before.files, before.subscriber) != (planned.options, planned.files, ref)
        other_kafka = before.kafka != planned.kafka
        if asked_for:
            self._give_options(channel, planned)
        channel.configure(planned.config)
        if running.outlets is not None and (other_kafka or _letters(before) != _letters(planned)):
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
        channel.parts.journal.note("reconfigured", f"goes on with other settings ({keys}), and keeps its partitions")

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
        """Return, of channels that stay, what keeps them from working with ZooKeeper or Kafka as they are set now."""
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

    def stands_on(self, thing: object) -> bool:
        """Whether a channel, maybe one that is leaving, needs a coordination, or ledgers, to stay open."""
        return any(thing is running.coordination or thing is running.ledgers for running in self._running.values())

    def remove(self, name: str) -> None:
        """Let a channel leave its group in good order; `finish` closes it when it has."""
        running = self._running[name]
        channel = running.channel
        channel.removed = True
        channel.parts.service.stopping.set()
        running.overdue = self._clock.now() + running.planned.config.shutdown_timeout
        tasks = self._tasks if running.coordination is None else running.coordination.tasks
        running.leaving = tasks.spawn(self._leave(running), f"leaving of {name}")
        log.info("channel %s: removed; batches in flight end, commits are written, partitions released", name)

    def finish(self) -> bool:
        """Close what has left, and what edits have left over. Returns whether there is more to come."""
        # By name, and each in a call of its own: nothing here refers to a channel any more when its memory is collected.
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
        """Whether nobody will ever hear that a channel leaves: its ZooKeeper is away, and is not ours any more.

        Its owner nodes go with its session.
        """
        coordination, channel = running.coordination, running.channel
        if coordination is None or not coordination.retired or coordination.zk.connection is not None:
            return False
        if not channel.membership.holdings.nothing_to_commit and running.overdue < float("inf"):
            return False
        channel.abandon()
        return True

    def on(self, coordination: Coordination) -> list[InboundKafkaChannel]:
        """Return the channels that stand on a connection. Any thread."""
        return [running.channel for running in list(self._running.values()) if running.coordination is coordination]

    def all(self) -> list[Running]:
        """Return every channel, those that are leaving too."""
        return list(self._running.values())

    def staying(self) -> dict[str, PlannedChannel]:
        """Return what is run and goes on."""
        return {name: running.planned for name, running in self._running.items() if running.leaving is None}

    def leaving(self) -> dict[str, PlannedChannel]:
        """Return what is not gone yet: neither the names nor the groups are free."""
        return {name: running.planned for name, running in self._running.items() if running.leaving is not None}

    async def _leave(self, running: Running) -> None:
        channel = running.channel
        await channel.membership.leave_group()
        controller = self._controller if running.coordination is None else running.coordination.controller
        await controller.remove(channel.membership)
        await channel.membership.clear_up()

    def _forget(self, name: str) -> None:
        del self._running[name]
        del self.configs[name]
        self.channels = [r.channel for r in self._running.values()]


def said(ref: SubscriberRef | None) -> SubscriberSaid | None:
    """Return what a member says that serves `ref`."""
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


def _letters(planned: PlannedChannel) -> object:
    return planned.config.on_error.dead_letter_topic


def _reading(planned: PlannedChannel) -> object:
    """Return what the client that reads is made with."""
    reader = planned.config.reader
    of_batches = reader.batch_bytes, reader.max_decompressed_bytes
    return planned.config.isolation, *of_batches, reader.prefetch_bytes, reader.idle_wait


def report(channel: InboundKafkaChannel, call: Call[None]) -> None:
    """Log what was wrong with a leaving that has ended."""
    if not call.done:
        return
    try:
        call.result()
    except InboundError as error:
        log.warning("channel %s: %s", channel.name, error)
