"""An attempt at a unit, as an executor runs it: alone, from the mark on, with the processor opened and closed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from inbound import Batch, BatchEventProcessor, BatchResponse, Context
from inbound.config import ChannelConfig
from inbound.errors import ProcessorError, SparkError
from inbound.spark.replay import task
from inbound.spark.replay.marks import ReplayFolder
from inbound.spark.replay.plan import Unit
from inbound.spark.replay.task import ReplayJob, ReplayTask, attempt
from tests.spark.test_replay_feed import rows

UNIT = Unit(0, "orders", 2, 5, 11)


class Kept(BatchEventProcessor):
    """Writes down what happens to it; fails where its options say so."""

    story: list[object] = []  # noqa: RUF012 of all instances: executors make their own

    def open(self, context: Context) -> None:
        self.story.append("open")
        self.options = context.options
        if self.options.get("closed"):
            raise OSError("the door is locked")

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        self.story.append((batch.first_offset, batch.next_offset, batch.epoch))
        if self.options.get("dies_at") in range(batch.first_offset, batch.next_offset):
            raise KeyboardInterrupt  # what ends a task from outside, and is no error of the processor
        return BatchResponse.advance()

    def close(self) -> None:
        self.story.append("close")


class KeptLater(Kept):
    """The same as coroutines."""

    async def on_next_batch(self, batch: Batch) -> BatchResponse:  # type: ignore[override]
        return Kept.on_next_batch(self, batch)


@pytest.fixture(autouse=True)
def story() -> list[object]:
    """What happened to the processors."""
    Kept.story.clear()
    return Kept.story


def job(folder: Path, kind: str = "Kept", **options: Any) -> ReplayJob:
    """Return a replay of UNIT in batches of two."""
    config = ChannelConfig.model_validate(
        {"topics": ["orders"], "group": "g", "processor": {"type": "x:Y"}, "reader": {"max_batch_records": 2}}
    )
    return ReplayJob(folder, "january", (UNIT,), "orders", config, f"{__name__}:{kind}", options, {})


@pytest.mark.parametrize("kind", ["Kept", "KeptLater"])
def test_an_attempt_opens_delivers_and_closes(tmp_path: Path, story: list[object], kind: str) -> None:
    """Both kinds of processors."""
    mark, held = attempt(job(tmp_path, kind), UNIT, iter([rows(5, 6, 7), rows(9, 10)]))

    assert (mark, held) == (11, None)
    assert story == ["open", (5, 7, 1), (7, 10, 1), (10, 11, 1), "close"]


def test_the_next_attempt_begins_at_the_mark(tmp_path: Path, story: list[object]) -> None:
    """Spark hands the same records over again."""
    with pytest.raises(KeyboardInterrupt):
        attempt(job(tmp_path, dies_at=8), UNIT, iter([rows(5, 6, 7, 8, 9, 10)]))
    story.clear()

    attempt(job(tmp_path), UNIT, iter([rows(5, 6, 7, 8, 9, 10)]))

    assert story == ["open", (7, 9, 2), (9, 11, 2), "close"]


def test_what_is_complete_is_not_even_opened(tmp_path: Path, story: list[object]) -> None:
    """An attempt that Spark began although another had done all."""
    attempt(job(tmp_path), UNIT, iter([rows(5, 6)]))
    story.clear()

    assert attempt(job(tmp_path), UNIT, iter([rows(5, 6)])) == (11, None)
    assert story == []


def test_another_attempt_is_waited_for_and_then_refused(
    tmp_path: Path, story: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two would deliver the same offsets; the message names the pid."""
    monkeypatch.setattr(task, "OVERTAKEN", 0.0)
    lock = ReplayFolder(tmp_path, "january").lock_of(UNIT)
    lock.acquire()
    try:
        with pytest.raises(SparkError, match=r"orders/2: another attempt \(pid \d+\) still runs"):
            attempt(job(tmp_path), UNIT, iter([rows(5)]))
    finally:
        lock.release()
    assert story == []


def test_a_processor_that_cannot_open_is_named(tmp_path: Path) -> None:
    """With its own words; nothing was delivered, and the lock is free again."""
    with pytest.raises(
        ProcessorError, match=r"orders/2: Kept.open failed: OSError: the door is locked .*nothing was delivered"
    ):
        attempt(job(tmp_path, closed=True), UNIT, iter([rows(5)]))

    assert ReplayFolder(tmp_path, "january").lock_of(UNIT).acquire()


def test_the_task_finds_its_unit_by_its_first_record(tmp_path: Path) -> None:
    """As Spark calls it, shipped; one row is the result. No records, no row."""
    shipped = pickle.loads(pickle.dumps(ReplayTask(job(tmp_path), ())))

    (result,) = shipped(iter([rows(), rows(5, 6)]))

    assert result.to_pylist() == [{"unit": 0, "mark": 11, "held": None}]
    assert list(shipped(iter([rows()]))) == []
    with pytest.raises(SparkError, match="orders/2: Spark delivered offset 77, which is not of this replay"):
        list(shipped(iter([rows(77)])))
