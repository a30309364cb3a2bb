"""Read what pytest reports of a stage: counts, the slowest tests, the times of files, how far it is."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
#: Seconds of each file of tests, as `make durations` measured them; those that take less than 1 s are left out.
DURATIONS = ROOT / "tests" / "durations.json"
_DOTS = re.compile(r"^[.sFExX]+ *(?:\[ *(\d+)%\])?$", re.M)
#: How many of the slowest tests are named.
SLOWEST = 20


class Count(NamedTuple):
    """Results of one or more runs."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"

    def __add__(self, other: Count) -> Count:  # type: ignore[override]
        return Count(*(a + b for a, b in zip(self, other, strict=True)))


def count(report: Path) -> Count:
    """Return what pytest's JUnit report counts; all zero if it did not get as far as writing one."""
    total = Count()
    for suite in ET.parse(report).getroot().iter("testsuite") if report.exists() else ():
        tests, failures, errors, skipped = (
            int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")
        )
        total += Count(tests - failures - errors - skipped, failures + errors, skipped)
    return total


def times(reports: Iterable[Path]) -> Iterator[tuple[Path, str, float]]:
    """Yield each test's file, below ROOT, its name, and its seconds with those of its fixtures."""
    for report in reports:
        for case in ET.parse(report).getroot().iter("testcase") if report.exists() else ():
            modules = [
                part for part in case.get("classname", "").split(".") if not part[:1].isupper()
            ]  # without a class
            file = Path(*modules).with_suffix(".py")
            yield file, case.get("name", ""), float(case.get("time", 0))


def slowest(reports: Iterable[Path]) -> str:
    """Return a table of the slowest tests."""
    worst = sorted(times(reports), key=lambda one: -one[2])[:SLOWEST]
    return "\n".join(["the slowest tests:", *(f"{took:7.1f} s  {file}::{name}" for file, name, took in worst)])


def recorded() -> dict[str, float]:
    """Return the seconds of each file as they were recorded; nothing, with a warning, if the file is damaged."""
    try:
        return {str(file): float(took) for file, took in json.loads(DURATIONS.read_text()).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        print(
            f"{DURATIONS} cannot be read ({error}), so files start in any order; `make durations` renews it",
            file=sys.stderr,
        )
        return {}


def record(reports: Iterable[Path]) -> None:
    """Write the files' times; those of files that did not run are kept while the files exist."""
    found: dict[str, float] = {}
    for file, _, took in times(reports):
        found[str(file)] = found.get(str(file), 0.0) + took
    kept = {file: took for file, took in recorded().items() if file not in found and (ROOT / file).exists()}
    lines = {file: round(took) for file, took in sorted((kept | found).items()) if took >= 1}
    DURATIONS.write_text(json.dumps(lines, indent=0) + "\n")


def progress_of(output: str) -> tuple[int, int | None, int]:
    """Return, of pytest's output so far: finished tests, percent (None: not said yet), failed tests."""
    found = list(_DOTS.finditer(output))
    letters = "".join(line[0] for line in found)
    percents = [int(line[1]) for line in found if line[1]]
    return (
        sum(map(letters.count, ".sFExX")),
        percents[-1] if percents else None,
        letters.count("F") + letters.count("E"),
    )


def without_dots(output: str) -> str:
    """Return pytest's output without its lines of dots."""
    return "\n".join(line for line in _DOTS.sub("", output).splitlines() if line.strip())
