"""A unit of a replay: every answer of a processor has the meaning that it has in a channel, a mark for the commit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from inbound import Batch, BatchEventProcessor, BatchResponse, Context
from inbound.errors import LedgerError
from inbound.topic_partition import TopicPartition
from tests.spark.replay_stage import Stage, Told

advance, revert, going_on = BatchResponse.advance, BatchResponse.revert, BatchResponse.next


def test_batches_are_delivered_in_order_and_marked_one_by_one() -> None:
    """Batches by the reader's settings; on_batch_processed after each mark; on_stream_termination at the end of the range."""
    stage = Stage(processor := Told())

    held = stage.run()

    assert held is None
    assert processor.handed == processor.processed == [(0, 4), (4, 8), (8, 10)]
    assert stage.marks == [4, 8, 10]
    assert processor.ended_at == [10]


@pytest.mark.parametrize(
    ("answers", "unit", "handed", "marks", "reread"),
    [
        # An attempt begins at the mark of those before it, wherever Spark's rows begin.
        ([], {"start": 5}, [(5, 9), (9, 10)], [9, 10], []),
        # advance(offset) inside the batch: the rest comes again, from memory.
        ([advance(2)], {}, [(0, 4), (2, 6), (6, 10)], [2, 6, 10], []),
        # max_bytes bounds the next batch only, as in a channel.
        ([advance(max_bytes=2)], {}, [(0, 4), (4, 6), (6, 10)], [4, 6, 10], []),
        # What was delivered since the mark is in memory.
        ([advance(), going_on(), revert()], {}, [(0, 4), (4, 8), (8, 10), (4, 8), (8, 10)], [4, 8, 10], []),
        # What is below it is not: then Spark's records go on where they were, and the mark stays.
        (
            [advance(), advance(), revert(1)], {},
            [(0, 4), (4, 8), (8, 10), (1, 5), (5, 9), (9, 10)], [4, 8, 9, 10], [(1, 10)],
        ),
        # Compacted records and markers of transactions belong to the batch before them, also at the end of the range.
        ([], {"offsets": [2, 3, 7, 8, 20], "end": 25}, [(0, 20), (20, 21)], [20, 21, 25], []),
        # All of it compacted away: nothing is delivered.
        ([], {"offsets": [], "end": 25}, [], [25], []),
    ],
)  # fmt: skip
def test_what_is_delivered_marked_and_read_from_kafka_again(
    answers: list[BatchResponse],
    unit: dict[str, Any],
    handed: list[tuple[int, int]],
    marks: list[int],
    reread: list[tuple[int, int]],
) -> None:
    """By the processor's answers, and by what the log has."""
    stage = Stage(processor := Told(*answers), **unit)

    stage.run()

    assert (processor.handed, stage.marks, stage.reread) == (handed, marks, reread)


def test_skipping_marks_what_was_passed_over() -> None:
    """advance(offset, skip=True) past the batch: also beyond what is in memory, never beyond the range."""
    stage = Stage(processor := Told(advance(7, skip=True), advance(50, skip=True)))

    stage.run()

    assert processor.handed == [(0, 4), (7, 10)]
    assert stage.marks == [7, 10]
    assert stage.notes == [("skip", 4, 7), ("skip", 10, 50)]


def test_a_revert_to_what_was_let_go_of_is_read_from_kafka_again() -> None:
    """No more than prefetch_bytes are kept."""
    reader = {"prefetch_bytes": "3B", "batch_bytes": "2B"}
    stage = Stage(processor := Told(going_on(), going_on(), revert(0)), reader=reader)

    stage.run()

    assert processor.handed[:4] == [(0, 2), (2, 4), (4, 6), (0, 2)]
    assert stage.reread == [(0, 6)]


def test_a_revert_before_the_range_is_the_processors_error() -> None:
    """It is tried again like any other error, and then holds the partition; the message says what to do."""
    stage = Stage(Told(*[revert(3)] * 9), first=5, end=10, on_error={"max_attempts": 2})

    held = stage.run()

    assert held is not None
    assert "goes back to offset 3, before the replay, which begins at 5" in held
    assert stage.marks == []


def test_what_was_never_advanced_is_not_marked() -> None:
    """Only `next`, and nothing said at the end: another run delivers it again."""
    stage = Stage(processor := Told(*[going_on()] * 3))

    stage.run()

    assert (processor.ended_at, stage.marks) == ([10], [])


def test_the_answer_to_the_end_of_the_range_is_applied() -> None:
    """advance() in on_stream_termination marks everything delivered."""
    processor = Told(*[going_on()] * 3)
    processor.last = advance()
    stage = Stage(processor)

    stage.run()

    assert stage.marks == [10]


def test_commit_within_is_marked_when_its_time_comes() -> None:
    """And at the latest when the range ends; no on_batch_processed is called for it."""
    stage = Stage(processor := Told(going_on(commit_within=5), going_on(wait=7, commit_within=60), going_on()))

    stage.run()

    assert (stage.marks, processor.processed) == ([8], [])


def test_a_wait_rests_the_partition() -> None:
    """By the clock."""
    stage = Stage(Told(advance(wait=30)))
    began = stage.clock.now()

    stage.run()

    assert stage.clock.now() - began == 30


def fail_on_five(batch: Batch) -> BatchResponse:
    if any(record.offset == 5 for record in batch.records):
        raise ValueError("five")
    return advance()


def test_errors_are_tried_again_and_the_record_to_blame_is_held() -> None:
    """Batches again with growing waits, then one by one; what is before the bad record is marked."""
    stage = Stage(processor := Told(), on_error={"max_attempts": 2})

    processor.answers = [fail_on_five] * 20

    held = stage.run()

    assert held is not None
    assert "offset 5: ValueError: five" in held
    assert processor.handed == [(0, 4), (4, 8), (4, 8), (4, 5), (5, 6), (5, 6)]
    assert stage.marks == [4, 5]
    assert processor.ended_at == [5]


@pytest.mark.parametrize(("then", "dead"), [("skip", []), ("dead-letter", [5])])
def test_a_record_is_given_up_as_on_error_says(then: str, dead: list[int]) -> None:
    """skip, or dead-letter: the rest goes on, and the record counts as done."""
    letters = {"dead_letter_topic": "dead"} if then == "dead-letter" else {}
    stage = Stage(processor := Told(), on_error={"max_attempts": 1, "then": then, **letters})

    processor.answers = [fail_on_five] * 20

    held = stage.run()

    assert (held, stage.dead, stage.marks[-1]) == (None, dead, 10)
    assert stage.notes[-1] == ("skip", 5, 6)


def test_a_mark_that_cannot_be_written_ends_the_attempt() -> None:
    """Nothing is delivered after it: what follows could not be told from what is done."""
    stage = Stage(processor := Told())
    stage.ledger.fail_next(LedgerError("disk full"), "done")

    with pytest.raises(LedgerError, match="disk full"):
        stage.run()

    assert processor.handed == [(0, 4)]


class Placed(Told):
    """Keeps offsets of its own."""

    def __init__(self, offset: int | None) -> None:
        super().__init__()
        self.offset = offset
        self.asked: list[int | None] = []

    def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
        self.asked.append(committed)
        return self.offset


@pytest.mark.parametrize(
    ("offset", "handed", "marks"),
    [
        (None, [(3, 7), (7, 10)], [7, 10]),
        (6, [(6, 10)], [6, 10]),
        (1, [(3, 7), (7, 10)], [7, 10]),
        (99, [], [10]),
    ],
)
def test_a_processor_with_offsets_of_its_own_is_asked(
    offset: int | None, handed: list[tuple[int, int]], marks: list[int]
) -> None:
    """What its results hold already is passed over; what is marked is not redelivered for it."""
    stage = Stage(processor := Placed(offset), start=3)

    stage.run()

    assert (processor.asked, processor.handed, stage.marks) == ([3], handed, marks)


class Later(BatchEventProcessor):
    """Answers next, finishes records a little later, and takes two at most until then."""

    def __init__(self) -> None:
        self.handed: list[tuple[int, int]] = []
        self.most = 0
        self.finished = 0

    def use(self, context: Context) -> None:
        self.context = context

    def room(self, partition: TopicPartition, committed: int) -> int:
        handed = self.handed[-1][1] if self.handed else 0
        self.most = max(self.most, handed - committed)
        return max(0, 2 - (handed - committed))

    async def on_next_batch(self, batch: Batch) -> BatchResponse:
        self.handed.append((batch.first_offset, batch.next_offset))
        asyncio.get_running_loop().call_later(0.001, self.stage_advance, batch)
        return going_on()

    def stage_advance(self, batch: Batch) -> None:
        assert self.stage.run_of is not None
        self.stage.run_of.advance(batch, batch.next_offset)

    stage: Stage


def test_what_is_finished_later_is_marked_and_waited_for() -> None:
    """Coroutines, Context.advance and room: as the dispatcher works."""
    processor = Later()
    stage = processor.stage = Stage(processor)

    held = stage.run()

    assert held is None
    assert [offset for pair in processor.handed for offset in range(*pair)] == list(range(10))
    assert (stage.marks[-1], processor.most) == (10, 2)


class Never(Told):
    """Says how much it takes, and finishes nothing."""

    def room(self, partition: TopicPartition, committed: int) -> int:
        return 3


def test_what_is_never_finished_is_not_waited_for_without_end() -> None:
    """After idle_time the range ends, unmarked."""
    stage = Stage(processor := Never(*[going_on()] * 4), idle_time="20s")
    began = stage.clock.now()

    stage.run()

    assert (processor.ended_at, stage.marks, stage.clock.now() - began) == ([10], [], 20)
