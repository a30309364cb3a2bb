"""What holds for all fast tests: one that is not fast fails."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import settings, strategies

from inbound.config.secrets import KNOWN
from tests.waiting import slowness

#: Tests should take less than 0.25 s. Judged by processor time, with that of ended child processes, for a busy machine
#: stretches the other; and that only by far, for who waits instead of working. Seconds.
TOO_MUCH_WORK, TOO_LONG = 2.0, 20.0
_worked = pytest.StashKey[float]()

# Hypothesis measures single examples, which says more about the machine than about the code.
settings.register_profile("inbound", deadline=None, print_blob=True)
settings.load_profile("inbound")


@pytest.fixture(autouse=True, scope="session")
def all_characters_are_known() -> None:
    """Hypothesis makes its table of characters now: once in a clone, that takes longer than a test may."""
    strategies.text().validate()


@pytest.fixture(autouse=True)
def nothing_is_secret_from_the_last_test() -> None:
    """What a test called a password is an ordinary word in the next one."""
    KNOWN._forms.clear()
    KNOWN._pattern = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Take down how much processor time the test needs."""
    before = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        item.stash[_worked] = sum(os.times()[:4]) - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that passed, but so late that it would be skipped by those who run tests often."""
    report = yield
    if report.when == "call" and report.passed and not item.get_closest_marker("slow"):
        worked = item.stash.get(_worked, 0.0)
        if worked <= TOO_MUCH_WORK and report.duration <= TOO_LONG:
            return report
        slower, longer = slowness()  # a slow or busy machine is no fault of the test's
        if worked > TOO_MUCH_WORK * slower or report.duration > TOO_LONG * longer:
            report.outcome = "failed"
            report.longrepr = (
                f"{item.nodeid} took {report.duration:.1f} s, {worked:.1f} s of it on a processor. Tests in tests/ take "
                "less than 0.25 s: make it faster, mark it `slow`, or move it to integration/."
            )
    return report
