"""The demo's end fails the demo if anything is not proven, not archived, or other than in the CSV."""

from __future__ import annotations

from dataclasses import replace

from inbound.demo.flights import Sums
from inbound.demo.proving import problems
from inbound.proof.model import Proof
from inbound.spark.archive.job import TopicSummary
from inbound.spark.archive.manifests import Counts

PROVEN = Proof("exact", 0.0, 1.0, ())
ARCHIVED = TopicSummary("flights", Counts(events=3), Counts(events=3), {0: 3}, ())
CARRIERS = {"AA": Sums(2, 1, 10), "UA": Sums(1, 1, -3)}


def test_a_demo_that_went_well_has_no_problems() -> None:
    """Proven, all archived, equal sums."""
    assert problems(PROVEN, ARCHIVED, CARRIERS, published=3, expected=CARRIERS) == []


def test_every_difference_is_named() -> None:
    """The verdict, how many are missing in the archive, and the carriers whose sums differ, on either side."""
    unproven = replace(PROVEN, missing=("group delays: it keeps no ledger",))
    lacking = replace(ARCHIVED, totals=Counts(events=1, undecodable=1))
    wrong = {"AA": Sums(2, 1, 11), "XX": Sums(1, 1, 1)}

    assert problems(unproven, lacking, wrong, published=3, expected=CARRIERS) == [
        "spark validate says not provable",
        "3 events were published, but the archive has 1, and 1 set apart",
        "in the archive the counts of AA, UA, XX are not those of the CSV",
    ]
