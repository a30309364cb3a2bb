"""One connection to ZooKeeper, and what runs on it; another one takes its place when its settings change."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from inbound.channel.committer import Committer
from inbound.clock import Clock
from inbound.config import ControllerConfig, ZooKeeperConfig
from inbound.controller.kafka_controller import KafkaController, Timing
from inbound.controller.reset_offset import ResetController
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.driver import Driver, Wakeup
from inbound.errors import InboundError
from inbound.node_access import tell
from inbound.status import SessionStatus
from inbound.zookeeper_client import zookeeper_client

#: How long a connection with new settings may take to come about, in seconds.
CONNECT_SECONDS = 10.0


class Coordination:
    """A client, controller and committer of the channels that stand on it, and their threads. Made and closed by the owner."""

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
        """Connect to nothing yet. `on_step` is called after each of the controller's steps, on its thread; `resets` makes what
        carries out resets of offsets; `groups` are those whose nodes' access rights are looked at.

        Raises:
            ConfigError: the settings cannot be used.
        """
        self._clock = clock
        self._on_step = on_step
        self._groups = groups
        self.wakeup = Wakeup()
        self.zk = zookeeper_client(settings, clock)
        self.zk.on_change = self._connection_changed
        self.tasks = Tasks(clock, self.wakeup.set)
        self.controller = KafkaController(self.zk, self.tasks, clock, timing_of(timing), random.Random())
        self.committer = Committer(self.zk, clock, timing.commit_interval)
        self.resets = resets(self.zk, self.tasks)
        self.drivers = [
            Driver("controller", self, self.wakeup, clock),
            Driver("committer", self.committer, self.committer.wakeup, clock),
        ]
        #: Set when another one has taken its place.
        self.retired = False

    @property
    def alive(self) -> bool:
        """Whether its threads run."""
        return all(driver.thread.is_alive() for driver in self.drivers)

    def run_once(self) -> float | None:
        """The controller's step."""
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
        """Wait for a connection. `stopping` waits for so many seconds, and returns whether the process ends.

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

    def status(self) -> SessionStatus:
        """Return how its session is. Any thread."""
        connection, session = self.zk.connection, self.controller.session
        counters = self.controller.counters
        return SessionStatus(
            state=self.controller.state.value,
            id=f"{session:#x}" if session is not None else None,
            timeout=connection.session.timeout if connection else None,
            certain_for=max(0.0, self.zk.certain_until(session) - self._clock.now()) if session is not None else 0.0,
            sessions_total=counters.sessions,
            evaluations_total=counters.evaluations,
            problem=self.zk.problem,
            suspensions_total=counters.suspensions,
        )

    def end(self) -> None:
        """Stop the threads; `close` ends the session."""
        self.resets.close()
        for driver in self.drivers:
            driver.stop()
        for driver in self.drivers:
            driver.join(5.0)

    def close(self) -> None:
        """End the session. Owner nodes that are left go with it."""
        self.tasks.close()
        self.zk.close()

    def _connection_changed(self) -> None:
        self.wakeup.set()
        self.committer.wakeup.set()
        self.resets.look()


def timing_of(config: ControllerConfig) -> Timing:
    """Return when partitions move."""
    return Timing(config.rebalance_interval, config.rebalance_delay, config.join_delay)
