"""The leader of a reset may die, and any answer be lost, at every request: offsets move once, and the gate opens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inbound.controller.reset_offset.model import State
from tests.controller.reset_offset.reset_stage import Leader, Stage, moved

Fault = Callable[[Stage, Leader], None]

#: So many requests a reset of two partitions takes at most, with what precedes it.
REQUESTS = 80


def kill(stage: Stage, leader: Leader) -> None:
    """SIGKILL right after a request was sent; another process goes on when the session is over."""
    stage.kill(leader)
    stage.lead("other")


def lose(stage: Stage, leader: Leader) -> None:
    """The request is executed, its answer is lost, and the connection with it."""
    stage.world.ensemble.lose_answers(leader.name)


def drop(stage: Stage, leader: Leader) -> None:
    """The request is lost, and the connection with it."""
    stage.world.ensemble.drop_requests(leader.name)


def late(stage: Stage, leader: Leader) -> None:
    """The request gets stuck; it executes at some later time, if its session still lives then."""
    stage.world.ensemble.drop_requests(leader.name, late=True)


def expire(stage: Stage, leader: Leader) -> None:
    """The session is over, while another process is there too."""
    stage.lead("other")
    stage.world.ensemble.expire_session(leader.name)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [kill, lose, drop, late, expire])
@pytest.mark.parametrize("part", range(8))
def test_a_fault_at_any_request_moves_the_offsets_once(fault: Fault, part: int) -> None:
    """One run for each request that the reset makes."""
    for count in range(1 + part, REQUESTS, 8):
        stage = Stage(partitions=2, session=1.0)
        histories = [stage.history(p) for p in range(2)]
        leader = stage.lead("leader")
        name = stage.submit()
        done: list[int] = []

        def now(stage: Stage = stage, leader: Leader = leader, done: list[int] = done, count: int = count) -> None:
            fault(stage, leader)
            done.append(count)

        leader.after(count, now)
        command = stage.ended(name)
        assert (command.state, command.moved, histories, stage.gate) == (
            State.SUCCEEDED,
            moved(2, 10, 0),
            [[0], [0]],
            "open",
        ), f"after request {count}"
        if not done:
            break
