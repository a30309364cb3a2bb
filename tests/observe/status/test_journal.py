"""The journal: what is kept, what is counted, what is logged, and that it stays within its bounds."""

import logging

import pytest

from inbound.partition import journal as module
from inbound.partition.journal import OF_CHANNEL, PER_PARTITION, Journal
from inbound.testing import ManualClock
from inbound.topic_partition import TopicPartition

ONE, TWO = TopicPartition("orders", 1), TopicPartition("orders", 2)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def journal(clock: ManualClock) -> Journal:
    return Journal("orders", "orders-svc", clock.wall)


def test_an_event_is_kept_and_is_one_line_with_its_fields(
    journal: Journal, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    journal.note("claimed", "claimed, after b left", ONE, offset=7, epoch=3, session="0x1")
    (event,) = journal.of(ONE)
    assert (event.at, event.kind, event.offset, event.epoch, event.count) == (clock.wall(), "claimed", 7, 3, 1)
    (line,) = caplog.records
    assert line.getMessage() == "orders-svc orders/1: claimed, after b left"
    assert line.__dict__["inbound"] == {
        "event": "claimed", "channel": "orders", "group": "orders-svc", "topic": "orders", "partition": 1, "offset": 7,
        "epoch": 3, "session": "0x1",
    }  # fmt: skip


def test_a_loop_is_one_event_with_a_count_and_a_last_time(
    journal: Journal, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    began = clock.wall()
    for _ in range(100):
        journal.note("reverted", "went back to 7", ONE, offset=7, epoch=3)
        clock.advance(1.0)
    (event,) = journal.of(ONE)
    assert (event.at, event.count, event.last) == (began, 100, began + 99)
    assert len(caplog.records) == 7, "at the 1st, 2nd, 4th, 8th, 16th, 32nd and 64th time"


def test_warnings_are_logged_each_time(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    for attempt in range(3):
        journal.note("failed", f"attempt {attempt}", ONE, offset=7, epoch=3, level=logging.ERROR)
    assert [record.getMessage()[-9:] for record in caplog.records] == ["attempt 0", "attempt 1", "attempt 2"]
    assert [event.text for event in journal.of(ONE)] == ["attempt 2"]


@pytest.mark.parametrize("other", [("reverted", 8, 3), ("reverted", 7, 4), ("claimed", 7, 3)])
def test_what_differs_is_another_event(journal: Journal, other: tuple[str, int, int]) -> None:
    journal.note("reverted", "text", ONE, offset=7, epoch=3)
    kind, offset, epoch = other
    journal.note(kind, "text", ONE, offset=offset, epoch=epoch)
    assert len(journal.of(ONE)) == 2


def test_events_of_the_channel_count_as_one_only_with_the_same_text(journal: Journal) -> None:
    for text in ("a joined", "b joined", "b joined"):
        journal.note("joined", text)
    assert [(event.text, event.count) for event in journal.of()] == [("a joined", 1), ("b joined", 2)]


def test_a_partition_and_the_channel_keep_the_newest(journal: Journal) -> None:
    for number in range(1000):
        journal.note("claimed", "text", ONE, offset=number)
        journal.note("joined", f"{number}")
    assert (len(journal.of(ONE)), journal.of(ONE)[-1].offset) == (PER_PARTITION, 999)
    assert (len(journal.of()), journal.of()[-1].text) == (OF_CHANNEL, "999")


def test_all_partitions_together_are_bounded_and_the_quietest_go_first(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IN_ALL", 100)
    journal.note("claimed", "text", ONE)
    for number in range(99):
        journal.note("claimed", "text", TopicPartition("many", number))
    journal.note("released", "text", ONE)  # the 101st: another one is dropped
    assert (len(journal.of(ONE)), len(journal.of(TopicPartition("many", 0)))) == (2, 0)
    assert sum(len(journal.of(TopicPartition("many", number))) for number in range(99)) == 98


def test_the_last_event_of_some_kinds_is_found_and_a_topic_forgotten(journal: Journal) -> None:
    journal.note("claimed", "first", ONE, epoch=1)
    journal.note("released", "text", ONE, epoch=1)
    journal.note("claimed", "second", ONE, epoch=2)
    found = journal.last(ONE, "claimed", "lost")
    assert (found.text if found else None, journal.last(ONE, "lost"), journal.last(TWO, "claimed")) == (
        "second",
        None,
        None,
    )
    journal.forget(ONE)
    assert journal.of(ONE) == ()
