"""A process with an ingress only: no channels, no ZooKeeper."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from inbound.admin.listener import AdminListener, AdminServer
from inbound.clock import Clock, SystemClock
from inbound.config import Config, Loaded
from inbound.errors import ConfigError
from inbound.http.server.rights import Token
from inbound.observe.jmx.policy import ReadPolicy
from inbound.observe.status.status import ProcessStatus, ThreadStatus
from inbound.observe.tracing.process import ProcessTracing
from inbound.plan.plan import ingress_problems, tracing_problems
from inbound.process.reload.changes import ProcessPlan
from inbound.process.reload.reconfiguration import Channels, ConfigSource, FolderEvents, Reconfiguration, Section
from inbound.process.sections import Intake, KafkaSection, Makers, Profiles

log = logging.getLogger(__name__)

#: Sections of the configuration that such a process uses; changes of others have no effect.
USED = frozenset({"admin", "ingress", "kafka", "logging", "profiling", "tracing"})
#: Seconds that the thread of changes has to end.
LAST = 1.0


class IngressProcess:
    """The ingress of a configuration, and the admin port that shows it.

    `start` and `stop` by the owner.
    """

    def __init__(
        self,
        loaded: Loaded,
        makers: Makers,
        *,
        source: ConfigSource | None = None,
        watch: Callable[[Callable[[], None]], FolderEvents] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Make all parts; listen nowhere yet.

        `makers` makes the parts, `source` returns each new configuration; without one the process keeps its first.
        `watch` makes a folder watch from a function to call at changes.

        Raises:
            ConfigError: a file cannot be used, or `ingress` is missing.
        """
        config = self._config = loaded.config
        self._clock = clock or SystemClock()
        self._stopping = threading.Event()
        self._cut_short = threading.Event()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        begun = self._plan(loaded)
        self.tracing = makers.tracing or ProcessTracing()
        self._profiles = Profiles(makers.profiling, config)
        self._intake = Intake(makers.ingress, begun, self._clock, self._stopping, self._cut_short.is_set)
        sections = [
            KafkaSection(self._intake, self._clock, self._stopping.wait),
            Section("admin", self._administer),
            Section("logging", lambda old, new: makers.logs(new)),
            Section("tracing", lambda old, new: self.tracing.configure(new.tracing)),
            self._intake,
            self._profiles,
        ]
        self.reconfiguration = Reconfiguration(
            source, self._plan, begun, Channels(), self._clock, sections=sections, watch=watch
        )
        self._changes = self.reconfiguration.driver
        self._admin = AdminListener(
            self._admin_server, config, makers.token(config.admin), makers.policy(config.admin),
            read_token=makers.token, read_policy=makers.policy,
        )  # fmt: skip

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen on all ports.

        Raises:
            ConfigError: a port cannot be used, or traces cannot be made as configured.
        """
        try:
            self.tracing.configure(self._config.tracing)
            self._admin.start()
            self._profiles.start()
            self._intake.start()
        except BaseException:
            self._intake.stop(0.0, at_once=lambda: True)
            self._close()
            raise
        if self.reconfiguration.follows:
            self._changes.start()

    def stop(self, seconds: float, *, at_once: Callable[[], bool]) -> bool:
        """Answer requests in flight, and end, within about `seconds`.

        See `Ingress.stop`. An ingress that is being replaced answers its requests, too, and no other one starts.
        """
        deadline = self._clock.now() + seconds
        self._stopping.set()
        self._profiles.interrupt()
        self._changes.stop()
        while self._changes.thread.is_alive() and self._clock.now() < deadline and not self._cut_short.is_set():
            self._changes.thread.join(0.05)
            if at_once():
                self._cut_short.set()
        self._changes.join(LAST)
        try:
            return self._intake.stop(max(0.0, deadline - self._clock.now()), at_once=at_once)
        finally:
            self._close()

    # -- status ------------------------------------------------------------------------------------------------------

    @property
    def admin(self) -> AdminServer:
        """The current admin listener. Any thread."""
        return self._admin.server

    def status(self) -> ProcessStatus:
        """Return a snapshot. Any thread."""
        ingress, driver = self._intake.ingress, self._changes
        threads = [*ingress.threads()] if ingress is not None else []
        if self.reconfiguration.follows:
            threads.append(ThreadStatus.of(driver, self._clock.now()))
        return replace(
            ProcessStatus.here(self._started, stopping=self._stopping.is_set()),
            threads=[*threads, *self.tracing.threads()],
            config_problem=self.reconfiguration.problem,
            ingress=ingress.status() if ingress is not None else None,
            reload=self.reconfiguration.status() if self.reconfiguration.follows else None,
            tracing=self.tracing.status(),
        )

    # -- inside ------------------------------------------------------------------------------------------------------

    def _plan(self, loaded: Loaded) -> ProcessPlan:
        """Return a configuration's plan, with unused sections as at the start."""
        config = loaded.config
        if config.ingress is None:
            raise ConfigError(
                "ingress: missing; give it at least `listen`, such as `ingress: {listen: 127.0.0.1:8080}`"
            )
        problems = [*tracing_problems(loaded), *ingress_problems(loaded)]
        if problems:
            raise ConfigError("\n".join(problems))
        unused = {name: getattr(self._config, name) for name in Config.model_fields if name not in USED}
        contents = {user: content for user, content in loaded.contents.items() if user in USED}
        return ProcessPlan(config.model_copy(update=unused), {}, contents, loaded.digest)

    def _administer(self, old: Config, new: Config) -> None:
        self._admin.change(new)
        self._profiles.take_names(old, new)

    def _admin_server(self, config: Config, token: Token | None, policy: ReadPolicy | None) -> AdminServer:
        admin = config.admin
        return AdminServer(
            self.status, host=admin.host, port=admin.port, port_given=admin.given, tls=admin.tls, hosts=admin.hosts, token=token,
            policy=policy, reload=self.reconfiguration.reload if self.reconfiguration.follows else None,
        )  # fmt: skip

    def _close(self) -> None:
        self.reconfiguration.close()
        self._profiles.close()
        self._admin.close()
        self.tracing.close()
