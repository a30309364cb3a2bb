"""What a processor answers, and what is asked of an answer: the same in a channel and in a replay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from inbound.channel.processor_session import ProcessorSession
from inbound.channel.response import Decision
from inbound.errors import BadResponseError
from inbound.processors.base import BatchEventProcessor
from inbound.processors.batch import Batch, BatchResponse, PlainRecord
from inbound.topic_partition import TopicPartition

TP = TopicPartition("orders", 0)
BATCH = Batch("orders", 0, 5, 7, [PlainRecord(offset, -1, None, b"a") for offset in (5, 6)])


class Answering(BatchEventProcessor):
    """Answers each callback with what it is given."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        return self.answer  # type: ignore[no-any-return]

    def on_claim(self, tp: TopicPartition, committed: int | None) -> int | None:
        return self.answer  # type: ignore[no-any-return]

    def room(self, tp: TopicPartition, committed: int) -> int | None:
        return self.answer  # type: ignore[no-any-return]


async def later(answer: object) -> object:
    """Answer as a coroutine does."""
    await asyncio.sleep(0)
    return answer


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_answer_to_a_batch_becomes_its_outcome(asynchronous: bool) -> None:
    session = ProcessorSession(asynchronous=asynchronous)

    def answer(batch: Batch) -> object:
        response = BatchResponse.advance()
        return later(response) if asynchronous else response

    outcome = asyncio.run(session.on_next_batch(answer, TP, BATCH, 5))

    assert outcome == Decision(7, 7)


def test_a_coroutine_of_a_plain_processor_is_refused() -> None:
    """Nothing awaits it, and the message says what to write."""
    coroutine = later(BatchResponse.advance())

    with pytest.raises(BadResponseError, match="await it in `async def on_next_batch`"):
        asyncio.run(ProcessorSession(asynchronous=False).on_next_batch(lambda _: coroutine, TP, BATCH, None))
    coroutine.close()


@pytest.mark.parametrize("answer", [-1, True, "5", 2**63])
def test_an_offset_that_is_none_is_refused_at_a_claim(answer: object) -> None:
    session = ProcessorSession(asynchronous=False)

    with pytest.raises(BadResponseError, match=r"orders/0: on_claim returned .*; return the offset to read first"):
        asyncio.run(session.on_claim(Answering(answer), TP, None))


@pytest.mark.parametrize("answer", [-1, True, 1.5])
def test_a_room_that_is_no_number_of_records_is_refused(answer: object) -> None:
    session = ProcessorSession(asynchronous=True)

    with pytest.raises(BadResponseError, match=r"orders/0: room returned .*; return how many records"):
        session.room(Answering(answer), TP, 0)


@pytest.mark.parametrize(("asynchronous", "gone"), [(True, True), (False, False)])
def test_only_a_coroutine_ends_because_its_loop_is_gone(asynchronous: bool, gone: bool) -> None:
    assert ProcessorSession(asynchronous=asynchronous).loop_is_gone(GeneratorExit()) is gone
