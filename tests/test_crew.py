"""How many workers are woken: all of them for callbacks that wait, one for callbacks that compute."""

from __future__ import annotations

import pytest

from inbound.crew import GRACE, Crew


@pytest.fixture
def woken() -> list[int]:
    """Counts wake-ups."""
    return []


def crew(woken: list[int], *, cpu: float, elapsed: float) -> Crew:
    """A crew whose callbacks were seen to take so much CPU of so much time; worker `a` has just begun a turn."""
    made = Crew(lambda: woken.append(1))
    made.observe(cpu, elapsed)
    made.begin("a", 100.0)
    return made


def test_while_callbacks_wait_everybody_is_woken_and_takes_at_once(woken: list[int]) -> None:
    """A database call leaves the interpreter to the others. Before any callback was seen they are taken to wait."""
    waiting = crew(woken, cpu=0.001, elapsed=0.1)
    for _ in range(3):
        waiting.partition_due(100.0)
    fresh = Crew(lambda: woken.append(1))
    fresh.begin("a", 100.0)
    assert (len(woken), waiting.hold_off(100.0, 100.0), fresh.hold_off(100.0, 100.0)) == (3, None, None)


def test_while_callbacks_compute_a_second_worker_only_watches(woken: list[int]) -> None:
    """It is woken once for a burst, and takes what has waited for the grace, however quick the other's turns are."""
    computing = crew(woken, cpu=0.1, elapsed=0.1)
    computing.partition_due(100.0)
    again = computing.hold_off(100.0, 100.0)
    computing.partition_due(100.0)
    computing.partition_due(100.01)
    assert (len(woken), again) == (1, 100.0 + GRACE)
    assert computing.hold_off(100.0 + GRACE, 100.0) is None


def test_a_worker_in_a_long_turn_holds_nobody_off(woken: list[int]) -> None:
    """One slow partition must not slow the others."""
    computing = crew(woken, cpu=0.1, elapsed=0.1)
    assert computing.hold_off(100.0 + GRACE, 100.0 + GRACE) is None


def test_nobody_is_held_off_while_no_worker_is_in_a_turn(woken: list[int]) -> None:
    """The first record after a pause is handed out at once."""
    computing = crew(woken, cpu=0.1, elapsed=0.1)
    computing.end("a")
    computing.partition_due(100.0)
    assert (len(woken), computing.hold_off(100.0, 100.0)) == (1, None)


def test_old_observations_fade(woken: list[int]) -> None:
    """A processor that begins to wait is soon treated so."""
    changing = crew(woken, cpu=0.1, elapsed=0.1)
    for _ in range(30):
        changing.observe(0.001, 0.1)
    assert not changing.computing
