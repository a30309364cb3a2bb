"""Processors that keep their offsets themselves: where a claim begins is theirs to say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from inbound import Batch, BatchEventProcessor, BatchResponse, TopicPartition
from inbound.ledger.base import Done, Range
from inbound.ledger.memory import Note
from inbound.testing.world import Recording, World
from tests.channel.one_partition import offsets, publish, world

__all__ = ["world"]  # the fixture


class Owning(Recording):
    """Says where claims begin."""

    def __init__(self, *starts: object) -> None:
        super().__init__()
        self.starts = list(starts)  # for one claim after the other; the last one stands

    def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
        self.calls.append(("claim", partition.partition, committed))
        start = self.starts.pop(0) if len(self.starts) > 1 else self.starts[0]
        if isinstance(start, Exception):
            raise start
        return start  # type: ignore[return-value]

    @property
    def claims(self) -> list[tuple[object, ...]]:
        """Return with which commits it was asked."""
        return [call[2:] for call in self.calls if call[0] == "claim"]


def join(world: World, *starts: object, **settings: Any) -> Owning:
    """Start a consumer that says so, and let it come to its partition."""
    processor = Owning(*starts)
    world.join("a", processor, **settings)
    world.run(4)
    return processor


def committed(world: World, count: int) -> None:
    """Let the group commit the first records, by a consumer that has left."""
    publish(world, count)
    world.join("before")
    world.run(4)
    world.leave("before")
    assert world.commits() == {0: count}


def notes(world: World, kind: str) -> list[dict[str, object]]:
    """Return what the consumer's ledger has of this kind."""
    return [e.facts for e in world.consumers["a"].ledger.entries if isinstance(e, Note) and e.kind == kind]


def held(world: World) -> str | None:
    """Return why the only partition is held."""
    return world.consumers["a"].channel.status().partitions[0].held


# -- what it says --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "read"), [(2, [2, 3, 4, 5, 6]), (6, [6]), (0, list(range(7))), (7, []), (None, [5, 6]), (5, [5, 6])]
)
def test_its_offset_wins_over_the_groups_and_the_ledger_says_why(
    world: World, start: int | None, read: list[int]
) -> None:
    """Behind the commit, or ahead of it, up to the log's end; without an answer it goes on at the commit."""
    committed(world, 5)
    publish(world, 2)
    processor = join(world, start)
    assert (processor.claims, offsets(processor), world.commits()) == ([(5,)], read, {0: 7})
    moved = [] if start in (None, 5) else [{"old": 5, "new": start, "reason": "on_claim"}]
    assert notes(world, "reset") == moved


def test_its_offset_is_committed_before_the_first_batch(world: World) -> None:
    """Like the first position of a group without a commit: what follows is explained by what stands in ZooKeeper."""
    committed(world, 5)
    join(world, 2)
    entries = [e for e in world.consumers["a"].ledger.entries if isinstance(e, Done | Range)]
    assert entries[:2] == [Done("orders", 0, 2, 2, 2, 2), Range("orders", 0, 2, 2, 5, 3, 2)]


@pytest.mark.parametrize(("start", "read"), [(3, [3, 4, 5]), (None, [])])
def test_it_is_asked_in_a_group_without_a_commit_too(world: World, start: int | None, read: list[int]) -> None:
    """None goes by auto_offset_reset."""
    publish(world, 6)
    processor = join(world, start, auto_offset_reset="latest")
    assert (processor.claims, offsets(processor), world.commits()) == ([(None,)], read, {0: 6})


# -- when it is asked ----------------------------------------------------------------------------------------------------


def test_it_is_asked_once_for_each_claim_and_not_after_a_recovery(world: World) -> None:
    """A session that expired, with nobody to take over, comes back under the same epoch: nothing has moved."""
    publish(world, 3)
    processor = join(world, 0, 1)
    world.ensemble.expire_session("a")
    world.run(6)
    publish(world, 1)
    world.run(2)
    assert (processor.claims, offsets(processor)) == ([(None,)], [0, 1, 2, 3])
    world.pause("a")
    world.run(12)
    world.join("b", Recording())
    world.run(8)
    world.resume("a")
    world.leave("b")
    world.run(6)
    assert (processor.claims, offsets(processor)) == ([(None,), (4,)], [0, 1, 2, 3, 1, 2, 3])


def test_it_is_asked_by_a_worker(world: World) -> None:
    """Not by the controller, nor by the reader: it may take its time."""
    asked: list[bool] = []

    class Looking(Recording):
        def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
            asked.append(world.consumers["a"].channel.workers[0].in_callback)
            return None

    world.join("a", Looking())
    world.run(4)
    assert asked == [True]


def test_a_slow_answer_holds_back_only_its_partition() -> None:
    """And comes to count when it is there."""
    world = World()
    world.kafka.create_topic("orders", 3)
    for partition in range(3):
        world.kafka.publish("orders", partition, [b"x"] * 4)

    class Slow(BatchEventProcessor):
        async def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
            if partition.partition != 1:
                return None
            await asyncio.sleep(3)
            return 2

        async def on_next_batch(self, batch: Batch) -> BatchResponse:
            seen.append((batch.partition, batch.first_offset))
            return BatchResponse.advance()

    seen: list[tuple[int, int]] = []
    world.join("a", Slow())
    world.run(4)
    assert (sorted(seen), world.commits()) == ([(0, 0), (2, 0)], {0: 4, 1: None, 2: 4})
    world.run(4)
    assert (seen[2:], world.commits()) == ([(1, 2)], {0: 4, 1: 4, 2: 4})


def test_it_is_asked_when_a_member_that_started_during_an_outage_comes_to_its_partition(world: World) -> None:
    """With the commit as it is then; its answer counts as at any other start."""
    committed(world, 5)
    world.ensemble.down()
    processor = join(world, 2)
    assert processor.calls == []
    world.ensemble.up()
    world.run(8)
    assert (processor.claims, offsets(processor), world.commits()) == ([(5,)], [2, 3, 4], {0: 5})
    assert notes(world, "reset") == [{"old": 5, "new": 2, "reason": "on_claim"}]


def test_a_partition_that_goes_before_its_first_batch_goes_at_once(world: World) -> None:
    """Also while it is asked again and again; on_stream_termination is for who was handed something."""
    committed(world, 5)
    processor = join(world, RuntimeError("database away"))
    world.leave("a", within=3)
    assert (world.owned(), world.commits()) == ({}, {0: 5})
    assert [call[0] for call in processor.calls if call[0] != "claim"] == []


# -- answers that are no good --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (1 << 63, "on_claim returned 9223372036854775808; return the offset to read first, an integer"),
        (-1, "on_claim returned -1; return the offset to read first, an integer of at least 0, or None to go on at"),
        ("7", "on_claim returned '7'; return the offset to read first"),
        (True, "on_claim returned True; return the offset to read first"),
        (ConnectionError("database away"), "ConnectionError: database away (at "),
    ],
)
def test_a_wrong_answer_reads_nothing_and_is_asked_again(
    world: World, answer: object, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Never a silent jump, and never the group's commit instead."""
    committed(world, 5)
    processor = Owning(answer, 3)
    world.join("a", processor)
    world.run_until(lambda: len(processor.claims) == 1, within=5)
    world.run(0.5)
    assert (offsets(processor), world.commits()) == ([], {0: 5})
    world.run(2)
    assert (processor.claims, offsets(processor), world.commits()) == ([(5,), (5,)], [3, 4], {0: 5})
    told = [r.getMessage() for r in caplog.records if "on_claim failed" in r.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("group orders/0: on_claim failed, attempt 1 of 10: ")
    assert said in told[0]
    assert told[0].endswith("nothing is read, asked again in 1 s")


def test_after_max_attempts_the_partition_is_held(world: World) -> None:
    """With what to do about it in status; under any `then`, for no record is to blame."""
    committed(world, 5)
    processor = join(world, ConnectionError("no table"), on_error={"max_attempts": 2, "then": "skip"})
    world.run(20)
    why = held(world) or ""
    assert (len(processor.claims), offsets(processor), world.commits()) == (2, [], {0: 5})
    assert why.startswith("on_claim failed 2 times: ConnectionError: no table (at ")
    assert why.endswith("Nothing is read before it says where to begin: correct the processor and restart")


def test_an_offset_below_the_logs_start_is_reported_as_lost_to_retention(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The log's start is committed before the first batch."""
    committed(world, 5)
    publish(world, 5)
    world.kafka.retain("orders", 0, 4)
    processor = join(world, 1)
    assert (offsets(processor), world.commits()) == (list(range(4, 10)), {0: 10})
    assert ("exception", 0, "OffsetOutOfRangeError") in processor.calls
    assert notes(world, "retention") == [{"first": 1, "next": 4}]
    assert any("orders/0: offsets 1 to 3 are lost to retention" in r.getMessage() for r in caplog.records)
    done = [e.commit for e in world.consumers["a"].ledger.entries if isinstance(e, Done)]
    assert done == [4, 10]


@pytest.mark.parametrize(
    ("choice", "read", "commit"), [("hold", [], 5), ("earliest", [0, 1, 2, 3, 4], 5), ("latest", [], 5)]
)
def test_an_offset_beyond_the_logs_end_is_treated_as_on_truncation_says(
    world: World, choice: str, read: list[int], commit: int
) -> None:
    """Held, it is not committed: the next owner may know better."""
    committed(world, 5)
    processor = join(world, 99, on_truncation=choice)
    assert (offsets(processor), world.commits()) == (read, {0: commit})
    assert ("exception", 0, "OffsetOutOfRangeError") in processor.calls
    why = held(world)
    assert (why is None) == (choice != "hold")
    if why is not None:
        assert why.startswith(
            "on_claim gave 99, beyond the log's end 5: it is not of this log, or the log was truncated. "
        )
        assert why.endswith("Correct the offset that it keeps, or set on_truncation to earliest or latest, and restart")


@pytest.mark.parametrize("amid", [False, True], ids=["held", "asked for the last time"])
def test_a_reload_has_it_asked_again(world: World, amid: bool) -> None:
    """What it lacked is there now. Also where it is held a moment after the reload: nobody would look at it before the next."""
    committed(world, 5)

    class Corrected(Owning):
        def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
            if amid and len(self.claims) == 1:
                world.consumers["a"].channel.try_again()
            return super().on_claim(partition, committed)

    processor = Corrected(OSError("no database"), OSError("no database"), 2)
    world.join("a", processor, on_error={"max_attempts": 2})
    world.run(10)
    if not amid:
        assert (held(world) or "").startswith("on_claim failed 2 times")
        world.consumers["a"].channel.try_again()
        world.run(3)
    assert (len(processor.claims), held(world), offsets(processor), world.commits()) == (3, None, [2, 3, 4], {0: 5})


class Advancing(Owning):
    """Commits all that it was handed whenever it is asked."""

    def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> BatchResponse:
        self.calls.append(("termination", partition.partition, next_offset))
        return BatchResponse.advance()

    def on_idle(self, partition: TopicPartition) -> BatchResponse:
        self.calls.append(("idle", partition.partition))
        return BatchResponse.advance()


@pytest.mark.parametrize("asked", [True, False], ids=["held", "before the log was asked"])
def test_an_offset_that_the_log_does_not_hold_is_never_committed_by_an_answer(world: World, asked: bool) -> None:
    """advance() commits what was delivered, and that is nothing: the next owner begins at the commit."""
    committed(world, 5)
    processor = Advancing(99)
    world.join("a", processor, idle_time=1.0)
    reader = world.consumers["a"].channel.reader
    world.run_until(lambda: any(s.outside is not None for s in reader._streams.values()), within=4)
    if not asked:
        world.kafka.lose_leader("orders", 0)
    world.run(8)
    assert (held(world) is not None) == asked
    world.leave("a")
    told = [call for call in processor.calls if call[0] in ("termination", "idle")]
    assert (told, world.commits()) == ([], {0: 5})


def test_a_partition_without_a_leader_begins_when_it_has_one(world: World) -> None:
    """Its limits are not known before; it is not asked a second time."""
    committed(world, 5)
    world.kafka.lose_leader("orders", 0)
    processor = join(world, 2)
    assert offsets(processor) == []
    world.kafka.elect_leader("orders", 0)
    world.run(7)
    assert (processor.claims, offsets(processor), world.commits()) == ([(5,)], [2, 3, 4], {0: 5})


def test_a_topic_recreated_is_read_from_its_start_without_asking(world: World) -> None:
    """What the processor keeps is of the deleted one: taken for an offset of the new one, it would skip records."""
    publish(world, 5)
    processor = join(world, None, 4)
    world.kafka.delete_topic("orders")
    world.run(8)
    world.kafka.create_topic("orders", 1)
    publish(world, 8)
    world.run(20)
    assert (processor.claims, offsets(processor), world.commits()) == ([(None,)], [*range(5), *range(8)], {0: 8})
