"""The status page in a real browser, before a process made by hand: what is drawn, what can be pressed, what is refused."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from integration.admin.browser import Browser
from integration.admin.status_scene import TOKEN, Stage, many, night, well
from tests.observe.status.made_status import channel, process
from tests.report import test_proof_html
from tests.waiting import until

#: Half a character cannot be asked for in a URL, and is no part of any name.
HOSTILE = test_proof_html.HOSTILE.replace("\ud800", "")
ROWS = "[...document.querySelectorAll('#rows tr')]"
TITLE = "document.querySelector('h1').innerText"
#: What an operation was answered with.
ANSWER = "document.querySelector('#control .answer')?.innerText ?? ''"


@pytest.fixture
def serve(browser: Browser) -> Iterator[Callable[..., Stage]]:
    """Serve a status, and open its page; returns when it is drawn."""
    with ExitStack() as open_now:

        def start(*given: Any, **named: Any) -> Stage:
            stage = Stage(*given, **named)
            open_now.callback(stage.close)
            browser.open(stage.url)
            shows(browser, "document.querySelectorAll('.live.good').length")
            return stage

        yield start


def shows(browser: Browser, expression: str, wanted: object = None) -> None:
    """Wait until an expression is true in the page, or what is wanted."""
    found: list[Any] = [None]

    def so() -> bool:
        found[0] = browser.run(expression)
        return bool(found[0]) if wanted is None else found[0] == wanted

    until(so, 120, lambda: f"{expression} is {wanted or 'true'}, and not {found[0]!r}")


def press(browser: Browser, where: str, text: str) -> None:
    """Press the button that says so."""
    browser.run(f"[...document.querySelectorAll('{where} button')].find(one => one.innerText === '{text}').click()")


def typed(browser: Browser, where: str, text: str) -> None:
    """Write into a field as a person does."""
    browser.run(f"document.querySelector('{where}').focus(), document.querySelector('{where}').select()")
    browser.call("Input.insertText", here=True, text=text)


def refused_requests(browser: Browser) -> list[str]:
    """Return what the browser complained of besides answers that are no 2xx, which it always tells of."""
    return [one for one in browser.problems if "Failed to load resource" not in one]


def test_the_answer_stands_first_then_the_reasons(
    browser: Browser, serve: Callable[..., Stage], tmp_path: Path
) -> None:
    """It shows stalled partitions, why, the remedy, and losses; also on a phone, and without errors."""
    serve(night(time.time()))
    shows(browser, "document.querySelectorAll('.problems .places').length >= 4")
    shows(browser, "document.querySelector('.problems li').innerText.includes('What to do: look where it is')")

    assert browser.run(TITLE) == "5 of 13 partitions are stalled: poison-event, slow-processor, subscriber-down"
    assert "17 records deleted by retention before they were read; 3 records committed and then not delivered" in browser.run(
        "document.querySelector('#verdict .lost').innerText"
    )  # fmt: skip
    assert browser.run("[...document.querySelectorAll('.problems .title')].map(one => one.innerText.split('\\n')[0])") == [
        "poison-event", "slow-processor", "subscriber-down", "processor-fails", "refused", "does nothing", "paused", "reset",
    ]  # fmt: skip
    said = browser.run("document.body.innerText")
    for text in (
        "/etc/inbound/inbound.yaml:14: channels.orders.workers: needs a whole number above 0",
        "held: offset 811: ValueError: no such customer",
        "https://billing.example/events",
        "answered 503 for 11 min",
        "90,123 \N{MULTIPLICATION SIGN} 202",
        "by ann on web-7 (a new disk)",
        "ValueError 10\N{MULTIPLICATION SIGN}",
        "member, session 0x1000ab of 10 s",
    ):
        assert text in said, text
    steps = "[...document.querySelector('.steps').children].map(one => `${one.className} ${one.firstChild.innerText}`)"
    assert browser.run(steps) == [
        "good RefMapped", "good AcquireDataPlaneServices", "good ConsumerGroupsStopped",
        "open OffsetsUpdated", "open ConsumerGroupsStarted", "open Succeeded",
    ]  # fmt: skip
    assert browser.run("document.title").startswith("✗ 5 of 13")
    for width, height in ((1280, 900), (390, 844)):
        for scheme in ("light", "dark"):
            browser.look_like(width, height, scheme)
            browser.screenshot(tmp_path / f"night-{width}-{scheme}.png", whole=True)
            assert browser.run("document.documentElement.scrollWidth <= innerWidth"), width
    assert browser.problems == []


def test_rows_are_found_and_sorted_and_a_press_on_one_tells_its_story(
    browser: Browser, serve: Callable[..., Stage], tmp_path: Path
) -> None:
    """By words, by a problem, by any column; the worst stand first, of these the oldest.

    The story is that of `inbound explain`, kept up to date while it is open; Escape closes it.
    """
    stage = serve(night(time.time()))
    names = f"{ROWS}.map(row => row.cells[0].innerText)"

    assert browser.run(names)[:6] == ["orders/5", "bills/0", "bills/1", "bills/2", "orders/6", "orders/7"]
    browser.run("document.querySelector('#problems-only').click()")
    assert browser.run(names) == ["orders/5", "bills/0", "bills/1", "bills/2", "orders/6", "orders/7"]
    typed(browser, "#filter", "orders slow")
    assert browser.run(names) == ["orders/6"]
    typed(browser, "#filter", "nothing is like that")
    assert browser.run("document.querySelector('#partitions').innerText").endswith("No partition is like that.")
    browser.run("document.querySelector('#problems-only').click()")
    typed(browser, "#filter", "owner orders-0".removeprefix("owner "))
    assert browser.run(f"{ROWS}.length") == 8
    press(browser, "#partitions th", "Lag")
    assert browser.run(f"{ROWS}.map(row => row.cells[4].innerText)") == ["4,711", "120", "60", "12", "9", "6", "3", "0"]
    press(browser, "#partitions th", "Lag")
    assert browser.run(f"{ROWS}.map(row => row.cells[4].innerText)")[0] == "0"
    assert browser.run("document.querySelector('th[aria-sort=ascending]').innerText") == "Lag"
    assert browser.run("document.activeElement.id") == "filter", "what is typed goes on there"

    browser.run(f"{ROWS}.find(row => row.cells[0].innerText === 'orders/6').querySelector('button').click()")
    story = "document.querySelector('#detail').innerText"
    shows(browser, f"{story}.includes('What to do')")

    said = browser.run(story)
    for text in (
        "orders/6",
        "Stalled: a batch is inside the processor, since ",
        "the processor has had offsets 0 to 56 for 22 s",
        "What to do: look where it is",
        'File "/app/orders.py", line 15, in book',
        "orders-0 since",
        "claimed, after joining the group",
        "(3 times)",
        "12 records, 40.0 KiB",
    ):
        assert text in said, text
    browser.screenshot(tmp_path / "story.png")
    stage.texts["text"] = "something else by now"
    shows(browser, f"{story}.includes('something else by now')")
    for kind in ("rawKeyDown", "keyUp"):
        browser.call(
            "Input.dispatchKeyEvent", here=True, type=kind, key="Escape", code="Escape", windowsVirtualKeyCode=27
        )
    shows(browser, "!document.querySelector('#detail').open")
    assert browser.problems == []


def test_a_pause_needs_the_token_and_is_shown(browser: Browser, serve: Callable[..., Stage], tmp_path: Path) -> None:
    """A wrong token is refused, and the refusal shown; with the right one the group is paused, and the table says so."""
    stage = serve(night(time.time()), token=lambda: TOKEN)
    press(browser, "#channels", "Pause")
    assert "Pause orders?" in browser.run("document.querySelector('#control').innerText")
    assert "keeps its partitions and fetches nothing" in browser.run("document.querySelector('#control').innerText")
    typed(browser, "#control [name=reason]", "a new disk & more")
    typed(browser, "#control [name=token]", "wrong")
    press(browser, "#control", "Pause")
    shows(browser, f"({ANSWER}).includes('Refused (401)')")
    assert stage.asked == []
    browser.screenshot(tmp_path / "refused.png")

    typed(browser, "#control [name=token]", TOKEN)
    press(browser, "#control", "Pause")
    shows(browser, ANSWER, "orders: pause is done")
    shows(
        browser,
        f"{ROWS}.filter(row => row.innerText.includes('orders/') && row.innerText.includes('paused')).length",
        8,
    )
    press(browser, "#control", "Close")
    press(browser, "#channels", "Rebalance")
    assert browser.run("document.querySelector('#control [name=token]').value") == TOKEN, "asked for once"
    press(browser, "#control", "Rebalance")
    shows(browser, ANSWER, "orders: rebalance is done")
    press(browser, "#control", "Close")
    press(browser, "#channels", "Rate")
    typed(browser, "#control [name=per_second]", "500")
    press(browser, "#control", "Set")
    shows(browser, ANSWER, "orders: rate is done")

    said = [(name, one.verb.value, one.consumer, one.reason, one.per_second) for name, one in stage.asked]
    assert said == [
        ("orders", "pause", None, "a new disk & more", None),
        ("orders", "rebalance", None, None, None),
        ("orders", "rate", None, None, 500.0),
    ]  # fmt: skip
    assert browser.run("[...Array(sessionStorage.length), ...Array(localStorage.length)].length") == 0
    assert TOKEN not in browser.run("document.documentElement.outerHTML + document.cookie + location.href")
    assert refused_requests(browser) == []


def test_one_member_is_paused_and_a_partition_released(browser: Browser, serve: Callable[..., Stage]) -> None:
    """Without a token on loopback; the operation names the member, the partition and the time."""
    stage = serve(night(time.time()))
    press(browser, "#channels", "Pause")
    browser.run("document.querySelector('#control [name=consumer]').value = 'orders-1'")
    press(browser, "#control", "Pause")
    shows(browser, f"({ANSWER}).length")
    press(browser, "#control", "Close")
    browser.run(f"{ROWS}.find(row => row.cells[0].innerText === 'bills/2').querySelector('button').click()")
    shows(browser, "[...document.querySelectorAll('#detail button')].some(one => one.innerText === 'Release it')")
    press(browser, "#detail", "Release it")
    press(browser, "#control", "Release")
    shows(browser, ANSWER, "bills.billing: release is done")

    (_, paused), (name, released) = stage.asked
    assert (paused.consumer, name) == ("orders-1", "bills.billing")
    assert (released.topic, released.partition, released.consumer, released.seconds) == ("bills", 2, "bills-0", 60.0)
    assert browser.problems == []


def test_names_and_messages_that_are_markup_do_nothing(browser: Browser, serve: Callable[..., Stage]) -> None:
    """Of topics, consumers, exceptions, subscribers, explanations: shown as it is written."""
    now = time.time()
    row = replace(well(0, now), topic=HOSTILE, cause=HOSTILE, held=HOSTILE, last_error=HOSTILE)
    said = {
        **night(now).channels[1].processor,
        "subscriber": HOSTILE,
        "partitions": {HOSTILE: HOSTILE},
        "answers": {HOSTILE: 1},
    }
    bad = channel(
        name=HOSTILE,
        group=HOSTILE,
        consumer_id=HOSTILE,
        members=[HOSTILE],
        coordinator=HOSTILE,
        topics={HOSTILE: 1},
        partitions=[row],
        processor=said,
        notices=[HOSTILE],
        kafka_problem=HOSTILE,
        abandoned=[f"{HOSTILE}/3"],
        paused=night(now).channels[2].paused,
    )
    stage = serve(process(channels=[bad], host=HOSTILE, config_problem=HOSTILE))
    stage.texts = {"text": HOSTILE, "todo": HOSTILE, "evidence": [HOSTILE]}
    shows(browser, "document.querySelectorAll('#rows tr').length", 2)
    browser.run(f"{ROWS}[0].querySelector('button').click()")
    shows(browser, "document.querySelector('#detail').innerText.includes('What to do')")
    browser.run("document.querySelector('#detail .close').click()")
    press(browser, "#channels", "Pause")

    assert browser.run("document.querySelectorAll('main img, dialog img, main script, dialog script').length") == 0
    assert "<script>alert(1)</script>" in browser.run(TITLE + " + document.querySelector('#rows').innerText")
    assert browser.problems == []


def test_a_thousand_partitions_stay_quick(browser: Browser, serve: Callable[..., Stage]) -> None:
    """Only the first hundred are drawn, the one with the problem among them; what has not changed is not touched."""
    stage = serve(many(time.time()))
    assert browser.run(f"[{ROWS}.length, {ROWS}[0].cells[0].innerText]") == [100, "orders/617"]
    assert browser.run("document.querySelector('#counted').innerText") == "100 of 1,000 rows"
    press(browser, "#partitions", "Show 500 more")
    assert browser.run(f"{ROWS}.length") == 600
    typed(browser, "#filter", "orders/99")
    assert browser.run(f"{ROWS}.length") == 11
    # Ages change by the second; everything else of these rows stays.
    browser.run(
        "window.moved = 0, new MutationObserver(all => moved += all.length)"
        ".observe(document.querySelector('#rows'), {childList: true})"
    )
    browser.run(f"{ROWS}.forEach(row => row.kept = true)")
    young = many(time.time())
    stage.found = replace(young, channels=[replace(young.channels[0], consumer_id="another")])
    shows(browser, f"{ROWS}[0].innerText.includes('another')")
    assert browser.run(f"{ROWS}.every(row => row.kept) && moved === 0")
    assert browser.run("document.activeElement.id + ' ' + document.activeElement.value") == "filter orders/99"
    assert browser.problems == []


def test_a_process_that_goes_away_is_shown_and_asked_again(browser: Browser, serve: Callable[..., Stage]) -> None:
    """What was last heard stays, marked as old; it is asked less and less often; when it is back all goes on."""
    stage = serve(night(time.time()))
    port = stage.admin.port
    stage.close()

    shows(browser, "document.body.classList.contains('away')")
    shows(
        browser,
        "/last heard \\d+ (s|min) ago · again in \\d+ s now/.test(document.querySelector('.live.bad').innerText)",
    )
    # Not at once, if the request that was under way at the end was answered otherwise.
    shows(
        browser,
        "document.querySelector('#verdict').innerText.includes('The process does not answer: no process answers.')",
    )
    assert browser.run(f"{ROWS}.length") == 13
    again = Stage(process(channels=[channel(not_sent_total=0)]), port=port)
    try:
        shows(browser, TITLE, "All is healthy")
        assert not browser.run("document.body.classList.contains('away')")
        assert refused_requests(browser) == []
    finally:
        again.close()


def test_a_hidden_page_asks_nothing(browser: Browser, serve: Callable[..., Stage]) -> None:
    """A tab behind others costs the process nothing; when it comes to the front it asks at once."""
    stage = serve(night(time.time()))
    hidden = (
        "Object.defineProperty(document, 'hidden', {{get: () => {0}, configurable: true}}), "
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    browser.run(
        "(real => { window.begun = window.underWay = 0; window.fetch = (...given) => { begun += 1; underWay += 1; "
        "return real(...given).finally(() => { underWay -= 1; }); }; })(window.fetch)"
    )
    shows(browser, "begun > 0")  # one after the other: what was asked before that is counted has been answered
    browser.run(hidden.format("true"))
    shows(browser, "underWay === 0")
    before = stage.looks
    time.sleep(4.5)  # two more would have been asked for
    assert stage.looks == before
    browser.run(hidden.format("false"))
    until(lambda: stage.looks > before, 60, "it is asked again")


def test_several_processes_behind_one_port(browser: Browser, serve: Callable[..., Stage], tmp_path: Path) -> None:
    """As `run --processes` shows them: rows of all, each with its owner; problems that all share appear once."""
    now = time.time()
    one = night(now)
    two = replace(
        one,
        pid=4712,
        channels=[replace(one.channels[0], consumer_id="orders-1", partitions=[well(n, now) for n in (8, 9)])],
    )
    silent = replace(process(pid=4713, channels=[], threads=[]), problem="process 2 does not answer")
    stage = serve([one, two, silent])

    assert browser.run(f"{ROWS}.length") == 15
    assert browser.run(f"{ROWS}.find(row => row.cells[0].innerText === 'orders/9').cells[6].innerText") == "orders-1"
    assert browser.run("document.querySelectorAll('#processes .card').length") == 3
    titles = browser.run("[...document.querySelectorAll('.problems .title')].map(one => one.innerText)")
    assert sum("configuration" in title for title in titles) == 1
    assert any("process 4713" in title and "process 2 does not answer" in title for title in titles)
    assert "10 of 12" in browser.run("document.querySelector('#channels .card').innerText")
    press(browser, "#channels", "Pause")
    assert browser.run("[...document.querySelectorAll('#control option')].map(one => one.value)") == [
        "",
        "orders-0",
        "orders-1",
    ]
    browser.screenshot(tmp_path / "several.png")
    assert (stage.asked, browser.problems) == ([], [])


@pytest.mark.parametrize("token", [None, TOKEN])
def test_pages_of_other_sites_cannot_operate(
    browser: Browser, serve: Callable[..., Stage], tmp_path: Path, token: str | None
) -> None:
    """Neither by fetch, with or without a preflight, nor by a form, nor with our page in a frame of theirs."""
    stage = serve(night(time.time()), token=None if token is None else lambda: token)
    target = json.dumps(f"{stage.url}channels/orders/pause")
    other = tmp_path / "other.html"
    other.write_text(
        f"<form method=post action={target}></form><iframe src={json.dumps(stage.url)}></iframe><script>"
        f"const no = () => 'refused', target = {target};"
        "window.tried = Promise.all([fetch(target, {method: 'POST', mode: 'no-cors'}).then(answer => answer.type),"
        "fetch(target, {method: 'POST', mode: 'cors', headers: {Authorization: 'Bearer s3cret'}}).then(() => 'read', no)])"
        "</script>"
    )
    browser.open(other)
    assert browser.run("tried") == ["opaque", "refused"]
    until(
        lambda: (browser.run("1"), any("frame-ancestors" in one for one in browser.problems))[1],
        60,
        "it is in no frame",
    )
    browser.run("document.forms[0].submit()")
    refusal = "pages of other sites may read nothing here"
    said = "location.pathname + ' says: ' + (document.body?.innerText ?? '')"

    def refused() -> bool:
        path, _, text = looked_at(browser, said).partition(" says: ")
        return path == "/channels/orders/pause" and refusal in text

    until(refused, 120, lambda: looked_at(browser, said))
    assert stage.asked == []


def looked_at(browser: Browser, expression: str) -> str:
    """Return what an expression is in the page. While one page replaces another, it may not answer."""
    try:
        return str(browser.run(expression))
    except AssertionError as error:
        return f"(not to be had: {error})"
