"""The page of a proof, read by a parser: what a browser makes of it is in integration/report/test_proof_page.py."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from inbound.proof.model import PartitionKey, Verdict
from inbound.report.proof_page import UNFOLDED, proof_page
from inbound.report.timeline import MOST_CLAIMS
from tests.proof.made_proof import claim, finding, partition, proof, repeated

LOST = finding("lost", 4711, 4713, cause="these were never delivered")
#: Markup, an end of its element, quotes, a turn of the writing direction, controls, half of a character.
HOSTILE = "</title></script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&amp; \u202e\x00\x1b[2J\ud800"


class Parsed(HTMLParser):
    """Elements (name and attributes), and texts by the class of the element they stand in."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def close(self) -> None:
        super().close()
        assert self._open == []

    def of_class(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.elements if name in (attributes.get("class") or "").split()]

    def text(self, tag: str) -> list[str]:
        return [text for one, text in self.texts if one == tag]


def test_the_verdict_stands_first_and_every_partition_has_a_row_and_a_timeline() -> None:
    """Bars for claims, a mark for each finding, the cause in words; what is bad stands before what is not."""
    bad = partition(1, repeated(), LOST, verdict=Verdict.ANOMALIES)
    open_ = partition(2, verdict=Verdict.NOT_PROVABLE, missing=("bring a-0002.jsonl",))

    page = Parsed(proof_page(proof(partition(0), open_, bad)))

    assert page.text("h1") == ["group orders-svc, topic orders: 2 lost in 1 of 3 partitions; 1 not provable"]
    assert page.text("h3") == ["orders/1", "orders/2", "orders/0"]
    assert len(page.of_class("bar")) == 9
    assert [mark["class"] for mark in page.of_class("finding")] == ["finding noted", "finding bad"]
    assert len(page.of_class("died")) == 3 + 1  # one claim of each partition, and the legend
    assert "these were never delivered" in page.text("td")
    assert page.text("li").count("bring a-0002.jsonl") == 2
    assert {a["role"] for tag, a in page.elements if tag == "svg" and not a.get("aria-hidden")} == {"img"}
    assert len(page.text("desc")) == 3


def test_no_name_is_ever_markup() -> None:
    """Topics come from Kafka, consumers name themselves, causes quote both: all of it is text on the page."""
    one = partition(
        0,
        finding("lost", 1, 2, cause=HOSTILE, consumers=(HOSTILE,)),
        key=PartitionKey(HOSTILE, HOSTILE, 0),
        verdict=Verdict.ANOMALIES,
        missing=(HOSTILE,),
        claims=(claim(HOSTILE, 1, 0, 5, 0, 100),),
    )

    written = proof_page(proof(one, missing=(HOSTILE,), writer=HOSTILE))

    page = Parsed(written)
    assert [tag for tag, _ in page.elements if tag in ("script", "img")] == ["script"]
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert any("<img src=x onerror=alert(1)>\"'&amp; \ufffd\ufffd\ufffd[2J\ufffd" in text for text in page.text("td"))
    assert not re.search("[\u202e\x00\x1b\ud800]", written)
    written.encode()


def test_a_page_loads_nothing_and_runs_only_its_own_script() -> None:
    """The policy allows exactly the style and the script that stand in the page; no attribute needs more."""
    page = Parsed(proof_page(proof(partition(0, repeated()))))

    (policy,) = [a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    (script,), (style,) = page.text("script"), page.text("style")
    own = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{own[0]}'; style-src 'sha256-{own[1]}'; base-uri 'none'; form-action 'none'"
    )
    names = {name for _, attributes in page.elements for name in attributes}
    assert names.isdisjoint({"style", "src", "xlink:href"})
    assert all((a["href"] or "").startswith("#") for _, a in page.elements if "href" in a)


def test_links_lead_to_partitions_for_all_names() -> None:
    """Each row and each square of the map points to the one partition that it is about."""
    keys = [
        PartitionKey("g", "a b", 0),
        PartitionKey("g", "a", 0),
        PartitionKey("h", "a", 0),
        PartitionKey("g", "a", 1),
    ]

    page = Parsed(proof_page(proof(*(partition(0, key=key) for key in keys))))

    ids = [attributes["id"] for tag, attributes in page.elements if tag == "details"]
    links = [attributes["href"] or "" for tag, attributes in page.elements if tag == "a"]
    assert len(set(ids)) == 4
    assert sorted(links) == sorted(f"#{one}" for one in ids for _ in ("map", "table"))


@pytest.mark.slow
def test_a_thousand_partitions_stay_usable() -> None:
    """The page is of a size that browsers open at once, shows what is wrong first, and folds the rest."""
    parts = [partition(i) for i in range(1000)]
    parts[777] = partition(777, LOST, verdict=Verdict.ANOMALIES)

    page = proof_page(proof(*parts))

    assert len(page) < 6_000_000
    assert re.findall("<h3>([^<]*)", page)[:2] == ["orders/777", "orders/0"]
    assert len(re.findall("<details [^>]*>", page)) == 1000
    assert len(re.findall("<details [^>]* open>", page)) == UNFOLDED


def test_a_long_history_is_drawn_in_part_and_says_so() -> None:
    """A partition that changed hands ten thousand times: the newest claims in few lanes, the worst findings."""
    claims = tuple(claim(f"host-{i}", i, i, i + 1.5, i * 100, i * 100 + 100) for i in range(10_000))
    many = [repeated(i * 100, i * 100 + 50) for i in range(5_000)]

    page = Parsed(proof_page(proof(partition(0, *many, LOST, claims=claims, verdict=Verdict.ANOMALIES)), rest="a.json"))

    assert len(page.of_class("bar")) == MOST_CLAIMS
    assert len({bar["y"] for bar in page.of_class("bar")}) == 2
    assert page.of_class("finding")[-1]["class"] == "finding bad"
    assert f"{10_000 - MOST_CLAIMS:,} older claims not drawn." in page.text("p")
    assert "Findings in orders/0; 4,901 more are in a.json" in page.text("caption")


def test_what_is_not_known_is_a_dash() -> None:
    """No claim, no offset, no log: the page says so and does not fail."""
    unknown = {"start": None, "proven": None, "committed": None, "log_start": None, "log_end": None, "in_flight": ()}
    no_offset = claim("a", 1, 0, 0, 0, 0, position=None, landed=None, ending="holds", records=0)
    parts = [
        partition(0, claims=(), verdict=Verdict.NOT_PROVABLE, **unknown),
        partition(1, finding("skipped", 5, 9, None, offsets=None), claims=(no_offset,), **unknown),
    ]

    page = Parsed(proof_page(proof(*parts, mode="quick")))

    assert "The ledger has no claim of this partition." in page.text("p")
    assert len(page.of_class("bar")) == 1
    assert "-" in page.text("td")
    assert "<=4" in page.text("td")


def test_no_partition_at_all() -> None:
    """The page of nothing says what is missing."""
    page = Parsed(proof_page(proof(missing=("group orders-svc has no ledger",))))

    assert "group orders-svc has no ledger" in page.text("li")
    assert [tag for tag, _ in page.elements if tag == "details"] == []
