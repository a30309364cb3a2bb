"""The ledger in a topic: what is acknowledged is there, in order, and what failed is sent again."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from inbound.clock import SystemClock
from inbound.errors import LedgerError
from inbound.ledger import Done, Entry, Range, Settled
from inbound.ledger.columns import items_of, record_batches
from inbound.ledger.jsonl import read_record
from inbound.ledger.kafka import MOST_UNACKNOWLEDGED, KafkaLedger, LedgerProducer
from inbound.ledger.places import RemotePath
from inbound.testing import ManualClock
from tests.waiting import until, wait_for

Answer = Callable[[Exception | None], None]


class Broker:
    """A topic with one partition. Acknowledges at once, holds answers back, or refuses, as the test wants."""

    def __init__(self) -> None:
        self.log: list[tuple[bytes, bytes]] = []
        self.opened = 0
        self.away = False
        self.holding = False
        self.held: list[tuple[bytes, bytes, Answer]] = []

    def open(self) -> LedgerProducer:
        self.opened += 1
        if self.away:
            raise LedgerError("ledger topic t at b:1: no brokers; check that they run")
        return Connection(self)

    def let_go(self) -> None:
        """Take what was held back, and say so."""
        self.holding, held = False, self.held
        self.held = []
        for key, value, answered in held:
            self.log.append((key, value))
            answered(None)

    def lose(self) -> None:
        """Take nothing of what was held back."""
        self.holding, held = False, self.held
        self.held = []
        for _, _, answered in held:
            answered(TimeoutError("expired"))

    def entries(self) -> list[Entry]:
        items = [read_record("t", 0, offset, key, value) for offset, (key, value) in enumerate(self.log)]
        assert all(isinstance(item, Entry) for item in items), items
        return [item for item in items if isinstance(item, Entry)]

    def told(self) -> list[tuple[str, int]]:
        return [(entry.kind, entry.seq) for entry in self.entries()]


class Connection(LedgerProducer):
    """A producer of the broker above."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def send(self, key: bytes, value: bytes, answered: Answer) -> None:
        if self._broker.away:
            raise LedgerError("ledger topic t at b:1: no metadata; check that its brokers run")
        if self._broker.holding:
            self._broker.held.append((key, value, answered))
        else:
            self._broker.log.append((key, value))
            answered(None)

    def close(self) -> None:
        pass


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ledger(broker: Broker, clock: ManualClock) -> KafkaLedger:
    return KafkaLedger(broker.open, "t", "g", "a", clock)


def batch(number: int) -> Range:
    return Range("orders", 3, 7, number * 10, number * 10 + 10, 10)


def finished(number: int) -> Done:
    return Done("orders", 3, 7, number * 10, number * 10 + 10, number * 10 + 10)


def test_the_lines_are_those_of_the_files_keyed_by_run(broker: Broker, ledger: KafkaLedger) -> None:
    """Nothing is asked of the brokers before the first entry."""
    assert broker.opened == 0
    ledger.begun(batch(0))
    ledger.done([finished(0)])
    ledger.settled([Settled("orders", 3, 7, 10, "landed", 99)])
    ledger.note("lost", topic="orders", partition=3, epoch=7)
    ledger.close()

    assert broker.told() == [("header", 0), ("begun", 1), ("done", 2), ("settled", 3), ("lost", 4), ("end", 4)]
    header, first = broker.entries()[:2]
    assert {key for key, _ in broker.log} == {header.run.encode()}
    assert (first.run, first.group, first.consumer, first.first, first.line, str(first.path)) == (
        header.run, "g", "a", 0, 1, "kafka://t/0",
    )  # fmt: skip


def test_done_waits_for_everything_up_to_it(broker: Broker, ledger: KafkaLedger) -> None:
    """`begun` and `settled` do not; their order is kept."""
    ledger.begun(batch(0))
    broker.holding = True
    ledger.settled([Settled("orders", 3, 7, 10, "landed", 99)])
    over = threading.Event()

    def work() -> None:
        ledger.done([finished(1)])
        over.set()

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: len(broker.held) == 2, 5, "both are sent", look=0.005)
    assert not over.wait(0.05)

    broker.let_go()

    wait_for(over, 5, "done returns")
    thread.join()
    assert broker.told() == [("header", 0), ("begun", 1), ("settled", 2), ("done", 3)]


def test_what_was_not_acknowledged_is_sent_again_under_its_numbers(
    broker: Broker, ledger: KafkaLedger, clock: ManualClock
) -> None:
    """By another producer, whose header says why; nothing is missing in the end."""
    ledger.begun(batch(0))
    broker.holding = True
    ledger.begun(batch(1))
    ledger.settled([Settled("orders", 3, 7, 10, "landed", 99)])
    broker.lose()

    ledger.done([finished(1)])
    ledger.close()

    assert broker.told() == [
        ("header", 0), ("begun", 1), ("header", 1 + 2), ("begun", 2), ("settled", 3), ("done", 4), ("end", 4),
    ]  # fmt: skip
    header = broker.entries()[2]
    assert (header.facts["file"], header.facts["previous"], header.facts["why"]) == (2, "1", "write failed: expired")


def test_without_an_answer_done_fails_and_can_be_given_again(broker: Broker) -> None:
    """It may stand twice then, under two numbers: as in files."""
    ledger = KafkaLedger(broker.open, "t", "g", "a", SystemClock(), ack_timeout=0.05)
    ledger.begun(batch(0))
    broker.holding = True

    with pytest.raises(
        LedgerError, match=r"topic t: not acknowledged \(no answer within 0.05 s\).*check that its brokers"
    ):
        ledger.done([finished(0)])

    broker.holding = False
    ledger.done([finished(0)])
    assert broker.told() == [("header", 0), ("begun", 1), ("header", 2), ("done", 2), ("done", 3)]


def test_while_the_brokers_are_away_each_call_says_so_and_numbers_have_no_gap(
    broker: Broker, ledger: KafkaLedger, clock: ManualClock
) -> None:
    """They are asked once a second, however many partitions want to go on."""
    broker.away = True
    for _ in range(5):
        with pytest.raises(LedgerError, match="topic t at b:1: no brokers"):
            ledger.begun(batch(0))
    assert broker.opened == 1

    broker.away = False
    clock.advance(1)
    ledger.begun(batch(0))

    assert broker.told() == [("header", 0), ("begun", 1)]


def test_an_entry_that_was_not_taken_gives_its_number_back(
    broker: Broker, ledger: KafkaLedger, clock: ManualClock
) -> None:
    """The brokers go away while a producer is there."""
    ledger.begun(batch(0))
    broker.away = True
    with pytest.raises(LedgerError, match="no metadata"):
        ledger.begun(batch(1))
    broker.away = False
    clock.advance(1)

    ledger.begun(batch(2))

    assert broker.told() == [("header", 0), ("begun", 1), ("header", 1), ("begun", 2)]
    assert broker.entries()[-1].first == 20


def test_what_was_not_taken_is_reported_before_the_next_entry(
    broker: Broker, ledger: KafkaLedger, clock: ManualClock
) -> None:
    """And before the end, if nothing follows."""
    broker.away = True
    with pytest.raises(LedgerError):
        ledger.begun(batch(0))
    ledger.lacks("orders", 3, 7)
    broker.away = False
    clock.advance(1)
    ledger.begun(batch(1))
    ledger.lacks("orders", 3, 7)
    ledger.close()

    kinds = ["header", "degraded", "degraded", "begun", "degraded", "degraded", "end"]
    assert broker.told() == list(zip(kinds, [0, 1, 2, 3, 4, 5, 5], strict=True))


def test_entries_that_nobody_waits_for_do_not_pile_up_without_end(broker: Broker, ledger: KafkaLedger) -> None:
    """A processor that never commits gets a bounded number of batches while the brokers are silent."""
    broker.holding = True
    for number in range(MOST_UNACKNOWLEDGED):
        ledger.begun(batch(number))

    with pytest.raises(LedgerError, match="4096 entries are not acknowledged yet"):
        ledger.begun(batch(0))
    broker.let_go()
    ledger.begun(batch(0))


def test_after_close_nothing_is_taken(broker: Broker, ledger: KafkaLedger) -> None:
    """A second close does nothing; without a clean end there is no mark of it."""
    ledger.begun(batch(0))
    ledger.close(clean=False)
    ledger.close()

    with pytest.raises(LedgerError, match="it is closed"):
        ledger.begun(batch(1))
    assert broker.told() == [("header", 0), ("begun", 1)]


def test_records_as_columns_are_the_same_entries_and_strangers_are_damage(broker: Broker, ledger: KafkaLedger) -> None:
    """What others have put into the topic is named by its offset."""
    ledger.begun(batch(0))
    ledger.close()
    broker.log += [(b"x", b"hello")]
    records: list[tuple[int, int, bytes | None, bytes | None]] = [(0, n, k, v) for n, (k, v) in enumerate(broker.log)]
    records.append((0, 4, b"tombstone", None))

    rows = [row for found in record_batches("t", records) for row in found.to_pylist()]

    assert [(row["kind"], row["line"]) for row in rows] == [
        ("header", 0), ("begun", 1), ("end", 2), ("damaged", 3), ("damaged", 4),
    ]  # fmt: skip
    assert rows[3]["raw"] == b"hello"
    (found,) = record_batches("t", records[:2])
    path = RemotePath("kafka://t", "0")
    assert list(items_of(found, path)) == [read_record("t", *record) for record in records[:2]]
