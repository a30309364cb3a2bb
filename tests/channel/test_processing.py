"""What is delivered to a processor, what its answers do, and when its callbacks come."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import BaseModel, ValidationError

from inbound import Batch, BatchResponse, Context, TopicPartition
from inbound.errors import LedgerError
from inbound.ledger.base import Done, Range, Settled
from inbound.ledger.memory import Note
from inbound.testing.world import Recording, World
from tests.channel.one_partition import answers, both_kinds, offsets, publish, start, world

__all__ = ["world"]  # the fixture


# -- answers ---------------------------------------------------------------------------------------------------------


def test_everything_is_delivered_in_order_and_committed(world: World) -> None:
    """And on_batch_processed comes after each commit."""
    publish(world, 10)
    processor = start(world, reader={"max_batch_records": 4})
    assert offsets(processor) == list(range(10))
    assert [call for call in processor.calls if call[0] == "processed"] == [
        ("processed", 0, 4),
        ("processed", 0, 8),
        ("processed", 0, 10),
    ]
    assert world.commits() == {0: 10}


@both_kinds
@pytest.mark.parametrize(
    ("responses", "delivered"),
    [
        ([BatchResponse.advance(1)], [0, 1, 1, 2, 3]),  # a prefix is committed, and the rest is delivered again
        (
            [BatchResponse.advance(), BatchResponse.revert(1)],
            [0, 1, 2, 3, 1, 2, 3],
        ),  # Kafka is asked again for offset 1
        ([BatchResponse.next()], [0, 1, 2, 3]),  # the commit waits for a later advance
    ],
)
def test_an_answer_decides_what_is_delivered_next(
    world: World, responses: list[BatchResponse], delivered: list[int], kind: type[Recording]
) -> None:
    """Everything is committed in the end, and no commit goes back."""
    publish(world, 4)
    processor = start(world, answers(*responses), kind, reader={"max_batch_records": 2})
    assert (offsets(processor), world.commits()) == (delivered, {0: 4})


@both_kinds
def test_a_reverted_batch_is_delivered_again_after_the_wait(world: World, kind: type[Recording]) -> None:
    """Nothing is committed meanwhile."""
    publish(world, 3)
    processor = start(world, answers(BatchResponse.revert(wait=10)), kind)
    assert (offsets(processor), world.commits()) == ([0, 1, 2], {0: 0})
    world.run(10)
    assert (offsets(processor), world.commits()) == ([0, 1, 2, 0, 1, 2], {0: 3})


@both_kinds
@pytest.mark.parametrize("response", [BatchResponse.revert(), BatchResponse.next(0), BatchResponse.revert(wait=1e-9)])
def test_a_processor_that_goes_back_to_one_offset_forever_is_slowed_down(
    world: World, response: BatchResponse, kind: type[Recording]
) -> None:
    """It took a core, and wrote 3 MB of ledger a second. Ten times it gets the batch at once."""
    publish(world, 1)
    processor = start(world, answers(*[response] * 10), kind)
    at_once = len(offsets(processor)), world.commits()
    other = World()
    other.kafka.create_topic("orders", 1)
    publish(other, 1)
    processor = start(other, lambda batch: response, kind)
    other.run(60)
    assert at_once == (11, {0: 1})
    assert 50 < len(offsets(processor)) < 90


def test_skip_goes_past_records_and_the_ledger_says_so(world: World) -> None:
    """advance(offset, skip=True)."""
    publish(world, 6)
    processor = start(world, answers(BatchResponse.advance(4, skip=True)), reader={"max_batch_records": 2})
    notes = [e for e in world.consumers["a"].ledger.entries if isinstance(e, Note) and e.kind == "skip"]
    assert (offsets(processor), world.commits(), [n.facts["to"] for n in notes]) == ([0, 1, 4, 5], {0: 6}, [4])


def test_max_bytes_of_an_answer_holds_for_the_next_read_only(world: World) -> None:
    """It bounds one batch."""
    world.kafka.publish("orders", 0, [b"x" * 10] * 6)
    sizes: list[int] = []

    def answer(batch: Batch) -> BatchResponse:
        sizes.append(len(batch))
        return BatchResponse.advance(max_bytes=30) if len(sizes) == 1 else BatchResponse.advance()

    start(world, answer, reader={"max_batch_records": 2})
    assert sizes == [2, 2, 2]
    sizes.clear()
    world.kafka.publish("orders", 0, [b"x" * 10] * 7)
    world.consumers["a"].channel.parts.schedule.held()[0].max_bytes = 15
    world.run(1)
    assert sizes == [1, 2, 2, 2]


def test_offsets_without_records_are_gone_past(world: World) -> None:
    """Transaction markers and compaction leave gaps."""
    publish(world, 2)
    world.kafka.skip("orders", 0, 3)
    publish(world, 2)
    world.kafka.skip("orders", 0, 1)
    processor = start(world)
    assert (offsets(processor), world.commits()) == ([0, 1, 5, 6], {0: 8})


# -- life ------------------------------------------------------------------------------------------------------------


def test_on_idle_comes_once_per_idle_spell(world: World) -> None:
    """And again after more records."""
    publish(world, 1)
    processor = start(world, idle_time=5.0)
    world.run(20)
    publish(world, 1)
    world.run(20)
    assert [call[0] for call in processor.calls if call[0] in ("idle", "processed")] == [
        "processed",
        "idle",
        "processed",
        "idle",
    ]


def test_a_release_tells_the_processor_and_commits_what_it_says(world: World) -> None:
    """What `next` left uncommitted is committed by the answer of on_stream_termination."""
    publish(world, 4)

    class Closing(Recording):
        def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> BatchResponse | None:
            self.calls.append(("termination", partition.partition, next_offset))
            return BatchResponse.advance()

    processor = Closing(lambda batch: BatchResponse.next())
    world.join("a", processor)
    world.run(4)
    assert world.commits() == {0: 0}
    world.leave("a")
    assert (world.commits(), processor.calls[-1], world.owned()) == ({0: 4}, ("termination", 0, 4), {})


def test_the_commit_is_reported_at_once_also_when_the_partition_rests(world: World) -> None:
    """The wait is for the next read."""
    publish(world, 1)
    processor = start(world, lambda batch: BatchResponse.advance(wait=3600))
    assert ("processed", 0, 1) in processor.calls


def test_a_partition_without_a_leader_does_not_keep_the_others_from_starting() -> None:
    """It starts when it has one."""
    world = World()
    world.kafka.create_topic("orders", 2)
    for partition in range(2):
        world.kafka.publish("orders", partition, [b"x"])
    world.kafka.lose_leader("orders", 1)
    start(world)
    assert world.commits() == {0: 1, 1: None}
    world.kafka.elect_leader("orders", 1)
    world.run(7)
    assert world.commits() == {0: 1, 1: 1}


def test_what_retention_has_deleted_is_reported_and_read_on_from_the_logs_start(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Never a silent jump, never to the end, and once, although the reader reads on during a slow callback."""
    publish(world, 3)
    start(world)
    world.leave("a")
    publish(world, 10)
    world.kafka.retain("orders", 0, 8)

    class Slow(Recording):
        def on_exception(self, partition: TopicPartition, error: Exception) -> BatchResponse | None:
            for _ in range(5):
                world.consumers["b"].channel.reader.run_once()
            return super().on_exception(partition, error)

    processor = Slow()
    world.join("b", processor)
    world.run(6)
    retention = [e for e in world.consumers["b"].ledger.entries if isinstance(e, Note) and e.kind == "retention"]
    assert (offsets(processor), [(n.facts["first"], n.facts["next"]) for n in retention]) == (
        list(range(8, 13)),
        [(3, 8)],
    )
    assert any("orders/0: offsets 3 to 7 are lost to retention" in r.getMessage() for r in caplog.records)
    assert [call for call in processor.calls if call[0] == "exception"] == [("exception", 0, "OffsetOutOfRangeError")]


def test_what_was_read_before_the_log_was_cut_is_delivered_first(world: World) -> None:
    """It is in memory; only what lies behind it is lost."""
    world.kafka.publish("orders", 0, [b"x"] * 30)

    def slow(batch: Batch) -> BatchResponse:
        if batch.first_offset == 0:
            world.kafka.publish("orders", 0, [b"x"] * 180)
            world.kafka.retain("orders", 0, 200)
            for _ in range(5):
                world.consumers["a"].channel.reader.run_once()
        return BatchResponse.advance()

    processor = Recording(slow)
    world.join("a", processor, reader={"max_batch_records": 10})
    world.run(8)
    # The reader may have read on beyond 29 before the log was cut: it delivers what it has.
    assert offsets(processor)[:30] == list(range(30))
    assert offsets(processor)[-10:] == list(range(200, 210))
    assert world.commits() == {0: 210}


@pytest.mark.parametrize(
    ("choice", "delivered", "commit"), [("hold", [], 9), ("earliest", [0, 1, 2, 3], 4), ("latest", [], 4)]
)
def test_a_truncated_log_is_treated_as_configured(world: World, choice: str, delivered: list[int], commit: int) -> None:
    """The commit lies beyond the log's end."""
    publish(world, 9)
    start(world)
    world.leave("a")
    world.kafka.truncate("orders", 0, 4)
    processor = Recording()
    world.join("b", processor, on_truncation=choice)
    world.run(6)
    held = world.consumers["b"].channel.status().partitions[0].held
    assert (offsets(processor), world.commits(), held is not None) == (delivered, {0: commit}, choice == "hold")
    if choice == "latest":
        publish(world, 1)
        world.run(1)
        assert (offsets(processor), world.commits()) == ([4], {0: 5})


def test_brokers_that_go_away_and_come_back_lose_nothing(world: World) -> None:
    """The reader says so and goes on."""
    publish(world, 2)
    processor = start(world)
    world.kafka.down()
    world.run(3)
    assert world.consumers["a"].channel.status().kafka_problem is not None
    publish(world, 2)
    world.kafka.up()
    world.run(2)
    assert (offsets(processor), world.consumers["a"].channel.status().kafka_problem) == ([0, 1, 2, 3], None)


# -- the ledger ------------------------------------------------------------------------------------------------------


def test_the_ledger_has_begun_done_and_settled_of_every_batch_in_this_order(world: World) -> None:
    """With the offset node's mzxid, by which everything is ordered."""
    publish(world, 2)
    start(world)
    entries = [e for e in world.consumers["a"].ledger.entries if not isinstance(e, Note)]
    stat = world.ensemble.tree.nodes[world.paths.offset("orders", 0)]
    assert entries[-3:] == [
        Range("orders", 0, 1, 0, 2, 2, 0),
        Done("orders", 0, 1, 0, 2, 2),
        Settled("orders", 0, 1, 2, "landed", stat.mzxid),
    ]


@pytest.mark.parametrize(("fails", "delivered"), [("begun", []), ("done", [0, 1])])
def test_the_ledger_is_written_before_a_batch_is_delivered_and_before_it_is_committed(
    world: World, fails: Literal["begun", "done"], delivered: list[int]
) -> None:
    """on_failure: hold. It goes on when the ledger does."""
    processor = start(world)
    world.consumers["a"].ledger.fail_next(LedgerError("disk full"), fails)
    publish(world, 2)
    world.run(0.5)
    assert (offsets(processor), world.commits()) == (delivered, {0: 0})
    assert world.consumers["a"].channel.status().ledger_problem == "disk full"
    world.run(2)
    assert (offsets(processor), world.commits()) == ([0, 1], {0: 2})


class Limits(BaseModel):
    """Options of a made-up processor."""

    limit: int = 3


class Limited(Recording):
    """Notes the options that it was opened with."""

    Options = Limits

    def open(self, context: Context) -> None:
        self.calls.append(("options", context.options))


@pytest.mark.parametrize(("given", "held"), [({"limit": 5}, Limits(limit=5)), (None, Limits())])
def test_options_of_a_processor_are_filled_as_from_a_configuration(
    world: World, given: dict[str, int] | None, held: Limits
) -> None:
    """Defaults included; wrong ones are refused when the consumer starts."""
    processor = Limited()
    world.join("a", processor, options=given)
    assert processor.calls == [("options", held)]
    with pytest.raises(ValidationError, match="limit"):
        world.join("b", Limited(), options={"limit": "many"})
