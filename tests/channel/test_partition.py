"""Where a partition can be, and what moves it: the table, walked."""

from __future__ import annotations

import itertools

import pytest

from inbound import TopicPartition
from inbound.controller.kafka_controller import SESSION, SessionEvent, SessionState
from inbound.coordinators.ownership import Fence
from inbound.errors import IllegalTransitionError
from inbound.partition.partition import Partition
from inbound.partition.place import TRANSITIONS, Place, Step
from inbound.partition.position import Position


def partition(place: Place) -> Partition:
    """A partition in `place`."""
    return Partition(TopicPartition("orders", 3), Fence(1, 7), Position(0), place=place)


@pytest.mark.parametrize(("place", "step"), list(itertools.product(Place, Step)), ids=lambda v: v.value)
def test_every_pair_either_moves_as_listed_or_raises_and_changes_nothing(place: Place, step: Step) -> None:
    """There is no third possibility."""
    moving = partition(place)
    if (place, step) in TRANSITIONS:
        moving.move(step)
        assert moving.place is TRANSITIONS[place, step]
    else:
        with pytest.raises(IllegalTransitionError) as caught:
            moving.move(step)
        assert (moving.place, str(caught.value)) == (
            place,
            f"orders/3: partition: no step {step.value!r} from {place.value!r}",
        )


def test_every_place_can_be_reached_and_all_but_the_last_be_left() -> None:
    """No dead ends: a partition that could not leave its place would be read by nobody."""
    reached = {Place.STARTING, *TRANSITIONS.values()}
    left = {place for place, _ in TRANSITIONS}
    assert (reached, left) == (set(Place), set(Place) - {Place.GONE})


@pytest.mark.parametrize(("state", "event"), list(itertools.product(SessionState, SessionEvent)), ids=lambda v: v.value)
def test_the_session_table_is_total_in_the_same_way(state: SessionState, event: SessionEvent) -> None:
    """A listed pair moves, any other raises."""
    if (state, event) in SESSION:
        assert SESSION.step(state, event) is SESSION[state, event]
    else:
        with pytest.raises(IllegalTransitionError):
            SESSION.step(state, event)


def test_lag_counts_what_is_in_the_log_and_not_committed() -> None:
    """Unknown until the log's end is known; never negative."""
    moving = partition(Place.SCHEDULED)
    lags: list[int | None] = []
    for high_watermark, committed in [(None, 0), (100, 40), (100, 120), (100, None)]:
        moving.position = Position(committed, delivered=30)
        moving.position.high_watermark = high_watermark
        lags.append(moving.lag)
    assert lags == [None, 60, 0, 70]
