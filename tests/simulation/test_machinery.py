"""The simulator itself: it replays, it shrinks, it tells, and it can be pointed at one's own code."""

from __future__ import annotations

import pytest

from inbound import Batch, BatchEventProcessor, BatchResponse, TopicPartition
from inbound.coordinators import base
from inbound.testing.simulation import (
    BESIDE_RESETS,
    EVERYTHING,
    PLANS,
    RESETS,
    Action,
    Dispatch,
    Plan,
    Setup,
    check,
    make_plan,
    make_reset_plan,
    plan_of,
    shrink,
    story,
)
from tests.simulation.mutants import MUTANTS
from tests.simulation.proved import play
from tests.simulation.search import recorded

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("silent")]


@pytest.mark.parametrize("kind", PLANS)
def test_a_seed_plays_the_same_again(kind: str) -> None:
    """Every event at the same time, to the last digit; also what processes and command lines do about resets."""
    plans = [plan_of(seed, kind) for seed in range(3)]
    assert [play(plan).trace for plan in plans] == [play(plan).trace for plan in plans]


def test_a_plan_printed_is_python_that_makes_it_again() -> None:
    """So that a story can be played by pasting it."""
    plans = [plan_of(seed) for seed in range(20)]
    assert [
        eval(repr(plan), {"Plan": Plan, "Setup": Setup, "Action": Action, "Dispatch": Dispatch}) for plan in plans
    ] == plans


def test_every_kind_of_fault_happens() -> None:
    """In a few hundred seeds; each kind's name stands in the run's story."""
    planned = {action.kind for seed in range(200) for action in make_plan(seed).storm}
    assert planned == set(EVERYTHING)


def test_every_kind_of_thing_happens_to_resets() -> None:
    """And every plan of that kind asks for one."""
    plans = [make_reset_plan(seed) for seed in range(300)]
    planned = {action.kind for plan in plans for action in plan.storm}
    asked = all(any(action.kind == "reset" for action in plan.storm) for plan in plans)
    assert (planned, asked) == ({*BESIDE_RESETS, *RESETS}, True)


def test_processes_are_told_to_run_other_channels() -> None:
    """Every kind of thing happens beside that, and in each plan one process at least gets another configuration."""
    plans = [plan_of(seed, "reload") for seed in range(300)]
    planned = {action.kind for plan in plans for action in plan.storm}
    told = all(any(action.kind == "reload" for action in plan.storm) for plan in plans)
    assert (planned, told) == (set(PLANS["reload"][1]), True)


def test_subscribers_have_every_temper() -> None:
    """And everything happens beside that."""
    plans = [plan_of(seed, "dispatch") for seed in range(400)]
    assert {action.kind for plan in plans for action in plan.storm} == set(PLANS["dispatch"][1])


def test_the_coordinator_of_a_kafka_group_has_every_temper() -> None:
    """And everything happens beside that."""
    plans = [plan_of(seed, "mirror") for seed in range(400)]
    assert {action.kind for plan in plans for action in plan.storm} == set(PLANS["mirror"][1])


def test_a_failing_seed_is_cut_down_and_told() -> None:
    """With two processes that commit under one epoch, the story is short, says what is wrong, and plays again."""
    plan = recorded()["ours-by-name"].plan
    assert isinstance(plan, Plan)
    with MUTANTS["ours-by-name"].plant():
        failed = play(plan)
        small = shrink(failed, play, max_runs=120)
        again = play(small.plan)
    assert (again.why, len(small.plan.storm) <= min(4, len(failed.plan.storm))) == (small.why, True)
    assert all(part in story(small) for part in (small.why, "play it again", repr(small.plan)))


class Sloppy(BatchEventProcessor):
    """Skips a record now and then."""

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        return BatchResponse.advance(batch.next_offset + 1, skip=True)


class Greedy(base.ZkCoordinator):
    """Leaves the last partition unowned."""

    def plan(self, view: base.GroupView) -> base.Plan:
        free = sorted({TopicPartition(t, p) for t, n in view.partitions.items() for p in range(n - 1)} - view.owned)
        return base.Plan(take=tuple(free), share=len(free))


class Fine(BatchEventProcessor):
    """Answers as one should."""

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        return BatchResponse.advance()


def test_a_good_processor_passes() -> None:
    """As it would in a user's own tests."""
    check(Fine, seeds=range(5))


@pytest.mark.parametrize(
    ("processor", "coordinator", "says"),
    [(Sloppy, None, "lie between|not processed|not read"), (Fine, Greedy, "not read|not committed")],
)
def test_a_bad_plugin_fails_with_its_story(
    processor: type[BatchEventProcessor], coordinator: type[base.ZkCoordinator] | None, says: str
) -> None:
    """A processor that skips, and a coordinator that leaves partitions unread."""
    with pytest.raises(AssertionError, match=says):
        check(processor, coordinator=coordinator, seeds=range(10))


def test_a_process_owes_nothing_to_a_configuration_that_it_never_read() -> None:
    """It is stopped while a good one is written, and that is overwritten with a bad one: it keeps its configuration."""
    setup = Setup(topics=(("orders", 1),), members=1, batch=1, work=0.02, traffic=0.1, channels=2)
    storm = (
        Action(0.12, "freeze", seconds=5.698, flag=True),
        Action(1.055, "reload", who=2, where=1, size=2, seconds=2.0),
        Action(0.187, "reload", who=1, where=0, size=2, seconds=2.0),
        Action(1.163, "bad reload", who=1, where=1, size=2, seconds=2.0),
    )
    assert play(Plan(114, setup, storm)).violations == ()
