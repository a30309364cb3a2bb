"""The configured ledgers of a process, and their housekeeping thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inbound.clock import Clock
from inbound.config import Config, LedgerConfig
from inbound.errors import ConfigError
from inbound.kafka.clients.ledger_topic import KafkaLedgerTopic
from inbound.ledger import FilesLedger, Ledger, NoLedger
from inbound.ledger.housekeeping import Housekeeping
from inbound.ledger.kafka import KafkaLedger
from inbound.ledger.places import check_uri
from inbound.ledger.shipping import Shipping, spool_of
from inbound.observe.status.status import ShippingStatus
from inbound.plan.plan import structure
from inbound.process.reload.changes import ProcessPlan
from inbound.process.reload.reconfiguration import Replaceable
from inbound.runtime.driver import Driver, Wakeup

log = logging.getLogger(__name__)

#: Seconds that the last shipment of an ending process may take.
LAST_SHIPMENT = 10.0


def check_ledger(config: LedgerConfig) -> None:
    """Raise ConfigError if pyarrow is needed and missing, or refuses the URI."""
    if config.compact and find_spec("pyarrow") is None:
        raise ConfigError(
            "ledger.compact: needs pyarrow, which is not installed; run: pip install 'inbound-kafka[ledger]'"
        )
    if config.uri is not None:
        check_uri(config.uri)


def _compacts(config: LedgerConfig) -> bool:
    return config.compact if config.compact is not None else find_spec("pyarrow") is not None


class Ledgers:
    """Makes each channel's ledger. `start` and `close` by the owner's thread."""

    def __init__(self, config: LedgerConfig, kafka: Mapping[str, Any], spool: Path, clock: Clock) -> None:
        """Make the files' housekeeping; touch nothing.

        `kafka` are the brokers' properties, `spool` the default folder.

        Raises:
            ConfigError: pyarrow is needed and missing, or does not take the URI.
        """
        self._config = config
        self._kafka = kafka
        self._clock = clock
        self._folder: Path | None = None
        self._part: Shipping | Housekeeping | None = None
        self._driver: Driver | None = None
        if config.type != "files":
            return
        check_ledger(config)
        compact = _compacts(config)
        if isinstance(config.path, str):
            self._folder = spool_of(config.path, config.spool or spool)
            self._part = Shipping(
                self._folder,
                config.path,
                clock,
                compact=compact,
                interval=config.ship_interval,
                retention=config.retention,
            )
        else:
            self._folder = config.path
            self._part = Housekeeping(config.path, clock, compact=compact, retention=config.retention)
        self._driver = Driver("ledger", self._part, Wakeup(), clock)

    def open(self, group: str, consumer_id: str, client_id: str) -> Ledger:
        """Make a member's ledger. Raises LedgerError: its first file cannot open."""
        if self._config.type == "kafka":
            config = self._config

            def open_topic() -> KafkaLedgerTopic:
                return KafkaLedgerTopic(
                    self._kafka, config.topic, f"{client_id}-ledger", partitions=config.partitions,
                    replication_factor=config.replication_factor, retention=config.retention,
                )  # fmt: skip

            return KafkaLedger(open_topic, config.topic, group, consumer_id, self._clock)
        if self._folder is None:
            return NoLedger()
        ledger = FilesLedger(self._folder, group, consumer_id, self._clock)
        if isinstance(self._part, Shipping):
            self._part.add(ledger)
        return ledger

    def configure(self, config: LedgerConfig) -> None:
        """Apply another configuration that needs no other ledger."""
        self._config = config
        part = self._part
        if part is None:
            return
        part.retention = config.retention
        part.compact = _compacts(config)
        if isinstance(part, Shipping):
            part.interval = config.ship_interval

    def start(self) -> None:
        """Begin the housekeeping of the files."""
        if self._driver is not None:
            self._driver.start()

    def close(self, at_once: Callable[[], bool] = lambda: False) -> None:
        """Stop the housekeeping after a last shipment; `at_once` cuts it short."""
        if self._driver is None:
            return
        self._driver.stop()
        if self._driver.thread.ident is None:  # it was never started
            return
        last = threading.Thread(target=self._last_shipment, name="last shipment", daemon=True)
        last.start()
        deadline = self._clock.now() + LAST_SHIPMENT
        while last.is_alive() and self._clock.now() < deadline and not at_once():
            last.join(0.1)
        if isinstance(self._part, Shipping) and (last.is_alive() or self._part.files):
            log.warning(
                "ledger.path %s: not everything is shipped; the rest waits in %s for the next start on this machine",
                self._part.target,
                self._folder,
            )

    def _last_shipment(self) -> None:
        assert self._driver is not None
        self._driver.thread.join()
        if isinstance(self._part, Housekeeping):
            self._part.close()
        if isinstance(self._part, Shipping):
            self._part.ship()

    def status(self) -> ShippingStatus | None:
        """Return the status of shipping; None: there is no URI. Any thread."""
        shipping = self._part
        if not isinstance(shipping, Shipping):
            return None
        return ShippingStatus(
            target=shipping.target,
            files_waiting=shipping.files,
            bytes_waiting=shipping.bytes,
            files_total=shipping.shipped,
            failures_total=shipping.failures,
            problem=shipping.problem,
        )


class LedgerSection(Replaceable[Ledgers]):
    """The ledgers of a process: configured in place where possible, else replaced."""

    def __init__(
        self,
        config: Config,
        spool: Path,
        clock: Clock,
        in_use: Callable[[object], bool],
        change: Callable[[Config, Config], object],
    ) -> None:
        """Take the default `spool`, and `change`: see `Section`.

        Raises:
            ConfigError: see `Ledgers`.
        """
        super().__init__("ledger", Ledgers(config.ledger, config.kafka, spool, clock), in_use, change)
        self._spool = spool
        self._clock = clock

    def apply(self, old: ProcessPlan, new: ProcessPlan) -> None:
        """Write as `new` configures."""
        if structure(old.config.ledger) == structure(new.config.ledger):
            self.current.configure(new.config.ledger)
        else:
            self._start(new.config.ledger, new.config)
        super().apply(old, new)

    def reconnect(self, old: Config, new: Config) -> None:
        """Write to the brokers of `new`, if the ledger is a topic."""
        if old.ledger.type == new.ledger.type == "kafka":  # channels leave the former one: see `PlannedChannel.base`
            self._start(old.ledger, new)

    def _start(self, ledger: LedgerConfig, config: Config) -> None:
        ledgers = Ledgers(ledger, config.kafka, self._spool, self._clock)
        ledgers.start()
        self.replace(ledgers)
