"""A stage's tests in two processes: the files that take longest first, each file in one of them (`-p tests.two_processes`).

pytest-xdist gives the next file to the process that is free, so the times in `durations.json` need not be right, only in
the right order. Files that share something expensive, such as a Spark session, name a group: `pytest.mark.xdist_group("spark")`.
"""

from __future__ import annotations

from collections import defaultdict

import pytest
from xdist.scheduler import LoadGroupScheduling

from scripts.test_results import ROOT, recorded

#: Why processes ended before they should have.
_died: list[object] = []


class ByFile(LoadGroupScheduling):  # type: ignore[misc]
    """Keep a named group together, and otherwise a file."""

    def _split_scope(self, nodeid: str) -> str:
        group: str = super()._split_scope(nodeid)
        return group.partition("::")[0]


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort groups and files by how long they take, longest first; tests of one keep their order."""
    seconds = recorded()
    files: dict[str, set[str]] = defaultdict(set)
    for item in items:
        files[_group(item)].add(_file(item))
    takes = {group: sum(seconds.get(file, 0.0) for file in those) for group, those in files.items()}
    items.sort(key=lambda item: (-takes[_group(item)], _group(item)))


def _group(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker else _file(item)


def _file(item: pytest.Item) -> str:
    return str(item.path.relative_to(ROOT))
