"""Positions that are not in the log: below its start, beyond its end."""

from __future__ import annotations

import pytest

from inbound import Batch, BatchResponse
from inbound.coordinators.zookeeper import SetData
from inbound.proof.model import Verdict
from inbound.testing.world import Recording, World
from inbound.topic_partition import TopicPartition
from tests.channel.one_partition import offsets, publish, start, world
from tests.proof.world_proofs import proofs_of

__all__ = ["world"]


def truncated(world: World, choice: str = "hold", *, end: int = 4) -> None:
    """Let the group commit 9, and cut the log at `end` while nobody runs."""
    publish(world, 9)
    start(world, on_truncation=choice)
    world.leave("a")
    world.kafka.truncate("orders", 0, end)


def held(world: World, name: str) -> str | None:
    """Return why the consumer's only partition is held, as its status says."""
    (partition,) = world.consumers[name].channel.status().partitions
    return partition.held


def test_a_held_partition_says_why_and_what_to_do(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """In status for as long as it is held, in the log and to the processor once; the brokers are asked once, too."""
    truncated(world)
    processor = start(world, on_truncation="hold")
    world.run(65)
    why = held(world, "a") or ""
    assert "the commit 9 is beyond the log's end 4: the log was truncated" in why
    assert "`inbound offsets reset --group group --topic orders:0 --to-offset 4 --execute`" in why
    assert why.endswith("; or set on_truncation to earliest or latest. Neither needs a restart")
    assert [r.getMessage() for r in caplog.records if "held" in r.getMessage()] == [f"group orders/0: held: {why}"]
    assert processor.calls == [("exception", 0, "OffsetOutOfRangeError")]
    assert world.kafka.clients[-1].questions == 1


def test_a_held_partition_does_not_go_on_when_the_log_grows_over_the_offset(world: World) -> None:
    """What is there now at offsets 4 to 8 is not what the group has read: going on at 9 would skip it in silence."""
    truncated(world)
    processor = start(world, on_truncation="hold")
    publish(world, 12)
    world.run(65)
    assert (offsets(processor), world.commits(), held(world, "a") is not None) == ([], {0: 9}, True)


def test_a_held_partition_is_held_by_its_next_owner_too(world: World) -> None:
    """A rebalance is no way to lose records."""
    truncated(world)
    start(world, on_truncation="hold")
    world.leave("a")
    world.join("b", on_truncation="hold")
    world.run(4)
    assert (held(world, "b") is not None, world.commits()) == (True, {0: 9})


def test_a_held_partition_goes_on_at_its_next_owner_where_the_offset_was_moved_to(world: World) -> None:
    """The way out that the message names."""
    truncated(world)
    start(world, on_truncation="hold")
    world.ensemble.tree.transaction([SetData(world.paths.offset("orders", 0), b"2")], 0)
    world.leave("a")
    processor = start(world, on_truncation="hold")
    assert (offsets(processor), held(world, "a"), world.commits()) == ([2, 3], None, {0: 4})


@pytest.mark.parametrize(("choice", "again"), [("earliest", [0, 1, 2, 3]), ("latest", [])])
def test_a_log_cut_under_a_running_consumer_is_read_on_as_configured(
    world: World, caplog: pytest.LogCaptureFixture, choice: str, again: list[int]
) -> None:
    """Said in the log with both offsets; what comes afterwards is read."""
    publish(world, 9)
    processor = start(world, on_truncation=choice)
    world.kafka.truncate("orders", 0, 4)
    world.run(3)
    publish(world, 1)
    world.run(3)
    assert (offsets(processor), world.commits()) == ([*range(9), *again, 4], {0: 5})
    assert any("the commit 9 is beyond the log's end 4; reading on at" in r.getMessage() for r in caplog.records)


def test_retention_that_overtakes_a_running_consumer_is_reported_with_its_range(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A callback that took too long: what it could not read any more has a name."""

    def slow(batch: Batch) -> BatchResponse:
        if batch.first_offset == 0:
            world.kafka.truncate("orders", 0, 3)
            world.kafka.skip("orders", 0, 17)
            publish(world, 2)
            world.kafka.retain("orders", 0, 20)
        return BatchResponse.advance()

    publish(world, 3)
    processor = start(world, slow)
    world.run(3)
    assert (offsets(processor), world.commits()) == ([0, 1, 2, 20, 21], {0: 22})
    assert any("offsets 3 to 19 are lost to retention" in r.getMessage() for r in caplog.records)


@pytest.mark.parametrize("followed", [True, False], ids=["a next owner comes", "nobody comes"])
def test_records_that_failed_and_were_deleted_before_anybody_was_handed_them_again_are_not_proven(
    world: World, followed: bool
) -> None:
    """Five are processed, five fail, their owner dies, and retention takes these and two more."""

    def five(batch: Batch) -> BatchResponse:
        if batch.first_offset >= 5:
            raise ValueError("no good")
        return BatchResponse.advance()

    publish(world, 5)
    start(world, five)
    publish(world, 10)
    world.run(1.5)
    world.kill("a")
    world.kafka.retain("orders", 0, 12)
    if followed:
        world.join("b", Recording(lambda batch: BatchResponse.advance()))
    world.run(20)
    proof = proofs_of(world)[TopicPartition("orders", 0)]
    assert proof.verdict is Verdict.ANOMALIES
    assert {o for f in proof.findings for o in range(f.first, f.next) if f.kind == "lost-to-retention"} == set(
        range(5, 12)
    )


def test_records_that_were_answered_for_are_not_lost_though_their_commit_was_and_they_are_deleted(world: World) -> None:
    """All ten are processed, and their owner dies before the last commit lands; retention takes what was not committed."""
    publish(world, 5)
    start(world)
    publish(world, 10)
    world.ensemble.drop_requests("a", 1)
    world.run(1.5)
    world.kill("a")
    world.kafka.retain("orders", 0, 12)
    world.join("b", Recording(lambda batch: BatchResponse.advance()))
    world.run(20)
    assert [f.kind for f in proofs_of(world)[TopicPartition("orders", 0)].findings] == []
