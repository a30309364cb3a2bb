"""One connection to ZooKeeper with all that runs on it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from inbound.channel.committer import Committer
from inbound.clock import Clock
from inbound.config import Config, ControllerConfig, ZooKeeperConfig
from inbound.controller.kafka_controller import KafkaController, Timing
from inbound.controller.reset_offset import ResetController
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.errors import InboundError
from inbound.observe.status.status import SessionStatus
from inbound.process.reload.changes import ProcessPlan
from inbound.process.reload.reconfiguration import Replaceable
from inbound.process.zookeeper.client import tell, zookeeper_client
from inbound.runtime.driver import Driver, Wakeup

#: Seconds within which a connection with new settings must come about.
CONNECT_SECONDS = 10.0


class Coordination:
    """A client with its controller, committer and threads."""

    def __init__(
        self,
        settings: ZooKeeperConfig,
        timing: ControllerConfig,
        clock: Clock,
        *,
        on_step: Callable[[Coordination], None],
        resets: Callable[[ZooKeeper, Tasks], ResetController],
        groups: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """Connect to nothing yet.

        `on_step` is called after each of the controller's steps, on its thread; `resets` makes the controller of
        resets; `groups` returns the groups whose nodes' access rights are checked.

        Raises:
            ConfigError: the settings cannot be used.
        """
        self._clock = clock
        self._on_step = on_step
        self._groups = groups
        self.wakeup = Wakeup()
        self.zk = zookeeper_client(settings, clock, on_change=self._connection_changed)
        self.tasks = Tasks(clock, self.wakeup.set)
        self.controller = KafkaController(self.zk, self.tasks, clock, timing_of(timing), random.Random())
        self.committer = Committer(self.zk, clock, timing.commit_interval)
        self.resets = resets(self.zk, self.tasks)
        self.drivers = [
            Driver("controller", self, self.wakeup, clock),
            Driver("committer", self.committer, self.committer.wakeup, clock),
        ]
        #: Set when another connection has replaced it.
        self.retired = False
        self._ended = False

    @property
    def alive(self) -> bool:
        """Whether its threads run."""
        return all(driver.thread.is_alive() for driver in self.drivers)

    def run_once(self) -> float | None:
        """Take the controller's step."""
        due = self.controller.run_once()
        self._on_step(self)
        return due

    def begin(self) -> None:
        """Begin to connect, and to drive the controller."""
        self.tasks.spawn(tell(self.zk, self.tasks, self._groups), "access rights")
        self.tasks.spawn(self.resets.run(), "resets of offsets")
        self.zk.start()
        for driver in self.drivers:
            driver.start()

    def try_out(self, stopping: Callable[[float], bool]) -> None:
        """Wait for a connection.

        `stopping` waits for so many seconds, and returns whether the process ends.

        Raises:
            InboundError: there is none yet.
        """
        deadline = self._clock.now() + CONNECT_SECONDS
        while self.zk.connection is None:
            if self._clock.now() >= deadline or stopping(0.05):
                why = self.zk.problem
                raise InboundError(
                    f"{self.zk.where} does not answer within {CONNECT_SECONDS:.0f} s{f': {why}' if why else ''}; correct "
                    "zookeeper, or see that it runs"
                )

    def configure(self, timing: ControllerConfig) -> None:
        """Apply other times from now on."""
        self.controller.timing = timing_of(timing)
        self.committer.interval = timing.commit_interval

    def withdraw(self) -> None:
        """Coordinate nothing more; releases in flight go on until `end`."""
        self.controller.close()
        self.resets.close()

    def status(self) -> SessionStatus:
        """Return the session's status. Any thread."""
        connection, session = self.zk.connection, self.controller.session
        return SessionStatus(
            state=self.controller.state.value,
            id=f"{session:#x}" if session is not None else None,
            timeout=connection.session.timeout if connection else None,
            certain_for=max(0.0, self.zk.certain_until(session) - self._clock.now()) if session is not None else 0.0,
            sessions_total=self.controller.sessions,
            evaluations_total=self.controller.evaluations,
            problem=self.zk.problem,
            suspensions_total=self.controller.suspensions,
        )

    def end(self) -> None:
        """Stop the threads, before `close`."""
        self._ended = True
        self.resets.close()
        for driver in self.drivers:
            driver.stop()
        for driver in self.drivers:
            driver.join(5.0)

    def close(self) -> None:
        """End the session, and with it the remaining owner nodes."""
        if not self._ended:
            self.end()
        self.tasks.close()
        self.zk.close()

    def _connection_changed(self) -> None:
        self.wakeup.set()
        self.committer.wakeup.set()
        self.resets.look()


def timing_of(config: ControllerConfig) -> Timing:
    """Return the controller's times."""
    return Timing(config.rebalance_interval, config.rebalance_delay, config.join_delay)


class ZooKeeperSection(Replaceable[Coordination]):
    """The connection to ZooKeeper: a new one is used once it connects."""

    def __init__(
        self,
        make: Callable[[Config], Coordination],
        config: Config,
        in_use: Callable[[object], bool],
        ends_within: Callable[[float], bool],
    ) -> None:
        """Take `make`, which returns a connection that has not begun.

        `ends_within` waits, and returns whether the process ends.
        """
        super().__init__("zookeeper", make(config), in_use)
        self._make = make
        self._ends_within = ends_within
        self._prepared: Coordination | None = None

    @property
    def every(self) -> list[Coordination]:
        """Every connection that is open, the current one first."""
        return [self.current, *self.former, *([self._prepared] if self._prepared is not None else [])]

    def prepare(self, old: ProcessPlan, new: ProcessPlan) -> None:
        """Connect with the new settings. Raises InboundError: ZooKeeper does not answer."""
        self._prepared = self._make(new.config)
        self._prepared.begin()
        self._prepared.try_out(self._ends_within)

    def apply(self, old: ProcessPlan, new: ProcessPlan) -> None:
        """Use the new connection, or reconnect if only its files changed.

        The session stays the same then.
        """
        if old.config.zookeeper == new.config.zookeeper:
            self.current.zk.reconnect()
        elif self._prepared is not None:
            self.current.retired = True
            self.replace(self._prepared)
            self._prepared = None

    def tidy(self) -> None:
        if self._prepared is not None:
            self._prepared.close()
            self._prepared = None
        super().tidy()
