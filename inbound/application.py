"""One process of inbound: everything made in one place, started, watched and stopped in order."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import inbound
from inbound.changes import Plan, Refusal
from inbound.channel.kafka_channel import InboundKafkaChannel, Outside
from inbound.clock import Clock, SystemClock
from inbound.config import ChannelConfig, Config, Loaded
from inbound.controller.kafka_controller import KafkaController
from inbound.controller.kazoo_zk import KazooZooKeeper
from inbound.coordination import Coordination
from inbound.coordinators.nodes import MemberInfo
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call
from inbound.driver import Driver, Wakeup
from inbound.errors import InboundError
from inbound.explain.answer import answers
from inbound.explain.detector import StallDetector
from inbound.http.admin import AdminServer
from inbound.http.listening import AdminListener
from inbound.http.operations import answered
from inbound.http.pages import Page
from inbound.http.rights import Token
from inbound.identity import IdLock, random_consumer_id
from inbound.ingress.intake import DRAIN, Intake
from inbound.ingress.server import Ingress
from inbound.interpreter import spare_what_stays
from inbound.jmx.policy import ReadPolicy
from inbound.kafka.base import LogClient
from inbound.kafka.clients import connector
from inbound.kafka.mirror import mirror_connector
from inbound.kafka.mirror_base import Connect
from inbound.kafka.outlets import Outlets
from inbound.latch import Latch
from inbound.ledgers import Ledgers, check_ledger
from inbound.member_operations import MemberOperations
from inbound.operations import Operation, Operator
from inbound.planning import PlannedChannel, check_runs, plan_all
from inbound.plugins import made
from inbound.profiles import Profiles
from inbound.reconfiguration import Outcome, Reconfiguration, Source, Watch
from inbound.resetting import Resetting, status_of
from inbound.running import Running, RunningChannels, open_processor, report
from inbound.sections import Makers, Sections
from inbound.status import ProcessStatus, ThreadStatus
from inbound.tracing.process import ProcessTracing

if TYPE_CHECKING:
    from inbound.channel.shared import Shared

log = logging.getLogger(__name__)

#: How often subscriptions look at how they do, in seconds.
REPORT_EVERY = 0.5


class Application:
    """Runs the channels of one configuration in this process. `start`, `wait` and `stop` by the owner's thread."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        lock_dir: Path,
        spool_dir: Path | None = None,
        index: int | None = None,
        listen: str | None = None,
        token: Token | None = None,
        policy: ReadPolicy | None = None,
        ingress: Ingress | None = None,
        source: Source | None = None,
        watch: Callable[[Callable[[], None]], Watch] | None = None,
        makers: Makers | None = None,
        clock: Clock | None = None,
        idle: bool = False,
    ) -> None:
        """Make everything; connect to nothing yet.

        `spool_dir` is where a ledger behind a URI is written to first, unless the configuration names a folder; default:
        beside `lock_dir`. `index` is this process's number under `run --processes`; it is appended to fixed consumer ids. `listen`
        overrides the admin address. `token` returns what whoever asks for an operation by POST must know, `policy` what may be
        asked for under /jmx and /jolokia. `ingress` is served too. `source` tells of a configuration that has changed; without
        one the process keeps what it was given.
        `watch` makes what hurries the looks at it, given what to call, and `makers` what another configuration needs.
        `idle`: it may begin with nothing to run, where no manifest can be used: one that is mended is taken in.

        Raises:
            ConfigError: a plugin or its options cannot be used, or the ledger's URI; or there is nothing to run.
            LedgerError: the ledger's folder cannot be written to.
            ConsumerIdTakenError: a live process on this machine has one of the consumer ids.
        """
        self.config: Config = loaded.config
        begun = self._plan(loaded, idle=idle)
        self._clock = clock or SystemClock()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._lock_dir = lock_dir
        self._index = index
        self._listen = listen
        self._token = token
        self._policy = policy
        self._stopping = threading.Event()
        self._over = Latch()
        self._makers = makers or Makers()
        self._intake = Intake(self._makers.ingress, self.config, ingress, self._clock)
        self.profiles = Profiles(self._makers.profiling, self.config)
        self.tracing = self._makers.tracing or ProcessTracing()
        self._report_at = 0.0
        self.resetting = Resetting(loaded, lambda: [one.planned for one in self.running.all()])
        self.coordination = self.coordinate(self.config)
        #: Those that others have taken the place of, until nothing stands on them any more.
        self._former: list[Coordination | Ledgers] = []
        self._listener: AdminListener | None = None
        self._spool = spool_dir or lock_dir.parent / "ledger-spool"
        self.ledgers = self.make_ledgers(self.config)
        self._shared: Shared | None = None  # what channels of dispatchers stand on together
        self.running = RunningChannels(self._make, self.controller, self.tasks, self._clock)
        for name, channel in begun.channels.items():
            self.running.make(name, channel)
        changes = Wakeup()
        self._reconfiguration = Reconfiguration(
            source,
            self._replan,
            begun,
            self.running,
            self._clock,
            process=Sections(self, self._clock),
            wake=changes.set,
        )
        if watch is not None:
            self._reconfiguration.watch = watch(self._reconfiguration.hurry)
        self._follows = source is not None
        #: Says what each partition does, and which stand still.
        self.detector = StallDetector(lambda: self.channels, self._clock, self.config.explain.interval)
        self._watching = Driver("stall-detector", self.detector, Wakeup(), self._clock)
        self._changes = Driver("changes", self._reconfiguration, changes, self._clock)

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the processors and start all threads. ZooKeeper and Kafka need not be there yet."""
        self._listener = AdminListener(
            self._admin_server, self.config, self._token, self._policy,
            read_token=self._makers.token, read_policy=self._makers.policy,
        )  # fmt: skip
        self._listener.start()
        self.profiles.start()
        self.tracing.configure(self.config.tracing)
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
        self.ledgers.start()
        if self._follows:
            self._changes.start()

    @property
    def channels(self) -> list[InboundKafkaChannel]:
        """The channels as they run now. Any thread."""
        return self.running.channels

    @property
    def admin(self) -> AdminServer | None:
        """The admin listener as it is now; None: before `start`. Any thread."""
        return self._listener.server if self._listener is not None else None

    @property
    def ingress(self) -> Ingress | None:
        """The ingress as it is now; None: none is configured. Any thread."""
        return self._intake.ingress

    @property
    def zk(self) -> KazooZooKeeper:
        """The connection to ZooKeeper, as it is set now. Any thread."""
        return self.coordination.zk

    @property
    def tasks(self) -> Tasks:
        """What runs on that connection. Any thread."""
        return self.coordination.tasks

    @property
    def controller(self) -> KafkaController:
        """What coordinates on that connection. Any thread."""
        return self.coordination.controller

    def _stepped(self, coordination: Coordination) -> None:
        """A controller has made a step: end the process when it says that it must. Its thread."""
        if coordination is not self.coordination:
            return
        if coordination.controller.fatal is not None:
            self._over.set()
        now = self._clock.now()
        if now >= self._report_at:  # the session is kept alive, so that this comes by often enough
            self._report_at = now + REPORT_EVERY
            for channel in self.running.on(coordination):
                channel.report()

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
        self.profiles.interrupt()
        self._watching.stop()
        self._changes.stop()
        for channel in self.channels:
            channel.parts.service.stopping.set()
        self._changes.join(5.0)
        self._intake.stop(DRAIN, at_once=at_once)
        if self.coordination.alive:
            self.controller.close()
            self.coordination.resets.close()
            leaving = [(r.channel, r.leaving or self._leave(r)) for r in self.running.all()]
            self.coordination.wakeup.set()
            timeouts = [config.shutdown_timeout for config in self.running.configs.values()]
            deadline = self._clock.now() + max(timeouts, default=0.0)
            self._drain(leaving, deadline, at_once)
        self._close(at_once)
        return self.controller.fatal

    def _leave(self, running: Running) -> Call[None]:
        tasks = (running.coordination or self.coordination).tasks
        return tasks.spawn(running.channel.membership.leave_group(), f"leaving of {running.channel.name}")

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
                report(channel, call)

    def _close(self, at_once: Callable[[], bool]) -> None:
        self._reconfiguration.close()
        coordinations = [self.coordination, *(one for one in self._former if isinstance(one, Coordination))]
        for coordination in coordinations:
            coordination.end()
        self._watching.join(5.0)
        for running in self.running.all():
            running.channel.parts.mirror.finish()  # all at the same time
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
        for ledgers in (self.ledgers, *(one for one in self._former if isinstance(one, Ledgers))):
            ledgers.close(at_once)

    # -- changes while it runs: see `inbound.sections.Owner` ---------------------------------------------------------------

    def reload(self, seconds: float) -> Outcome | None:
        """Look at the configuration now, and wait for what comes of it; None: that is not known after so many seconds."""
        return self._reconfiguration.answer(self._reconfiguration.ask(), seconds)

    def ask_reload(self) -> None:
        """Have the configuration looked at; does not wait. Any thread."""
        self._reconfiguration.ask()

    def coordinate(self, config: Config) -> Coordination:
        """Make a connection to ZooKeeper, not begun."""
        return Coordination(
            config.zookeeper, config.controller, self._clock,
            on_step=self._stepped, resets=self.resetting.controller,
            groups=lambda: [channel.group for channel in self.running.configs.values()],
        )  # fmt: skip

    def make_ledgers(self, config: Config) -> Ledgers:
        """Make ledgers, not started."""
        return Ledgers(config.ledger, config.kafka, self._spool, self._clock)

    def retire(self, former: Coordination | Ledgers) -> None:
        """Keep open, while channels stand on it, what another one has taken the place of."""
        self._former.append(former)

    def tidy(self) -> None:
        """Close what nothing stands on any more; bring back an ingress that could not come back."""
        self._intake.tidy()
        for one in list(self._former):
            if self.running.stands_on(one):
                continue
            self._former.remove(one)
            if isinstance(one, Coordination):
                one.end()
                one.close()
            else:
                one.close(lambda: False)

    def listen(self, config: Config) -> None:
        """Let another admin listener take the place of the one that runs; if it cannot, that one goes on."""
        assert self._listener is not None
        self._listener.change(config)
        for channel in self.channels:
            channel.membership.move_admin(self._listener.url)

    def try_ingress(self, config: Config) -> None:
        """Ask Kafka as an ingress of `config` would, if there is one. Raises InboundError: it does not answer."""
        self._intake.try_out(config, self.ends_within)

    def take_in(self, config: Config) -> None:
        """Let another ingress take the place of the one that runs; if it cannot, one as before comes back."""
        self._intake.change(config, at_once=self._stopping.is_set, ends=self._stopping.is_set)

    def look_for_stalls(self, config: Config) -> None:
        """Use another interval."""
        self.detector.interval = config.explain.interval

    def set_up_logs(self, config: Config) -> None:
        """Log as configured."""
        self._makers.logs(config)

    def ends_within(self, seconds: float) -> bool:
        """Wait, and return whether the process is to end."""
        return self._stopping.wait(seconds)

    def _plan(self, loaded: Loaded, *, idle: bool = True) -> Plan:
        planned = plan_all(loaded)
        if not idle:
            check_runs(planned, loaded.config)
        if loaded.config.ledger.type == "files":
            check_ledger(loaded.config.ledger)
        read = frozenset(manifest.name for manifest in loaded.manifests)
        refused = tuple(Refusal(one) for one in planned.refused)
        return Plan(loaded.config, planned.channels, loaded.contents, loaded.digest, read, refused)

    def _replan(self, loaded: Loaded) -> Plan:
        plan = self._plan(loaded)
        self.resetting.learn(loaded)
        return plan

    def _admin_server(self, config: Config, token: Token | None, policy: ReadPolicy | None) -> AdminServer:
        host, port, given = self._address(config)
        by = f"the admin port of process {os.getpid()} on {socket.gethostname()}"

        def operate(channel: str, operation: Operation) -> Page:
            of_member = MemberOperations(lambda: self.channels)
            operator = Operator(self.tasks, self.zk, self._clock, self.running.configs, by, of_member)
            return answered(lambda: operator(channel, operation))

        return AdminServer(
            self.status, host=host, port=port, port_given=given, token=token, operate=operate, policy=policy,
            explain=lambda question: answers(self.channels, self.detector, question),
            reload=self.reload if self._follows else None, tls=config.admin.tls if self._listen is None else None,
            hosts=config.admin.hosts,
        )  # fmt: skip

    # -- status ------------------------------------------------------------------------------------------------------

    def status(self) -> ProcessStatus:
        """Return a snapshot. Any thread."""
        ingress = self.ingress
        drivers = [*self.coordination.drivers, self._watching, *([self._changes] if self._follows else [])]
        drivers += self._shared.drivers if self._shared is not None else []
        return ProcessStatus(
            version=inbound.__version__,
            pid=os.getpid(),
            host=socket.gethostname(),
            started=self._started,
            stopping=self._stopping.is_set(),
            session=self.coordination.status(),
            channels=[channel.status() for channel in self.channels],
            config_problem=self._reconfiguration.problem,
            ingress=ingress.status() if ingress is not None else None,
            ledger_shipping=self.ledgers.status(),
            reload=self._reconfiguration.status() if self._follows else None,
            reset_manifests=self.resetting.manifests.status(),
            refused_manifests=[one.status() for one in self._reconfiguration.refused],
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
            coordinator=planned.coordinator.registration(),
            admin=self.admin.url if self.admin is not None else None,  # of who is added while the process runs
            lock=lock.token if lock else None,
        )
        client_id = f"inbound-{name}-{consumer_id}"
        outlets = Outlets(self.config.kafka, config.group, client_id, config.on_error.dead_letter_topic)
        coordination, ledgers = self.coordination, self.ledgers

        shared = self._what_is_shared() if planned.processor.shares_loop else None

        def connect(planned: PlannedChannel) -> Callable[[], LogClient]:
            one, kafka = planned.config, self.config.kafka
            if shared is None:
                return connector(one.reader, kafka, client_id=client_id, isolation=one.isolation)
            make = connector(one.reader, kafka, client_id=f"inbound-shared-{os.getpid()}", isolation=one.isolation)
            # With what the files that `kafka` names hold: when they change, clients are made anew, as everywhere.
            return shared.reading.connector(repr((one.reader, planned.kafka or kafka, one.isolation)), make)

        def connect_mirror(planned: PlannedChannel) -> Connect:
            return mirror_connector(planned.config.reader.client, self.config.kafka, client_id=client_id)

        outside = Outside(
            clock=self._clock,
            controller=coordination.controller,
            wake_controller=coordination.wakeup.set,
            committer=coordination.committer,
            connect=connect(planned),
            ledger=ledgers.open(config.group, consumer_id, client_id),
            degrade=self.config.ledger.on_failure == "degrade",
            dead_letters=outlets.send_dead_letters,
            open_topic=outlets.open_topic,
            owner_is_dead=lock.proves_dead if lock else lambda info: False,
            connect_mirror=connect_mirror(planned),
            tracing=self.tracing,
            shared=shared,
        )
        channel = InboundKafkaChannel(
            name, config, consumer_id, processor, planned.coordinator, member, planned.options, outside
        )
        return Running(planned, channel, outlets, lock, connect, connect_mirror, coordination, ledgers)

    def _what_is_shared(self) -> Shared:
        if self._shared is None:
            from inbound.channel.shared import Shared  # brings an event loop, which most channels do without

            self._shared = Shared(self._clock)
        return self._shared

    def _identity(self, config: ChannelConfig) -> tuple[str, IdLock | None]:
        if config.consumer_id is None:
            return random_consumer_id(), None
        consumer_id = config.consumer_id if self._index is None else f"{config.consumer_id}-{self._index}"
        return consumer_id, IdLock(self._lock_dir, config.group, consumer_id)

    def _address(self, config: Config) -> tuple[str, int, bool]:
        listen = self._listen or config.admin.listen
        host, _, port = listen.rpartition(":")
        return host.strip("[]"), int(port), self._listen is not None or config.admin.given
