"""The docs site: every page is reached from the map, made parts are up to date, nothing is loaded from elsewhere.

`make check` builds all of it; here small pages are built, to see that what is wrong is found.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from inbound.cli.main import main
from inbound.config import load, load_policy
from inbound.observe.jmx.names import ObjectName
from inbound.observe.jmx.policy import Policy
from inbound.observe.jmx.tables import KINDS
from scripts import document_commands, document_configuration, document_jmx, draw_protocol, draw_rooms
from scripts.diagrams import Diagram, Message, sequence
from scripts.docs_extension import MAP, parts
from scripts.docs_site import ROOT, loads_from_elsewhere
from scripts.made_tables import BEGIN, END

DOCS = ROOT / "docs"


def test_every_page_is_on_the_map_once() -> None:
    """A page that is new belongs into docs/index.md; what has a README.md beside it is listed by that."""
    items = [item for _, found in parts((ROOT / f"{MAP}.md").read_text()) for item in found.items()]
    pages = [page for first, below in items for page in (first, *below)]
    named = [str((DOCS / page).resolve().relative_to(ROOT)) for page in pages]
    listed = {str(path.with_suffix("").relative_to(ROOT)) for path in DOCS.rglob("*.md")}
    below = {page for page in listed if (ROOT / page).parent != DOCS and (ROOT / page).with_name("README.md").exists()}
    wanted = {page for page in listed if page not in below or page.endswith("/README")}
    wanted |= {f"examples/{path.parent.name}/README" for path in (ROOT / "examples").glob("*/README.md")}

    assert sorted([*named, MAP]) == sorted(wanted | {path.stem for path in ROOT.glob("*.md")})


# -- what is made from the code ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made", [document_commands, document_configuration, document_jmx], ids=lambda m: m.DOCUMENT.stem
)
def test_tables_are_up_to_date(made: Any) -> None:
    """What was added, or is described in other words, is not there until `make docs` has run; nor without its marks."""
    assert made.DOCUMENT.read_text() == made.renewed(made.DOCUMENT.read_text()), "run `make docs`"
    with pytest.raises(ValueError, match="needs the lines"):
        made.renewed(f"{BEGIN} but no end, {END.upper()}")


def test_the_rooms_are_as_the_page_lists_them() -> None:
    """Each with the first line of its docstring."""
    assert draw_rooms.PAGE.read_text() == draw_rooms.page(), "run `make docs`"


def test_every_key_is_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The full example has every key, and so has what `schema --markdown` prints."""
    assert main(["schema", "--markdown"]) == 0

    found = re.findall(r"(?m)^\| `([a-z_.]+)` \||^### `(?:.*\.)?([a-z_]+)(?:\[\])?`", capsys.readouterr().out)
    listed = {name for pair in found for name in pair}
    names = {"channels", "orders", "audit", "pinned", "own", "posted", "subscriptions", "billing"}
    wanted = set(re.findall(r"(?m)^ *([a-z_.]+):", (ROOT / "config" / "examples" / "full.yaml").read_text())) - names
    assert wanted - listed == set()


def test_the_variables_and_flags_in_the_table_mean_the_same() -> None:
    """Each row's variable sets what its flag sets."""
    channel = "{topics: [orders], group: g, processor: {type: simple}}"
    file = f"channels:\n  orders: {channel}\n  web-shop.eu: {channel}\n"
    text = document_configuration.DOCUMENT.read_text()
    rows = re.findall(r"`(INBOUND__\w+)=(.*?)` \| `--set '?(.*?)=(.*?)'?` \|", text)
    assert len(rows) == 5
    for variable, value, path, same in rows:
        by_variable = load(file, filename="f", environ={variable: value.strip("'")}).config
        by_flag = load(file, filename="f", overrides={path: same}).config
        assert (variable, by_variable) == (variable, by_flag)
        assert by_flag != load(file, filename="f").config or path == "channels.orders.workers=5"


def test_the_policy_that_is_shown_means_what_the_page_says() -> None:
    """Monitoring reads, operators may pause and slow down, nobody reads members' ids."""
    (text,) = re.findall(r"```yaml\n(# policy\.yaml.*?)```", document_jmx.DOCUMENT.read_text(), re.DOTALL)
    policy = Policy(load_policy(text, "policy.yaml"), "policy.yaml")
    channel = ObjectName.parse("inbound:type=Channel,name=orders")
    asked = [("read", "Lag"), ("read", "Members"), ("write", "MaxReadRate"), ("exec", "pause"), ("exec", "rebalance")]
    assert [policy.member(command, channel, member) for command, member in asked] == [True, False, True, True, False]
    assert [policy.lets_in(host) for host in ("127.0.0.1", "10.9.8.7", "192.168.0.1")] == [True, True, False]


def test_no_name_of_jmx_is_there_twice_and_everything_is_described() -> None:
    """And no attribute has a name that Hadoop's servlet would leave out."""
    for kind, _ in KINDS:
        names = [attribute.name for attribute in kind.attributes]
        signatures = [action.signature for action in kind.actions]
        assert (len(set(names)), len(set(signatures))) == (len(names), len(signatures))
        assert all(re.fullmatch("[A-Z][A-Za-z]+", name) for name in names)
        described = [a.description for a in kind.attributes] + [a.description for a in kind.actions]
        assert all(text and not text.endswith(".") for text in described)


def test_drawings_are_up_to_date_and_shown() -> None:
    """`![...](diagrams/NAME.svg)` on some page, with words for who does not see it; a text that does not fit is refused."""
    drawn = draw_protocol.drawn() | {draw_rooms.PICTURE.name: draw_rooms.picture_of_rooms()}
    text = "".join(path.read_text() for path in DOCS.glob("*.md"))

    assert {path.name: path.read_text(encoding="utf-8") for path in draw_protocol.FOLDER.iterdir()} == drawn, (
        "run `make docs`"
    )
    assert {name for _, name in re.findall(r"!\[([^\]]{20,})\]\(diagrams/([\w-]+\.svg)\)", text)} == set(drawn)
    with pytest.raises(ValueError, match="there is room for 42"):
        sequence(Diagram("too long", ("a", "b"), (Message("a", "b", "x" * 60),)))


# -- what is loaded --------------------------------------------------------------------------------------


def test_what_is_loaded_from_elsewhere_is_found(tmp_path: Path) -> None:
    """Images, scripts, styles, frames, fonts; not links, the site's own files, or data in the page."""
    page = [
        ('<img src="https://example.org/x.png">', "<img> https://example.org/x.png"),
        ('<script src="//example.org/x.js"></script>', "<script> //example.org/x.js"),
        ('<link rel="stylesheet" href="http://example.org/x.css">', "<link> http://example.org/x.css"),
        ('<link rel="preconnect" href="https://example.org">', "<link> https://example.org"),
        ("<style>@import 'https://example.org/x.css'</style>", "<style> https://example.org/x.css"),
        ('<p style="background: url(//example.org/x)">', "<p> //example.org/x"),
        ('<iframe src="HTTPS://example.org"></iframe>', "<iframe> HTTPS://example.org"),
        ('<a href="https://example.org">x</a><img src="own.png"><img src="data:image/png;base64,AA">', ""),
        ('<link rel="canonical" href="https://example.org"><script src="_static/x.js?v=1"></script>', ""),
    ]
    (tmp_path / "page.html").write_text(f"<html>{''.join(text for text, _ in page)}</html>")
    (tmp_path / "site.css").write_text(
        "a { src: url('https://example.org/font.woff2') } b { background: url(own.png) }"
    )

    wanted = [f"page.html: {found}" for _, found in page if found]
    assert sorted(loads_from_elsewhere(tmp_path)) == sorted([*wanted, "site.css: https://example.org/font.woff2"])
