"""Reading a dead letter topic: up to where it ended at the start, whichever events follow."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inbound.dead_letters.log import PATIENCE, LetterLog
from inbound.errors import BrokerUnavailableError, ConfigError
from inbound.kafka.base import Poll
from inbound.testing.clock import ManualClock
from inbound.testing.kafka import FakeKafka, FakeLogClient
from tests.dead_letters.dead_letter_stage import DEAD, NIGHT, event, put, refused


class Client(FakeLogClient):
    """Lets time pass with each poll, and something happen before it."""

    clock: ManualClock
    before: Callable[[], None] = staticmethod(lambda: None)

    def poll(self, seconds: float, wake: Callable[[], None] | None = None) -> Poll:
        self.clock.advance(seconds)
        self.before()
        return super().poll(seconds, wake)


@pytest.fixture
def kafka() -> FakeKafka:
    """Two partitions, with 5 and 3 letters a minute apart."""
    kafka = FakeKafka()
    kafka.create_topic(DEAD, 2)
    for partition, count in ((0, 5), (1, 3)):
        put(kafka, [refused(event(f"{partition}-{n}")) for n in range(count)], partition)
    return kafka


@pytest.fixture
def client(kafka: FakeKafka) -> Client:
    client = Client(kafka, 2)
    client.clock = ManualClock()
    return client


def places(log: LetterLog) -> list[str]:
    return [letter.place for letter in log.letters()]


ALL = ["0/0", "0/1", "0/2", "0/3", "0/4", "1/0", "1/1", "1/2"]


def test_letters_come_by_partition_and_offset_up_to_the_end_of_the_start(kafka: FakeKafka, client: Client) -> None:
    """Later records are not read: it never tails."""
    log = LetterLog(client, DEAD, client.clock)
    client.before = lambda: put(kafka, [refused(event("new"))], 0)

    assert (log.size, places(log)) == (8, ALL)


def test_offsets_without_a_record_at_the_end_are_no_reason_to_wait(kafka: FakeKafka, client: Client) -> None:
    """Markers of transactions, say."""
    kafka.skip(DEAD, 1, 2)

    assert places(LetterLog(client, DEAD, client.clock)) == ALL


def test_reading_begins_at_a_time_by_the_index(client: Client) -> None:
    """A partition without so late a letter is not read."""
    log = LetterLog(client, DEAD, client.clock)
    log.begin_at(NIGHT / 1000 + 3 * 60)

    assert (log.size, places(log)) == (2, ["0/3", "0/4"])


def test_single_letters_are_read_alone(client: Client) -> None:
    """Of each partition from the first to the last of them; a redrive reads exactly those."""
    log = LetterLog(client, DEAD, client.clock)
    log.narrow_to([(0, 3), (0, 1), (1, 2)])

    assert log.size == 4
    assert [(p, r.offset) for p, r in log.records_at({0: [1, 3], 1: [2]})] == [(0, 1), (0, 3), (1, 2)]


def test_a_letter_that_is_not_there_is_refused(kafka: FakeKafka, client: Client) -> None:
    """With what there is."""
    kafka.retain(DEAD, 0, 2)
    log = LetterLog(client, DEAD, client.clock)
    told = []
    for place in ((0, 1), (0, 5), (7, 0)):
        with pytest.raises(ConfigError) as raised:
            log.narrow_to([place])
        told.append(str(raised.value))

    assert told == [
        f"topic {DEAD}: no letter at 0/1: it holds 2 to 4",
        f"topic {DEAD}: no letter at 0/5: it holds 2 to 4",
        f"topic {DEAD}: no letter at 7/0: it has no such partition",
    ]


def test_what_retention_deletes_is_passed_over(kafka: FakeKafka, client: Client) -> None:
    """Reading goes on where the log begins now."""
    log = LetterLog(client, DEAD, client.clock)
    kafka.retain(DEAD, 0, 3)

    assert places(log) == [place for place in ALL if place not in ("0/0", "0/1", "0/2")]


def test_a_leader_that_is_away_ends_it_with_what_to_do(kafka: FakeKafka, client: Client) -> None:
    """After a while, and not before."""
    log = LetterLog(client, DEAD, client.clock)
    client.before = lambda: kafka.lose_leader(DEAD, 0)
    with pytest.raises(BrokerUnavailableError, match=rf"^{DEAD}/0: no record has come for 30 s, at offset 0 of 5"):
        places(log)

    assert client.clock.now() >= PATIENCE


def test_a_topic_that_does_not_exist_is_named(client: Client) -> None:
    """It is not created."""
    with pytest.raises(ConfigError, match=r"^topic nothing: does not exist on these brokers"):
        LetterLog(client, "nothing", client.clock)
