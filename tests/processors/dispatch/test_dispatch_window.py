"""The window of one partition: what may go, what waits, and up to where all is finished."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.processors.batch import PlainRecord
from inbound.processors.dispatch.window import Lane, OpenEvent, Ordering, RequestPart, SendWindow, in_turn

KEYS = [None, b"a", b"b", b"c"]


def records(keys: list[bytes | None], first: int = 0) -> list[PlainRecord]:
    return [PlainRecord(first + n, key=key) for n, key in enumerate(keys)]


def taken(window: SendWindow) -> list[OpenEvent]:
    """Take all that may go."""
    found = []
    while (entry := window.take()) is not None:
        found.append(entry)
    return found


@pytest.mark.parametrize(("ordering", "first"), [("partition", [0]), ("key", [0, 1, 3, 4]), ("none", [0, 1, 2, 3, 4])])
def test_what_may_go_at_once(ordering: Ordering, first: list[int]) -> None:
    """Of each lane one; records without a key have no lane."""
    window = SendWindow(10, ordering)
    window.admit(records([b"a", b"b", b"a", None, None]), 5)
    assert [entry.offset for entry in taken(window)] == first


def test_the_front_is_the_first_that_is_not_finished() -> None:
    """Also when later ones have ended; and the end of what was admitted, gaps included, when all is."""
    window = SendWindow(10, "none")
    window.admit(records([None] * 3, first=4), 9)
    one, two, three = taken(window)
    fronts = [window.front]
    for entry in (three, one, two):
        window.finish(entry)
        fronts.append(window.front)
    assert (fronts, window.open, window.in_flight) == ([4, 4, 5, 9], 0, 0)


def test_room_is_counted_from_the_commit() -> None:
    """What is finished and not committed takes room all the same."""
    window = SendWindow(4, "none")
    window.admit(records([None] * 3), 3)
    for entry in taken(window):
        window.finish(entry)
    assert [window.room(committed) for committed in (0, 2, 3)] == [1, 3, 4]


def test_a_request_takes_events_lane_by_lane_as_long_as_they_fit() -> None:
    """And the next of a lane goes when all of its events in the request are finished."""
    window = SendWindow(10, "key")
    window.admit(records([b"a", b"b", b"a", b"a", b"b"]), 5)
    first = window.take()
    assert first is not None
    left = [2]

    def fits(entry: OpenEvent) -> bool:
        left[0] -= 1
        return left[0] >= 0

    request = [first, *window.take_more(first, fits)]
    window.finish(request[0])
    between = [entry.offset for entry in taken(window)]
    for entry in request[1:]:
        window.finish(entry)
    assert ([e.offset for e in request], between, [e.offset for e in taken(window)]) == ([0, 2, 3], [1], [])


def test_another_order_is_taken_on_when_nothing_is_open() -> None:
    """Until then there is no room."""
    window = SendWindow(10, "none")
    window.admit(records([None]), 1)
    window.wanted = "partition"
    before = window.room(0)
    window.finish(taken(window)[0])
    assert (before, window.room(1), window.ordering) == (0, 10, "partition")


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    ordering=st.sampled_from(["partition", "key", "none"]),
    size=st.integers(1, 12),
    share=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
)
def test_order_and_bounds_hold_in_any_order_of_ends(seed: int, ordering: Ordering, size: int, share: float) -> None:
    """Every record but those passed over is sent once, those of a lane in order and one at a time, and never more than the size
    behind the commit, which gets past all of them."""
    rng = random.Random(seed)
    left_out = {offset for offset in range(60) if rng.random() < share}
    window, committed, admitted = SendWindow(size, ordering), 0, 0
    keys = [rng.choice(KEYS) for _ in range(60)]
    under_way: list[OpenEvent] = []
    sent: dict[object, list[int]] = defaultdict(list)
    while committed < 60:
        room = min(window.room(committed), 60 - admitted)
        if room and rng.random() < 0.7:
            count = rng.randint(1, room)
            window.admit(
                records(keys[admitted : admitted + count], admitted),
                admitted + count,
                pass_over=left_out & set(range(admitted, admitted + count)),
            )
            admitted += count
        for entry in taken(window):
            under_way.append(entry)
            sent[entry.lane and entry.lane.key if ordering == "key" else ordering].append(entry.offset)
        lanes = [entry.lane for entry in under_way if entry.lane is not None]
        assert len(lanes) == len(set(map(id, lanes)))
        assert sum(offset >= committed for offsets in sent.values() for offset in offsets) <= size
        if under_way:
            window.finish(under_way.pop(rng.randrange(len(under_way))))
        if rng.random() < 0.5 or not under_way:
            committed = window.front
    assert sorted(o for offsets in sent.values() for o in offsets) == sorted(set(range(60)) - left_out)
    assert all(offsets == sorted(offsets) for lane, offsets in sent.items() if lane not in (None, "none"))


@pytest.mark.parametrize(
    ("parts", "chains"),
    [
        (["a", "b", "c"], [["a"], ["b"], ["c"]]),
        (["a", "a", "b"], [["a", "a"], ["b"]]),
        (["a", "b", "b"], [["a"], ["b", "b"]]),
        (["a", "b", "ab", "b"], [["a", "b", "ab", "b"]]),
        (["", "", "a", "a"], [[""], [""], ["a", "a"]]),
        (["c", "a", "b", "ab", "c"], [["c", "c"], ["a", "b", "ab"]]),
    ],
)
def test_what_a_request_is_taken_apart_into_keeps_the_order_of_each_lane(
    parts: list[str], chains: list[list[str]]
) -> None:
    """Each part, by the keys of its events, waits for those before it that it shares a key with, and for no others."""
    lanes = {key: Lane(key.encode()) for key in "abc"}
    made: list[RequestPart] = [([OpenEvent(PlainRecord(0), lanes[key]) for key in part], 0) for part in parts]
    made = [part if part[0] else ([OpenEvent(PlainRecord(0), None)], 0) for part in made]

    def keys(part: RequestPart) -> str:
        return "".join(lane.key.decode() for entry in part[0] if (lane := entry.lane) is not None and lane.key)

    assert [[keys(part) for part in chain] for chain in in_turn(made)] == chains
