"""What the tests of the protocol's rules share, and which seeds a run plays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.coordinators.ownership_stage import Group
from tests.simulation import seeds
from tests.simulation.mutants import MUTANTS
from tests.simulation.search import quiet


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seeds, also where all passes: some change with the date."""
    terminalreporter.write_line(seeds.played())


@pytest.fixture
def group() -> Group:
    """A group without members."""
    return Group()


@pytest.fixture
def silent() -> Iterator[None]:
    """Hundreds of runs log nothing of all the faults in them."""
    with quiet():
        yield


@pytest.fixture
def kept(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether the rule is kept; else it is taken away for the test, and the test must come by where it was."""
    if request.param is None:
        yield True
        return
    with MUTANTS[request.param].plant() as planted:
        yield False
    assert planted.bites, f"mutant {request.param} made no difference"
