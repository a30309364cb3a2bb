"""What holds for all fast tests: one that is not fast fails."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from hypothesis import settings

#: Tests should take less than 0.25 s; a busy machine stretches that, so only far more is a failure. Seconds.
TOO_SLOW = 2.0

# Hypothesis measures single examples, which says more about the machine than about the code.
settings.register_profile("inbound", deadline=None, print_blob=True)
settings.load_profile("inbound")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that passed, but so late that it would be skipped by those who run tests often."""
    report = yield
    if report.when == "call" and report.passed and report.duration > TOO_SLOW and not item.get_closest_marker("slow"):
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} took {report.duration:.1f} s. Tests in tests/ take less than 0.25 s: "
            "make it faster, mark it `slow`, or move it to integration/."
        )
    return report
