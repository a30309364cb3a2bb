"""Calls a processor and checks its answers, in channels and in replays."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable, iscoroutine

from inbound.channel.response import Decision, decide
from inbound.errors import BadResponseError
from inbound.processors.base import BatchEventProcessor
from inbound.processors.batch import Batch, is_offset
from inbound.topic_partition import TopicPartition


class ProcessorSession:
    """Calls processors of one kind: plain functions, or coroutines.

    What a processor raises passes through, and an answer that cannot be used raises BadResponseError. Called by the thread
    that has the partition, or by its event loop.
    """

    def __init__(self, *, asynchronous: bool) -> None:
        self.asynchronous = asynchronous

    def loop_is_gone(self, error: BaseException) -> bool:
        """Whether a callback ended because its event loop did.

        A plain processor has no loop: its errors are its own.
        """
        return self.asynchronous and isinstance(error, GeneratorExit)

    async def call(self, callback: Callable[[], object]) -> object:
        """Call back. Returns the answer, awaited where it is a coroutine's."""
        answer = callback()
        return await answer if self.asynchronous and isawaitable(answer) else answer

    async def on_claim(self, processor: BatchEventProcessor, tp: TopicPartition, committed: int | None) -> int | None:
        """Return the offset to read first; None: the group's commit."""
        answer = await self.call(lambda: processor.on_claim(tp, committed))
        if answer is not None and not is_offset(answer):
            raise BadResponseError(
                f"{tp}: on_claim returned {answer!r}; return the offset to read first, an integer of at least 0, or None "
                "to go on at the group's commit"
            )
        return answer

    def room(self, processor: BatchEventProcessor, tp: TopicPartition, committed: int) -> int | None:
        """Ask how many records the next batch may have. None: any number."""
        room: object = processor.room(tp, committed)
        if iscoroutine(room):
            room.close()
            raise BadResponseError(f"{tp}: room is a coroutine, which is never awaited; write `def room`")
        if room is not None and (type(room) is not int or room < 0):
            raise BadResponseError(
                f"{tp}: room returned {room!r}; return how many records the next batch may have, or None"
            )
        return room

    async def on_next_batch(
        self, callback: Callable[[Batch], object], tp: TopicPartition, batch: Batch, committed: int | None
    ) -> Decision:
        """Deliver a batch by `callback`, and return the outcome of its answer.

        `committed` is the newest advance; its commit may still be in flight.
        """
        first, position = batch.first_offset, batch.next_offset  # before the processor has the batch in its hands
        response = callback(batch)
        if self.asynchronous and isawaitable(response):
            response = await response
        return decide(tp, response, committed=committed, first=first, position=position)
