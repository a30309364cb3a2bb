"""Which letters are chosen, what a redrive does with each, and up to where a purge can go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from inbound.dead_letters.letter import Letter, letter_of
from inbound.dead_letters.redrive import Planner, RedriveTarget
from inbound.dead_letters.selection import (
    MOST_KINDS,
    OTHER_SUBSCRIPTIONS,
    OTHERS,
    LetterSelection,
    LetterSummary,
    PurgeCut,
    plan_purge,
    shape,
)
from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_bridge import RecordParts
from tests.dead_letters.dead_letter_stage import DEAD, NIGHT, event, failed, knative, refused


def letter(record: PlainRecord, offset: int = 0, partition: int = 0, timestamp: int = NIGHT) -> Letter:
    return letter_of(partition, record._replace(offset=offset, timestamp=timestamp))


#: One of each: who gave it up is billing, stock, a URL.
LETTERS = {
    "billing": letter(refused(event("a1", key=b"k1")), 0),
    "stock": letter(failed(event("a2")), 1, timestamp=NIGHT + 3600_000),
    "knative": letter(knative(event("a3")), 2, timestamp=-1),
}

SELECTIONS: Mapping[str, tuple[LetterSelection, set[str]]] = {
    "nothing asked": (LetterSelection(), {"billing", "stock", "knative"}),
    "group": (LetterSelection(subscriptions=frozenset({"stock-svc"})), {"stock"}),
    "URL, where no group is named": (LetterSelection(subscriptions=frozenset({"http://other/"})), {"knative"}),
    "URL of one with a group": (LetterSelection(subscriptions=frozenset({"http://billing/in"})), set()),
    "since": (LetterSelection(since=NIGHT / 1000 + 1), {"stock"}),
    "until is before": (LetterSelection(until=NIGHT / 1000 + 3600), {"billing"}),
    "code": (LetterSelection(reason="503"), {"billing"}),
    "a code is not looked for in texts": (LetterSelection(reason="17"), set()),
    "text, in any case": (LetterSelection(reason="NO SUCH"), {"stock"}),
    "stars": (LetterSelection(reason="50? *o*"), {"knative"}),
    "key": (LetterSelection(key=b"k1"), {"billing"}),
    "places": (LetterSelection(at=frozenset({(0, 1), (1, 2)})), {"stock"}),
    "all must be met": (LetterSelection(key=b"k1", reason="500"), set()),
}


@pytest.mark.parametrize(("selection", "expected"), SELECTIONS.values(), ids=SELECTIONS)
def test_filters_choose(selection: LetterSelection, expected: set[str]) -> None:
    """Each letter that meets all of them; one without a time meets none about times."""
    assert {name for name, one in LETTERS.items() if selection.chooses(one)} == expected


def test_reasons_of_one_kind_are_counted_together() -> None:
    """Numbers in them do not tell them apart."""
    one, other = (letter(failed(event("a"), f"ValueError: no such order {n}")) for n in (17, 4711))

    assert {shape(one), shape(other)} == {"ValueError: no such order #"}


def test_a_summary_is_bounded_however_many_reasons_there_are() -> None:
    """What comes after the first kinds is counted as others."""
    summary = LetterSummary()
    for number in range(MOST_KINDS + 50):
        summary.add("stock", letter(failed(event("a"), "x" * (number % 50) + "y" * (number // 50))))

    others = [kind.count for _, reason, kind in summary.rows() if reason == OTHERS]
    assert (summary.total, others, len(summary.kinds)) == (MOST_KINDS + 50, [50], MOST_KINDS + 1)


def test_a_summary_is_bounded_however_many_subscriptions_there_are() -> None:
    """Who writes to the topic may name any."""
    summary = LetterSummary()
    for number in range(3 * MOST_KINDS):
        summary.add(f"group {number}", letter(failed(event("a"), "no")))

    assert (summary.total, len(summary.kinds), summary.kinds[OTHER_SUBSCRIPTIONS, OTHERS].count) == (
        3 * MOST_KINDS, 2 * MOST_KINDS + 1, MOST_KINDS,
    )  # fmt: skip


# -- redrive ---------------------------------------------------------------------------------------------------------------

ORIGINAL, BILLING = RedriveTarget("original"), RedriveTarget("subscription", "orders.billing")


def planner(destination: RedriveTarget = ORIGINAL, **settings: Any) -> Planner:
    given: dict[str, Any] = {
        "max_redrives": 3, "done": {}, "partitions": {"orders": 4, "other": 2}.get, "name_of": lambda one: one.group or "-",
    }  # fmt: skip
    return Planner(DEAD, destination, **{**given, **settings})


def redriven(times: int) -> PlainRecord:
    record = event("a1")
    return refused(record._replace(headers=[*record.headers, ("inbound-redrives", b"%d" % times)]))


def test_each_letter_goes_to_the_topic_that_it_came_from() -> None:
    """By who gave it up, and where to; exactly these offsets."""
    plan = planner().plan([LETTERS["billing"], LETTERS["stock"]])

    assert plan.routes == {("orders-svc.billing", "topic orders"): 1, ("stock-svc", "topic orders"): 1}
    assert {partition: list(offsets) for partition, offsets in plan.offsets.items()} == {0: [0, 1]}


REFUSED: Mapping[str, tuple[Planner, PlainRecord, str]] = {
    "came back too often": (planner(), redriven(3), "it was redriven 3 times or more, and came back"),
    "to another topic": (
        planner(RedriveTarget("topic", "other"), max_redrives=1),
        redriven(1),
        "it was redriven once or more",
    ),
    "no origin": (planner(), knative(event("a")), "it does not say which topic it came from"),
    "reply": (planner(), refused(event("re"), read=event("a")), "it is a subscriber's reply, and was in no topic"),
    "refused reply": (
        planner(BILLING),
        refused(event("re"), read=event("a")),
        "it is a subscriber's reply, and subscr",
    ),
    "no such topic": (planner(partitions={}.get), refused(event("a")), "its topic orders does not exist"),
}


@pytest.mark.parametrize(("plans", "record", "why"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_sent_is_named_with_why(plans: Planner, record: PlainRecord, why: str) -> None:
    """It stays where it is."""
    plan = plans.plan([letter(record, 17)])

    ((said, places),) = plan.named.items()
    assert (said.startswith(why), places, plan.count, plan.refused[said]) == (True, ["0/17"], 0, 1), said


def test_a_letter_of_the_dead_letter_topic_itself_does_not_go_round() -> None:
    """A channel that reads its own dead letters."""
    own = refused(event("a"))
    headers = [(name, DEAD.encode() if name == "inbound-dead-letter-topic" else raw) for name, raw in own.headers]
    (why,) = planner().plan([letter(own._replace(headers=headers))]).refused

    assert why.startswith("it came from this topic itself")


ALLOWED = {
    "twice of three": (planner(), redriven(2)),
    "by HTTP, however often": (planner(BILLING), redriven(9)),
    "a reply to where replies go": (
        planner(RedriveTarget("subscription", "b", posts_replies=True)),
        refused(event("r"), read=event("a")),
    ),
    "no origin, to a topic": (planner(RedriveTarget("topic", "other")), knative(event("a"))),
}


@pytest.mark.parametrize(("plans", "record"), ALLOWED.values(), ids=ALLOWED)
def test_what_cannot_go_round_is_sent(plans: Planner, record: PlainRecord) -> None:
    """The guard is about topics that are read again."""
    assert plans.plan([letter(record)]).count == 1


def test_what_the_ledger_knows_is_left_out() -> None:
    """Wherever it went: to send it elsewhere too takes another ledger."""
    plan = planner(done={(0, 0): "subscription orders.billing"}).plan([LETTERS["billing"], LETTERS["stock"]])

    assert (list(plan.offsets[0]), plan.before) == ([1], {"subscription orders.billing": 1})


def test_a_record_goes_back_to_its_partition_with_its_counter() -> None:
    """As it was read; where the topic has fewer partitions now, its key says to which."""
    record = event("a1", key=b"k1")
    sent = planner().parcel(0, refused(record)._replace(offset=17))
    smaller = planner(partitions={"orders": 2}.get).parcel(0, refused(record))

    counted = RecordParts(b"k1", record.value, [*record.headers, ("inbound-redrives", b"1")])  # type: ignore[list-item]
    assert (sent.parts, sent.topic, sent.to_partition, sent.place) == (counted, "orders", 3, (0, 17))
    assert smaller.to_partition is None


# -- purge -----------------------------------------------------------------------------------------------------------------


def cut_of(chosen: str) -> PurgeCut:
    """Return the cut of a partition whose letters begin at offset 10: `x` is chosen, `-` is not."""
    letters = [letter(refused(event("a")), 10 + number) for number in range(len(chosen))]
    picks: Callable[[Letter], bool] = lambda one: chosen[one.offset - 10] == "x"  # noqa: E731
    return plan_purge({0: 10}, letters, picks).cuts[0]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("xxx", PurgeCut(10, 13, letters=3)),
        ("xx-", PurgeCut(10, 12, letters=2, first_other=12)),
        ("x-x-xx-", PurgeCut(10, 11, letters=1, others=2, first_other=11, behind=3)),
        ("---", PurgeCut(10, 10, first_other=10)),
        ("", PurgeCut(10, 10)),
    ],
)
def test_a_partition_is_deleted_up_to_its_first_letter_that_is_not_chosen(chosen: str, expected: PurgeCut) -> None:
    """The plan says how many chosen letters stand behind it, and how many others are in the way."""
    assert cut_of(chosen) == expected
