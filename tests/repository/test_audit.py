"""What is locked: `make audit` names what is planted and never takes silence for good news; every licence is one that we take."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
LOCKS = "".join(path.read_text() for path in (ROOT / "requirements").glob("*.lock"))
#: Every package and version that is locked; some have one version for older Pythons and one for newer ones.
PINS = set(re.findall(r"(?m)^([A-Za-z0-9._-]+)==([^ ;]+)", LOCKS))
FLAW = {
    "id": "PYSEC-1", "modified": "2026-01-01T00:00:00Z", "published": "2026-01-01T00:00:00Z", "summary": "a planted flaw",
    "affected": [{
        "package": {"ecosystem": "PyPI", "name": "numpy"},
        "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "999"}]}],
    }],
}  # fmt: skip


#: uv looks for the index, too, which has no address; it takes until a time-out.
WAITS = "waits 15 s for a time-out; a planted vulnerability is in `make test`, and `make check` asks the real service"


@contextmanager
def service(flawed: str, asked: set[tuple[str, str]]) -> Iterator[str]:
    """Answer as OSV does, with one flaw in each version of the package `flawed`; gives the URL, and notes what it is asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            asked.update((one["package"]["name"], one["version"]) for one in queries)
            found = [{"id": FLAW["id"], "modified": FLAW["modified"]}]
            self._send({"results": [{"vulns": found} if one["package"]["name"] == flawed else {} for one in queries]})

        def do_GET(self) -> None:
            self._send(FLAW)

        def _send(self, found: Any) -> None:
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def audit(url: str) -> tuple[int, str]:
    """Run `scripts/audit` against a service; return its exit code and what it prints."""
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = subprocess.run(
        [ROOT / "scripts" / "audit", "--service-url", url], env=environ, capture_output=True, text=True, timeout=100
    )
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.slow
def test_a_vulnerability_of_one_package_is_named_and_every_locked_version_is_asked_for() -> None:
    """A package that is locked in two versions, for older and newer Pythons, is named with both."""
    asked: set[tuple[str, str]] = set()
    with service("numpy", asked) as url:
        code, said = audit(url)
    named = re.findall(r"(\S+) (\S+) has 1 known vulnerability:\s+- PYSEC-1: a planted flaw\s+Fixed in: 999", said)
    assert (code, asked, set(named)) == (1, PINS, {pin for pin in PINS if pin[0] == "numpy"})


@pytest.mark.slow
@pytest.mark.thorough(WAITS)
def test_no_vulnerability_is_reported_as_none() -> None:
    """The service has answered for every package."""
    asked: set[tuple[str, str]] = set()
    with service("another", asked) as url:
        code, said = audit(url)
    assert (code, asked, "no known vulnerabilities" in said) == (0, PINS, True), said


@pytest.mark.slow
@pytest.mark.thorough(WAITS)
def test_a_silent_service_is_not_taken_for_good_news() -> None:
    """Nor for a failure of what is locked: nothing is known, and the last line says so."""
    code, said = audit("http://127.0.0.1:1/")
    assert (code, "VULNERABILITIES ARE NOT KNOWN" in said, "no known" in said) == (75, True, False)


@pytest.mark.slow
def test_an_audit_that_could_not_be_made_is_a_failure() -> None:
    """Here uv is given an address that is none."""
    assert audit("no address")[0] == 2


# -- licences ------------------------------------------------------------------------------------------------------------

#: What a package's licence may be: those that ask for nothing but their own text to be kept.
LICENCES = re.compile(
    r"(MIT|MIT-0|BSD|BSD-[23]-Clause|0BSD|Apache-2\.0|PSF-2\.0|Python-2\.0|ISC|Zlib|CC0-1\.0|Unlicense)([- ]License)?",
    re.I,
)
#: Others, each with its reason (see docs/decisions/0002-dependencies.md).
ALSO = {
    "crc32c": "LGPL-2.1-or-later: loaded as a separate module, unchanged",
    "hypothesis": "MPL-2.0: for tests only, unchanged",
    "promql-parser": "MIT, by its file LICENSE alone; for tests only, unchanged",
    "pathspec": "MPL-2.0: for the type checker only, unchanged",
    "certifi": "MPL-2.0: a list of certificates, unchanged",
    "docutils": "public domain and BSD; GPL only for an editor's mode that nothing here loads; builds the docs only",
}
#: How licences are named where there is no SPDX expression.
NAMES = {
    "MIT License": "MIT",
    "BSD License": "BSD",
    "Apache Software License": "Apache-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "Dual License": "Apache-2.0 OR BSD-3-Clause",
}


def licence_of(name: str) -> str | None:
    """Return the licence that an installed package gives for itself; None: it is not installed here."""
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return None
    marks = [text.rpartition(" :: ")[2] for text in about.get_all("Classifier") or [] if "License :: OSI" in text]
    expression, short = ("".join(about.get_all(field) or []).strip() for field in ("License-Expression", "License"))
    return expression or " AND ".join(NAMES.get(text, text) for text in marks) or NAMES.get(short, short)


def is_taken(licence: str) -> bool:
    """Return whether an expression is one that we take: `A OR B` if one of them is, `A AND B` if both are."""
    ways = re.split(r"\s+OR\s+", licence, flags=re.I)
    return any(all(LICENCES.fullmatch(part.strip("() ")) for part in re.split(r"\s+AND\s+", way)) for way in ways)


def test_every_locked_package_has_a_licence_that_we_take() -> None:
    """Of what is installed here; another system has a few packages more."""
    licences = {name: licence_of(name) for name, _ in PINS}
    assert sum(licence is not None for licence in licences.values()) > 50
    refused = {name: licence for name, licence in licences.items() if licence is not None and not is_taken(licence)}
    assert {name: licence for name, licence in refused.items() if name not in ALSO} == {}


@pytest.mark.parametrize(
    ("licence", "taken"),
    [("GPL-3.0-only", False), ("MIT OR GPL-3.0-only", True), ("MIT AND GPL-3.0-only", False), ("", False)],
)
def test_a_licence_is_judged_by_its_parts(licence: str, taken: bool) -> None:
    """A package that names none is refused."""
    assert is_taken(licence) == taken
