"""A ledger behind a URI: files reach it whole, and none is lost on the way."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from inbound.cli.inspect.status_text import shown
from inbound.config import LedgerConfig
from inbound.ledger import Entry, FilesLedger, Range, died, list_files, places, read_directory
from inbound.ledger.shipping import Shipping, spool_of
from inbound.observe.metrics import Exposition
from inbound.observe.status.status import ShippingStatus, process_status
from inbound.process.ledgers import Ledgers
from inbound.testing import ManualClock
from tests.ledger.converting import Here
from tests.observe.status.made_status import NOW, process


@dataclass
class Sized:
    """What a file system says of a file."""

    size: int


class Scene:
    """A spool, a folder behind a URI, and a consumer that writes."""

    def __init__(self, folder: Path, *, compact: bool = True) -> None:
        self.clock = ManualClock()
        self.remote = folder / "remote"
        self.uri = f"file://{self.remote}"
        self.spool = spool_of(self.uri, folder / "spool")
        self.shipping = self.shipper(compact=compact)
        self.ledger = self.writer("a")
        self.batches = 0

    def shipper(self, *, compact: bool = True) -> Shipping:
        """Another process's, as it were."""
        return Shipping(
            self.spool,
            self.uri,
            self.clock,
            compact=compact,
            interval=30,
            retention=7 * 86400.0,
            writer=Here(),
        )

    def writer(self, consumer: str) -> FilesLedger:
        ledger = FilesLedger(self.spool, "g", consumer, self.clock)
        self.shipping.add(ledger)
        return ledger

    def work(self, count: int) -> None:
        for _ in range(count):
            self.batches += 1
            self.ledger.begun(Range("orders", 3, 7, self.batches * 10, self.batches * 10 + 10, 10))

    def block(self) -> None:
        """Make the target unreachable: a file stands where its folder should be."""
        shutil.rmtree(self.remote, ignore_errors=True)
        self.remote.write_text("no folder")

    def unblock(self) -> None:
        self.remote.unlink()

    def seqs(self) -> list[int]:
        """The numbers of the entries that have arrived."""
        items = list(read_directory(self.uri))
        assert all(isinstance(item, Entry) for item in items), items
        return [item.seq for item in items if isinstance(item, Entry) and item.kind == "begun"]

    def arrived(self) -> list[str]:
        return [file.path.name.split("-")[-1] for file in list_files(self.uri)]

    def spooled(self) -> list[str]:
        return sorted(path.name.split("-")[-1] for path in self.spool.glob("*/*"))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_what_was_written_is_shipped_every_interval_and_no_file_without_an_entry(scene: Scene) -> None:
    """The current file is ended for it; an idle consumer makes none."""
    scene.work(3)
    scene.shipping.run_once()
    assert (scene.arrived(), scene.seqs()) == (["0001.parquet"], [1, 2, 3])

    scene.work(2)
    scene.clock.advance(29)
    scene.shipping.run_once()
    assert scene.seqs() == [1, 2, 3]
    scene.clock.advance(1)
    scene.shipping.run_once()
    assert scene.seqs() == [1, 2, 3, 4, 5]

    for _ in range(5):
        scene.clock.advance(30)
        scene.shipping.run_once()
    assert scene.arrived() == ["0001.parquet", "0002.parquet"]
    assert scene.spooled() == []


def test_a_closed_ledger_arrives_with_its_clean_end(scene: Scene) -> None:
    """The last shipment of a process brings it."""
    scene.work(1)
    scene.shipping.run_once()
    scene.ledger.close()

    scene.shipping.ship()

    assert died(read_directory(scene.uri)) == []
    assert (scene.spooled(), scene.shipping.files, scene.shipping.shipped) == ([], 0, 2)


def test_while_the_target_is_away_files_wait_and_the_consumer_goes_on(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning; it is tried again with backoff, and the file being written is not cut into many."""
    scene.block()
    scene.work(1)
    waits = []
    for _ in range(12):
        due = scene.shipping.run_once()
        waits.append(due - scene.clock.now())
        scene.clock.advance(waits[-1])
        scene.work(1)

    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert scene.spooled() == ["0001.jsonl", "0002.jsonl"]
    assert (scene.shipping.files, scene.shipping.failures) == (1, 12)
    assert f"files wait in {scene.spool}, nothing is lost" in str(scene.shipping.problem)
    assert len(caplog.records) == 1

    scene.unblock()
    scene.shipping.run_once()
    scene.clock.advance(30)
    scene.shipping.run_once()
    assert scene.spooled() == []
    assert scene.seqs() == list(range(1, 14))


def test_what_a_dead_run_left_is_shipped_by_the_next_one(scene: Scene) -> None:
    """Killed before its shipment, torn tail and all."""
    scene.work(2)
    path = scene.ledger.path
    assert path is not None
    scene.ledger.close(clean=False)
    with path.open("ab") as file:
        file.write(b'{"kind":"beg')

    scene.shipper().run_once()

    assert [type(item).__name__ for item in read_directory(scene.uri)] == ["Entry", "Entry", "Entry", "TornTail"]
    assert scene.spooled() == []


def test_a_file_that_another_process_writes_is_left_to_it(scene: Scene) -> None:
    """Processes of one machine share the spool."""
    scene.work(1)

    scene.shipper().run_once()

    assert (scene.spooled(), list(scene.remote.glob("*/*"))) == (["0001.jsonl"], [])


def test_a_copy_that_did_not_arrive_whole_is_made_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file stays in the spool until its size is right at the target."""
    system, root = places.file_system(scene.uri)
    scene.work(1)

    class Lossy:
        """The real file system, but for the size that it tells."""

        type_name = "local"

        def __getattr__(self, name: str) -> object:
            return getattr(system, name)

        def get_file_info(self, what: object) -> object:
            return Sized(3)

    monkeypatch.setattr(places, "file_system", lambda uri: (Lossy(), root))
    scene.shipping.run_once()
    assert "3 of " in str(scene.shipping.problem)
    assert scene.spooled() == ["0001.jsonl"]

    monkeypatch.undo()
    scene.clock.advance(1)
    scene.shipping.run_once()
    assert (scene.seqs(), scene.spooled()) == ([1], [])


def test_lines_are_shipped_as_they_are_where_parquet_is_not_wanted(tmp_path: Path) -> None:
    """`compact: false`."""
    scene = Scene(tmp_path, compact=False)
    scene.work(2)

    scene.shipping.run_once()

    assert (scene.arrived(), scene.seqs()) == (["0001.jsonl"], [1, 2])


def test_old_files_at_the_target_are_deleted_and_foreign_ones_are_not(scene: Scene) -> None:
    """By the time of their shipment, which comes after their last line."""
    scene.clock.jump_wall(10 * 86400.0 + 400 * 86400.0)  # files carry the time of this machine
    scene.work(1)
    scene.shipping.run_once()
    (scene.remote / "g" / "notes.txt").write_text("buy milk")
    scene.clock.advance(30)

    scene.shipping.run_once()

    assert [file.path.name for file in list_files(scene.uri)] == ["notes.txt"]


def test_what_a_killed_conversion_has_left_in_the_spool_is_deleted_after_a_day(scene: Scene) -> None:
    """Not before: whose it is may live."""
    left = scene.spool / "g" / ".a-0001.parquet.7.tmp"
    scene.work(1)
    left.write_bytes(b"PAR1")
    there = []
    for seconds in (3600.0, 90000.0):
        os.utime(left, (scene.clock.wall() - seconds, scene.clock.wall() - seconds))
        scene.clock.advance(3600)
        scene.shipping.run_once()
        there.append(left.exists())
    assert there == [True, False]


def test_another_uri_has_another_spool(tmp_path: Path) -> None:
    """So that nothing is shipped to where it was not meant for; secrets in a query don't show."""
    one, two = spool_of("s3://bucket/ledger?key=hunter2", tmp_path), spool_of("s3://bucket/ledger?key=other", tmp_path)

    assert one != two
    assert "hunter2" not in str(one)


def test_a_process_that_ends_ships_what_it_has(tmp_path: Path) -> None:
    """With its thread, as `inbound run` uses it."""
    scene = Scene(tmp_path)
    config = LedgerConfig(path=scene.uri, spool=tmp_path / "own")
    ledgers = Ledgers(config, {}, tmp_path / "spool", scene.clock)
    ledger = ledgers.open("g", "b", "client")
    ledgers.start()
    ledger.begun(Range("orders", 3, 7, 0, 10, 10))
    ledger.close()

    ledgers.close(lambda: False)

    status = ledgers.status()
    assert status is not None
    assert (status.files_waiting, status.problem, status.target) == (0, None, scene.uri)
    assert died(read_directory(scene.uri)) == []
    assert scene.seqs() == [1]
    assert list((tmp_path / "own").glob("*/*/*")) == []


def test_status_and_metrics_say_that_files_wait() -> None:
    """In words for people, as series to alert on, and as JSON that another process reads back."""
    shipping = ShippingStatus(
        target="s3://bucket/ledger",
        files_waiting=3,
        bytes_waiting=700,
        files_total=9,
        failures_total=2,
        problem="no route",
    )
    status = process(ledger_shipping=shipping)

    assert process_status(status.as_dict()).ledger_shipping == shipping
    assert "ledger: not shipped: no route" in shown([status], NOW)
    text = Exposition(lambda: status).render()[0].decode()
    assert re.findall(r"(?m)^inbound_ledger_(\w+) (\S+)$", text) == [
        ("shipping_available", "0.0"),
        ("spool_files", "3.0"),
        ("spool_bytes", "700.0"),
        ("shipped_files_total", "9.0"),
        ("shipping_failures_total", "2.0"),
    ]
    assert "shipping_available" not in Exposition(process).render()[0].decode()
