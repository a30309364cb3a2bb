"""What each answer of a processor means: every case is a row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbound import BatchResponse, TopicPartition
from inbound.channel.failure_policy import RETRY
from inbound.channel.response import Decision, decide
from inbound.errors import BadResponseError
from inbound.topic_partition import MOST_OFFSET

TP = TopicPartition("orders", 3)

#: The batch is 10..19, the commit is 10.
ANSWERS = [
    (BatchResponse.advance(), Decision(20, 20)),
    (BatchResponse.advance(15), Decision(15, 15)),
    (BatchResponse.advance(10), Decision(10, None, reverted_from=20)),
    (BatchResponse.advance(20), Decision(20, 20)),
    (BatchResponse.advance(25, skip=True), Decision(25, 25, skipped=(20, 25))),
    (BatchResponse.advance(wait=2.5, max_bytes=100), Decision(20, 20, wait=2.5, max_bytes=100)),
    (BatchResponse.revert(), Decision(10, None, reverted_from=20)),
    (BatchResponse.revert(4), Decision(4, None, reverted_from=20)),
    (BatchResponse.revert(17, wait=1.0), Decision(17, None, reverted_from=20, wait=1.0)),
    (BatchResponse.next(), Decision(20, None)),
    (BatchResponse.next(12), Decision(12, None, reverted_from=20)),
    (BatchResponse.next(30), Decision(30, None, skipped=(20, 30))),
]


@pytest.mark.parametrize(("response", "outcome"), ANSWERS, ids=lambda value: str(value)[:60])
def test_an_answer_decides_position_and_commit(response: BatchResponse, outcome: Decision) -> None:
    """Each verb moves the position and the commit as the contract says."""
    assert decide(TP, response, committed=10, first=10, position=20) == outcome


REFUSED = [
    (None, "orders/3: on_next_batch returned None; return BatchResponse.advance(), .revert() or .next()"),
    (True, "orders/3: on_next_batch returned True; return BatchResponse.advance(), .revert() or .next()"),
    (BatchResponse.advance(9), "orders/3: advance(9) is below the commit 10; to read again use revert()"),
    (
        BatchResponse.advance(21),
        "orders/3: advance(21) is past the batch, which ends before 20; use skip=True to skip records",
    ),
    (BatchResponse.revert(21), "orders/3: revert(21) is past the batch, which ends before 20; use advance()"),
]


@pytest.mark.parametrize(("response", "message"), REFUSED)
def test_an_unusable_answer_is_refused_with_the_way_out(response: object, message: str) -> None:
    """An unusable answer names the partition, the offset and what to use instead."""
    with pytest.raises(BadResponseError) as caught:
        decide(TP, response, committed=10, first=10, position=20)
    assert str(caught.value) == message


def test_what_a_revert_went_back_over_is_not_committed_again() -> None:
    """After a revert below the commit, advance() reads on and leaves the commit where it is; revert() gives the batch back."""
    answers = [
        decide(TP, a, committed=100, first=40, position=60) for a in (BatchResponse.advance(), BatchResponse.revert())
    ]
    assert answers == [Decision(60, None), Decision(40, None, reverted_from=60)]


def test_without_a_commit_the_batch_itself_is_the_floor() -> None:
    """A group's first batch may be taken back to its own beginning."""
    assert decide(TP, BatchResponse.revert(), committed=None, first=7, position=9) == Decision(7, None, reverted_from=9)


@given(
    committed=st.integers(0, 50),
    length=st.integers(1, 50),
    offset=st.none() | st.integers(0, 200),
    verb=st.sampled_from(["advance", "revert", "next"]),
)
def test_no_answer_moves_the_commit_back_or_past_the_batch(
    committed: int, length: int, offset: int | None, verb: str
) -> None:
    """For any answer without skip, the commit stays between the old one and the batch's end."""
    response = getattr(BatchResponse, verb)(offset)
    position = committed + length
    try:
        outcome = decide(TP, response, committed=committed, first=committed, position=position)
    except BadResponseError:
        return
    assert outcome.commit is None or committed < outcome.commit <= position


def test_failures_are_retried_after_1_second_doubling_to_60() -> None:
    """The back-off of a failing processor."""
    assert [RETRY.delay(n) for n in range(1, 10)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: BatchResponse.advance(1 << 63, skip=True),
            f"BatchResponse.advance: offset must be at most {MOST_OFFSET}, the largest that Kafka counts",
        ),
        (lambda: BatchResponse.advance(-1), "BatchResponse.advance: offset must be an integer of at least 0, got -1"),
        (lambda: BatchResponse.revert(1.5), "BatchResponse.revert: offset must be an integer of at least 0, got 1.5"),  # type: ignore[arg-type]
        (lambda: BatchResponse.next(wait=-1), "BatchResponse.next: wait must be seconds of at least 0, got -1"),
        (
            lambda: BatchResponse.next(wait=float("nan")),
            "BatchResponse.next: wait must be seconds of at least 0, got nan",
        ),
        (
            lambda: BatchResponse.next(max_bytes=0),
            "BatchResponse.next: max_bytes must be an integer of at least 1, got 0",
        ),
    ],
)
def test_a_response_cannot_be_made_of_nonsense(make: object, message: str) -> None:
    """The mistake shows where it is made, not later in the channel."""
    with pytest.raises(ValueError, match=r"BatchResponse\.") as caught:
        make()  # type: ignore[operator]
    assert str(caught.value) == message
