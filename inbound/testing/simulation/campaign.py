"""Plays many seeds on several cores; shrinks failed plans into stories."""

from __future__ import annotations

import logging
import multiprocessing
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from inbound.coordinators.base import ZkCoordinator
from inbound.processors.base import BatchEventProcessor
from inbound.testing.simulation import run
from inbound.testing.simulation.plan import EVERYTHING, Action, Plan
from inbound.testing.simulation.run import Outcome
from inbound.testing.simulation.seeded_plans import make_plan, plan_of

#: Seeds that one process plays before it reports.
CHUNK = 20
#: Runs of each smaller plan: another interleaving may show the same fault after fewer actions.
INTERLEAVINGS = 3


@dataclass
class Report:
    """The result of many seeds."""

    seeds: int = 0
    steps: int = 0
    handed_out: int = 0
    repeated: int = 0
    seconds: float = 0.0
    #: Seed: its first violation, or what a witness disagrees with.
    failures: dict[int, str] = field(default_factory=dict)
    disagreements: int = 0
    met: Counter[tuple[str, str]] = field(default_factory=Counter)  # kinds of actions, and states of partitions

    def add(self, other: Report) -> None:
        """Add the seeds of another process."""
        self.seeds += other.seeds
        self.steps += other.steps
        self.handed_out += other.handed_out
        self.repeated += other.repeated
        self.failures |= other.failures
        self.disagreements += other.disagreements
        self.met += other.met


def check(
    processor: Callable[[], BatchEventProcessor] | None = None,
    *,
    seeds: Iterable[int] = range(100),
    coordinator: Callable[[], ZkCoordinator] | None = None,
    kinds: tuple[str, ...] = EVERYTHING,
) -> None:
    """Play seeds with your own processor or coordinator, for your tests.

    Raises AssertionError: a seed violates a promise. The text is the shortest story found, and the plan that replays it.
    """
    for seed in seeds:
        outcome = run.play(make_plan(seed, kinds=kinds), processor, coordinator)
        if outcome.failed:
            raise AssertionError(story(shrink(outcome, lambda plan: run.play(plan, processor, coordinator))))


def campaign(
    seeds: range,
    *,
    processes: int = 1,
    planted: Callable[[], AbstractContextManager[object]] = nullcontext,
    kind: str = "mixed",
    play: Callable[[Plan], Outcome] = run.play,
) -> Iterator[Report]:
    """Play all seeds; yield the sum so far after each chunk.

    `planted` makes a context to play them in, `play` plays one; both picklable. `kind`: see `plan_of`.
    """
    began = time.monotonic()
    total = Report()
    chunks = [range(start, min(start + CHUNK, seeds.stop)) for start in range(seeds.start, seeds.stop, CHUNK)]
    with ExitStack() as pools:
        each: Callable[..., Iterator[Report]] = map
        if processes > 1:
            each = pools.enter_context(ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))).map
        for result in each(partial(_play_chunk, planted, kind, play), chunks):
            total.add(result)
            total.seconds = time.monotonic() - began
            yield total


def _play_chunk(
    planted: Callable[[], AbstractContextManager[object]], kind: str, play: Callable[[Plan], Outcome], seeds: range
) -> Report:
    logging.disable(logging.CRITICAL)
    report = Report()
    try:
        with planted():
            for seed in seeds:
                outcome = play(plan_of(seed, kind))
                failures = {seed: outcome.why} if outcome.failed else {}
                report.add(
                    Report(
                        1, outcome.steps, outcome.handed_out, outcome.repeated, failures=failures,
                        disagreements=len(outcome.disagreements), met=Counter(outcome.met),
                    )
                )  # fmt: skip
    finally:
        logging.disable(logging.NOTSET)
    return report


def story(outcome: Outcome, *, lines: int = 60) -> str:
    """Describe a failed run: violation, last events, and how to replay it."""
    began = outcome.trace[0][0] if outcome.trace else 0.0
    events = [f"{at - began:9.3f}  {what}" for at, what in outcome.trace]
    left_out = [f"      ...  ({len(events) - lines} events before)"] if len(events) > lines else []
    return "\n".join(
        [
            f"seed {outcome.plan.seed}: {outcome.why}",
            f"setup: {outcome.plan.setup}",
            *left_out,
            *events[-lines:],
            "play it again:",
            "    from inbound.testing.simulation import *",
            f"    print(story(play({outcome.plan!r})))",
        ]
    )


def kind_of(why: str) -> str:
    """Return why a run failed, without names and numbers."""
    text = re.sub(r"\[[^]]*\]", "", why)
    return re.sub(r"\b[a-z]*\d+\b|\b(orders|items)/\d+,? ?", "", text)[:60]


def shrink(failed: Outcome, play: Callable[[Plan], Outcome], *, max_runs: int = 400) -> Outcome:
    """Return the outcome of the smallest plan that fails alike.

    Delta debugging (Zeller and Hildebrandt, 2002) cuts the storm; then all else is made plain. At most `max_runs` runs are
    spent.
    """
    best, runs, candidates = failed, 0, _candidates(failed.plan)
    while runs < max_runs and (candidate := next(candidates, None)) is not None:
        runs += 1
        outcome = play(candidate)
        if best.failed and outcome.failed and kind_of(best.why) == kind_of(outcome.why):
            best, candidates = outcome, _candidates(outcome.plan)
    return best


def _candidates(plan: Plan) -> Iterator[Plan]:
    for smaller in _smaller(plan):
        for turn in range(INTERLEAVINGS):
            yield replace(smaller, seed=smaller.seed + turn * 1_000_003)


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
    (name, partitions), fewer = setup.topics[0], max(1, setup.members - 1)
    plainer = (
        replace(setup, topics=setup.topics[:1]),
        replace(setup, topics=((name, max(1, partitions // 2)), *setup.topics[1:])),
        replace(setup, members=fewer, others=setup.others[:fewer]),
        replace(setup, workers=1),
        replace(setup, moody=False),
        replace(setup, channels=min(setup.channels, max(1, setup.channels - 1))),
        replace(setup, patience=max(25.0, setup.patience)),
        replace(setup, chunked=False),
        replace(setup, preempted=0.0),
        replace(setup, latest=False),
    )
    yield from (replace(plan, setup=one) for one in plainer if one != setup)
    shuffled = min(plan.shuffled, len(plan.storm))
    if shuffled:
        yield replace(plan, shuffled=0)
        yield replace(plan, shuffled=shuffled - 1)


def _without(storm: tuple[Action, ...], start: int, size: int) -> tuple[Action, ...]:
    """Remove some actions; the later actions keep their time."""
    taken, rest = storm[start : start + size], storm[start + size :]
    if rest:
        rest = (replace(rest[0], wait=round(rest[0].wait + sum(action.wait for action in taken), 3)), *rest[1:])
    return storm[:start] + rest
