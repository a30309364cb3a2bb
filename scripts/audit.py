"""Audit what the locks hold (`make audit`): hashes, licences, and known vulnerabilities as OSV has them, asked by `uv audit`.

Exit code 0: all is well. 1: something is wrong, and named. 75: the vulnerability service did not answer, so nothing is known
of vulnerabilities; all else is well.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
WELL, WRONG, NO_ANSWER = 0, 1, 75
#: How long the service may take for one answer, in seconds, and how often it is asked again.
TIMEOUT, RETRIES = "10", "0"
#: Known and judged: the id, and why it does not concern us.
ACCEPTED: Mapping[str, str] = {}
#: What a package's licence may be: those that ask for nothing but their own text to be kept.
LICENCES = re.compile(
    r"(MIT|MIT-0|BSD|BSD-[23]-Clause|0BSD|Apache-2\.0|PSF-2\.0|Python-2\.0|ISC|Zlib|CC0-1\.0|Unlicense)([- ]License)?",
    re.I,
)
#: Others, each with its reason (see docs/decisions/0002-dependencies.md).
ALSO = {
    "crc32c": "LGPL-2.1-or-later: loaded as a separate module, unchanged",
    "pycurl": "LGPL-2.1-or-later or MIT: MIT is chosen",
    "hypothesis": "MPL-2.0: for tests only, unchanged",
    "pathspec": "MPL-2.0: for the type checker only, unchanged",
    "certifi": "MPL-2.0: a list of certificates, unchanged",
    "docutils": "public domain and BSD; GPL only for an editor's mode that nothing here loads; builds the docs only",
}
#: How licences are named where there is no SPDX expression.
_NAMES = {
    "MIT License": "MIT",
    "BSD License": "BSD",
    "Apache Software License": "Apache-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "Dual License": "Apache-2.0 OR BSD-3-Clause",
}


class Pin(NamedTuple):
    """One package of a lock."""

    name: str
    version: str
    hashes: int


def pins_of(text: str) -> list[Pin]:
    """Return the packages of a lock. Raises ValueError: a line is no pinned package, or names where to get it."""
    found: list[Pin] = []
    for entry in re.sub(r"\\\n", " ", text).splitlines():
        line = entry.partition(" #")[0].strip()
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(
            r"([A-Za-z0-9._-]+)==([^\s;]+)(\s*;[^-]*(?:-(?!-)[^-]*)*)?((?:\s+--hash=sha256:[0-9a-f]{64})*)", line
        )
        if match is None:
            raise ValueError(f"{line[:80]!r} is not `name==version --hash=...`; renew the lock with `make lock`")
        found.append(Pin(match[1].lower(), match[2], len(re.findall("--hash=", line))))
    return found


def licence_of(name: str) -> str | None:
    """Return the licence that an installed package gives for itself; None: it is not installed here."""
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return None
    fields = {key: about[key] for key in ("License-Expression", "License") if key in about}
    expression = fields.get("License-Expression", "")
    classifiers = [
        text.rpartition(" :: ")[2] for text in about.get_all("Classifier") or [] if text.startswith("License :: OSI")
    ]
    short = fields.get("License", "").strip()
    return expression or " AND ".join(_NAMES.get(text, text) for text in classifiers) or _NAMES.get(short, short[:60])


def licence_problems(names: Iterable[str]) -> list[str]:
    """Return what is wrong with the licences of packages that are installed here."""
    found = []
    for name in names:
        licence = licence_of(name)
        if licence is None or name in ALSO:
            continue
        ways = re.split(r"\s+OR\s+", licence, flags=re.I)
        if not any(all(LICENCES.fullmatch(part.strip("() ")) for part in re.split(r"\s+AND\s+", way)) for way in ways):
            found.append(f"{name}: licence {licence or '(none given)'!r} is not among those that we take")
    return found


def vulnerabilities(pins: Iterable[Pin], service: str | None) -> tuple[list[str], str | None]:
    """Return what is known against `pins`, and why nothing is known at all, if the service did not answer."""
    with tempfile.TemporaryDirectory() as folder:
        _write_lock(Path(folder), pins)
        command = [
            sys.executable,
            "-m",
            "uv",
            "audit",
            "--frozen",
            "--no-config",
            "--output-format",
            "json",
            "--project",
            folder,
        ]
        command += [part for id in ACCEPTED for part in ("--ignore", id)] + (
            ["--service-url", service] if service else []
        )
        environment = {**os.environ, "UV_HTTP_TIMEOUT": TIMEOUT, "UV_HTTP_RETRIES": RETRIES}
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    try:
        found: dict[str, Any] = json.loads(ran.stdout)
        listed = found["vulnerabilities"]
        asked = found["summary"]["audited_packages"]
    except (ValueError, KeyError, TypeError):
        said = [line for line in ran.stderr.splitlines() if not line.startswith("warning: ")]
        return [], " ".join(" ".join(said).split())[:300] or f"uv ended with {ran.returncode}"
    if ran.returncode not in (0, 1) or asked == 0:
        return [], f"uv ended with {ran.returncode} after {asked} packages"
    return [
        f"{one['dependency']['name']} {one['dependency']['version']}: {one['id']} {one.get('summary') or ''}; "
        f"fixed in {', '.join(one.get('fix_versions') or []) or 'no version yet'}"
        for one in listed
    ], None


def _write_lock(folder: Path, pins: Iterable[Pin]) -> None:
    """Write a project that has exactly `pins`; nothing is looked up for it, so the index has no address."""
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "what-is-locked"\nversion = "0"\nrequires-python = ">=3.11"\ndependencies = []\n'
    )
    kept = sorted({pin.name: pin for pin in pins}.values())
    needs = ", ".join(f'{{ name = "{pin.name}" }}' for pin in kept)
    lines = ["version = 1", "revision = 3", 'requires-python = ">=3.11"', "", "[[package]]", 'name = "what-is-locked"']
    lines += ['version = "0"', 'source = { virtual = "." }', f"dependencies = [{needs}]", ""]
    for pin in kept:
        lines += ["[[package]]", f'name = "{pin.name}"', f'version = "{pin.version}"']
        lines += ['source = { registry = "https://index.invalid/simple" }', ""]
    (folder / "uv.lock").write_text("\n".join(lines))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--service", metavar="URL", help="a vulnerability service that speaks OSV's protocol; default: OSV's own"
    )
    parser.add_argument("locks", nargs="*", type=Path, default=sorted((ROOT / "requirements").glob("*.lock")))
    args = parser.parse_args(arguments)
    problems: list[str] = []
    pins: list[Pin] = []
    for lock in args.locks:
        try:
            found = pins_of(lock.read_text())
        except ValueError as error:
            problems.append(f"{lock.name}: {error}")
            continue
        problems += [
            f"{lock.name}: {pin.name} has no hash; renew it with `make lock`" for pin in found if not pin.hashes
        ]
        pins += found
    names = sorted({pin.name for pin in pins})
    problems += licence_problems(names)
    known, silence = vulnerabilities(pins, args.service)
    problems += known
    for problem in problems:
        print(problem)
    not_here = sum(licence_of(name) is None for name in names)
    print(
        f"{len(names)} packages, all with hashes; licences read of {len(names) - not_here}"
        if not problems
        else "audit: FAILED"
    )
    if silence is not None:
        print(f"VULNERABILITIES ARE NOT KNOWN: the service did not answer ({silence})")
    elif not known:
        print(f"no known vulnerability in {len(set(pins))} packages")
    return WRONG if problems else NO_ANSWER if silence is not None else WELL


if __name__ == "__main__":
    sys.exit(main())
