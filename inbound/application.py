"""One process of inbound: everything made in one place, started, watched and stopped in order."""

from __future__ import annotations

import gc
import logging
import os
import random
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import inbound
from inbound.channel import InboundKafkaChannel, Outside
from inbound.clock import Clock, SystemClock
from inbound.config import ChannelConfig, Config, Loaded
from inbound.controller.kafka_controller import KafkaController, Timing
from inbound.controller.kazoo_zk import KazooZooKeeper
from inbound.coordinators.base import ZkCoordinator
from inbound.coordinators.nodes import MemberInfo
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call
from inbound.driver import Driver, Wakeup
from inbound.errors import ConfigError, InboundError
from inbound.http.admin import AdminServer
from inbound.http.operations import Token, answered
from inbound.identity import IdLock, random_consumer_id
from inbound.kafka.dead_letters import DeadLetterTopic
from inbound.kafka.kafka_python import KafkaPythonClient, to_kafka_python
from inbound.ledger import FilesLedger, Ledger, NoLedger
from inbound.operations import Operator
from inbound.plugins import coordinator_of, options_of, processor_class
from inbound.processors.base import BatchEventProcessor
from inbound.status import ProcessStatus, SessionStatus, ThreadStatus

log = logging.getLogger(__name__)

#: Young objects that the garbage collector lets come together before it walks them. Records are young and many, and
#: walking them was a large part of the cost of reading: see docs/benchmarks.md.
GC_THRESHOLD = 50_000


@dataclass(frozen=True)
class PlannedChannel:
    """What a channel's configuration stands for, as far as code of plugins is concerned."""

    processor: type[BatchEventProcessor]
    options: object  # validated, for the processor's `open`
    coordinator: ZkCoordinator


def plan_channels(loaded: Loaded) -> dict[str, PlannedChannel]:
    """Return what stands behind the names in each channel's configuration; connects to nothing.

    Raises:
        ConfigError: a plugin or its options cannot be used; a line for each problem.
    """
    planned: dict[str, PlannedChannel] = {}
    problems: list[str] = []
    for name, channel in loaded.config.channels.items():
        coordinator = None
        try:
            coordinator = coordinator_of(name, loaded)
        except ConfigError as error:
            problems.append(str(error))
        where = f"channels.{name}.processor"
        try:
            cls = processor_class(channel.processor.type)
        except ConfigError as error:
            problems.append(f"{loaded.locate(f'{where}.type')}: {where}.type: {error}")
            continue
        try:
            options = options_of(cls, channel.processor.options, f"{where}.options", loaded)
        except ConfigError as error:
            problems.append(str(error))
            continue
        if coordinator is not None:
            planned[name] = PlannedChannel(cls, options, coordinator)
    try:
        to_kafka_python(loaded.config.kafka)
    except ConfigError as error:
        problems.append(f"{loaded.locate('kafka')}: {error}")
    if problems:
        raise ConfigError("\n".join(problems))
    return planned


class Application:
    """Runs the channels of one configuration in this process. `start`, `wait` and `stop` by the owner's thread."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        lock_dir: Path,
        index: int | None = None,
        listen: str | None = None,
        token: Token | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Make everything; connect to nothing yet.

        `index` is this process's number under `run --processes`; it is appended to fixed consumer ids. `listen`
        overrides the admin address. `token` returns what whoever asks for an operation by POST must know.

        Raises:
            ConfigError: a plugin or its options cannot be used, or the ledger's folder.
            ConsumerIdTakenError: a live process on this machine has one of the consumer ids.
        """
        self.config: Config = loaded.config
        planned = plan_channels(loaded)
        self._clock = clock or SystemClock()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._lock_dir = lock_dir
        self._index = index
        self._listen = listen
        self._token = token
        self._stopping = threading.Event()
        self._over = threading.Event()
        self._locks: list[IdLock] = []
        self._dead_letters: list[DeadLetterTopic] = []
        self._wakeup = Wakeup()
        settings = self.config.zookeeper
        self.zk = KazooZooKeeper(
            settings.hosts, chroot=settings.chroot, session_timeout=settings.session_timeout, clock=self._clock
        )
        timing = self.config.controller
        self.tasks = Tasks(self._clock, self._wakeup.set)
        self.controller = KafkaController(
            self.zk,
            self.tasks,
            self._clock,
            Timing(timing.rebalance_interval, timing.rebalance_delay, timing.join_delay),
            random.Random(),
        )
        self._driver = Driver("controller", self, self._wakeup, self._clock)
        self.channels = [self._channel(name, channel, planned[name]) for name, channel in self.config.channels.items()]
        self.zk.on_change = self._connection_changed
        self.admin: AdminServer | None = None

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the processors and start all threads. ZooKeeper and Kafka need not be there yet."""
        host, port, given = self._admin_address()
        by = f"the admin port of process {os.getpid()} on {socket.gethostname()}"
        operator = Operator(self.tasks, self.zk, self._clock, self.config.channels, by)
        self.admin = AdminServer(
            self.status, host=host, port=port, port_given=given, token=self._token,
            operate=lambda channel, operation: answered(lambda: operator(channel, operation)),
        )  # fmt: skip
        self.admin.start()
        log.info("admin: %s/status", self.admin.url)
        for channel in self.channels:
            channel.membership.membership.info = replace(channel.membership.membership.info, admin=self.admin.url)
            self._open(channel)
        # What is there now stays for good: not walking it again and again halves the cost of reading.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD, 20, 50)
        self.zk.start()
        for channel in self.channels:
            channel.start()
        self._driver.start()

    def run_once(self) -> float | None:
        """The controller's step; ends the process when the controller says that it must."""
        due = self.controller.run_once()
        if self.controller.fatal is not None:
            self._over.set()
        return due

    def request_stop(self) -> None:
        """Begin a graceful stop; `wait` returns. May be called by a signal handler."""
        self._over.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Block until a stop is asked for, or something fatal happened. Returns whether that is so."""
        return self._over.wait(seconds)

    def stop(self, *, at_once: Callable[[], bool] = lambda: False) -> InboundError | None:
        """Stop in good order: finish batches, commit, release, leave; then close everything.

        Bounded by the channels' `shutdown_timeout`; `at_once` is asked again and again, and cuts it short.

        Returns:
            The error that made the process stop; None if it was asked to.
        """
        self._stopping.set()
        for channel in self.channels:
            channel.parts.stopping.set()
        if self._driver.thread.is_alive():
            self.controller.close()
            leaving = [(c, self.tasks.spawn(c.membership.leave_group(), f"leaving of {c.name}")) for c in self.channels]
            self._wakeup.set()
            deadline = self._clock.now() + max(c.parts.config.shutdown_timeout for c in self.channels)
            self._drain(leaving, deadline, at_once)
        self._close()
        return self.controller.fatal

    def _drain(
        self, leaving: list[tuple[InboundKafkaChannel, Call[None]]], deadline: float, at_once: Callable[[], bool]
    ) -> None:
        pending = [(c, call) for c, call in leaving if not call.done]
        while pending and self._clock.now() < deadline and not at_once():
            if self.zk.connection is None and all(c.membership.holdings.nothing_to_commit for c, _ in pending):
                log.warning("ZooKeeper is away: owner nodes are left to expire; everything processed is committed")
                break
            threading.Event().wait(0.02)
            pending = [(c, call) for c, call in leaving if not call.done]
        for channel, call in leaving:
            if not call.done:
                channel.abandon()
            else:
                _report(channel, call)

    def _close(self) -> None:
        self._driver.stop()
        self._driver.join(5.0)
        for channel in self.channels:
            channel.close()
        for producer in self._dead_letters:
            producer.close()
        self.tasks.close()
        self.zk.close()
        if self.admin is not None:
            self.admin.close()
        for lock in self._locks:
            lock.close()

    # -- status ------------------------------------------------------------------------------------------------------

    def status(self) -> ProcessStatus:
        """Return a snapshot. Any thread."""
        connection = self.zk.connection
        session = self.controller.session
        certain_for = max(0.0, self.zk.certain_until(session) - self._clock.now()) if session is not None else 0.0
        driver = self._driver
        return ProcessStatus(
            version=inbound.__version__,
            pid=os.getpid(),
            host=socket.gethostname(),
            started=self._started,
            stopping=self._stopping.is_set(),
            session=SessionStatus(
                state=self.controller.state.value,
                id=f"{session:#x}" if session is not None else None,
                timeout=connection.session.timeout if connection else None,
                certain_for=certain_for,
                sessions_total=self.controller.counters.sessions,
                evaluations_total=self.controller.counters.evaluations,
            ),
            channels=[channel.status() for channel in self.channels],
            threads=[
                ThreadStatus(
                    name=driver.name,
                    alive=driver.thread.is_alive(),
                    last_step_age=max(0.0, self._clock.now() - driver.last_step),
                    failures=driver.failures,
                ),
                *(thread for channel in self.channels for thread in channel.threads()),
            ],
        )

    # -- making ------------------------------------------------------------------------------------------------------

    def _channel(self, name: str, config: ChannelConfig, planned: PlannedChannel) -> InboundKafkaChannel:
        consumer_id, lock = self._identity(config)
        member = MemberInfo(
            host=socket.gethostname(),
            pid=os.getpid(),
            started=self._started,
            topics=config.topics,
            coordinator=planned.coordinator.registration(),
            lock=lock.token if lock else None,
        )
        client_id = f"inbound-{name}-{consumer_id}"
        dead_letters = None
        if config.on_error.dead_letter_topic is not None:
            dead_letters = DeadLetterTopic(
                self.config.kafka, config.on_error.dead_letter_topic, config.group, client_id
            )
            self._dead_letters.append(dead_letters)
        connect = partial(
            KafkaPythonClient,
            self.config.kafka,
            client_id=client_id,
            isolation=config.isolation,
            fetch_wait=config.reader.idle_wait,
            fetch_bytes=config.reader.batch_bytes,
        )
        outside = Outside(
            clock=self._clock,
            controller=self.controller,
            wake_controller=self._wakeup.set,
            connect=connect,
            ledger=self._ledger(config.group, consumer_id),
            degrade=self.config.ledger.on_failure == "degrade",
            dead_letters=dead_letters.send if dead_letters else None,
            owner_is_dead=lock.proves_dead if lock else lambda info: False,
        )
        return InboundKafkaChannel(
            name, config, consumer_id, planned.processor(), planned.coordinator, member, planned.options, outside
        )

    def _identity(self, config: ChannelConfig) -> tuple[str, IdLock | None]:
        if config.consumer_id is None:
            return random_consumer_id(), None
        consumer_id = config.consumer_id if self._index is None else f"{config.consumer_id}-{self._index}"
        lock = IdLock(self._lock_dir, config.group, consumer_id)
        self._locks.append(lock)
        return consumer_id, lock

    def _ledger(self, group: str, consumer_id: str) -> Ledger:
        if self.config.ledger.type == "none":
            return NoLedger()
        return FilesLedger(self.config.ledger.path, group, consumer_id, self._clock)

    def _open(self, channel: InboundKafkaChannel) -> None:
        try:
            channel.open()
        except Exception as error:
            log.debug("channel %s: where open failed", channel.name, exc_info=True)
            raise ConfigError(
                f"channel {channel.name}: {type(channel.parts.processor).__name__}.open failed: {type(error).__name__}: "
                f"{error}; the processor cannot do its work without it"
            ) from None

    def _admin_address(self) -> tuple[str, int, bool]:
        listen = self._listen or self.config.admin.listen
        host, _, port = listen.rpartition(":")
        return host.strip("[]"), int(port), self._listen is not None or self.config.admin.given

    def _connection_changed(self) -> None:
        self._wakeup.set()
        for channel in self.channels:
            channel.connection_changed()


def _report(channel: InboundKafkaChannel, call: Call[None]) -> None:
    try:
        call.result()
    except InboundError as error:
        log.warning("channel %s: %s", channel.name, error)
