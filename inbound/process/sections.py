"""Parts that a reload replaces: ingress, profiling listener, Kafka's clients."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inbound.clock import Clock
from inbound.config import AdminConfig, Config
from inbound.errors import InboundError
from inbound.http.server.rights import Token
from inbound.ingress.server import Ingress
from inbound.kafka.clients.choice import answers_in_time, connector
from inbound.observe.jmx.policy import ReadPolicy
from inbound.observe.tracing.process import ProcessTracing
from inbound.plan.plan import PlannedChannel
from inbound.process.reload.changes import ProcessPlan, section_keys
from inbound.process.reload.reconfiguration import TRY_AGAIN, Section

if TYPE_CHECKING:
    from inbound.observe.profiling.listener import ProfilingListener

log = logging.getLogger(__name__)

#: Seconds that a replaced ingress has to answer its requests in flight.
DRAIN = 10.0


@dataclass(frozen=True)
class Makers:
    """Makes the parts that need the command line's files or setup."""

    #: Return the reader of the token for operations. Raises ConfigError: the file cannot be used.
    token: Callable[[AdminConfig], Token | None] = lambda admin: None
    #: Return the reader of the JMX face's policy. Raises ConfigError: the file cannot be used.
    policy: Callable[[AdminConfig], ReadPolicy | None] = lambda admin: None
    #: Return the ingress, not started. Raises ConfigError: a file that it names cannot be used.
    ingress: Callable[[Config], Ingress | None] = lambda config: None
    #: Return the listener, not started. Raises ConfigError: it cannot be made as configured.
    profiling: Callable[[Config], ProfilingListener | None] = lambda config: None
    #: Set up the logs as configured.
    logs: Callable[[Config], None] = lambda config: None
    #: The ingress records its spans here, too; None: the process makes its own.
    tracing: ProcessTracing | None = None


class Profiles(Section):
    """The listener of profiles, if one is configured.

    Used by the owner's thread and that of changes.
    """

    def __init__(self, make: Callable[[Config], ProfilingListener | None], config: Config) -> None:
        """Raises ConfigError: the listener cannot be made as configured."""
        super().__init__("profiling", self.change)
        self._make = make
        self.listener = make(config)

    def start(self) -> None:
        """Listen. Raises ConfigError: the address cannot be used."""
        if self.listener is not None:
            self.listener.start()

    def change(self, before: Config, config: Config) -> None:
        """Replace the listener; a profile in progress ends early.

        Raises:
            ConfigError: the new one cannot listen; one as before does.
        """
        new = self._make(config)
        self.close()
        self.listener = None
        try:
            if new is not None:
                new.start()
        except InboundError:
            self.listener = self._make(before)
            self.start()
            raise
        self.listener = new

    def take_names(self, before: Config, config: Config) -> None:
        """Follow a change of `config.admin.hosts`. Raises ConfigError as `change` does."""
        if self.listener is not None and before.admin.hosts != config.admin.hosts:
            self.change(before, before.model_copy(update={"admin": config.admin}))

    def interrupt(self) -> None:
        """End a profile in progress early: the process stops."""
        if self.listener is not None:
            self.listener.interrupt()

    def close(self) -> None:
        """Stop listening. May be called twice."""
        if self.listener is not None:
            self.listener.close()


class Intake(Section):
    """The ingress of a process, if configured, and its replacement.

    `start` and `stop` by the owner, the rest by the thread of changes. `stop` only when that thread has ended, or is not
    waited for any longer.
    """

    def __init__(
        self,
        make: Callable[[Config], Ingress | None],
        begun: ProcessPlan,
        clock: Clock,
        stopping: threading.Event,
        at_once: Callable[[], bool],
    ) -> None:
        """Make the ingress of `begun`, the plan at the start.

        `stopping`: the process ends; `at_once` cuts the end of a replaced ingress short.

        Raises:
            ConfigError: a file that the ingress needs cannot be used.
        """
        super().__init__("ingress")
        self._make = make
        self._plan = begun  # of the running ingress, or of the one that is to come back
        self._clock = clock
        self._stopping = stopping
        self._at_once = at_once
        #: The running ingress, or a dead one that could not be replaced; None: none is configured, or one is starting.
        self.ingress = make(begun.config)
        self._again_at = float("inf")
        self._answered = True

    def try_out(self, config: Config) -> None:
        """Ask Kafka for topics as the ingress of `config` would.

        Raises:
            InboundError: the settings cannot be used, Kafka does not answer in time, or it refuses our credentials.
        """
        tried = self._make(config)
        if tried is None:
            return
        try:
            answers_in_time(tried.ask_kafka, f"written to with {tried.client}", self._clock, self._stopping.wait)
        finally:
            _drop(tried)

    def apply(self, old: ProcessPlan, new: ProcessPlan) -> None:
        """Replace the ingress, if its own section or Kafka's has changed."""
        if self.lags(new):
            self.change(new)

    def lags(self, new: ProcessPlan) -> bool:
        """Return whether the ingress runs with other settings than those of `new`.

        The plan that it was made of is compared, and not what stands: an edit that failed before this step may have
        changed Kafka alone, and the next edit keeps that.
        """
        return any(section_keys(name, self._plan, new) for name in (self.name, "kafka"))

    def start(self) -> None:
        """Listen. Raises ConfigError: the address cannot be used."""
        if self.ingress is not None:
            self.ingress.start()

    def change(self, plan: ProcessPlan) -> None:
        """Replace the running ingress by one of `plan`.

        The running one answers its requests in flight.

        Raises:
            InboundError: the new one does not start, and one as before runs; or the process ends, and none starts.
        """
        new = self._make(plan.config)
        if new is not None:
            new.get_ready()  # while the one before takes events
        before, self.ingress = self.ingress, None
        if before is not None:
            self._answered = before.stop(DRAIN, at_once=self._at_once)
        if self._stopping.is_set():
            _drop(new)
            raise InboundError("ingress: not started again, for the process is stopping; start it again")
        self._again_at = float("inf")
        self._answered = True  # requests cut off by a replacement are in the log; the process still ends well
        try:
            _start(new)
        except InboundError as error:
            self._come_back(error, before)
            raise
        self.ingress, self._plan = new, plan

    def tidy(self) -> None:
        """Retry, when due, to start an ingress that could not come back."""
        if self._clock.now() < self._again_at:
            return
        try:
            self._bring_back()
        except InboundError as error:
            log.error("ingress: it still cannot come back, and is tried again in %.0f s: %s", TRY_AGAIN, error)
            self._again_at = self._clock.now() + TRY_AGAIN

    def stop(self, seconds: float, *, at_once: Callable[[], bool]) -> bool:
        """Answer requests in flight, and end. Returns whether all were answered.

        See `Ingress.stop`.
        """
        return (self.ingress is None or self.ingress.stop(seconds, at_once=at_once)) and self._answered

    # -- inside ------------------------------------------------------------------------------------------------------

    def _bring_back(self) -> None:
        again = self._make(self._plan.config)
        if again is not None:
            again.get_ready()
        _start(again)
        self.ingress, self._again_at = again, float("inf")

    def _come_back(self, error: InboundError, before: Ingress | None) -> None:
        try:
            self._bring_back()
        except InboundError as second:
            self._again_at = self._clock.now() + TRY_AGAIN
            self.ingress = before  # its threads are dead: /healthz shows that
            raise InboundError(
                f"{error}; nor can the ingress come back as it was, which is tried again every {TRY_AGAIN:.0f} s: {second}"
            ) from None


def _start(ingress: Ingress | None) -> None:
    try:
        if ingress is not None:
            ingress.start()
    except BaseException:
        _drop(ingress)
        raise


def _drop(ingress: Ingress | None) -> None:
    if ingress is not None:
        ingress.stop(0.0)


class KafkaSection(Section):
    """The brokers: tried with each kind of client, then used.

    Channels reconnect, or are replaced, by their own steps; so does the ingress: see `Intake.lags`.
    """

    def __init__(
        self,
        intake: Intake,
        clock: Clock,
        ends_within: Callable[[float], bool],
        change: Callable[[Config, Config], object] = lambda old, new: None,
    ) -> None:
        """Take `ends_within`, which waits so many seconds for the process's end.

        `change`: see `Section`.
        """
        super().__init__("kafka", change)
        self._intake = intake
        self._clock = clock
        self._ends_within = ends_within

    def prepare(self, old: ProcessPlan, new: ProcessPlan) -> None:
        """Ask the brokers for topics with each client that will be used.

        These are the channels' kinds of clients, and the ingress's.
        """
        clients: dict[str, PlannedChannel] = {}
        for planned in new.channels.values():
            clients.setdefault(planned.config.reader.client, planned)
        for name, planned in clients.items():
            self._ask(name, planned, new.config)
        self._intake.try_out(new.config)

    def _ask(self, name: str, planned: PlannedChannel, config: Config) -> None:
        connect = connector(
            planned.config.reader, config.kafka, client_id="inbound-new-settings", isolation=planned.config.isolation
        )

        def ask() -> None:
            client = connect()
            try:
                client.topics(planned.config.topics or (), planned.config.topics_pattern)
            finally:
                client.close()

        answers_in_time(ask, f"read with {name}", self._clock, self._ends_within)
