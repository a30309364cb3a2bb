"""Which ledger a configuration means."""

from __future__ import annotations

from pathlib import Path

import pytest

from inbound.config import LedgerConfig
from inbound.errors import ConfigError
from inbound.ledger import FilesLedger, NoLedger
from inbound.ledger.kafka import KafkaLedger
from inbound.process.ledgers import Ledgers
from inbound.testing import ManualClock


def ledgers(tmp_path: Path, config: LedgerConfig) -> Ledgers:
    """Of a process that has done nothing yet."""
    return Ledgers(config, {"bootstrap.servers": "127.0.0.1:1"}, tmp_path / "spool", ManualClock())


def test_files_are_in_the_folder(tmp_path: Path) -> None:
    """And nothing is on its way to anywhere."""
    made = ledgers(tmp_path, LedgerConfig(path=tmp_path / "ledger"))

    ledger = made.open("g", "a", "client")

    assert isinstance(ledger, FilesLedger)
    assert ledger.path is not None
    assert ledger.path.parent == tmp_path / "ledger" / "g"
    assert made.status() is None
    ledger.close()
    made.close(lambda: False)


def test_behind_a_uri_files_are_in_the_spool_first(tmp_path: Path) -> None:
    """In a folder of that URI's own; the status names the target."""
    made = ledgers(tmp_path, LedgerConfig(path="s3://bucket/ledger?region=nowhere"))

    ledger = made.open("g", "a", "client")

    assert isinstance(ledger, FilesLedger)
    assert ledger.path is not None
    assert ledger.path.is_relative_to(tmp_path / "spool")
    status = made.status()
    assert status is not None
    assert (status.target, status.problem) == ("s3://bucket/ledger", None)
    ledger.close()


def test_a_topic_asks_no_broker_before_the_first_entry(tmp_path: Path) -> None:
    """A process starts while Kafka is away."""
    made = ledgers(tmp_path, LedgerConfig(type="kafka"))

    assert isinstance(made.open("g", "a", "client"), KafkaLedger)
    assert made.status() is None


def test_none_is_none(tmp_path: Path) -> None:
    """No folder is made."""
    assert isinstance(ledgers(tmp_path, LedgerConfig(type="none")).open("g", "a", "client"), NoLedger)
    assert list(tmp_path.iterdir()) == []


def test_a_uri_that_nobody_knows_is_refused_at_the_start(tmp_path: Path) -> None:
    """Rather than after the first shipment."""
    with pytest.raises(ConfigError, match=r"ledger\.path floppy://a/b: Unrecognized filesystem"):
        ledgers(tmp_path, LedgerConfig(path="floppy://a/b"))
