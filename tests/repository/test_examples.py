"""The examples that users copy: `database`, `model`, `async_http`, `signing`, and `delays`, which the demo runs."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import shutil
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from inbound import Batch, BatchResponse, Context, PlainRecord, TopicPartition
from inbound.cli.main import main
from inbound.config import load
from inbound.coordinators.zookeeper import SetData
from inbound.demo.flights import Flight, encoded
from inbound.publishing import Format, check_lines, lines_of
from inbound.testing import World
from tests import loaded_module
from tests.http_receiver import Receiver, receiver
from tests.processors.dispatch.dispatch_stage import event_headers
from tests.waiting import wait_for

__all__ = ["receiver"]  # the fixture

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


def load_module(folder: str, name: str) -> ModuleType:
    return loaded_module.load_module(f"examples/{folder}/{name}.py")


payments = load_module("database", "payments")
scores = load_module("model", "scores")
posting = load_module("async_http", "posting")
signing = load_module("signing", "signing")
delays = load_module("delays", "delays")
totals = load_module("delays", "totals")


@pytest.mark.parametrize(
    ("folder", "channel", "cls"),
    [
        ("database", "payments", payments.Payments),
        ("model", "scores", scores.Scores),
        ("async_http", "posting", posting.Posting),
        ("signing", "orders", signing.SigningDispatch),
        ("delays", "delays", delays.DelaysPerCarrier),
    ],
)
def test_the_configuration_is_good(folder: str, channel: str, cls: Any) -> None:
    """It loads, names the class, and its options fit."""
    loaded = load((EXAMPLES / folder / "inbound.yaml").read_text(), filename="inbound.yaml")
    processor = loaded.config.channels[channel].processor

    assert processor.type == f"{cls.__module__.removeprefix('loaded_')}:{cls.__name__}"
    assert loaded.validate(cls.Options, f"channels.{channel}.processor.options", processor.options)


# -- database ------------------------------------------------------------------------------------------------------------


def rows(database: Path) -> list[int]:
    """Return the offsets in the database, in the order of their rows."""
    with sqlite3.connect(database) as connection:
        found = [row[0] for row in connection.execute('SELECT "offset" FROM payments ORDER BY rowid')]
    connection.close()
    return found


def test_a_claim_begins_where_the_database_is(tmp_path: Path) -> None:
    """The group's commit was set back; no row is written twice."""
    options, world = {"database": str(tmp_path / "db")}, World()
    world.kafka.create_topic("orders", 1)
    world.kafka.publish("orders", 0, [b"a", b"b", b"c"])
    world.join("a", payments.Payments(), options=options)
    world.run(4)
    world.leave("a")
    world.ensemble.tree.transaction([SetData(world.paths.offset("orders", 0), b"1")], 0)
    world.kafka.publish("orders", 0, [b"d"])
    world.join("b", payments.Payments(), options=options)
    world.run(4)
    for consumer in world.consumers.values():
        consumer.processor.close()
    assert (rows(tmp_path / "db"), world.commits()) == ([0, 1, 2, 3], {0: 4})


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Any]:
    """A processor whose database has offsets 0 to 9, written under epoch 5."""
    processor = payments.Payments()
    processor.open(Context("payments", "payments", "me", payments.Options(database=tmp_path / "db")))
    processor.on_next_batch(numbered(0, 10, epoch=5))
    yield processor
    processor.close()


def numbered(first: int, next_offset: int, *, epoch: int) -> Batch:
    records = [PlainRecord(offset, value=b"x") for offset in range(first, next_offset)]
    return Batch("payments", 0, first, next_offset, records, epoch)


def test_what_another_has_written_since_the_claim_is_skipped(stored: Any, tmp_path: Path) -> None:
    """It was slow, and wrote its last batch after we had asked where to begin."""
    assert stored.on_next_batch(numbered(5, 15, epoch=6)) == BatchResponse.advance()
    assert rows(tmp_path / "db") == list(range(15))
    assert stored.on_claim(TopicPartition("payments", 0), 5) == 15


def test_who_was_overtaken_writes_nothing(stored: Any, tmp_path: Path) -> None:
    """Its epoch is older than the one in the table."""
    with pytest.raises(payments.OvertakenError, match="epoch 5 has written since"):
        stored.on_next_batch(numbered(10, 12, epoch=4))
    assert rows(tmp_path / "db") == list(range(10))


def test_a_process_that_starts_while_another_makes_the_database_waits_for_it(tmp_path: Path) -> None:
    """Not so with `journal_mode = WAL`: to switch to it SQLite waits for nobody, with any timeout."""
    processor = payments.Payments()
    context = Context("payments", "payments", "me", payments.Options(database=tmp_path / "db"))
    with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as other, ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN IMMEDIATE")
        opening = pool.submit(processor.open, context)
        wait([opening], timeout=0.1)
        other.execute("COMMIT")
        assert opening.result() is None
    processor.close()


def test_a_partition_that_the_database_does_not_know_begins_at_the_commit(stored: Any) -> None:
    """None: as without a database."""
    assert stored.on_claim(TopicPartition("payments", 1), 7) is None


# -- model ---------------------------------------------------------------------------------------------------------------


def test_whole_batches_are_scored_and_written_with_their_offsets(tmp_path: Path) -> None:
    """One line per batch, one score per event."""
    world = World()
    world.kafka.create_topic("orders", 1)
    flights = [
        Flight("UA", n, "N1", "EWR", "IAH", "2013-01-01T10:15:00Z", delay) for n, delay in enumerate((0, 60, None))
    ]
    for key, value, headers in encoded(flights):
        world.kafka.publish("orders", 0, [value], key=key, headers=headers)
    options = {"model": str(EXAMPLES / "model" / "model.json"), "scores": str(tmp_path)}
    world.join("a", scores.Scores(), options=options)
    world.run(4)
    world.consumers["a"].processor.close()
    (file,) = tmp_path.glob("*.jsonl")
    (line,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(score["offset"], score["late"]) for score in line["scores"]] == [(0, False), (1, True), (2, False)]
    assert world.commits() == {0: 3}


@pytest.fixture
def undisturbed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`run` sets signal handlers, logging and the import path; they are put back."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    numbers = (signal.SIGTERM, signal.SIGINT)
    handlers, logs, level = (
        [*map(signal.getsignal, numbers)],
        list(logging.getLogger().handlers),
        logging.getLogger().level,
    )
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)
    logging.getLogger().handlers[:], logging.getLogger().level = logs, level
    sys.modules.pop("scores", None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "FileNotFoundError: [Errno 2] No such file or directory: 'model.json'"),
        ('{"bias": 1', "ValueError: model.json is no model: the file: Invalid JSON: EOF while parsing an object"),
        (
            '{"bias": "high", "weights": {}}',
            "ValueError: model.json is no model: bias: Input should be a valid number, unable to parse string as a number; "
            "weights: Dictionary should have at least 1 item after validation, not 0",
        ),
    ],
)
@pytest.mark.usefixtures("undisturbed")
def test_a_bad_model_ends_the_process_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str | None, said: str
) -> None:
    """Exit code 2, what is wrong and no traceback; nothing was connected to."""
    shutil.copy(EXAMPLES / "model" / "scores.py", tmp_path)
    shutil.copy(EXAMPLES / "model" / "inbound.yaml", tmp_path)
    if text is not None:
        (tmp_path / "model.json").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-c", "inbound.yaml", "--set", "admin.listen=127.0.0.1:0"]) == 2
    err = capsys.readouterr().err
    assert f"channel scores: Scores.open failed: {said}" in err
    assert "Traceback" not in err


# -- async_http ----------------------------------------------------------------------------------------------------------


def post(receiver: Receiver, batch: Batch) -> BatchResponse:
    """Let the example post a batch to a receiver; return its answer."""

    async def run() -> BatchResponse:
        processor = posting.Posting()
        options = posting.Options(url=f"{receiver.url}/orders", at_once=8)
        await processor.open(Context("posting", "posting", "me", options))
        response: BatchResponse = await processor.on_next_batch(batch)
        return response

    return asyncio.run(run())


def orders(count: int) -> Batch:
    return Batch("orders", 0, 10, 10 + count, [PlainRecord(10 + n, value=b"%d" % n) for n in range(count)])


def test_records_are_posted_at_the_same_time_and_no_more_than_allowed(receiver: Receiver) -> None:
    """The receiver answers only once eight are there: one after the other would wait without end."""
    now: list[int] = []
    most: list[int] = []
    all_here = threading.Event()

    def status(number: int) -> int:
        now.append(number)
        most.append(len(now))
        if len(now) == 8:
            all_here.set()
        wait_for(all_here, 10, "eight are under way")
        now.remove(number)
        return 204

    receiver.status = status
    assert post(receiver, orders(20)) == BatchResponse.advance()
    assert (max(most), sorted(int(request.body) for request in receiver.requests)) == (8, list(range(20)))


def test_what_comes_before_the_first_refused_record_is_committed(receiver: Receiver) -> None:
    """The rest is redelivered."""
    receiver.status = lambda number: 503 if receiver.requests[number].body == b"3" else 204
    assert post(receiver, orders(6)) == BatchResponse.advance(13, wait=1.0)
    assert sorted(request.body for request in receiver.requests) == [b"0", b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("url", ["https://somewhere/", "127.0.0.1:80", "http:///orders"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """Before anything starts."""
    with pytest.raises(ValueError, match="need http://HOST:PORT/PATH"):
        posting.Options(url=url)


# -- signing ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # virtual time runs on while real requests are under way
def test_each_request_is_signed(receiver: Receiver, tmp_path: Path) -> None:
    """With the secret of the file, over the very bytes of the body."""
    (tmp_path / "secret").write_text("hush\n")
    world = World()
    world.kafka.create_topic("orders", 1)
    for number in range(3):
        world.kafka.publish("orders", 0, [b"%d" % number], headers=event_headers(str(number)))
    options = {"subscriberUri": receiver.url, "secret_file": str(tmp_path / "secret")}
    world.join("a", signing.SigningDispatch(), options=options)
    answered = threading.Event()  # never set: virtual time alone is over before real requests are answered
    world.run_until(lambda: answered.wait(0.005) or world.commits() == {0: 3}, within=100_000)
    signatures = [request.headers["x-signature"] for request in receiver.requests]
    assert [request.body for request in receiver.requests] == [b"0", b"1", b"2"]
    assert signatures == ["sha256=" + hmac.new(b"hush", r.body, hashlib.sha256).hexdigest() for r in receiver.requests]
    world.leave("a")
    world.consumers["a"].channel.close()


# -- delays -----------------------------------------------------------------------------------------------------------


def batch(first: int, *minutes: int | None) -> Batch:
    """Flights of UA with these delays, from offset `first`."""
    found = [
        Flight("UA", 100 + n, "N1", "EWR", "IAH", "2013-01-01T10:15:00Z", delay) for n, delay in enumerate(minutes)
    ]
    records = [
        PlainRecord(first + n, key=key, value=value, headers=headers)
        for n, (key, value, headers) in enumerate(encoded(found))
    ]
    return Batch("flights", 3, first, first + len(minutes), records)


class Opened:
    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.context = Context("delays", "delays", "me", delays.Options(journal=folder, **options))
        self.processor = delays.DelaysPerCarrier()
        self.processor.open(self.context)

    def lines(self) -> list[dict[str, Any]]:
        (file,) = self.folder.glob("*.jsonl")
        return [json.loads(line) for line in file.read_bytes().splitlines()]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    found = Opened(tmp_path, slice=2)
    yield found
    found.processor.close()


def test_every_slice_is_written_with_its_offsets(opened: Opened) -> None:
    """Begin, slices, end; the batch is committed whole."""
    response = opened.processor.on_next_batch(batch(10, 5, None, -3))

    assert response == BatchResponse.advance(13)
    assert [(line["what"], line.get("flights"), line.get("next")) for line in opened.lines()] == [
        ("begin", None, 13),
        ("counted", [[10, "UA", 5], [11, "UA", None]], None),
        ("counted", [[12, "UA", -3]], None),
        ("end", None, 13),
    ]


def test_a_stop_commits_what_was_counted_and_no_more(opened: Opened) -> None:
    """The first slice is always done, so that a stop cannot keep a partition from going on."""
    opened.context.stopping.set()

    response = opened.processor.on_next_batch(batch(10, 1, 2, 3, 4, 5))

    assert response == BatchResponse.advance(12)
    assert [flight for line in opened.lines() for flight in line.get("flights", ())] == [[10, "UA", 1], [11, "UA", 2]]


def test_a_batch_that_was_lost_is_left_alone(opened: Opened) -> None:
    """Another process counts it already."""
    lost = batch(10, 1, 2, 3)
    lost.lost.set()

    assert opened.processor.on_next_batch(lost) == BatchResponse.advance(10)
    assert [line["what"] for line in opened.lines()] == ["begin", "end"]


def test_a_record_that_is_no_event_is_passed_over_and_said(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    """The others of its batch are counted under their own offsets."""
    mixed = batch(10, 1, 2)
    mixed.records = [PlainRecord(9, value=b"?"), *mixed.records]

    assert opened.processor.on_next_batch(mixed) == BatchResponse.advance(12)
    assert [line.get("flights") for line in opened.lines()][1] == [[10, "UA", 1], [11, "UA", 2]]
    assert "flights/3@9 is no event and is passed over" in caplog.text


def test_totals_count_what_was_delivered_twice_once(opened: Opened) -> None:
    """So counts are exact although a crash makes batches come again; a torn line does not count."""
    opened.processor.on_next_batch(batch(10, 5, None, -3))
    opened.processor.on_next_batch(batch(11, None, -3, 7))
    (file,) = opened.folder.glob("*.jsonl")
    (opened.folder / "killed.1.jsonl").write_bytes(file.read_bytes().splitlines()[1][:40])

    assert totals.totals(opened.folder) == ({"UA": [4, 3, 9]}, 2)


@pytest.mark.parametrize(
    "options", [{}, {"journal": "j", "slice": 0}, {"journal": "j", "pause": -1}, {"journal": "j", "x": 1}]
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    """Before anything starts."""
    with pytest.raises(ValidationError):
        delays.Options.model_validate(options)


def test_the_examples_events_can_be_published() -> None:
    """flights.jsonl is what README.md publishes."""
    events = EXAMPLES / "delays" / "flights.jsonl"
    assert check_lines(lines_of(events), "flights.jsonl", Format()) == 200
