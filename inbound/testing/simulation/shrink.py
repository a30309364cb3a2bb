"""Cut a failing plan down to the few actions that it takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from inbound.testing.simulation.plan import Action, Plan
from inbound.testing.simulation.run import Outcome

#: Another interleaving may show the same fault after fewer actions, so each candidate gets so many.
INTERLEAVINGS = 3


def same_kind(one: Outcome, other: Outcome) -> bool:
    """Whether two runs violate the same thing, with whatever names and numbers."""
    return one.failed and other.failed and kind_of(one.why) == kind_of(other.why)


def kind_of(why: str) -> str:
    """Return what a failed run failed for, without names and numbers."""
    text = re.sub(r"\[[^]]*\]", "", why)
    return re.sub(r"\b[a-z]*\d+\b|\b(orders|items)/\d+,? ?", "", text)[:60]


def shrink(failed: Outcome, play: Callable[[Plan], Outcome], *, max_runs: int = 400) -> Outcome:
    """Return the outcome of the smallest plan found that fails in the same way; at most `max_runs` runs are spent.

    Delta debugging (Zeller and Hildebrandt, 2002) over the storm, then everything else made as plain as possible.
    """
    best, runs = failed, 0
    progress = True
    while progress and runs < max_runs:
        progress = False
        for candidate in _smaller(best.plan):
            for turn in range(INTERLEAVINGS):
                if runs >= max_runs:
                    return best
                runs += 1
                outcome = play(replace(candidate, seed=candidate.seed + turn * 1_000_003))
                if same_kind(best, outcome):
                    best, progress = outcome, True
                    break
            if progress:
                break  # start over with the smaller one
    return best


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Yield plans that are smaller in one way, the boldest first."""
    if plan.probes:
        yield replace(plan, probes=())
        if len(plan.probes) > 1:
            for index in range(len(plan.probes)):
                yield replace(plan, probes=plan.probes[:index] + plan.probes[index + 1 :])
    size = len(plan.storm)
    while size > 0:
        for start in range(0, len(plan.storm), size):
            yield replace(plan, storm=_without(plan.storm, start, size))
        size //= 2
    setup = plan.setup
    if len(setup.topics) > 1:
        yield replace(plan, setup=replace(setup, topics=setup.topics[:1]))
    name, partitions = setup.topics[0]
    if partitions > 1:
        yield replace(plan, setup=replace(setup, topics=((name, partitions // 2), *setup.topics[1:])))
    if setup.members > 1:
        yield replace(plan, setup=replace(setup, members=setup.members - 1, others=setup.others[: setup.members - 1]))
    if setup.workers > 1:
        yield replace(plan, setup=replace(setup, workers=1))
    if setup.moody:
        yield replace(plan, setup=replace(setup, moody=False))
    if setup.channels > 1:
        yield replace(plan, setup=replace(setup, channels=setup.channels - 1))
    if setup.patience < 25.0:
        yield replace(plan, setup=replace(setup, patience=25.0))
    if setup.chunked:
        yield replace(plan, setup=replace(setup, chunked=False))
    if setup.preempted:
        yield replace(plan, setup=replace(setup, preempted=0.0))
    if setup.latest:
        yield replace(plan, setup=replace(setup, latest=False))
    shuffled = min(plan.shuffled, len(plan.storm))
    if shuffled:
        yield replace(plan, shuffled=0)
        yield replace(plan, shuffled=shuffled - 1)


def _without(storm: tuple[Action, ...], start: int, size: int) -> tuple[Action, ...]:
    """Take some actions out; what follows them happens at the same time as before."""
    taken, rest = storm[start : start + size], storm[start + size :]
    if rest:
        rest = (replace(rest[0], wait=round(rest[0].wait + sum(action.wait for action in taken), 3)), *rest[1:])
    return storm[:start] + rest
