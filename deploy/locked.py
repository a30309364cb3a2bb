"""Takes from a lock what an installation needs.

usage: locked.py versions LOCK           every package as `name==version`, for pip's --constraint
       locked.py pins LOCK REPORT        those that pip's --report lists, each with its hashes, for --require-hashes

The lock holds what every extra needs, on every platform; which of it this installation needs only pip can tell, and pip does
not take hashes from a constraint.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

#: The package that is built here, and in no lock.
OURS = "inbound-kafka"


def canonical(name: str) -> str:
    """Return a package's name as all its spellings are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(lock: str) -> dict[str, list[str]]:
    """Return the entries of a lock, each `name==version ; marker` with its hashes, by the package's name."""
    found: dict[str, list[str]] = {}
    for line in lock.replace("\\\n", " ").splitlines():
        if "==" in line and not line.startswith("#"):
            found.setdefault(canonical(line.split("==")[0].strip()), []).append(" ".join(line.split()))
    return found


def versions(lock: str) -> list[str]:
    """Return each package with its version, and nothing about its files."""
    return [re.sub(r" --hash=\S+", "", entry) for several in entries(lock).values() for entry in several]


def pins(lock: str, names: Iterable[str]) -> list[str]:
    """Return the entries of these packages.

    Raises:
        ValueError: one is not in the lock: setup.cfg has been changed since it was made.
    """
    locked = entries(lock)
    wanted = sorted({canonical(name) for name in names} - {OURS})
    if missing := [name for name in wanted if name not in locked]:
        raise ValueError(f"not in the lock: {', '.join(missing)}; renew it with `make lock`")
    return [entry for name in wanted for entry in locked[name]]


def main(arguments: list[str]) -> int:
    match arguments:
        case ["versions", lock]:
            lines = versions(Path(lock).read_text())
        case ["pins", lock, report]:
            installed = json.loads(Path(report).read_text())["install"]
            lines = pins(Path(lock).read_text(), [one["metadata"]["name"] for one in installed])
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
