"""What the docs site does beyond Sphinx, so that pages are plain Markdown on a code host, and docstrings are as they are.

- docs/index.md is the map of the site: each of its sections becomes a part of the sidebar, with the pages that its list items
  begin with. The other pages of an item stand below its first. A README.md below docs/ lists the pages beside it.
- A link to a folder goes to its README.md; where it has none it is a name, for the site has no listing of files.
- Docstrings put code in single backticks and indent examples, as Markdown does. Sphinx reads reStructuredText.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

#: The page whose sections are the parts of the site.
MAP = "docs/index"
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)\)")
_CODE = re.compile(r"`([^`]+)`")
#: Footnotes, substitutions and links of reStructuredText: a name that ends with `_`, and a bar.
_MARKUP = re.compile(r"(\||(?<=\w)_(?!\w))")
#: Replaces a colon until napoleon has run.
_COLON = "\N{RATIO}"
#: What napoleon makes a list of; their indented lines are no examples.
_SECTIONS = ("Raises:", "Returns:", "Args:", "Yields:")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", read_page)
    # Before napoleon (500), which takes indented lines after a text for what they are.
    app.connect("autodoc-process-docstring", read_docstring, priority=400)
    app.connect("autodoc-process-docstring", read_again, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def read_page(app: Sphinx, page: str, content: list[str]) -> None:
    """Give a page its place in the sidebar, and its links to folders a target."""
    root = Path(app.srcdir)
    if not (root / f"{page}.md").exists():
        return
    text = with_folders(content[0], (root / page).parent)
    if page == MAP:
        text += "".join(f"\n{_sidebar(title, list(items))}" for title, items in parts(text))
    elif below := _below(root, page):
        text += f"\n{_sidebar('', below)}"
    elif page.startswith("docs/") and page.endswith("/README"):
        text += "\n" + _beside(hidden="](" in text and ".rst)" in text)
    content[0] = text


def parts(text: str) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Yield title and items of each of the map's sections: an item's first page, and those below it.

    Pages are relative to the map, without their suffix.
    """
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        lines = [_LINK.findall(line) for line in body.splitlines() if line.startswith("- [")]
        pages = [[re.sub(r"\.(md|rst)$", "", target) for _, target in links] for links in lines]
        if pages:
            yield title, {first: rest for first, *rest in pages}


def _below(root: Path, page: str) -> list[str]:
    """Return the pages that stand below `page` on the map, as paths from the root of the site."""
    folder = (root / MAP).parent
    for _, items in parts((root / f"{MAP}.md").read_text(encoding="utf-8")):
        for first, rest in items.items():
            if (folder / first).resolve() == root / page:
                return [f"/{(folder / other).resolve().relative_to(root)}" for other in rest]
    return []


def with_folders(text: str, folder: Path) -> str:
    """Return a page's `text` with no link to a folder; `folder` is the page's own."""

    def replaced(match: re.Match[str]) -> str:
        shown, target = match.groups()
        if "://" in target or not (folder / target).is_dir():
            return match[0]
        if (folder / target / "README.md").exists():
            return f"[{shown}]({target.rstrip('/')}/README.md)"
        return f"{shown}"

    return _LINK.sub(replaced, text)


def read_docstring(app: object, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Turn the docstring of `name` into reStructuredText, in place."""
    lines[:] = as_rst(lines)
    if what in ("attribute", "data", "property") and lines:
        lines[0] = lines[0].replace(":", _COLON)  # napoleon would take what stands before it for the type


def read_again(app: object, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Put back, in place, what napoleon should not see."""
    lines[:] = [line.replace(_COLON, ":") for line in lines]


def as_rst(lines: list[str]) -> list[str]:
    """Return a docstring's `lines` with code between double backticks, and with indented examples marked as code."""
    made: list[str] = []
    in_section = in_code = False
    for number, line in enumerate(lines):
        indented = line.startswith("    ")
        if line and not indented:
            in_section, in_code = line in _SECTIONS, False
        if indented and not (in_section or in_code) and number and not lines[number - 1]:
            made += [".. code-block:: python" if _is_python(lines[number:]) else "::", ""]
            in_code = True
        made.append(line if in_code and indented else _inline(line))
    return made


def _inline(line: str) -> str:
    """Return a line of text with its code marked, which must not touch a letter, and what else would count escaped."""
    pieces = _CODE.split(line)
    for number, piece in enumerate(pieces):
        if number % 2:
            touches = pieces[number + 1][:1].isalnum()
            pieces[number] = f"``{piece}``" + ("\\ " if touches else "")
        else:
            pieces[number] = _MARKUP.sub(r"\\\1", piece)
    return "".join(pieces)


def _is_python(lines: list[str]) -> bool:
    block = []
    for line in lines:
        if line and not line.startswith("    "):
            break
        block.append(line[4:])
    try:
        compile("\n".join(block), "docstring", "exec", flags=0x2000)  # PyCF_ALLOW_TOP_LEVEL_AWAIT
    except SyntaxError:
        return False
    return True


def _beside(*, hidden: bool) -> str:
    """Return the list of the pages in a folder; hidden where the page has a list of its own."""
    return "\n".join(("```{toctree}", *([":hidden:"] if hidden else []), ":glob:", ":maxdepth: 1", "", "*", "```", ""))


def _sidebar(title: str, pages: list[str]) -> str:
    caption = [f":caption: {title}"] if title else []
    return "\n".join(("```{toctree}", ":hidden:", *caption, "", *pages, "```", ""))
