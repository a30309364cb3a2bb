"""Pages in a real browser: what is drawn, what can be pressed, and that nothing is complained of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inbound.proof.model import PartitionKey, Verdict
from inbound.report.proof_page import UNFOLDED, proof_page
from integration.admin.browser import Browser
from tests.proof.made_proof import claim, finding, partition, proof, repeated
from tests.report.test_proof_html import HOSTILE
from tests.waiting import until

LOST = finding("lost", 4711, 4713, cause="these were never delivered")
ROWS = "[...document.querySelectorAll('table')][0].tBodies[0].rows"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    one = Browser(tmp_path / "profile")
    yield one
    one.close()


def written(folder: Path, text: str) -> Path:
    path = folder / "proof.html"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_person_sees_rows_bars_and_marks(browser: Browser, tmp_path: Path) -> None:
    """As many rows as partitions, bars that have a size and a colour, marks within their chart; no complaint."""
    bad = partition(1, repeated(), LOST, verdict=Verdict.ANOMALIES)

    browser.open(written(tmp_path, proof_page(proof(partition(0), bad, partition(2)))))

    assert browser.run("document.querySelector('h1').innerText") == (
        "group orders-svc, topic orders: 2 lost in 1 of 3 partitions"
    )
    assert browser.run(f"{ROWS}.length") == 3
    bars = "[...document.querySelectorAll('svg .bar')]"
    assert browser.run(f"{bars}.filter(bar => bar.getBoundingClientRect().width > 100).length") == 9
    assert browser.run(f"new Set({bars}.map(bar => getComputedStyle(bar).fill)).size") == 2
    chart = "document.querySelector('svg[role=img]').getBoundingClientRect()"
    mark = "document.querySelector('svg .bad.finding').getBoundingClientRect()"
    assert browser.run(f"{chart}.left < {mark}.left && {mark}.bottom < {chart}.bottom && {mark}.width > 5")
    assert "offsets 4711 to 4712" in browser.run("document.querySelector('svg .bad.finding title').textContent")
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.problems == []


def test_the_table_is_sorted_and_links_unfold(browser: Browser, tmp_path: Path) -> None:
    """Pressing a header sorts by numbers, pressing again turns it round; a row's link opens its partition."""
    parts = [partition(number, committed=number * 7 % 100) for number in range(100)]
    browser.open(written(tmp_path, proof_page(proof(*parts))))
    press = "[...document.querySelectorAll('th button')].find(one => one.innerText == 'committed').click()"
    column = f"[...{ROWS}].map(row => row.cells[4].innerText)"

    browser.run(press)
    up = browser.run(column)
    browser.run(press)
    down = browser.run(column)

    assert [int(value) for value in up] == list(range(100))
    assert down == up[::-1]
    folded = "[...document.querySelectorAll('details')].filter(one => !one.open).length"
    assert browser.run(folded) == 100 - UNFOLDED
    browser.run("[...document.querySelectorAll('tbody a')].find(one => one.innerText == 'orders/77').click()")
    until(lambda: browser.run(folded) == 99 - UNFOLDED, 60, lambda: f"one more is open: {browser.run(folded)} are not")
    assert browser.problems == []


def test_hostile_names_do_nothing(browser: Browser, tmp_path: Path) -> None:
    """Markup in the names of topics, groups and consumers is shown as it is written."""
    one = partition(
        0,
        finding("lost", 1, 2, cause=HOSTILE),
        key=PartitionKey(HOSTILE, HOSTILE, 0),
        verdict=Verdict.ANOMALIES,
        claims=(claim(HOSTILE, 1, 0, 5, 0, 100),),
    )

    browser.open(written(tmp_path, proof_page(proof(one))))

    assert browser.run("document.querySelectorAll('img, main script').length") == 0
    assert "<script>alert(1)</script>" in browser.run("document.querySelector('h1').innerText")
    assert browser.problems == []


def test_the_page_lets_nothing_else_in(browser: Browser, tmp_path: Path) -> None:
    """Were markup to get in after all, the browser would refuse it, and say so: these tests would see that."""
    planted = """
        <script>console.log('not ours')</script><img src='https://example.org/x.png'>
        <p style='color: red'><p onclick='alert(1)'>
    """
    page = proof_page(proof(partition(0)))

    browser.open(written(tmp_path, page.replace("<h1>", f"{planted}<h1>")))
    browser.run("[...document.querySelectorAll('p')].slice(0, 2).forEach(one => one.click())")

    def refused() -> set[str]:
        """Its complaints arrive while it answers another question."""
        browser.run("document.readyState")
        found = " ".join(problem for problem in browser.problems if "Content Security Policy" in problem)
        return {
            what for what in ("inline script", "the image", "inline style", "inline event handler") if what in found
        }

    until(lambda: len(refused()) == 4, 60, lambda: f"it refuses what was planted: {browser.problems}")
