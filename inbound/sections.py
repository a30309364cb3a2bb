"""What a process is beside its channels, made anew when its section of the configuration changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from inbound.changes import Plan
from inbound.clock import Clock
from inbound.config import AdminConfig, Config
from inbound.coordination import Coordination, timing_of
from inbound.errors import ConfigError
from inbound.http.rights import Token
from inbound.ingress.server import Ingress
from inbound.jmx.policy import ReadPolicy
from inbound.kafka.clients import connector
from inbound.kafka.trial import answers_in_time
from inbound.ledgers import Ledgers
from inbound.planning import PlannedChannel, structure
from inbound.profiles import MakeProfiling, Profiles
from inbound.tracing.process import ProcessTracing

if TYPE_CHECKING:
    from inbound.running import RunningChannels

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Makers:
    """What only the command line can make of a configuration, for it reads files and sets up the process."""

    #: Return what reads the token for operations. Raises ConfigError: the file cannot be used.
    token: Callable[[AdminConfig], Token | None] = lambda admin: None
    #: Return what reads the policy of the JMX face. Raises ConfigError: the file cannot be used.
    policy: Callable[[AdminConfig], ReadPolicy | None] = lambda admin: None
    #: Return the ingress, not started. Raises ConfigError: a file that it names cannot be used.
    ingress: Callable[[Config], Ingress | None] = lambda config: None
    #: Return the listener of profiles, not started; None: none is configured. Raises ConfigError: it cannot be made so.
    profiling: MakeProfiling = lambda config: None
    #: Let logs be as configured from now on.
    logs: Callable[[Config], None] = lambda config: None
    #: What the ingress asks for spans, too; None: the process makes its own.
    tracing: ProcessTracing | None = None


class Owner(Protocol):
    """The process, as far as its sections are concerned: `inbound.application.Application`."""

    config: Config
    coordination: Coordination
    ledgers: Ledgers
    profiles: Profiles
    tracing: ProcessTracing

    running: RunningChannels

    def coordinate(self, config: Config) -> Coordination:
        """Make a connection to ZooKeeper, not begun."""

    def make_ledgers(self, config: Config) -> Ledgers:
        """Make ledgers, not started."""

    def listen(self, config: Config) -> None:
        """Listen for the admin port elsewhere, or with another token. Raises ConfigError: as before then."""

    def try_ingress(self, config: Config) -> None:
        """Ask Kafka as an ingress of `config` would, if there is one. Raises InboundError: it does not answer."""

    def take_in(self, config: Config) -> None:
        """Let another ingress take the place of the one that runs. Raises InboundError: as before then."""

    def retire(self, former: Coordination | Ledgers) -> None:
        """Keep open, while channels stand on it, what another one has taken the place of."""

    def tidy(self) -> None:
        """Close what nothing stands on any more."""

    def look_for_stalls(self, config: Config) -> None:
        """Use another interval."""

    def set_up_logs(self, config: Config) -> None:
        """Log as configured."""

    def ends_within(self, seconds: float) -> bool:
        """Wait, and return whether the process is to end."""


class Sections:
    """Prepares and applies what differs: see `inbound.reconfiguration.Process`."""

    def __init__(self, owner: Owner, clock: Clock) -> None:
        self._owner = owner
        self._clock = clock
        self._prepared: Coordination | None = None

    def prepare(self, sections: Mapping[str, tuple[str, ...]], wanted: Plan) -> None:
        """Connect to ZooKeeper and Kafka with the new settings, beside what runs."""
        if "kafka" in sections:
            self._try_kafka(wanted)
        if "zookeeper" in sections:
            if self._prepared is not None:
                self._drop(self._prepared)
            self._prepared = coordination = self._owner.coordinate(wanted.config)
            try:
                coordination.begin()
                coordination.try_out(self._owner.ends_within)
            except BaseException:
                self._prepared = None
                self._drop(coordination)
                raise

    def tidy(self) -> None:
        """Close what nothing stands on any more."""
        self._owner.tidy()

    def apply(self, section: str, wanted: Plan) -> None:
        """Let one section be as wanted."""
        owner, config = self._owner, wanted.config
        before = owner.config
        if section == "zookeeper":
            self._take_zookeeper(before, config)
        elif section == "controller":
            owner.coordination.controller.timing = timing = timing_of(config.controller)
            for channel in owner.running.channels:
                channel.membership.join_delay = timing.join_delay
            owner.coordination.committer.interval = config.controller.commit_interval
        elif section == "ledger":
            self._take_ledger(before, config)
        elif section == "admin":
            owner.listen(config)
            owner.profiles.take_names(before, config)
        elif section == "ingress":
            owner.take_in(config)
        elif section == "profiling":
            owner.profiles.change(before, config)
        elif section == "kafka":
            self._take_kafka(before, config)
        elif section == "explain":
            owner.look_for_stalls(config)
        elif section == "logging":
            owner.set_up_logs(config)
        elif section == "tracing":
            owner.tracing.configure(config.tracing)
        elif section == "reset":
            pass  # what it names was made when the configuration was looked at: `inbound.resetting`
        else:
            raise ConfigError(f"{section}: cannot change while the process runs; restart it")
        owner.config = owner.config.model_copy(update={section: getattr(config, section)})

    # -- inside ------------------------------------------------------------------------------------------------------

    def _drop(self, coordination: Coordination) -> None:
        coordination.retired = True
        coordination.end()
        coordination.close()

    def _take_zookeeper(self, before: Config, config: Config) -> None:
        prepared, self._prepared = self._prepared, None
        owner = self._owner
        if before.zookeeper == config.zookeeper:  # only what its files hold
            if prepared is not None:
                self._drop(prepared)
            owner.coordination.zk.reconnect()
        elif prepared is not None:
            former, owner.coordination = owner.coordination, prepared
            former.retired = True
            owner.retire(former)

    def _take_kafka(self, before: Config, config: Config) -> None:
        owner = self._owner
        if before.ingress is not None:
            owner.take_in(config.model_copy(update={"ingress": before.ingress}))
        if config.ledger.type == "kafka":  # channels leave the one before; see `PlannedChannel.base`
            self._change_ledgers(config.model_copy(update={"ledger": before.ledger}))

    def _take_ledger(self, before: Config, config: Config) -> None:
        owner = self._owner
        if structure(before.ledger) == structure(config.ledger):
            owner.ledgers.configure(config.ledger)
        else:
            self._change_ledgers(owner.config.model_copy(update={"ledger": config.ledger}))
        for channel in owner.running.channels:
            channel.parts.books.degrade = config.ledger.on_failure == "degrade"

    def _change_ledgers(self, config: Config) -> None:
        ledgers = self._owner.make_ledgers(config)
        ledgers.start()
        self._owner.retire(self._owner.ledgers)
        self._owner.ledgers = ledgers

    def _try_kafka(self, wanted: Plan) -> None:
        """Ask the brokers for topics, with each kind of client that a channel will read with, and the ingress write."""
        clients: dict[str, PlannedChannel] = {}
        for planned in wanted.channels.values():
            clients.setdefault(planned.config.reader.client, planned)
        for name, planned in clients.items():
            self._ask(name, planned, wanted.config)
        self._owner.try_ingress(wanted.config)

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

        answers_in_time(ask, f"read with {name}", self._clock, self._owner.ends_within)
