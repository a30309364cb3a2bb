"""A headless Chromium, spoken to by the DevTools protocol over two pipes: what a page really looks like to a reader."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.browser import find_browser
from tests.waiting import Deadline

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-default-browser-check"),
)
#: Chromium takes its pipes as descriptors 3 and 4, and Popen cannot number them.
_LAUNCH = """
import fcntl, os, sys
read, write, *command = sys.argv[1:]
read, write = (fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in (read, write))  # out of the way of 3 and 4
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(command[0], command)
"""
#: Seconds for one answer; starting on a busy machine takes longest.
_PATIENCE = 90.0
#: Events that tell of something wrong in the page.
_ERRORS = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")


class Browser:
    """One browser with one tab. `problems` is what that complained of: errors, warnings, refused resources."""

    def __init__(self, profile: Path) -> None:
        """Start it with an empty profile in this folder."""
        path = find_browser()
        assert path is not None, "there is no Chromium; `make integration` installs one, or: apt-get install chromium"
        self.problems: list[str] = []
        self._last = 0
        self._rest = b""
        self._session = ""
        theirs, self._write = os.pipe()
        self._read, theirs_too = os.pipe()
        command = (path, *_FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank")
        self._process = subprocess.Popen(
            (sys.executable, "-c", _LAUNCH, str(theirs), str(theirs_too), *command),
            pass_fds=(theirs, theirs_too),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(theirs_too)
        self._context: str | None = None
        self.fresh()

    def fresh(self) -> None:
        """Take a new tab of usual size, with storage of its own, in the place of the one before."""
        before, self._context = self._context, self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=self._context)["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        if before is not None:
            self.call("Target.disposeBrowserContext", browserContextId=before)
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable", here=True)
        self.look_like(1280, 900)
        self.problems.clear()

    def open(self, page: Path | str) -> None:
        """Show a file, or what a URL names, and wait until it is loaded."""
        self.call("Page.navigate", here=True, url=page if isinstance(page, str) else page.as_uri())
        self.run(
            "new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', () => done()))"
        )

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page, awaited if it is a promise."""
        answer = self.call(
            "Runtime.evaluate", here=True, expression=expression, returnByValue=True, awaitPromise=True
        )  # fmt: skip
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def look_like(self, width: int, height: int, scheme: str = "light") -> None:
        """Let the window have this size, in CSS pixels, and the system ask for `light` or `dark` pages."""
        self.call("Emulation.setDeviceMetricsOverride", here=True, width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)  # fmt: skip
        self.call("Emulation.setEmulatedMedia", here=True, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen as a PNG; with `whole` also what one would have to scroll to."""
        shot = self.call("Page.captureScreenshot", here=True, format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def call(self, method: str, *, here: bool = False, **parameters: Any) -> dict[str, Any]:
        """Send one command, to the tab if `here`, and return its result."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if here:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            if answer.get("method") in _ERRORS and answer.get("sessionId") == self._session:
                self.problems.append(json.dumps(answer["params"]))

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def _next(self) -> dict[str, Any]:
        deadline = Deadline(_PATIENCE)
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], 1.0)
            if not ready:
                assert not deadline.passed(), f"Chromium said nothing for {deadline.took():.0f} s"
                continue
            piece = os.read(self._read, 2**20)
            assert piece, f"Chromium ended with {self._process.poll()}"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The browser of a session; tests take `browser`."""
    one = Browser(tmp_path_factory.mktemp("chromium") / "profile")
    yield one
    one.close()


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """A browser that knows nothing of other tests."""
    chromium.fresh()
    return chromium
