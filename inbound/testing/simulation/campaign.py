"""Many seeds, on as many cores as wanted; what failed is shrunk and told as a story."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from inbound.coordinators.base import ZkCoordinator
from inbound.processors.base import BatchEventProcessor
from inbound.testing.simulation.plan import EVERYTHING, make_plan, plan_of
from inbound.testing.simulation.run import Outcome, play
from inbound.testing.simulation.shrink import shrink

#: Seeds that one process plays before it reports.
CHUNK = 20


@dataclass
class Report:
    """What came of many seeds."""

    seeds: int = 0
    steps: int = 0
    handed_out: int = 0
    repeated: int = 0
    seconds: float = 0.0
    #: Seed: its first violation, or where proof and witness disagree.
    failures: dict[int, str] = field(default_factory=dict)
    disagreements: int = 0
    met: Counter[tuple[str, str]] = field(default_factory=Counter)  # kinds of actions, and states of partitions

    def add(self, other: Report) -> None:
        """Count in what another process has done."""
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
    """Play seeds with your own processor, or coordinator, and fail with the shortest story found: for your tests.

    Raises:
        AssertionError: a seed violates what must hold; the text tells what happened, and the plan that replays it.
    """
    for seed in seeds:
        outcome = play(make_plan(seed, kinds=kinds), processor, coordinator)
        if outcome.failed:
            raise AssertionError(story(shrink(outcome, lambda plan: play(plan, processor, coordinator))))


def campaign(
    seeds: range,
    *,
    processes: int = 1,
    planted: Callable[[], AbstractContextManager[object]] = nullcontext,
    kind: str = "mixed",
) -> Iterator[Report]:
    """Play all seeds; yield the sum so far after each chunk.

    `planted` makes a context to play them in; picklable. `kind`: see `plan_of`.
    """
    began = time.monotonic()
    total = Report()
    chunks = [range(start, min(start + CHUNK, seeds.stop)) for start in range(seeds.start, seeds.stop, CHUNK)]
    if processes == 1:
        results: Iterator[Report] = map(partial(_play_chunk, planted, kind), chunks)
        yield from _sum(results, total, began)
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from _sum(pool.map(partial(_play_chunk, planted, kind), chunks), total, began)


def _sum(results: Iterator[Report], total: Report, began: float) -> Iterator[Report]:
    for result in results:
        total.add(result)
        total.seconds = time.monotonic() - began
        yield total


def _play_chunk(planted: Callable[[], AbstractContextManager[object]], kind: str, seeds: range) -> Report:
    logging.disable(logging.CRITICAL)
    report = Report()
    try:
        with planted():
            for seed in seeds:
                outcome = play(plan_of(seed, kind))
                disagreements = len(outcome.disagreements)
                failures = {seed: outcome.why} if outcome.failed else {}
                report.add(
                    Report(
                        1, outcome.steps, outcome.handed_out, outcome.repeated, failures=failures,
                        disagreements=disagreements, met=Counter(outcome.met),
                    )
                )  # fmt: skip
    finally:
        logging.disable(logging.NOTSET)
    return report


def story(outcome: Outcome, *, lines: int = 60) -> str:
    """Tell what happened in a run that failed: what was violated, the last events, and how to play it again."""
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
