"""The browser that `make integration` opens pages in: the machine's own, else installed where that takes no question."""

from __future__ import annotations

import os
import shutil
import subprocess

#: As it is called by Debian, Ubuntu, Fedora and Google.
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str | None:
    """Return the path of an installed Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def ensure_browser() -> None:
    """Install Chromium by apt if there is none and we may; otherwise say how to get it. The tests fail without it."""
    if find_browser() is not None:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(
            "there is no Chromium, tests of pages will fail; install it (Debian: apt-get install chromium)", flush=True
        )
        return
    print("installing Chromium (apt-get install chromium) ...", flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (("update",), ("install", "--yes", "--no-install-recommends", "chromium")):
        ran = subprocess.run(
            ("apt-get", "-qq", *command), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if ran.returncode:
            print(f"{ran.stdout[-2000:]}\napt-get {command[0]} ended with {ran.returncode}; tests of pages may fail")


if __name__ == "__main__":
    ensure_browser()
