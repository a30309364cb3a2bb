"""A process that is an ingress and nothing else: no channels, no ZooKeeper."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Collection
from datetime import UTC, datetime

import inbound
from inbound.changes import Plan
from inbound.clock import Clock, SystemClock
from inbound.config import Config, Loaded
from inbound.driver import Driver, Wakeup
from inbound.errors import ConfigError
from inbound.http.admin import AdminServer
from inbound.http.listening import AdminListener
from inbound.http.rights import Token
from inbound.ingress.intake import Intake
from inbound.jmx.policy import ReadPolicy
from inbound.planning import ingress_problems, tracing_problems
from inbound.profiles import Profiles
from inbound.reconfiguration import Outcome, Reconfiguration, Source, Watch
from inbound.sections import Makers
from inbound.status import ProcessStatus, ThreadStatus
from inbound.tracing.process import ProcessTracing
from inbound.without_channels import NoChannels, OwnSections

#: Sections of the configuration that such a process has a use for; others may change, and nothing has changed for it.
USED = frozenset({"admin", "ingress", "kafka", "logging", "profiling", "tracing"})
#: How long the thread of changes may take to end when it is told to at once, in seconds.
LAST = 1.0


class IngressProcess:
    """The ingress of a configuration, and the admin port that shows it. `start` and `stop` by the owner."""

    def __init__(
        self,
        loaded: Loaded,
        makers: Makers,
        *,
        source: Source | None = None,
        watch: Callable[[Callable[[], None]], Watch] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Make everything; listen nowhere yet.

        `makers` makes the parts, `source` tells of a configuration that has changed; without one the process keeps what it
        was given. `watch` makes what hurries the looks at it, given what to call.

        Raises:
            ConfigError: a file cannot be used, or `ingress` is missing.
        """
        config = self._config = loaded.config
        self._clock = clock or SystemClock()
        self._follows = source is not None
        self._stopping = threading.Event()
        self._at_once: Callable[[], bool] = lambda: False
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        begun = self._plan(loaded)
        self.tracing = makers.tracing or ProcessTracing()
        self._profiles = Profiles(makers.profiling, config)
        self._admin = AdminListener(
            self._admin_server, config, makers.token(config.admin), makers.policy(config.admin),
            read_token=makers.token, read_policy=makers.policy,
        )  # fmt: skip
        self._intake = Intake(makers.ingress, config, makers.ingress(config), self._clock)
        self._anew = False  # whether the ingress has to start anew, for any of its sections
        apply: dict[str, Callable[[Config], None]] = {
            "admin": self._administer,
            "ingress": self._take_in,
            "kafka": self._take_in,
            "logging": makers.logs,
            "profiling": self._profile,
            "tracing": lambda config: self.tracing.configure(config.tracing),
        }
        wakeup = Wakeup()
        self._reconfiguration = Reconfiguration(
            source, self._plan, begun, NoChannels(), self._clock, wake=wakeup.set,
            process=OwnSections(apply, prepare=self._prepare, tidy=self._intake.tidy),
        )  # fmt: skip
        if watch is not None:
            self._reconfiguration.watch = watch(self._reconfiguration.hurry)
        self._changes = Driver("changes", self._reconfiguration, wakeup, self._clock)

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen on all ports. Raises ConfigError: one cannot be used, or traces not be made as configured."""
        try:
            self.tracing.configure(self._config.tracing)
            self._admin.start()
            self._profiles.start()
            self._intake.start()
        except BaseException:
            self._intake.stop(0.0, at_once=lambda: True)
            self._close()
            raise
        if self._follows:
            self._changes.start()

    def stop(self, seconds: float, *, at_once: Callable[[], bool]) -> bool:
        """Answer what is under way, and end, in about so many seconds: see `Ingress.stop`.

        An ingress that is just being replaced answers what is under way, too, and none takes its place.
        """
        deadline = self._clock.now() + seconds
        self._at_once = at_once
        self._stopping.set()
        self._profiles.interrupt()
        self._changes.stop()
        while self._changes.thread.is_alive() and self._clock.now() < deadline and not at_once():
            self._changes.thread.join(0.05)
        self._changes.join(LAST)
        try:
            return self._intake.stop(max(0.0, deadline - self._clock.now()), at_once=at_once)
        finally:
            self._close()

    def reload(self, seconds: float) -> Outcome | None:
        """Look at the configuration now, and wait for what comes of it; None: that is not known after so many seconds."""
        return self._reconfiguration.answer(self._reconfiguration.ask(), seconds)

    def ask_reload(self) -> None:
        """Have the configuration looked at; does not wait. Any thread."""
        self._reconfiguration.ask()

    # -- status ------------------------------------------------------------------------------------------------------

    @property
    def admin(self) -> AdminServer:
        """The admin listener as it is now. Any thread."""
        return self._admin.server

    def status(self) -> ProcessStatus:
        """Return a snapshot. Any thread."""
        ingress, driver = self._intake.ingress, self._changes
        threads = [*ingress.threads()] if ingress is not None else []
        if self._follows:
            threads.append(ThreadStatus.of(driver, self._clock.now()))
        return ProcessStatus(
            version=inbound.__version__,
            pid=os.getpid(),
            host=socket.gethostname(),
            started=self._started,
            stopping=self._stopping.is_set(),
            session=None,
            channels=[],
            threads=[*threads, *self.tracing.threads()],
            config_problem=self._reconfiguration.problem,
            ingress=ingress.status() if ingress is not None else None,
            reload=self._reconfiguration.status() if self._follows else None,
            tracing=self.tracing.status(),
        )

    # -- inside ------------------------------------------------------------------------------------------------------

    def _plan(self, loaded: Loaded) -> Plan:
        """Return what the process does with a configuration: what it has no use for stands there as at the start."""
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
        return Plan(config.model_copy(update=unused), {}, contents, loaded.digest)

    def _prepare(self, sections: Collection[str], config: Config) -> None:
        self._anew = not {"ingress", "kafka"}.isdisjoint(sections)
        if "kafka" in sections:
            self._intake.try_out(config, self._stopping.wait)

    def _take_in(self, config: Config) -> None:
        """Let another ingress take over; once, where both of its sections have changed."""
        if self._anew:
            self._anew = False
            self._intake.change(config, at_once=lambda: self._at_once(), ends=self._stopping.is_set)

    def _administer(self, config: Config) -> None:
        self._admin.change(config)
        self._profiles.take_names(self._config, config)
        self._config = self._config.model_copy(update={"admin": config.admin})

    def _profile(self, config: Config) -> None:
        self._profiles.change(self._config, config)
        self._config = self._config.model_copy(update={"profiling": config.profiling})

    def _admin_server(self, config: Config, token: Token | None, policy: ReadPolicy | None) -> AdminServer:
        admin = config.admin
        return AdminServer(
            self.status, host=admin.host, port=admin.port, port_given=admin.given, tls=admin.tls, hosts=admin.hosts, token=token,
            policy=policy, reload=self.reload if self._follows else None,
        )  # fmt: skip

    def _close(self) -> None:
        self._reconfiguration.close()
        self._profiles.close()
        self._admin.close()
        self.tracing.close()
