"""Build the docs site into build/site (`make docs-site`; `make check` does it too).

Every warning is an error: a dead link, a page without a link to it, a docstring that cannot be read. Everything is built each
time, because Sphinx reports the warnings of a page only when it reads it. The site works without a network, so a page must load
nothing from elsewhere; a link is no load.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from sphinx.cmd.build import main as sphinx

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
#: What a browser loads without a click, by tag and attribute. Of links only those that bring something into the page.
_LOADS = {"src", "srcset", "data", "poster", "action"}
_BRINGS = {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "manifest", "preconnect", "dns-prefetch"}
_ELSEWHERE = re.compile(r"(?i)\s*(?:[a-z][a-z0-9+.-]*:)?//")
_CSS = re.compile(r"""(?i)(?:url\(\s*["']?|@import\s+["'])([^"')]+)""")
#: The front page stands where the pages do; what is opened first leads there.
_FRONT = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>inbound</title><meta http-equiv="refresh" content="0; url=docs/index.html">
<a href="docs/index.html">inbound</a></html>
"""


class _Page(HTMLParser):
    """Collects what a page loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        loads = [value for name, value in given.items() if name in _LOADS]
        if tag == "link" and _BRINGS & set(given.get("rel", "").lower().split()):
            loads.append(given.get("href", ""))
        loads += _CSS.findall(given.get("style", ""))
        self.found += [f"<{tag}> {value}" for value in loads if _ELSEWHERE.match(value)]
        self._style = tag == "style"

    def handle_data(self, data: str) -> None:
        if self._style:
            self.found += [f"<style> {value}" for value in _CSS.findall(data) if _ELSEWHERE.match(value)]


def loads_from_elsewhere(site: Path) -> Iterator[str]:
    """Yield `page: <tag> address` for everything that the pages and style sheets of a site load from elsewhere."""
    for path in sorted(site.rglob("*")):
        where = path.relative_to(site)
        if path.suffix == ".html":
            page = _Page()
            page.feed(path.read_text(encoding="utf-8"))
            yield from (f"{where}: {found}" for found in page.found)
        elif path.suffix == ".css":
            for value in _CSS.findall(path.read_text(encoding="utf-8")):
                if _ELSEWHERE.match(value):
                    yield f"{where}: {value}"


def build(source: Path, site: Path, trees: Path, configuration: Path | None = None) -> int:
    """Build the pages below `source` into `site`. Returns Sphinx's exit code; the warnings are on standard error."""
    shutil.rmtree(site, ignore_errors=True)
    shutil.rmtree(trees, ignore_errors=True)
    where = str(configuration or source / "docs")
    options = ("-c", where, "-b", "html", "-n", "-W", "--keep-going", "-q", "-j", "auto", "-d", str(trees))
    return sphinx([*options, str(source), str(site)])


def main() -> int:
    """Build it and look at it. Returns the exit code."""
    site = BUILD / "site"
    if build(ROOT, site, BUILD / "doctrees"):
        return 1
    (site / "index.html").write_text(_FRONT, encoding="utf-8")
    found = list(loads_from_elsewhere(site))
    for one in found:
        print(f"{one}: is loaded from elsewhere; take it into docs/_static")
    print(f"{site / 'index.html'}: {len(list(site.rglob('*.html')))} pages")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
