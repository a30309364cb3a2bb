"""A stage's tests in two processes: the files that take longest first, each file in one of them (`-p tests.cli.two_processes`).

pytest-xdist gives the next file to the process that is free, so the times in `durations.json` need not be right, only in
the right order. The Spark files stay together, for they share a session; blocks of seeds go wherever a process is free.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

from scripts.test_results import ROOT, recorded

#: Why processes ended before they should have.
_died: list[object] = []


def unit_of(nodeid: str) -> str:
    """Return what a test stays together with: its file, all Spark files, or, for a block of seeds, nothing else.

    By name and not by the marker `xdist_group`, of which xdist 3.8 tells its scheduler nothing under pytest 9.2.
    """
    if "[block " in nodeid:
        return nodeid
    file = nodeid.partition("::")[0]
    return "integration/test_spark" if file.startswith("integration/test_spark") else file


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Give a process whole units."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    """Called by xdist in the process that distributes the tests."""
    return ByFile(config, log)


def pytest_testnodedown(node: object, error: object) -> None:
    """Called by xdist when a process has ended; `error` says why it should not have, also after its last test."""
    if error:
        _died.append(error)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process that died after its last test is a failure, too."""
    if _died and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort units by how long they take, longest first; tests of one keep their order."""
    seconds = recorded()
    files = {unit_of(item.nodeid): set[str]() for item in items}
    for item in items:
        files[unit_of(item.nodeid)].add(str(item.path.relative_to(ROOT)))
    takes = {unit: sum(seconds.get(file, 0.0) for file in those) for unit, those in files.items()}
    items.sort(key=lambda item: (-takes[unit_of(item.nodeid)], unit_of(item.nodeid)))
