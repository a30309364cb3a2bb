"""What the garbage collector, which counts objects, does about few large ones."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from inbound import Batch, BatchResponse
from inbound.runtime import interpreter
from inbound.testing.world import Recording, World


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    """As they are in a process that runs channels."""
    before = gc.get_threshold()
    gc.set_threshold(*interpreter.GC_THRESHOLDS)
    yield
    gc.set_threshold(*before)


def test_batches_that_a_processor_leaves_in_a_circle_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps an exception that it has caught, and the exception keeps the frame: as code that tries again does."""
    monkeypatch.setattr(interpreter, "MOST_GARBAGE", 20_000)
    alive, most = weakref.WeakSet[Batch](), 0

    def answer(batch: Batch) -> BatchResponse:
        nonlocal most
        alive.add(batch)
        most = max(most, len(alive))
        try:
            raise OSError("503")
        except OSError as error:
            last = error
        return BatchResponse.advance() if str(last) else BatchResponse.revert()

    world = World()
    world.kafka.create_topic("orders", 1)
    world.kafka.publish("orders", 0, [b"x" * 1000] * 100)
    world.join("a", Recording(answer), reader={"max_batch_records": 1})
    world.run(4)
    assert (world.commits(), most <= 30) == ({0: 100}, True)
