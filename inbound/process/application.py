"""Makes, starts, watches and stops all parts of a process, in order."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from inbound.admin.listener import AdminListener, AdminServer
from inbound.admin.routes import answered
from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.channel.parts import Resources
from inbound.clock import Clock, SystemClock
from inbound.config import ChannelConfig, Config, Loaded
from inbound.coordinators.nodes import MemberInfo
from inbound.coordinators.zookeeper import Call
from inbound.errors import InboundError
from inbound.group.operations import Operation, Operator
from inbound.http.server.page import Page
from inbound.http.server.rights import Token
from inbound.kafka.base import LogClient
from inbound.kafka.clients.choice import connector
from inbound.kafka.clients.outlets import Outlets
from inbound.mirror.kafka_python import mirror_connector
from inbound.mirror.plan import Connect
from inbound.observe.explain.answer import answers
from inbound.observe.explain.detector import StallDetector
from inbound.observe.jmx.policy import ReadPolicy
from inbound.observe.status.status import ProcessStatus, ThreadStatus
from inbound.observe.tracing.process import ProcessTracing
from inbound.plan.plan import PlannedChannel, check_runs, plan_all
from inbound.plan.plugins import made
from inbound.process.channels import IdLock, Running, RunningChannels, open_processor, report
from inbound.process.ledgers import LedgerSection, check_ledger
from inbound.process.member_operations import operate_member
from inbound.process.reload.changes import ManifestRefusal, ProcessPlan
from inbound.process.reload.reconfiguration import ConfigSource, FolderEvents, Reconfiguration, Section
from inbound.process.resets import Resetting, status_of
from inbound.process.sections import DRAIN, Intake, KafkaSection, Makers, Profiles
from inbound.process.zookeeper.coordination import Coordination, ZooKeeperSection
from inbound.runtime.driver import Driver, Wakeup
from inbound.runtime.interpreter import spare_what_stays
from inbound.runtime.signals import Latch

if TYPE_CHECKING:
    from inbound.channel.shared import Shared

log = logging.getLogger(__name__)

#: Seconds between refreshes of the subscriptions' reports.
REPORT_EVERY = 0.5


class Application:
    """Runs the channels of one configuration in this process.

    `start`, `wait` and `stop` by the owner's thread.
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        lock_dir: Path,
        spool_dir: Path | None = None,
        index: int | None = None,
        listen: str | None = None,
        source: ConfigSource | None = None,
        watch: Callable[[Callable[[], None]], FolderEvents] | None = None,
        makers: Makers | None = None,
        clock: Clock | None = None,
        idle: bool = False,
    ) -> None:
        """Make all parts; connect to nothing yet.

        `spool_dir` is where a ledger behind a URI is written to first, unless the configuration names a folder;
        default: beside `lock_dir`. `index` is this process's number under `run --processes`; it is appended to fixed
        consumer ids. `listen` overrides the admin address. `source` returns each new configuration; without one the
        process keeps its first. `watch` makes a folder watch from a function to call at changes; `makers` make the
        parts of any configuration. `idle`: the process may begin without channels, where no manifest can be used yet.

        Raises:
            ConfigError: a plugin or its options cannot be used, or the ledger's URI; or there is nothing to run.
            LedgerError: the ledger's folder cannot be written to.
            ConsumerIdTakenError: a live process on this machine has one of the consumer ids.
        """
        config = loaded.config
        begun = self._plan(loaded, idle=idle)
        self._clock = clock or SystemClock()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._lock_dir = lock_dir
        self._index = index
        self._listen = listen
        self._stopping = threading.Event()
        self._over = Latch()
        self._makers = makers or Makers()
        self._rights = self._makers.token(config.admin), self._makers.policy(config.admin)
        self._intake = Intake(self._makers.ingress, begun, self._clock, self._stopping, self._stopping.is_set)
        self.profiles = Profiles(self._makers.profiling, config)
        self.tracing = self._makers.tracing or ProcessTracing()
        self._report_at = 0.0
        self.resetting = Resetting(loaded, lambda: [one.planned for one in self.running.all()])
        self.running = RunningChannels(self._make, self._clock)
        self._zookeeper = ZooKeeperSection(self._coordinate, config, self.running.uses, self._stopping.wait)
        spool = spool_dir or lock_dir.parent / "ledger-spool"
        self._ledger = LedgerSection(config, spool, self._clock, self.running.uses, self._write_ledger)
        self._listener: AdminListener | None = None
        self._shared: Shared | None = None  # the event loop and readers that channels of dispatchers share
        self.detector = StallDetector(lambda: self.channels, self._clock, config.explain.interval)
        self._watching = Driver("stall-detector", self.detector, Wakeup(), self._clock)
        sections = [
            KafkaSection(self._intake, self._clock, self._stopping.wait, self._ledger.reconnect),
            self._zookeeper,
            Section("controller", self._set_timing),
            Section("admin", self._listen_at),
            Section("logging", lambda old, new: self._makers.logs(new)),
            Section("explain", self._set_interval),
            self._ledger,
            Section("reset"),  # in effect since the configuration was read: see `_replan`
            Section("tracing", lambda old, new: self.tracing.configure(new.tracing)),
            self._intake,
            self.profiles,
        ]
        self.reconfiguration = Reconfiguration(
            source, self._replan, begun, self.running, self._clock, sections=sections, watch=watch
        )
        self._changes = self.reconfiguration.driver
        for name, channel in begun.channels.items():
            self.running.make(name, channel)

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the processors and start all threads.

        ZooKeeper and Kafka may still be unavailable.
        """
        self._listener = AdminListener(
            self._admin_server, self.reconfiguration.config, *self._rights,
            read_token=self._makers.token, read_policy=self._makers.policy,
        )  # fmt: skip
        self._listener.start()
        self.profiles.start()
        self.tracing.configure(self.reconfiguration.config.tracing)
        self._intake.start()
        for channel in self.channels:
            info = channel.membership.membership.info
            channel.membership.membership.info = replace(info, admin=self._listener.url)
            open_processor(channel)
        spare_what_stays()
        for channel in self.channels:
            channel.join()
            channel.start()
        self.coordination.begin()
        self._watching.start()
        self._ledger.current.start()
        if self.reconfiguration.follows:
            self._changes.start()

    @property
    def channels(self) -> list[InboundKafkaChannel]:
        """The running channels. Any thread."""
        return self.running.channels

    @property
    def admin(self) -> AdminServer | None:
        """The current admin listener; None: before `start`. Any thread."""
        return self._listener.server if self._listener is not None else None

    @property
    def coordination(self) -> Coordination:
        """The ZooKeeper connection of new channels, and its threads. Any thread."""
        return self._zookeeper.current

    def _stepped(self, coordination: Coordination) -> None:
        """Act on the controller's step: a fatal one ends the process."""
        if coordination is not self.coordination:
            return
        if coordination.controller.fatal is not None:
            self._over.set()
        now = self._clock.now()
        if now >= self._report_at:  # heartbeats keep the session alive, so that steps come often enough
            self._report_at = now + REPORT_EVERY
            for channel in self.running.on(coordination):
                channel.report()

    def request_stop(self) -> None:
        """Begin a graceful stop; `wait` returns. A signal handler may call it."""
        self._over.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Block until a stop or a fatal error. Returns whether one came."""
        return self._over.wait(seconds)

    def stop(self, *, at_once: Callable[[], bool] = lambda: False) -> InboundError | None:
        """Stop gracefully: finish batches, commit, release, leave; then close all parts.

        Bounded by the channels' `shutdown_timeout`; `at_once` is polled, and cuts it short.

        Returns:
            The error that made the process stop; None if a stop was requested.
        """
        self._stopping.set()
        self.profiles.interrupt()
        self._watching.stop()
        self._changes.stop()
        for channel in self.channels:
            channel.stop()
        self._changes.join(5.0)
        self._intake.stop(DRAIN, at_once=at_once)
        if self.coordination.alive:
            self.coordination.withdraw()
            leaving = [(running.channel, running.leave()) for running in self.running.all()]
            timeouts = [config.shutdown_timeout for config in self.running.configs.values()]
            deadline = self._clock.now() + max(timeouts, default=0.0)
            self._drain(leaving, deadline, at_once)
        self._close(at_once)
        return self.coordination.controller.fatal

    def _drain(
        self, leaving: list[tuple[InboundKafkaChannel, Call[None]]], deadline: float, at_once: Callable[[], bool]
    ) -> None:
        pending = [(c, call) for c, call in leaving if not call.done]
        while pending and self._clock.now() < deadline and not at_once():
            if self.coordination.zk.connection is None and all(
                c.membership.claims.nothing_to_commit for c, _ in pending
            ):
                log.warning("ZooKeeper is away: owner nodes are left to expire; everything processed is committed")
                break
            threading.Event().wait(0.02)
            pending = [(c, call) for c, call in leaving if not call.done]
        for channel, call in leaving:
            if not call.done:
                channel.abandon()
            else:
                report(channel, call)

    def _close(self, at_once: Callable[[], bool]) -> None:
        self.reconfiguration.close()
        coordinations = self._zookeeper.every
        for coordination in coordinations:
            coordination.end()
        self._watching.join(5.0)
        for running in self.running.all():
            running.channel.finish_mirror()  # all at the same time
        for running in self.running.all():
            running.close()
        for coordination in coordinations:
            coordination.close()
        if self._shared is not None:
            self._shared.close()
        self.resetting.close()
        if self._listener is not None:
            self._listener.close()
        self.profiles.close()
        self.tracing.close()
        for running in self.running.all():
            running.unlock()
        for ledgers in (self._ledger.current, *self._ledger.former):
            ledgers.close(at_once)

    # -- changes while it runs ---------------------------------------------------------------------------------------

    def _coordinate(self, config: Config) -> Coordination:
        return Coordination(
            config.zookeeper, config.controller, self._clock,
            on_step=self._stepped, resets=self.resetting.controller,
            groups=lambda: [channel.group for channel in self.running.configs.values()],
        )  # fmt: skip

    def _set_timing(self, old: Config, new: Config) -> None:
        self.coordination.configure(new.controller)
        for channel in self.channels:
            channel.membership.join_delay = new.controller.join_delay

    def _listen_at(self, old: Config, new: Config) -> None:
        assert self._listener is not None
        self._listener.change(new)
        for channel in self.channels:
            channel.membership.move_admin(self._listener.url)
        self.profiles.take_names(old, new)

    def _set_interval(self, old: Config, new: Config) -> None:
        self.detector.interval = new.explain.interval

    def _write_ledger(self, old: Config, new: Config) -> None:
        for channel in self.channels:
            channel.parts.ledger_notes.degrade = new.ledger.on_failure == "degrade"

    def _plan(self, loaded: Loaded, *, idle: bool = True) -> ProcessPlan:
        planned = plan_all(loaded)
        if not idle:
            check_runs(planned, loaded.config)
        if loaded.config.ledger.type == "files":
            check_ledger(loaded.config.ledger)
        read = frozenset(manifest.name for manifest in loaded.manifests)
        refused = tuple(ManifestRefusal(one) for one in planned.refused)
        return ProcessPlan(loaded.config, planned.channels, loaded.contents, loaded.digest, read, refused)

    def _replan(self, loaded: Loaded) -> ProcessPlan:
        plan = self._plan(loaded)
        self.resetting.learn(loaded)
        return plan

    def _admin_server(self, config: Config, token: Token | None, policy: ReadPolicy | None) -> AdminServer:
        host, port, given = self._address(config)
        by = f"the admin port of process {os.getpid()} on {socket.gethostname()}"

        def operate(channel: str, operation: Operation) -> Page:
            of_member = partial(operate_member, self.channels)
            operator = Operator(
                self.coordination.tasks, self.coordination.zk, self._clock, self.running.configs, by, of_member
            )
            return answered(lambda: operator(channel, operation))

        return AdminServer(
            self.status, host=host, port=port, port_given=given, token=token, operate=operate, policy=policy,
            explain=lambda question: answers(self.channels, self.detector, question),
            reload=self.reconfiguration.reload if self.reconfiguration.follows else None,
            tls=config.admin.tls if self._listen is None else None,
            hosts=config.admin.hosts,
        )  # fmt: skip

    # -- status ------------------------------------------------------------------------------------------------------

    def status(self) -> ProcessStatus:
        """Return a snapshot. Any thread."""
        ingress = self._intake.ingress
        drivers = [
            *self.coordination.drivers,
            self._watching,
            *([self._changes] if self.reconfiguration.follows else []),
        ]
        drivers += self._shared.drivers if self._shared is not None else []
        return replace(
            ProcessStatus.here(self._started, stopping=self._stopping.is_set()),
            session=self.coordination.status(),
            channels=[channel.status() for channel in self.channels],
            config_problem=self.reconfiguration.problem,
            ingress=ingress.status() if ingress is not None else None,
            ledger_shipping=self._ledger.current.status(),
            reload=self.reconfiguration.status() if self.reconfiguration.follows else None,
            reset_manifests=self.resetting.manifests.status(),
            refused_manifests=[one.status() for one in self.reconfiguration.refused],
            resets=status_of(self.coordination.resets),
            tracing=self.tracing.status(),
            brokers=self._shared.reading.brokers() if self._shared is not None else [],
            threads=[
                *(ThreadStatus.of(driver, self._clock.now()) for driver in drivers),
                *(thread for channel in self.channels for thread in channel.threads()),
                *(ingress.threads() if ingress is not None else ()),
                *self.tracing.threads(),
            ],
        )

    # -- making ------------------------------------------------------------------------------------------------------

    def _make(self, name: str, planned: PlannedChannel) -> Running:
        config, processor = planned.config, made(name, planned.processor)
        consumer_id, lock = self._identity(config)
        member = MemberInfo(
            host=socket.gethostname(),
            pid=os.getpid(),
            started=self._started,
            topics=config.topics,
            coordinator=planned.registration(),
            admin=self.admin.url if self.admin is not None else None,  # of channels added at runtime
            lock=lock.token if lock else None,
        )
        client_id = f"inbound-{name}-{consumer_id}"
        outlets = Outlets(self.reconfiguration.config.kafka, config.group, client_id, config.on_error.dead_letter_topic)
        coordination, ledgers = self.coordination, self._ledger.current

        shared = self._what_is_shared() if planned.processor.shares_loop else None

        def connect(planned: PlannedChannel) -> Callable[[], LogClient]:
            one, kafka = planned.config, self.reconfiguration.config.kafka
            if shared is None:
                return connector(one.reader, kafka, client_id=client_id, isolation=one.isolation)
            make = connector(one.reader, kafka, client_id=f"inbound-shared-{os.getpid()}", isolation=one.isolation)
            # With the content of the files that `kafka` names: a change makes new clients, as everywhere.
            return shared.reading.connector(repr((one.reader, planned.kafka or kafka, one.isolation)), make)

        def connect_mirror(planned: PlannedChannel) -> Connect:
            return mirror_connector(
                planned.config.reader.client, self.reconfiguration.config.kafka, client_id=client_id
            )

        resources = Resources(
            clock=self._clock,
            controller=coordination.controller,
            wake_controller=coordination.wakeup.set,
            committer=coordination.committer,
            connect=connect(planned),
            ledger=ledgers.open(config.group, consumer_id, client_id),
            degrade=self.reconfiguration.config.ledger.on_failure == "degrade",
            dead_letters=outlets.send_dead_letters,
            open_topic=outlets.open_topic,
            owner_is_dead=lock.proves_dead if lock else lambda info: False,
            connect_mirror=connect_mirror(planned),
            tracing=self.tracing,
            shared=shared,
        )
        channel = InboundKafkaChannel(
            name, config, consumer_id, processor, planned.coordinator, member, planned.options, resources
        )
        return Running(
            planned, channel, coordination.controller, outlets, lock, connect, connect_mirror, coordination, ledgers
        )

    def _what_is_shared(self) -> Shared:
        if self._shared is None:
            from inbound.channel.shared import Shared  # brings an event loop, which most channels do without

            self._shared = Shared(self._clock)
        return self._shared

    def _identity(self, config: ChannelConfig) -> tuple[str, IdLock | None]:
        if config.consumer_id is None:
            # Unique among live processes.
            return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}", None
        consumer_id = config.consumer_id if self._index is None else f"{config.consumer_id}-{self._index}"
        return consumer_id, IdLock(self._lock_dir, config.group, consumer_id)

    def _address(self, config: Config) -> tuple[str, int, bool]:
        listen = self._listen or config.admin.listen
        host, _, port = listen.rpartition(":")
        return host.strip("[]"), int(port), self._listen is not None or config.admin.given
