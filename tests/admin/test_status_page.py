"""The status page as it is sent: its rights, its parts, and that its words are those of the code."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from importlib import resources
from typing import get_args

import pytest

from inbound.admin.listener import AdminServer
from inbound.admin.status_page import SCRIPTS, STYLES, status_page, wants_html
from inbound.controller.reset_offset.model import ConditionType
from inbound.group.operations import OperationKind
from inbound.observe.explain.facts import BENIGN, MOVING, Cause
from tests.observe.status.made_status import Answer, ask, process

#: As Chromium and Firefox ask for a page.
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
FOLDER = resources.files("inbound.admin.status_page")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Serve a process."""
    server = AdminServer(process, host="127.0.0.1", port=0, port_given=True)
    server.start()
    yield server.url
    server.close()


@pytest.fixture(scope="module")
def page(url: str) -> Answer:
    return ask(url, "/", Accept=BROWSER)


def source(name: str) -> str:
    return FOLDER.joinpath(name).read_text("utf-8")


def names(text: str, begin: str) -> list[str]:
    """Return the words in quotes of the set that begins so."""
    found = re.search(rf"{re.escape(begin)}(.*?)\]", text, re.DOTALL)
    assert found is not None
    return re.findall(r'"([\w-]+)"', found.group(1))


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        (BROWSER, True),
        ("text/html", True),
        ("application/json, TEXT/HTML ; q=0.1", True),
        (None, False),
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("text/html;q=0", False),
        ("text/html;q=0.0, */*", False),
        ("text/html-like", False),
        (",;,text/html;", True),
    ],
)
def test_who_names_html_gets_the_page(url: str, accept: str | None, html: bool) -> None:
    """Browsers do; curl, probes and scripts get the list of pages, as ever."""
    headers = {} if accept is None else {"Accept": accept}
    answer = ask(url, "/", **headers)
    assert (answer.code, answer.headers["Content-Type"], answer.headers["Vary"]) == (
        200, "text/html; charset=utf-8" if html else "text/plain; charset=utf-8", "Accept",
    )  # fmt: skip
    assert wants_html(accept) == html


def test_the_page_may_run_its_own_script_and_nothing_else(page: Answer) -> None:
    """The policy names script and style by their digests, lets nothing be loaded, and no page frame it."""
    (script,) = re.findall(r'<script type="module">(.*?)</script>', page.text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)
    assert page.headers["Content-Security-Policy"].split("; ") == [
        "default-src 'none'", f"script-src '{digest(script)}'", f"style-src '{digest(style)}'", "connect-src 'self'",
        "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
    ]  # fmt: skip
    wanted = {
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "same-origin",
        "Cache-Control": "no-store",
    }
    assert {name: page.headers[name] for name in wanted} == wanted


def digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def test_head_answers_the_same_without_the_page(url: str, page: Answer) -> None:
    head = ask(url, "/", "HEAD", Accept=BROWSER)
    assert (head.code, head.text, head.headers["Content-Length"]) == (200, "", str(len(page.text.encode())))
    assert head.headers["Content-Security-Policy"] == page.headers["Content-Security-Policy"]


def test_nothing_comes_from_outside(page: Answer) -> None:
    """No address, no other file, no handler or style in an attribute: it works without a network, under its own policy."""
    outside = r"https?:|//[\w.-]+\.\w|@import|\burl\(|<img|<iframe|<object|\ssrc="
    assert re.findall(outside, page.text) == []
    frame = re.sub(r"(?s)<(script|style).*?</\1>", "", page.text)
    assert re.findall(r"(?i)\son\w+=|\sstyle=|javascript:", frame) == []
    assert re.findall(r"<link[^>]*>", frame) == ['<link rel="icon" href="data:,">']


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_shown_can_never_become_markup(name: str) -> None:
    """No file makes elements or code of text; what could is not used at all, so that this can be read off."""
    text = source(f"{name}.js")
    banned = r"(inner|outer|Adjacent|set)HTML|document\.write|DOMParser|\beval\b|new Function|srcdoc|createContextualFragment"
    assert re.search(banned, text) is None
    assert "</script" not in text.lower()
    assert "<!--" not in text
    # The one place where a link is made has addresses of its own.
    assert text.count('h("a"') == (1 if name == "main" else 0)


def test_every_file_is_in_the_page_and_short_enough() -> None:
    """Those that are forgotten in the list would be shipped, and never run."""
    files = {one.name for one in FOLDER.iterdir() if one.name.endswith(".js")}
    assert files == {f"{name}.js" for name in SCRIPTS}
    assert {one.name for one in FOLDER.iterdir() if one.name.endswith(".css")} == {f"{name}.css" for name in STYLES}
    body = status_page()[0].decode()
    sizes = {}
    for name in sorted(files | {f"{name}.css" for name in STYLES}):
        assert source(name) in body
        lines = source(name).splitlines()
        sizes[name] = (len(lines), max(map(len, lines)))
    assert {name: found for name, found in sizes.items() if found[0] > 200 or found[1] > 132} == {}


def test_every_text_can_be_read_on_what_is_behind_it() -> None:
    """In light and in dark: a contrast of 4.5 and more, as WCAG asks of small text (AA)."""
    schemes = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{(.*?)\}", source("base.css"), re.S)
    ]
    pairs = [(text, behind) for text in ("text", "soft", "good", "bad", "look") for behind in ("back", "card")]
    pairs += [(level, f"{level}-back") for level in ("good", "bad", "look", "wanted")] + [
        ("card", "accent"),
        ("text", "field"),
    ]
    assert len(schemes) == 2
    assert [(pair, c) for s in schemes for pair in pairs if (c := contrast(s[pair[0]], s[pair[1]])) < 4.5] == []


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted(luminance(colour) for colour in (one, other))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    """As WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_words_are_those_of_the_code() -> None:
    """Every cause has words; which are benign, the conditions of a reset and the operations are the same here and there."""
    words = re.findall(r'^  "([\w-]+)": "', source("words.js"), re.MULTILINE)
    assert sorted(words) == sorted(cause.value for cause in Cause)
    rows = source("rows.js")
    quiet = {cause.value for cause in MOVING} | {Cause.IDLE.value}
    assert set(names(rows, "const MOVES = new Set([")) == quiet
    assert set(names(rows, "const BENIGN = new Set([")) | quiet == {cause.value for cause in BENIGN}
    assert names(source("resets.js"), "const CONDITIONS = [") == list(get_args(ConditionType))
    controls = re.findall(r"^  (\w+): \w*\(?\w*\)? => \(\{$", source("control.js"), re.MULTILINE)
    assert set(controls) == {verb.value for verb in OperationKind} | {"reload"}


def test_the_page_does_not_depend_on_the_status(url: str, page: Answer) -> None:
    """It is the same for every status of the process: it asks for that, by routes beside it."""
    assert json.loads(ask(url, "/status").text)["pid"] == process().pid
    assert str(process().pid) not in page.text
    assert page.text.encode() == status_page()[0]
