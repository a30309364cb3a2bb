"""The audit of what is locked: it finds what is planted, and never takes silence for good news."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from scripts.audit import NO_ANSWER, WELL, WRONG, Pin, licence_problems, main, pins_of

HASH = f"--hash=sha256:{'0' * 64}"
FLAW = {
    "id": "PYSEC-1", "modified": "2026-01-01T00:00:00Z", "published": "2026-01-01T00:00:00Z", "summary": "a planted flaw",
    "affected": [{
        "package": {"ecosystem": "PyPI", "name": "pyyaml"},
        "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "5.4"}]}],
    }],
}  # fmt: skip


@contextmanager
def service(flawed: Mapping[str, str]) -> Iterator[str]:
    """Answer as OSV does, with one flaw in each package and version of `flawed`; gives the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            known = [flawed.get(query["package"]["name"]) == query["version"] for query in asked]
            self._send(
                {"results": [{"vulns": [{"id": FLAW["id"], "modified": FLAW["modified"]}]} if k else {} for k in known]}
            )

        def do_GET(self) -> None:
            self._send(FLAW)

        def _send(self, found: Mapping[str, Any]) -> None:
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


def lock(folder: Path, text: str) -> str:
    """Write a lock."""
    path = folder / "some.lock"
    path.write_text(text)
    return str(path)


@pytest.mark.slow
def test_a_planted_vulnerability_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the package, its version, and the one that mends it."""
    with service({"pyyaml": "5.3"}) as url:
        code = main(["--service", url, lock(tmp_path, f"pyyaml==5.3 {HASH}\nsix==1.17.0 {HASH}\n")])
    assert code == WRONG
    assert "pyyaml 5.3: PYSEC-1 a planted flaw; fixed in 5.4" in capsys.readouterr().out


@pytest.mark.slow
def test_nothing_known_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The service has answered for every package."""
    with service({"pyyaml": "5.2"}) as url:
        code = main(["--service", url, lock(tmp_path, f"pyyaml==5.3 {HASH}\n")])
    assert (code, "no known vulnerability in 1 packages" in capsys.readouterr().out) == (WELL, True)


@pytest.mark.slow
def test_silence_is_not_taken_for_good_news(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor for a failure of what is locked: nothing is known, and that is said."""
    code = main(["--service", "http://127.0.0.1:1/", lock(tmp_path, f"pyyaml==5.3 {HASH}\n")])
    said = capsys.readouterr().out
    assert (code, "VULNERABILITIES ARE NOT KNOWN" in said, "no known" in said) == (NO_ANSWER, True, False)


def test_locks_are_read_whole() -> None:
    """Markers, comments and several hashes, as uv writes them."""
    text = (
        f"# Made by `make lock`\na-b==1.0 \\\n    {HASH} \\\n    {HASH}\nC==2 ; sys_platform == 'win32' {HASH}\nd==3\n"
    )
    assert pins_of(text) == [Pin("a-b", "1.0", 2), Pin("c", "2", 1), Pin("d", "3", 0)]


@pytest.mark.parametrize(
    "line", ["a>=1", "a", "a @ https://example.org/a.whl", "--index-url https://example.org", "-e ."]
)
def test_what_is_no_pinned_package_is_refused(line: str) -> None:
    """It could be anything at the next install."""
    with pytest.raises(ValueError, match="is not `name==version"):
        pins_of(f"{line} {HASH}")


def test_the_locks_of_this_repo_have_hashes_and_licences_that_we_take() -> None:
    """Of what is installed here; another system has a few packages more."""
    locks = (Path(__file__).parent.parent / "requirements").glob("*.lock")
    pins = [pin for path in locks for pin in pins_of(path.read_text())]
    assert len(pins) > 50
    assert ([pin.name for pin in pins if not pin.hashes], licence_problems({pin.name for pin in pins})) == ([], [])


def test_another_licence_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """`A OR B` is good if one of them is, `A AND B` if both are."""
    licences = {
        "a": "GPL-3.0-only",
        "b": "MIT OR GPL-3.0-only",
        "c": "MIT AND GPL-3.0-only",
        "d": "",
        "e": "BSD-3-Clause",
    }
    monkeypatch.setattr("scripts.audit.licence_of", licences.get)
    assert [problem[0] for problem in licence_problems([*licences, "not-installed"])] == ["a", "c", "d"]
