"""The docs site: every page is reached from the map, made parts are up to date, nothing is loaded from elsewhere.

`make check` builds all of it; here small pages are built, to see that what is wrong is found.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
from sphinx.ext.napoleon.docstring import GoogleDocstring

from inbound.cli.main import parser
from scripts import document_commands, draw_protocol
from scripts.diagrams import Diagram, Message, sequence
from scripts.docs_extension import MAP, as_rst, parts, read_again, read_docstring, with_folders
from scripts.docs_site import ROOT, loads_from_elsewhere

DOCS = ROOT / "docs"


# -- the map -------------------------------------------------------------------------------------------------------------


def test_every_page_is_on_the_map_once() -> None:
    """A page that is new belongs into docs/index.md; what has a README.md beside it is listed by that."""
    pages = [page for _, found in parts((ROOT / f"{MAP}.md").read_text()) for page in found]
    named = [str((DOCS / page).resolve().relative_to(ROOT)) for page in pages]
    listed = {str(path.with_suffix("").relative_to(ROOT)) for path in DOCS.rglob("*.md")}
    by_readme = {
        page for page in listed if (ROOT / page).parent != DOCS and (ROOT / page).with_name("README.md").exists()
    }

    assert len(named) == len(set(named))
    wanted = (listed - by_readme) | {page for page in by_readme if page.endswith("/README")}
    wanted |= {f"examples/{path.parent.name}/README" for path in (ROOT / "examples").glob("*/README.md")}
    wanted |= {path.stem for path in ROOT.glob("*.md")}
    assert set(named) | {MAP} == wanted


def test_each_section_with_pages_is_a_part() -> None:
    """Only what a list item begins with: other links are just links."""
    text = "# inbound\n[a](a.md)\n## One\n- [b](b.md), and [c](c.md)\n- [d](../d.rst)\n## Two\nno pages\n"

    assert list(parts(text)) == [("One", ["b", "../d"])]


def test_a_link_to_a_folder_goes_to_its_readme(tmp_path: Path) -> None:
    """Or is a name only, where there is none; whatever else is linked stays as it is."""
    for name in ("told/README.md", "untold/x.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    text = "[a](told/) [b](untold) [c](told/README.md) [d](https://example.org/told) [e](#told)"

    assert with_folders(text, tmp_path) == (
        "[a](told/README.md) b [c](told/README.md) [d](https://example.org/told) [e](#told)"
    )


# -- what is made from the code ------------------------------------------------------------------------------------------


def test_the_commands_are_up_to_date() -> None:
    """An option that was added, or is described in other words, is not in the document until `make docs` has run."""
    text = document_commands.DOCUMENT.read_text()

    assert text == document_commands.renewed(text), "run `make docs`"


def test_every_command_and_option_is_listed() -> None:
    """By the words in which it is typed."""
    text = document_commands.DOCUMENT.read_text()

    for _, name, command in document_commands.commands(parser()):
        assert re.search(rf"(?m)^##+ {re.escape(name)}$", text), name
        for action in command._actions:
            if action.help != argparse.SUPPRESS and "--help" not in action.option_strings:
                assert [option for option in action.option_strings if f"`{option}" not in text] == []


def test_the_drawings_are_up_to_date() -> None:
    """What is in docs/diagrams is what is drawn now, and nothing else."""
    kept = {path.name: path.read_text(encoding="utf-8") for path in draw_protocol.FOLDER.iterdir()}

    assert kept == draw_protocol.drawn(), "run `make docs`"


def test_every_drawing_is_shown_with_words_for_who_does_not_see_it() -> None:
    """`![...](diagrams/NAME.svg)` on some page."""
    text = "".join(path.read_text() for path in DOCS.glob("*.md"))

    shown = dict(re.findall(r"!\[([^\]]{20,})\]\(diagrams/([\w-]+\.svg)\)", text))
    assert set(shown.values()) == set(draw_protocol.drawn())


def test_a_text_that_does_not_fit_is_refused() -> None:
    """Rather than drawn over its neighbours."""
    with pytest.raises(ValueError, match="there is room for 42"):
        sequence(Diagram("too long", ("a", "b"), (Message("a", "b", "x" * 60),)))


# -- docstrings ----------------------------------------------------------------------------------------------------------


def test_docstrings_become_what_sphinx_reads() -> None:
    """Code in single backticks, indented examples, sections; names that would count as markup."""
    lines = ["Waits for `Call`s, as a_b_ does.", "", "    x = 1", "", "    y = 2", "", "Raises:", "    OSError: `x`."]

    assert as_rst(lines) == [
        "Waits for ``Call``\\ s, as a_b\\_ does.", "", ".. code-block:: python", "", "    x = 1", "", "    y = 2", "",
        "Raises:", "    OSError: ``x``.",
    ]  # fmt: skip


def test_a_colon_in_the_text_of_an_attribute_makes_no_type_of_it() -> None:
    """Which napoleon does with the first line."""
    lines = ["Records per second; None: as many as come."]

    read_docstring(None, "property", "inbound.x", None, None, lines)
    lines = GoogleDocstring(lines, what="property", name="x").lines()
    read_again(None, "property", "inbound.x", None, None, lines)

    assert [line for line in lines if line] == ["Records per second; None: as many as come."]


def test_an_indented_text_that_is_no_python_is_kept_as_it_is_drawn() -> None:
    """Trees, command lines."""
    assert as_rst(["It is so:", "", "    A", "    ├── B"]) == ["It is so:", "", "::", "", "    A", "    ├── B"]


# -- what is loaded ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<img src="https://example.org/x.png">', "<img> https://example.org/x.png"),
        ('<script src="//example.org/x.js"></script>', "<script> //example.org/x.js"),
        ('<link rel="stylesheet" href="http://example.org/x.css">', "<link> http://example.org/x.css"),
        ('<link rel="preconnect" href="https://example.org">', "<link> https://example.org"),
        ("<style>@import 'https://example.org/x.css'</style>", "<style> https://example.org/x.css"),
        ('<p style="background: url(//example.org/x)">', "<p> //example.org/x"),
        ('<iframe src="HTTPS://example.org"></iframe>', "<iframe> HTTPS://example.org"),
    ],
)
def test_what_is_loaded_from_elsewhere_is_found(tmp_path: Path, text: str, found: str) -> None:
    """In whatever way a page can do it."""
    (tmp_path / "page.html").write_text(f"<html>{text}</html>")

    assert list(loads_from_elsewhere(tmp_path)) == [f"page.html: {found}"]


def test_a_style_sheet_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """Fonts, as a rule."""
    (tmp_path / "site.css").write_text(
        "a { src: url('https://example.org/font.woff2') } b { background: url(own.png) }"
    )

    assert list(loads_from_elsewhere(tmp_path)) == ["site.css: https://example.org/font.woff2"]


def test_links_that_somebody_follows_are_no_loads(tmp_path: Path) -> None:
    """Nor is what the site has itself, or carries in the page."""
    (tmp_path / "page.html").write_text(
        '<a href="https://example.org">x</a><img src="own.png"><img src="data:image/png;base64,AA">'
        '<link rel="canonical" href="https://example.org"><script src="_static/x.js?v=1"></script>'
    )

    assert list(loads_from_elsewhere(tmp_path)) == []
