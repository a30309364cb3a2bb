"""A producer's batch that becomes larger than it may: its partition is held and says so, everything else goes on."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from inbound.config import ChannelConfig
from inbound.coordinators.dynamic import DynamicCoordinator
from inbound.coordinators.zookeeper import SetData
from inbound.errors import UnreadableBatchError
from inbound.observe.explain.answer import PartitionQuestion, answers
from inbound.observe.explain.detector import StallDetector
from inbound.plan.plan import PlannedChannel
from inbound.process.channels import Running, RunningChannels
from inbound.processors.batch import BatchResponse
from inbound.testing.kafka import FakeKafka
from inbound.testing.world import Consumer, Recording, World
from inbound.topic_partition import TopicPartition
from tests.channel.one_partition import offsets

MIB = 1024 * 1024
TP = TopicPartition("orders", 0)
HELD = (
    "the batch of records at offset 2 cannot be read: 1000 bytes become more than 67108864 (reader.max_decompressed_bytes) "
    "when they are decompressed; raise that, or move the group past it, to 5 (inbound offsets reset)"
)


def planned(**reader: object) -> PlannedChannel:
    """Return a channel's plan with these settings of its reader."""
    processor = {"type": "simple"}
    settings = {"topics": ["orders"], "group": "group", "processor": processor, "workers": 1, "reader": reader}
    return PlannedChannel(ChannelConfig.model_validate(settings), Recording, "", {}, DynamicCoordinator())


class Bombed:
    """One consumer of two partitions; in the first stand two records, a batch that becomes 600 MiB, and one more record."""

    def __init__(self) -> None:
        self.world = World()
        self.world.kafka.create_topic("orders", 2)
        self.publish(0, 2)
        self.world.kafka.publish_batch("orders", 0, [b"x"] * 3, 600 * MIB)
        self.publish(0, 1)
        self.publish(1, 1)
        self.consumer: Consumer = self.world.join("a")
        channel, connect = self.consumer.channel, self.consumer.connect
        assert connect is not None
        self.detector = StallDetector(lambda: [channel], self.world.clock, 2.0)
        self.consumer.parts.append(self.detector)
        self.channels = RunningChannels(
            lambda name, plan: Running(plan, channel, self.consumer.controller, connect=lambda plan: connect),
            self.world.clock,
        )
        self.channels.make("orders", planned())
        self.world.run(10)

    def publish(self, partition: int, count: int) -> None:
        """Publish records that are what they seem."""
        self.world.kafka.publish("orders", partition, [b"x"] * count)

    def reload(self, **reader: object) -> None:
        """Let the configuration be another one, and some time pass."""
        self.channels.edit("orders", planned(**reader))
        self.world.run(5)

    @property
    def held(self) -> list[str | None]:
        """Why the partitions are held, as status says."""
        return [partition.held for partition in self.consumer.channel.status().partitions]

    @property
    def handed(self) -> dict[int, list[int]]:
        """The offsets that the processor was handed, by partition."""
        assert isinstance(self.consumer.processor, Recording)
        seen = self.consumer.processor.seen
        return {number: [offset for tp, offset in seen if tp.partition == number] for number in (0, 1)}


def test_a_batch_beyond_the_bound_holds_its_partition_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """What stands before it is delivered and committed; in status and in the log once, with what to do."""
    caplog.set_level(logging.ERROR)
    bombed = Bombed()
    bombed.publish(1, 2)
    bombed.world.run(60)

    assert bombed.handed == {0: [0, 1], 1: [0, 1, 2]}
    assert bombed.world.commits() == {0: 2, 1: 3}
    assert bombed.held == [HELD, None]
    assert [r.getMessage() for r in caplog.records] == [f"group orders/0: held: {HELD}"]
    assert bombed.consumer.channel.parts.meters.holds.counts()["unreadable"] == 1


def test_it_is_explained_with_what_to_do() -> None:
    """By `inbound explain`, and as the cause of a stall."""
    bombed = Bombed()
    bombed.world.run(60)
    (answer,) = answers([bombed.consumer.channel], bombed.detector, PartitionQuestion(TP, None))

    found = answer["explanation"]
    assert (found["cause"], found["text"]) == ("read-fails", f"held: {HELD}")


def test_it_goes_on_with_the_batch_when_the_bound_is_raised_by_a_reload() -> None:
    """Once, from the commit on; nothing is skipped, and nothing is read twice."""
    bombed = Bombed()
    bombed.reload(max_decompressed_bytes="1GiB")

    assert (bombed.handed, bombed.world.commits()) == ({0: [0, 1, 2, 3, 4, 5], 1: [0]}, {0: 6, 1: 1})
    assert bombed.held == [None, None]


def test_another_edit_does_not_let_it_pass() -> None:
    """It is looked at again, and held for the same reason."""
    bombed = Bombed()
    bombed.reload(idle_wait="200ms")

    assert (bombed.handed[0], bombed.world.commits(), bombed.held) == ([0, 1], {0: 2, 1: 1}, [HELD, None])


def test_what_a_client_says_that_is_about_to_go_is_void() -> None:
    """1. The bound is raised; 2. the former client still finds the batch too large; 3. nobody would try again."""
    bombed = Bombed()
    fetch, edits = bombed.world.kafka.fetch, [planned(max_decompressed_bytes="1GiB")]

    def meanwhile(*asked: Any) -> Any:
        try:
            return fetch(*asked)
        except UnreadableBatchError:
            if edits:
                bombed.channels.edit("orders", edits.pop())
            raise

    bombed.world.kafka.fetch = meanwhile  # type: ignore[method-assign, assignment]
    bombed.world.kafka.publish_batch("orders", 1, [b"x"] * 3, 600 * MIB)
    bombed.world.run(10)

    assert (bombed.handed, bombed.held) == ({0: [0, 1, 2, 3, 4, 5], 1: [0, 1, 2, 3]}, [None, None])


def test_the_processor_gets_it_once() -> None:
    """As of a position that is not in the log."""
    bombed = Bombed()
    bombed.world.run(60)

    assert isinstance(bombed.consumer.processor, Recording)
    assert [c for c in bombed.consumer.processor.calls if c[0] == "exception"] == [
        ("exception", 0, "UnreadableBatchError")
    ]


def test_a_group_that_is_moved_past_it_goes_on() -> None:
    """The other way out that the message names."""
    bombed = Bombed()
    bombed.world.leave("a")
    bombed.world.ensemble.tree.transaction([SetData(bombed.world.paths.offset("orders", 0), b"5")], 0)
    processor = Recording()
    bombed.world.join("b", processor)
    bombed.world.run(10)

    assert (offsets(processor), bombed.world.commits()) == ([5], {0: 6, 1: 1})


def test_its_next_owner_holds_it_too() -> None:
    """The commit says where; a rebalance loses nothing."""
    bombed = Bombed()
    bombed.world.leave("a")
    processor = Recording()
    consumer = bombed.world.join("b", processor)
    bombed.world.run(10)

    held = [partition.held for partition in consumer.channel.status().partitions]
    assert (held, offsets(processor), bombed.world.commits()) == ([HELD, None], [], {0: 2, 1: 1})


class Broken(Bombed):
    """As `Bombed`, but what is wrong with the batch is that it comes broken, so many times."""

    def __init__(self, times: int) -> None:
        self.left = times
        super().__init__()

    def publish(self, partition: int, count: int) -> None:
        """Publish records; with the first of them the log begins to break batches at offset 2."""
        fetch, kafka = FakeKafka.fetch, self.world.kafka

        def breaks(tp: TopicPartition, position: int, limit: int, size: int, epoch: int | None, most: int) -> Any:
            if tp == TP and position == 2 and self.left:
                self.left -= 1
                raise UnreadableBatchError(tp.topic, tp.partition, position, "CorruptRecordError: failed crc check")
            return fetch(kafka, tp, position, 2 if tp == TP and position < 2 else limit, size, epoch, 16 * most)

        kafka.fetch = breaks  # type: ignore[method-assign, assignment]
        super().publish(partition, count)


def test_a_batch_that_comes_broken_is_fetched_again_before_anything_is_held(caplog: pytest.LogCaptureFixture) -> None:
    """A bit that fell on the way from a broker is no reason to wait for an operator."""
    caplog.set_level(logging.WARNING)
    bombed = Broken(times=2)

    assert (bombed.handed[0], bombed.world.commits()[0], bombed.held) == ([0, 1, 2, 3, 4, 5], 6, [None, None])
    assert [r.getMessage() for r in caplog.records] == [
        "group orders/0: the batch of records at offset 2 cannot be read: CorruptRecordError: failed crc check; "
        "fetching it again"
    ] * 2


def test_a_batch_that_stays_broken_is_held() -> None:
    """After three looks; it is looked at again when the configuration changes, and may be whole by then."""
    bombed = Broken(times=3)
    held = bombed.held
    bombed.reload(idle_wait="200ms")

    assert held == ["the batch of records at offset 2 cannot be read: CorruptRecordError: failed crc check", None]
    assert (bombed.handed[0], bombed.world.commits()[0], bombed.held) == ([0, 1, 2, 3, 4, 5], 6, [None, None])


def test_what_was_found_before_the_bound_was_raised_and_not_faced_yet_is_read_again() -> None:
    """1. A batch is found too large while a slow processor has records before it; 2. the bound is raised; 3. their turn ends."""
    bombed = Bombed()
    processor = bombed.consumer.processor
    assert isinstance(processor, Recording)
    clock = bombed.world.clock
    busy = clock.now() + 30
    processor.answer = lambda _: BatchResponse.revert(wait=20) if clock.now() < busy else BatchResponse.advance()
    bombed.publish(1, 2)
    bombed.world.kafka.publish_batch("orders", 1, [b"x"] * 3, 600 * MIB)
    bombed.world.run(10)
    before = bombed.held
    bombed.reload(max_decompressed_bytes="1GiB")
    bombed.world.run(60)

    assert (before, bombed.held) == ([HELD, None], [None, None])
    assert bombed.world.commits() == {0: 6, 1: 6}
