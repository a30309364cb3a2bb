"""`no_duplication: true`: the commit first, then the sinks. Nothing comes twice, and what is lost is named."""

from __future__ import annotations

from typing import Any

import pytest

from inbound.errors import PartitionLostError
from inbound.processors.base import Context
from inbound.processors.batch import Batch, BatchResponse, PlainRecord
from inbound.processors.simple import SimpleProcessor
from inbound.testing.world import World
from inbound.topic_partition import TopicPartition
from tests.channel.one_partition import publish, world
from tests.processors.simple_stage import Batches, Events, Journal, join, publish_events

__all__ = ["world"]  # the fixture

NAME = "tests.processors.simple_stage"


def once(world: World, name: str = "a", *, undecodable: str = "fail", **settings: Any) -> Journal:
    """Start a consumer that sends at most once."""
    return join(world, {"no_duplication": True, "undecodable": undecodable}, name, **settings)


def made() -> Batch:
    """Return a batch of the offsets 10 to 12."""
    return Batch("orders", 3, 10, 13, [PlainRecord(offset) for offset in range(10, 13)])


def opened() -> SimpleProcessor:
    """Return an open processor with the sink `log`."""
    processor = SimpleProcessor()
    options = SimpleProcessor.Options.model_validate({"sinks": ["log"], "no_duplication": True})
    processor.open(Context("c", "g", "me", options=options))
    return processor


def test_what_is_sent_was_committed_before(world: World) -> None:
    """The commit has landed when a sink sees the batch."""
    journal = once(world, reader={"max_batch_records": 2})
    publish(world, 4)
    world.run(2)
    assert (journal.offsets, journal.commits, world.commits()) == ([0, 1, 2, 3], [2, 4], {0: 4})


def test_a_crash_before_the_commit_lands_sends_nothing(world: World) -> None:
    """So the next owner can."""
    first = once(world)
    world.ensemble.cut_off("a")
    publish(world, 3)
    world.run(1)
    world.kill("a")
    second = once(world, "b")
    world.run(20)
    assert (first.offsets, second.offsets) == ([], [0, 1, 2])


def test_a_crash_while_sending_repeats_nothing(world: World) -> None:
    """The rest of that batch is lost, and only that."""
    first = once(world)
    publish(world, 3)

    def dies(offset: int) -> bool:
        if offset == 1:
            world.kill("a")
            raise SystemExit
        return False

    first.fails = dies
    world.run(2)
    publish(world, 2)
    second = once(world, "b")
    world.run(20)
    assert (first.offsets, second.offsets) == ([0], [3, 4])


def test_a_graceful_stop_sends_what_was_committed(world: World) -> None:
    """Before the partition goes: the next owner would not."""
    first = once(world)
    publish(world, 3)
    world.run_until(lambda: world.commits() == {0: 3}, within=5)
    assert first.offsets == []
    world.leave("a")
    assert (first.offsets, world.owned()) == ([0, 1, 2], {})


def test_a_session_that_expires_after_the_commit_has_landed_sends_all_the_same(world: World) -> None:
    """The partition is another's, but these records are ours."""
    first = once(world)
    publish(world, 3)
    world.run_until(lambda: world.commits() == {0: 3}, within=5)
    world.ensemble.expire_session("a")
    second = once(world, "b")
    world.run(20)
    assert (first.offsets, second.offsets) == ([0, 1, 2], [])


def test_records_of_a_commit_that_is_refused_are_left_to_the_new_owner(world: World) -> None:
    """Overtaken while the batch was with the committer."""
    first = once(world)
    world.pause("a")
    publish(world, 3)
    second = once(world, "b")
    world.run(20)
    world.resume("a")
    world.run(10)
    assert (first.offsets, second.offsets) == ([], [0, 1, 2])


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "closed"])
def test_records_whose_commit_may_not_have_landed_are_named(caplog: Any, lost: bool) -> None:
    """The answer was given and nothing is known of the commit, when the partition is lost or the processor closed."""
    processor = opened()
    assert processor.on_next_batch(made()) == BatchResponse.advance(13)
    if lost:
        processor.on_exception(TopicPartition("orders", 3), PartitionLostError("orders", 3, "lost"))
    processor.close()
    assert caplog.messages == [
        "orders/3: offsets 10 to 12 were not sent: the commit before it was not known to have landed; if it did, they are "
        "lost (no_duplication), else they are sent by the partition's next owner"
    ]


def test_a_sink_that_fails_loses_that_event_counted_and_named(world: World, caplog: Any) -> None:
    """The others are sent, and nothing is sent again."""
    journal = once(world, kinds=[Events])
    journal.fails = lambda name: name in {"b", "e"}
    publish_events(world, *"abcdef")
    world.run(5)
    assert (journal.ids, world.commits()) == (list("acdf"), {0: 6})
    assert world.consumers["a"].channel.status().not_sent_total == 2
    assert [message for message in caplog.messages if "did not take" in message] == [
        f"orders/0: sink {NAME}:Events did not take 2 of 6 records, at offsets 1, 4: OSError: no route to host; they "
        "are committed and will not be sent again (no_duplication); 2 not sent since the start"
    ]


def test_after_three_failures_in_a_row_the_rest_of_the_batch_is_not_tried(world: World, caplog: Any) -> None:
    """Each would wait for a time-out; all of them are named."""
    tried = []
    journal = once(world, kinds=[Events], reader={"max_batch_records": 6})

    def fails(name: str) -> bool:
        tried.append(name)
        return name != "a"

    journal.fails = fails
    publish_events(world, *"abcdef")
    world.run_until(lambda: world.commits() == {0: 6}, within=5)
    world.run(1)
    assert (tried, journal.ids) == (list("abcd"), ["a"])
    assert "did not take 5 of 6 records, at offsets 1-5: OSError: no route to host" in caplog.text


def test_an_outage_of_a_sink_costs_a_batch_for_each_rest_and_not_the_backlog(world: World) -> None:
    """Rests of 1, 2, 4, 8 s: nothing is committed in them."""
    journal = once(world, reader={"max_batch_records": 10})
    down_until = world.clock.now() + 20
    journal.fails = lambda offset: world.clock.now() < down_until
    publish(world, 200)
    world.run(60)
    assert (journal.offsets, world.commits()) == (list(range(50, 200)), {0: 200})


def test_one_sink_that_fails_takes_nothing_from_the_others(world: World) -> None:
    """Each gets everything once."""
    journal = once(world, kinds=[Events, Batches])
    journal.fails = lambda what: what == "b"
    publish_events(world, *"abc")
    world.run(5)
    assert (journal.ids, journal.offsets) == (["a", "c"], [0, 1, 2])


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (BatchResponse.revert(), "did not take 3 of 3 records, at offsets 0-2: it asked to have the batch again"),
        (BatchResponse.advance(1), "did not take 2 of 3 records, at offsets 1-2: it asked to have offset 1 again"),
    ],
)
def test_a_batch_sink_cannot_have_anything_again(
    world: World, caplog: Any, answer: BatchResponse, missing: str
) -> None:
    """It is committed; the log says so, and nothing is sent twice."""
    journal = once(world, reader={"max_batch_records": 3})
    journal.answer = answer
    world.kafka.publish("orders", 0, [b"x"] * 3)
    world.run(30)
    assert (journal.offsets, world.commits()) == ([0, 1, 2], {0: 3})
    assert missing in caplog.text


@pytest.mark.parametrize(
    ("undecodable", "dead", "warned"),
    [("fail", [2], []), ("skip", [], ["orders/0@2 is no event and is passed over (undecodable"])],
)
def test_an_undecodable_record_is_for_on_error_or_passed_over(
    world: World, caplog: Any, undecodable: str, dead: list[int], warned: list[str]
) -> None:
    """What is before it is sent; on_error gets the record before its commit, and can still hand it elsewhere."""
    given: list[int] = []
    journal = once(
        world,
        kinds=[Events],
        undecodable=undecodable,
        on_error={"max_attempts": 1, "then": "dead-letter", "dead_letter_topic": "dead"},
        dead_letters=lambda topic, partition, records, why: given.extend(record.offset for record in records),
    )
    publish_events(world, "a", "b", None, "d")
    world.run(30)
    assert (journal.ids, given, world.commits()) == (["a", "b", "d"], dead, {0: 4})
    assert [m.split(":")[0] for m in caplog.messages if "passed over" in m] == warned
