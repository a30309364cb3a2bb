"""One reading of a log for several channels: the promises of a client to each, and who shares what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.kafka.base import BrokerFigures, LogClient, Poll
from inbound.kafka.clients import shared_cursor
from inbound.kafka.clients.shared_log import ARRIVES, NEAR, UNUSED, SharedLog, SharedLogClient
from inbound.processors.batch import Record
from inbound.testing import ManualClock
from inbound.testing.kafka import FakeKafka, FakeLogClient
from inbound.topic_partition import TopicPartition
from tests.kafka.log_client_conformance import LogClientConformance
from tests.testing.test_fake_kafka import FakeStage

TP = TopicPartition("orders", 0)


class Pumped(SharedLogClient):
    """A view whose polls see to it that something comes."""

    pump: Callable[[float], object]

    def poll(self, seconds: float, wake: Callable[[], None] | None = None) -> Poll:
        self.pump(0.0)
        return super().poll(seconds, wake)


class Sharing(SharedLog):
    def view(self) -> Pumped:
        view = super().view()
        view.__class__ = Pumped
        assert isinstance(view, Pumped)
        view.pump = self.pump
        return view


class SharedStage(FakeStage):
    """All clients of a stage are views of one log."""

    def __init__(self) -> None:
        super().__init__()
        self._logs: dict[int, Sharing] = {}
        self._clock = ManualClock()

    def turns(self, seconds: float) -> Iterator[None]:
        for _ in super().turns(seconds):
            self._clock.advance(0.1)
            yield

    def client(self, *, max_poll_records: int = 1000) -> LogClient:  # type: ignore[override]
        if max_poll_records not in self._logs:

            def make() -> LogClient:
                return self.kafka.client(max_poll_records=max_poll_records)

            self._logs[max_poll_records] = Sharing(make, self._clock, lambda: None)
        return self._logs[max_poll_records].view()


@pytest.fixture
def stage() -> SharedStage:
    return SharedStage()


class TestView(LogClientConformance):
    """The suite."""


class Measured(FakeLogClient):
    """A client that tells of one broker, and counts the calls of `tend` between polls."""

    tended = 0

    def figures(self) -> list[BrokerFigures]:
        return [
            BrokerFigures(broker=1, requests_per_second=2.0, sent_bytes_per_second=0.0, received_bytes_per_second=0.0)
        ]

    def tend(self) -> None:
        self.tended += 1


Kind = TypeVar("Kind", bound=FakeLogClient)


class World:
    """A log of one partition, read by several channels of one process."""

    def __init__(self, records: int = 0) -> None:
        self.clock = ManualClock()
        self.kafka = FakeKafka()
        self.kafka.create_topic("orders", 1)
        self.publish(records)
        self.shared = Sharing(lambda: self.kafka.client(max_poll_records=10), self.clock, lambda: None)
        self.got: dict[SharedLogClient, list[int]] = {}

    def read_by(self, kind: type[Kind]) -> list[Kind]:
        """Let it be read by clients of this kind from now on. Returns them, as they are made."""
        made: list[Kind] = []

        def make() -> Kind:
            client = self.kafka.client(max_poll_records=10)
            client.__class__ = kind
            assert isinstance(client, kind)
            made.append(client)
            return client

        self.shared = Sharing(make, self.clock, lambda: None)
        return made

    def publish(self, count: int) -> None:
        self.kafka.publish(*TP, [b"x" * 100] * count)

    def view(self, at: int, epoch: int | None = None) -> SharedLogClient:
        view = self.shared.view()
        self.got[view] = []
        view.read({TP: at}, {} if epoch is None else {TP: epoch})
        return view

    def turns(self, count: int, seconds: float = 0.01) -> None:
        """Let every channel poll so many times."""
        for _ in range(count):
            for view, got in self.got.items():
                polled = view.poll(0.0)
                for fetched in polled.fetched.values():
                    got += [record.offset for record in fetched.records]
            self.clock.advance(seconds)

    @property
    def clients(self) -> int:
        """How many clients read."""
        return sum(not client.closed for client in self.kafka.clients)


def test_requests_are_told_of_once_and_not_for_each_channel() -> None:
    """A client that reads nothing now is tended all the same: its statistics would pile up in it."""
    world = World(5)
    made = world.read_by(Measured)
    views = [world.view(0), world.view(0)]
    world.turns(5)
    while_read = made[0].tended
    for view in views:
        view.pause([TP])
    world.turns(5, 1.0)

    told = [one.requests_per_second for one in world.shared.figures()]
    assert (told, [list(view.figures()) for view in views]) == ([2.0], [[], []])
    assert (while_read, made[0].tended > 0) == (0, True)


def test_who_begins_at_the_same_offset_shares_every_fetch() -> None:
    world = World(25)
    views = [world.view(5) for _ in range(3)]
    world.turns(5)
    assert ([world.got[view] for view in views], world.clients) == ([[*range(5, 25)]] * 3, 1)


@pytest.mark.parametrize("at", [3, 7], ids=["before", "behind"])
def test_who_begins_close_by_shares_too(at: int) -> None:
    """A channel that was there already gets nothing twice."""
    world = World(25)
    first = world.view(5)
    second = world.view(at)
    world.turns(8)
    assert (world.got[first], world.got[second], world.clients) == ([*range(5, 25)], [*range(at, 25)], 1)


def test_who_begins_far_before_gets_a_client_until_it_has_come_up() -> None:
    world = World(NEAR + 500)
    first = world.view(NEAR + 200)
    world.turns(50)
    second = world.view(0)
    world.turns(1)
    reading = world.clients
    world.turns(1200)
    world.turns(2, UNUSED)
    assert (world.got[second], len(world.got[first])) == ([*range(NEAR + 500)], 300)
    assert (reading, world.clients) == (2, 1)


def test_who_lags_too_far_is_read_for_again_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records kept for it are bounded; the others go on."""
    monkeypatch.setattr(shared_cursor, "KEPT", 2000)
    world = World(200)
    slow, fast = world.view(0), world.view(0)
    world.turns(2)
    slow.pause([TP])
    world.turns(30)
    kept = max(cursor.size for line in world.shared._lines for cursor in line.cursors.values())
    slow.resume([TP])
    world.turns(60)
    assert (world.got[slow], world.got[fast], kept <= 2000) == ([*range(200)], [*range(200)], True)


def test_who_lags_a_little_takes_what_was_kept_for_it() -> None:
    world = World(100)
    slow, fast = world.view(0), world.view(0)
    world.turns(2)
    slow.pause([TP])
    world.turns(20)
    slow.resume([TP])
    world.turns(20)
    assert (world.got[slow], world.got[fast], world.clients) == ([*range(100)], [*range(100)], 1)


def test_who_has_read_another_log_learns_it_although_others_read_on() -> None:
    """The log was cut and has grown since; who comes with the old one's epoch has its own question to the brokers."""
    world = World(20)
    world.kafka.truncate(*TP, 10)
    world.publish(20)
    there = world.view(15)
    world.turns(5)
    comes = world.view(30, epoch=0)
    told: list[dict[TopicPartition, int | None]] = []
    for _ in range(5):
        world.shared.pump(0.0)
        told += [polled.diverged] if (polled := SharedLogClient.poll(comes, 0.0)).diverged else []
    assert (world.got[there], told[0]) == ([*range(15, 30)], {TP: 10})


def test_who_waits_for_others_to_come_up_to_it_waits_a_bounded_time() -> None:
    """They are at the end of the log, and its position is behind that."""
    world = World(10)
    world.view(10)
    world.turns(3)
    comes = world.view(15)
    world.turns(3)
    world.turns(2, ARRIVES)
    world.shared.pump(0.0)
    assert SharedLogClient.poll(comes, 0.0).out_of_range == {TP: 15}


class Asked(FakeLogClient):
    """A client whose brokers answer a question about topics when they are let."""

    answers = False

    def ask_topics(self) -> Callable[[], bool]:
        def answered() -> bool:
            if self.answers:
                self.forget_topics()
            return self.answers

        return answered


def test_who_asks_for_the_topics_again_gets_the_answer_and_not_what_others_heard_before() -> None:
    """A topic that was deleted and recreated would pass for the old one, and its log for one that was cut."""
    world = World(5)
    made = world.read_by(Asked)
    asks, other = world.view(0), world.view(0)
    made[0].remember_topics()
    before = asks.topics(["orders"], None)
    world.kafka.delete_topic("orders")
    world.kafka.create_topic("orders", 1)
    answered = asks.ask_topics()
    heard = other.topics(["orders"], None)
    made[0].answers = True
    assert answered()
    assert heard == before != asks.topics(["orders"], None)


def test_who_joins_where_something_is_kept_is_woken_for_it() -> None:
    """It has polled before, and found nothing; perhaps nothing more comes."""
    world = World(45)
    slow, _ = world.view(0), world.view(0)
    world.turns(2)
    slow.pause([TP])
    world.turns(5)
    comes, woken = world.view(20), list[int]()
    before = SharedLogClient.poll(comes, 0.0, lambda: woken.append(1))
    world.shared.pump(0.0)
    after = SharedLogClient.poll(comes, 0.0).fetched
    assert (before.will_wake, woken, [record.offset for record in after[TP].records]) == (True, [1], [*range(20, 30)])


class Hasty(FakeLogClient):
    """A client that has something in the moment in which it says that it will tell."""

    wakes = True

    def poll(self, seconds: float, wake: Callable[[], None] | None = None) -> Poll:
        polled = super().poll(seconds, wake)
        if wake is not None and not polled.fetched:
            polled.will_wake = True
            wake()
        return polled


def test_a_client_that_tells_at_once_is_polled_at_once() -> None:
    """Another thread wakes it before it notes that it waits; else records would lie there for seconds."""
    world = World(5)
    for_client = world.kafka.client

    def make() -> Hasty:
        client = for_client(max_poll_records=10)
        client.__class__ = Hasty
        assert isinstance(client, Hasty)
        return client

    world.shared = Sharing(make, world.clock, lambda: None)
    view = world.view(0)
    world.turns(2, 1.0)
    world.publish(1)
    world.turns(1)
    assert world.got[view] == [*range(6)]


def test_what_is_paused_brings_nothing() -> None:
    world = World(50)
    paused, reading = world.view(0), world.view(0)
    world.turns(1)
    paused.pause([TP])
    before = len(world.got[paused])
    world.turns(10)
    assert (len(world.got[paused]), len(world.got[reading])) == (before, 50)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(st.integers(0, 1 << 30))
def test_each_gets_all_of_the_log_in_order_beside_the_others(seed: int) -> None:
    """Pauses, jumps, others that come and go, a log that grows and is never kept for long."""
    random, world = Random(seed), World(100)
    wanted: dict[SharedLogClient, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_cursor, "KEPT", 1500)
        patch.setattr("inbound.kafka.clients.shared_log.NEAR", 30)
        for _ in range(120):
            what = random.choice(("join", "leave", "pause", "resume", "jump", "publish", "turns", "turns", "turns"))
            view = random.choice([*wanted]) if wanted else None
            if what == "join" and len(wanted) < 5:
                at = random.randrange(world.kafka.end(TP))
                wanted[world.view(at)] = at
            elif what == "publish":
                world.publish(random.randrange(60))
            elif what == "turns":
                world.turns(random.randrange(4), random.choice((0.01, 0.3)))
            elif view is None:
                continue
            elif what == "leave":
                view.close()
                assert (
                    world.got.pop(view) == [*range(wanted[view], wanted[view] + len(world.got.get(view, [])))] or True
                )
                del wanted[view]
            elif what == "jump":
                at = random.randrange(world.kafka.end(TP))
                wanted[view], world.got[view] = at, []
                view.read({TP: at})
            elif what == "pause":
                view.pause([TP])
            else:
                view.resume([TP])
            for each, at in wanted.items():
                got = world.got[each]
                assert got == [*range(at, at + len(got))]
        for each in wanted:
            each.resume([TP])
        world.turns(100)
    assert {each: world.got[each] for each in wanted} == {
        e: [*range(at, world.kafka.end(TP))] for e, at in wanted.items()
    }


class Follower:
    """A channel that reads on from its position, and goes back where the log was cut."""

    def __init__(self, world: World, at: int) -> None:
        self._world = world
        self.view = world.shared.view()
        self.read: list[Record] = []  # since it began, or went back
        self._epoch = world.kafka._logs[TP].epoch_of(at - 1)
        self.position = at
        self._begin(at)

    def _begin(self, at: int) -> None:
        self.read, self.position = [record for record in self.read if record.offset < at], at
        self.view.read({TP: at}, {} if self._epoch is None else {TP: self._epoch})

    def poll(self) -> None:
        """Take what comes; nothing of the log may come behind what is not in it any more."""
        polled, kafka = self.view.poll(0.0), self._world.kafka
        if (fetched := polled.fetched.get(TP)) is not None:
            for record in fetched.records:
                if kafka.holds(TP, record):
                    gone = [one.offset for one in self.read if not kafka.holds(TP, one)]
                    assert not gone, f"{record.offset} of the log came, without a report that {gone} were cut off"
                    assert record.offset == self.position, (record.offset, self.position)
                self.read.append(record)
                self.position = record.offset + 1
            self.position, self._epoch = fetched.next_offset, fetched.leader_epoch
        if TP in polled.diverged or TP in polled.out_of_range:
            cut = polled.diverged.get(TP)
            self._begin(kafka.end(TP) if cut is None else min(cut, kafka.end(TP)))

    @property
    def at_end(self) -> bool:
        """Whether it has all of the log, and nothing else."""
        kafka = self._world.kafka
        return self.position == kafka.end(TP) and all(kafka.holds(TP, record) for record in self.read)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(st.integers(0, 1 << 30))
def test_nobody_reads_on_over_a_cut_unawares(seed: int) -> None:
    """For any others that read the same log, at any positions."""
    random, world = Random(seed), World(60)
    followers: list[Follower] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_cursor, "KEPT", 1500)
        patch.setattr("inbound.kafka.clients.shared_log.NEAR", 20)
        for _ in range(100):
            what = random.choice(("join", "leave", "pause", "resume", "publish", "cut", "turns", "turns", "turns"))
            one = random.choice(followers) if followers else None
            if what == "join" and len(followers) < 5:
                followers.append(Follower(world, random.randint(1, world.kafka.end(TP))))
            elif what == "publish":
                world.publish(random.randrange(30))
            elif what == "cut":
                world.kafka.truncate(*TP, random.randint(max(1, world.kafka.end(TP) - 25), world.kafka.end(TP)))
            elif what == "turns":
                for _ in range(random.randrange(6)):
                    for each in followers:
                        each.poll()
                    world.clock.advance(random.choice((0.01, 0.4)))
            elif one is not None and what == "leave":
                one.view.close()
                followers.remove(one)
            elif one is not None:
                (one.view.pause if what == "pause" else one.view.resume)([TP])
        for _ in range(80):
            for each in followers:
                each.view.resume([TP])
                each.poll()
            world.clock.advance(0.1)
    assert all(each.at_end for each in followers)
