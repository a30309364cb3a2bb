"""Run the named stages (check, structure, unit, simulation, integration), then print one line that counts everything.

Every tool of `check` counts as one test; what it could not find out, because who knows does not answer, it says in words.
All stages run, also after a failure. Exit 1 if anything failed or if a stage of tests ran none.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
#: Tools that look at the source; each one's failure is one failed test.
TOOLS: dict[str, tuple[str, ...]] = {
    "ruff check": ("ruff", "check", "--quiet", "."),
    "ruff format": ("ruff", "format", "--check", "--quiet", "."),
    "mypy --strict": ("mypy",),
    "audit": ("scripts.audit",),
    "docs site": ("scripts.docs_site",),
}
#: How a tool ends that found nothing wrong, and could not find out all of what it is for.
NOT_KNOWN = 75
#: What pytest is given for each stage of tests.
TESTS: dict[str, tuple[str, ...]] = {
    "structure": ("tests/test_layers.py", "tests/test_packaging.py"),
    "unit": ("tests", "--ignore=tests/simulation"),
    "simulation": ("tests/simulation",),
    "integration": ("integration",),
}


class Count(NamedTuple):
    """Results of one or more runs."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def run_tool(title: str, command: tuple[str, ...]) -> Count:
    """Run one tool; its output is shown only if it fails."""
    started = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    took = time.monotonic() - started
    if ran.returncode == 0:
        print(f"{title}: ok ({took:.1f} s)", flush=True)
        return Count(passed=1)
    if ran.returncode == NOT_KNOWN:
        print(f"{ran.stdout.rstrip()}\n{title}: ok as far as it could look ({took:.1f} s)", flush=True)
        return Count(passed=1)
    print(f"{ran.stdout.rstrip()}\n{title}: FAILED ({took:.1f} s)", flush=True)
    return Count(failed=1)


def run_pytest(stage: str, paths: tuple[str, ...]) -> Count:
    """Run pytest on `paths`, its output passed through."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        command = ["pytest", "-q", "--durations=5", "--durations-min=0.25", f"--junit-xml={report}", *paths]
        code = subprocess.run([sys.executable, "-m", *command], cwd=ROOT).returncode
        count = read_report(report)
    if code == 0 and count.passed + count.skipped > 0:
        return count
    # pytest can fail without a failed test: nothing collected, a bad option, an interrupt, a crash.
    if count.failed == 0:
        print(f"{stage}: pytest ended with {code} after {count}, which counts as a failure", flush=True)
        return count._replace(failed=1)
    return count


def read_report(report: Path) -> Count:
    """Return what pytest's JUnit report counts; all zero if it did not get as far as writing one."""
    if not report.exists():
        return Count()
    suites = ET.parse(report).getroot().iter("testsuite")
    total = Count()
    for suite in suites:
        tests, failures, errors, skipped = (
            int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")
        )
        total = add(total, Count(tests - failures - errors - skipped, failures + errors, skipped))
    return total


def add(one: Count, other: Count) -> Count:
    return Count(*(a + b for a, b in zip(one, other, strict=True)))


def main(stages: list[str]) -> int:
    total = Count()
    for stage in stages:
        print(f"== {stage}", flush=True)
        if stage == "check":
            for title, command in TOOLS.items():
                total = add(total, run_tool(title, command))
        else:
            if stage == "integration":
                subprocess.run([sys.executable, "-m", "scripts.browser"], cwd=ROOT)
            total = add(total, run_pytest(stage, TESTS[stage]))
    print(total, flush=True)
    return 1 if total.failed or total.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
