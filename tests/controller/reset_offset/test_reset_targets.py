"""Where a reset moves each partition to, and what is refused before anything stops."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbound.controller.reset_offset.model import Moved, ResetSpec, To, TopicLog
from inbound.controller.reset_offset.targets import check, in_words, numbers, resolve
from inbound.errors import ResetError

NOON = 1_800_000_000.0  # 2027-01-15T08:00:00Z
#: Three partitions: one from its beginning, one that retention has cut, one that is empty.
LOG = TopicLog("orders", "id", {0: (0, 100), 1: (40, 90), 2: (7, 7)}, {0: 50, 1: 40, 2: 7})
COMMITTED = {0: 60, 1: 90, 2: None}


def moves(spec: ResetSpec, log: TopicLog = LOG) -> dict[int, tuple[int | None, int]]:
    """Return old and new offset of each partition that moves."""
    check(spec, log, NOON)
    return {m.partition: (m.old, m.new) for m in resolve(spec, COMMITTED, log)}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (ResetSpec(to=To.EARLIEST), {0: (60, 0), 1: (90, 40), 2: (None, 7)}),
        (ResetSpec(to=To.LATEST), {0: (60, 100), 1: (90, 90), 2: (None, 7)}),
        (ResetSpec(to=To.TIME, time=NOON), {0: (60, 50), 1: (90, 40), 2: (None, 7)}),
        (ResetSpec(to=To.SHIFT, shift=-10, partitions=(0, 1)), {0: (60, 50), 1: (90, 80)}),
        (ResetSpec(to=To.SHIFT, shift=-70, partitions=(0, 1)), {0: (60, 0), 1: (90, 40)}),
        (ResetSpec(to=To.SHIFT, shift=+70, partitions=(0, 1)), {0: (60, 100), 1: (90, 90)}),
        (ResetSpec(to=To.OFFSET, offset=40, partitions=(0, 1)), {0: (60, 40), 1: (90, 40)}),
        (ResetSpec(to=To.OFFSET, offset=100, partitions=(0,)), {0: (60, 100)}),
        (ResetSpec(to=To.OFFSETS, offsets={2: 7, 0: 3}), {0: (60, 3), 2: (None, 7)}),
        (ResetSpec(to=To.OFFSETS, offsets={2: 7, 0: 3}, partitions=(0,)), {0: (60, 3)}),
        (ResetSpec(to=To.EARLIEST, partitions=(1, 0, 1)), {0: (60, 0), 1: (90, 40)}),
    ],
    ids=lambda value: in_words(value) if isinstance(value, ResetSpec) else "",
)
def test_each_kind_moves_to_its_place(spec: ResetSpec, expected: dict[int, tuple[int | None, int]]) -> None:
    """The whole table, old and new, of those partitions that move and no others."""
    assert moves(spec) == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            ResetSpec(to=To.TIME, time=NOON + 6),
            "orders: 2027-01-15T08:00:06Z lies ahead; it is 2027-01-15T08:00:00Z now: give a time up to then, or go to the "
            "latest offset",
        ),
        (
            ResetSpec(to=To.TIME, time=-0.001),
            "orders: 1969-12-31T23:59:59.999Z is before 1970; give a time since then, or go to the earliest offset",
        ),
        (
            ResetSpec(to=To.LATEST, partitions=(1, 3, 4, 9)),
            "orders has no partitions 3 to 4, 9; it has partitions 0 to 2: name those, or leave them out",
        ),
        (
            ResetSpec(to=To.OFFSET, offset=39),
            "orders/1: offset 39 is outside the log; valid is 40 to 90\n"
            "orders/2: offset 39 is outside the log; valid is 7 to 7",
        ),
        (
            ResetSpec(to=To.OFFSET, offset=101, partitions=(0,)),
            "orders/0: offset 101 is outside the log; valid is 0 to 100",
        ),
        (ResetSpec(to=To.OFFSETS, offsets={1: -1}), "orders/1: offset -1 is outside the log; valid is 40 to 90"),
        (
            ResetSpec(to=To.OFFSETS, offsets={5: 1}),
            "orders has no partition 5; it has partitions 0 to 2: name those, or leave them out",
        ),
        (
            ResetSpec(to=To.OFFSETS, offsets={0: 1}, partitions=(0, 1)),
            "orders: no offset is given for partition 1, only for partition 0; add it, or leave it out of the partitions",
        ),
        (ResetSpec(to=To.OFFSETS, offsets={}), "orders: no partition is named; it has partitions 0 to 2"),
        (ResetSpec(to=To.SHIFT), "orders: a reset to shift needs its shift; give it"),
        (ResetSpec(to=To.EARLIEST, offset=3), "orders: a reset to earliest takes no offset; leave it out"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_can(spec: ResetSpec, message: str) -> None:
    """Each refusal says what is wrong, and the valid range."""
    with pytest.raises(ResetError) as refusal:
        check(spec, LOG, NOON)
    assert str(refusal.value) == message


def test_a_time_of_a_clock_that_is_a_little_ahead_is_taken() -> None:
    """The request may come from another machine."""
    assert moves(ResetSpec(to=To.TIME, time=NOON + 4))[0] == (60, 50)


def test_a_partition_without_offset_cannot_be_shifted() -> None:
    """Where it would begin is for its consumer to say; nothing is guessed."""
    with pytest.raises(ResetError, match="no offset yet in partition 2, so there is nothing to shift from"):
        resolve(ResetSpec(to=To.SHIFT, shift=1), COMMITTED, LOG)


def test_an_offset_that_retention_deleted_while_the_group_stopped_is_refused() -> None:
    """What was valid when it was asked for need not be when it is done."""
    spec = ResetSpec(to=To.OFFSET, offset=10, partitions=(0,))
    check(spec, LOG, NOON)
    with pytest.raises(ResetError, match="orders/0: offset 10 is outside the log; valid is 20 to 100"):
        resolve(spec, COMMITTED, replace(LOG, ranges={0: (20, 100)}))


def test_a_time_needs_an_answer_for_each_partition() -> None:
    """A missing answer is no `there is none`: that would move the partition to its end."""
    with pytest.raises(ResetError, match=r"orders/1: the brokers were not asked where .* begins"):
        resolve(ResetSpec(to=To.TIME, time=NOON), COMMITTED, replace(LOG, at_time={0: 50}))


def test_a_record_deleted_between_the_two_questions_is_no_target() -> None:
    """The log's start is, then: the first record that is left is of that time or later."""
    log = replace(LOG, ranges={0: (55, 100)}, at_time={0: 50})
    assert resolve(ResetSpec(to=To.TIME, time=NOON), COMMITTED, log) == [Moved(0, 60, 55)]


def test_many_refusals_are_counted() -> None:
    """A topic of a thousand partitions does not fill the screen."""
    log = TopicLog("orders", None, dict.fromkeys(range(1000), (0, 5)))
    with pytest.raises(ResetError) as refusal:
        check(ResetSpec(to=To.OFFSET, offset=6), log, NOON)
    assert str(refusal.value).splitlines()[9:] == [
        "orders/9: offset 6 is outside the log; valid is 0 to 5",
        "and 990 more partitions",
    ]


@given(
    st.dictionaries(st.integers(0, 20), st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1),
    st.dictionaries(st.integers(0, 20), st.none() | st.integers(0, 3000)),
    st.sampled_from([To.EARLIEST, To.LATEST, To.SHIFT]),
    st.integers(-5000, 5000),
)
def test_a_reset_never_leaves_the_log(
    sizes: dict[int, tuple[int, int]], committed: dict[int, int | None], to: To, shift: int
) -> None:
    """With any content of the nodes: every partition moves once, to a place in its log; `old` is the offset before."""
    log = TopicLog("orders", None, {p: (start, start + size) for p, (start, size) in sizes.items()})
    known = {p: committed.get(p) for p in sizes} if to is not To.SHIFT else {p: committed.get(p) or 0 for p in sizes}
    moved = resolve(ResetSpec(to=to, shift=shift if to is To.SHIFT else None), known, log)
    assert [m.partition for m in moved] == sorted(sizes)
    assert all(log.ranges[m.partition][0] <= m.new <= log.ranges[m.partition][1] for m in moved)
    assert {m.partition: m.old for m in moved} == known


def test_runs_of_partitions_are_drawn_together() -> None:
    """As people write them."""
    assert numbers([3, 0, 1, 2, 7, 9, 10]) == "0 to 3, 7, 9 to 10"
    assert numbers(range(0, 60, 2)) == "0, 2, 4, 6, 8, 10, 12, 14, 16, 18 and 20 more"


def test_a_spec_says_itself_in_words() -> None:
    """For tables, conditions and logs."""
    specs = [
        ResetSpec(to=To.TIME, time=NOON + 0.25),
        ResetSpec(to=To.SHIFT, shift=-5, partitions=(0, 1, 2)),
        ResetSpec(to=To.OFFSETS, offsets={3: 1}),
    ]
    assert [in_words(spec) for spec in specs] == [
        "to 2027-01-15T08:00:00.250Z",
        "by -5, partitions 0 to 2",
        "to the offsets given for partition 3",
    ]
