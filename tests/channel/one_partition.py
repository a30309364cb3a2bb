"""A world with one topic of one partition and one consumer: where answers and errors of a processor are looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from inbound import Batch, BatchResponse, TopicPartition
from inbound.testing.world import Recording, World


@pytest.fixture
def world() -> World:
    """A world with one topic of one partition."""
    world = World()
    world.kafka.create_topic("orders", 1)
    return world


class Awaited(Recording):
    """The same with coroutines, that await something first."""

    async def on_next_batch(self, batch: Batch) -> BatchResponse:  # type: ignore[override]
        await asyncio.sleep(0.01)
        return super().on_next_batch(batch)

    async def on_batch_processed(self, batch: Batch) -> None:  # type: ignore[override]
        await asyncio.sleep(0.01)
        super().on_batch_processed(batch)

    async def on_exception(self, partition: TopicPartition, error: Exception) -> BatchResponse | None:  # type: ignore[override]
        await asyncio.sleep(0.01)
        return super().on_exception(partition, error)


both_kinds = pytest.mark.parametrize("kind", [Recording, Awaited], ids=["plain", "coroutines"])


def publish(world: World, count: int) -> None:
    """Publish numbered records."""
    world.kafka.publish("orders", 0, [b"%d" % n for n in range(count)])


def start(
    world: World, answer: Callable[[Batch], object] | None = None, kind: type[Recording] = Recording, **settings: Any
) -> Recording:
    """Start the consumer and let it come to its partition."""
    processor = kind(answer)
    world.join("a", processor, **settings)
    world.run(4)
    return processor


def offsets(processor: Recording) -> list[int]:
    """Return the offsets it was handed, in order."""
    return [offset for _, offset in processor.seen]


def answers(*responses: object) -> Callable[[Batch], object]:
    """Give these answers in turn, then advance."""
    left = list(responses)

    def answer(batch: Batch) -> object:
        response = left.pop(0) if left else BatchResponse.advance()
        if isinstance(response, BaseException):
            raise response
        return response

    return answer
