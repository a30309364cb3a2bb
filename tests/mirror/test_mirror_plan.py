"""Which offsets go to a Kafka group, and when."""

from __future__ import annotations

import kafka.errors
import pytest

from inbound.mirror.plan import (
    DAY,
    EVERY,
    KINDS,
    MOST,
    ONCE_MORE,
    RELEASED_KEPT,
    Held,
    Kind,
    MirrorPlan,
    RefusedOffset,
    refusal_of,
    wait_after,
)
from inbound.topic_partition import TopicPartition

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
NOTHING = Held({}, frozenset())


def held(**commits: int) -> Held:
    """Return what is held for certain: `p0=4` is partition 0 with the commit 4."""
    return Held({TopicPartition("orders", int(name[1:])): offset for name, offset in commits.items()}, frozenset())


def begun() -> MirrorPlan:
    """Return a plan whose first round, with nothing held, is over; its pace allows the next request at 1."""
    plan = MirrorPlan(0.0)
    assert plan.take(NOTHING, 0.0) == {}
    return plan


def refused(kind: Kind, *partitions: TopicPartition) -> dict[TopicPartition, RefusedOffset]:
    """Return an answer that takes all but these."""
    return dict.fromkeys(partitions, RefusedOffset(kind, "no"))


def test_the_newest_of_each_partition_goes_in_one_request() -> None:
    """What landed within a second goes together; the ones between are never sent."""
    plan = begun()
    for offset in (1, 2, 3):
        plan.note(P0, offset, 0.1 * offset)
    plan.note(P1, 7, 0.4)

    assert (plan.due(), plan.take(held(p0=3, p1=7), 1.0)) == (EVERY, {P0: 3, P1: 7})


def test_the_first_note_has_the_thread_woken() -> None:
    """It looks on its own for what is noted after that."""
    plan = begun()

    assert [plan.note(P0, 1, 0.0), plan.note(P0, 2, 0.0), plan.note(P1, 1, 0.0)] == [True, False, False]


def test_what_lands_during_a_request_goes_with_the_next_one() -> None:
    """And a second has passed then since the one before."""
    plan = begun()
    plan.note(P0, 1, 0.5)
    plan.take(held(p0=1), 1.0)
    plan.note(P0, 2, 1.2)

    taken = plan.answered({}, 1.3)

    assert (taken, plan.due(), plan.take(held(p0=2), 2.0), plan.waiting) == (1, 2.0, {P0: 2}, 1)


def test_a_newer_offset_is_not_overwritten_by_the_one_that_failed() -> None:
    """Neither upwards nor downwards."""
    plan = begun()
    plan.note(P0, 100, 0.5)
    plan.note(P1, 5, 0.5)
    plan.take(held(p0=100, p1=5), 1.0)
    plan.note(P0, 3, 1.5)
    plan.failed(RefusedOffset(Kind.UNREACHABLE, "gone"), 2.0)

    assert (plan.due(), plan.take(held(p0=3, p1=5), 3.0)) == (3.0, {P0: 3, P1: 5})


def test_all_that_is_held_goes_once_a_day() -> None:
    """Kafka forgets offsets that nobody commits."""
    plan = begun()

    before = plan.due()
    sent = plan.take(held(p0=1, p1=2), DAY)
    plan.answered({}, DAY + 1)

    assert (before, sent, plan.due()) == (DAY, {P0: 1, P1: 2}, 2 * DAY)


def test_what_is_in_doubt_waits_and_what_is_released_is_sent_for_a_while() -> None:
    """In doubt another may have committed more; and after a while the next owner of a released partition has sent it."""
    plan = begun()
    for partition in (P0, P1, P2):
        plan.note(partition, 1, 1.0)
    plan.note(P2, 2, 2.0 + RELEASED_KEPT)

    sent = plan.take(Held({P2: 2}, {P0}), 2.0 + RELEASED_KEPT)

    assert (sent, plan.waiting) == ({P2: 2}, 2)  # P1 is forgotten, P0 waits


def test_what_is_lost_is_forgotten_at_once() -> None:
    """However new it is: its owner has sent the position that it read, or will."""
    plan = begun()
    plan.note(P0, 1, 1.0)
    plan.note(P1, 1, 1.0)
    assert (plan.take(Held({}, frozenset(), {P0}), 1.5), plan.waiting) == ({P1: 1}, 1)


def test_a_large_round_goes_in_pieces_without_a_pause() -> None:
    """As many partitions go in a request as Kafka's own topic takes in one piece."""
    plan = begun()
    many = {TopicPartition("orders", number): 1 for number in range(MOST + 5)}
    plan.claimed(0.0)

    first = plan.take(Held(many, frozenset()), ONCE_MORE)
    plan.answered({}, ONCE_MORE)
    due = plan.due()
    second = plan.take(Held(many, frozenset()), due)

    assert (len(first), due, len(second), {**first, **second}) == (MOST, ONCE_MORE, 5, many)


def test_failures_are_tried_again_ever_more_slowly() -> None:
    """Up to a minute; after one that worked it begins again."""
    waits = [wait_after(Kind.UNREACHABLE, failures) for failures in range(1, 10)]

    assert (waits, wait_after(Kind.LIVE_GROUP, 1)) == ([1, 2, 4, 8, 16, 32, 60, 60, 60], 600)


def test_a_partition_that_is_refused_holds_up_no_other() -> None:
    """Of two topics we may read one: its offsets go on every second; the trouble stays known while the other waits."""
    plan = begun()
    plan.note(P0, 1, 0.0)
    plan.note(P1, 1, 0.0)
    plan.take(held(p0=1, p1=1), 1.0)
    plan.answered(refused(Kind.DENIED, P0), 1.0)
    plan.note(P0, 2, 1.1)
    plan.note(P1, 2, 1.1)
    plan.answered({}, 1.9) if plan.take(held(p0=2, p1=2), 1.9) == {P1: 2} else pytest.fail("the wrong ones")

    problem = plan.problem
    again = plan.take(held(p0=2, p1=2), 3.0)
    plan.answered({}, 3.0)

    assert (problem, again, plan.problem, plan.waiting) == (RefusedOffset(Kind.DENIED, "no"), {P0: 2}, None, 0)


def test_trouble_is_over_when_there_is_nothing_left_that_was_refused() -> None:
    """The topic is deleted, and its partitions are not held any more."""
    plan = begun()
    plan.note(P0, 1, 0.0)
    plan.take(held(p0=1), 1.0)
    plan.answered(refused(Kind.NO_TOPIC, P0), 1.0)

    sent = plan.take(NOTHING, 1.0 + RELEASED_KEPT)

    assert (sent, plan.waiting, plan.problem) == ({}, 0, None)


@pytest.mark.parametrize("code", sorted(KINDS))
def test_the_codes_in_the_table_are_kafkas(code: int) -> None:
    """Each is an error that Kafka knows; -1 and the like are what a client found itself."""
    assert kafka.errors.for_code(code).errno == code


def test_codes_that_are_not_in_the_table() -> None:
    """Below 0 no broker has answered; an unknown code is shown as it is."""
    assert (refusal_of(-195, "down"), refusal_of(69, "GroupIdNotFound")) == (
        RefusedOffset(Kind.UNREACHABLE, "down"),
        RefusedOffset(Kind.OTHER, "GroupIdNotFound"),
    )
