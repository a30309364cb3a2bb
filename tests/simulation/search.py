"""Looks for planted mutants with the simulator, on all cores, and records the plans that kill them.

The records are in `kills.json`, a line for each mutant. The tests replay them; `make mutants` writes them.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from types import MappingProxyType
from typing import cast

from inbound.testing.simulation import Action, Dispatch, Outcome, Plan, Setup, plan_of, shrink
from inbound.testing.simulation.campaign import kind_of
from tests.simulation import ingress
from tests.simulation.ingress import Seed
from tests.simulation.mutants import MUTANTS
from tests.simulation.proved import play

#: A mutant that the first so many seeds do not find is a hole in the simulator.
SEEDS = 2000
RECORDS = Path(__file__).with_name("kills.json")
#: What a storm of random faults hardly ever comes by, and why; each is shown by a test of a trace or of its rule.
SHOWN_BY_TRACES = {
    "owner-read-first": "takes an operator's deletion and another's claim between two reads of one look",
    "own-id-not-looked-at": "takes an id node deleted by hand, and then hardly harms",
    "offset-read-first": "takes an expiry, a recovery, a commit and a release inside one claim of another member",
    "claims-beside-the-old-call": "takes a drop and a new claim during one callback",
    "results-without-epoch": "takes the same, and the callback's end right after",
    "refused-recovery-is-lost": "takes a recovery whose answer is lost while a batch waits for its commit",
    "release-unchecked": "takes a release that executes late, after another's claim",
    "release-beside-the-last-commit": "takes a refused neighbour in the group commit of a release",
    "take-over-uncompared": "takes an expiry and another's claim inside one take-over",
    "reset-moves-unchecked": "takes a move that executes late, after another leader's",
    "abandoned-gate-left-closed": "takes a reset deleted by hand while its group is stalled",
    "reset-fences-nothing": "takes a commit between the reading of the old offsets and the move",
    "no-second-look-at-a-claim": "takes a claim that fails for a reason whose end no watch shows; a gate's opening shows",
    "fights-for-its-id": "takes two processes of one id that both live, and the first one's session lost",
}
SEARCHED = [name for name in MUTANTS if name not in SHOWN_BY_TRACES]


@dataclass(frozen=True)
class Kill:
    """The plan that kills a mutant: all of it, so that another way to draw plans makes no difference."""

    #: The first seed that kills it, and the seed's kind: see `plan_of`; None: the plan was written by hand,
    #: or is of a seed that the search does not come to.
    seed: int | None
    kind: str
    #: What the run violates, without names and numbers: see `kind_of`.
    violation: str
    plan: Plan | Seed

    @property
    def origin(self) -> str:
        """Where its plan comes from."""
        return "by hand" if self.seed is None else f"seed {self.seed:5}"


@dataclass
class Player:
    """Plays plans with a mutant planted: once for each run, so that no run depends on the ones before."""

    mutant: str
    #: How often the mutant did something else than the product, in all.
    bites: int = field(default=0, init=False)

    def play(self, plan: Plan | Seed) -> Outcome | ingress.Outcome:
        """Play a plan."""
        with MUTANTS[self.mutant].plant() as planted:
            outcome = played(plan)
        self.bites += planted.bites
        return outcome

    def killing(self, plan: Plan | Seed) -> Outcome | ingress.Outcome | None:
        """Play a plan, and return what came of it if it is the mutant that fails: the product does not."""
        before = self.bites
        outcome = self.play(plan)
        return outcome if outcome.failed and self.bites > before and not played(plan).failed else None

    def seeds(self) -> Iterator[tuple[int, Plan | Seed]]:
        """Yield the seeds that are played, in their order, and their plans: not those in which its place is never reached."""
        mutant = MUTANTS[self.mutant]
        for seed in range(SEEDS):
            if mutant.kind == "ingress":
                yield seed, Seed(seed)
            elif mutant.drawn(plan := plan_of(seed, mutant.kind)):
                yield seed, plan


def played(plan: Plan | Seed) -> Outcome | ingress.Outcome:
    """Play a plan without any mutant."""
    return ingress.play(plan.seed) if isinstance(plan, Seed) else play(plan)


def cores() -> int:
    """Return how many processes are worth starting."""
    return len(os.sched_getaffinity(0))


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing: hundreds of runs would log all the faults in them."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def find(name: str, shrinking: int = 0, known: Kill | None = None) -> tuple[str, Kill | None, int]:
    """Play seeds with a mutant planted until one kills it. Returns how often the mutant bit, too.

    Args:
        name: The mutant's.
        shrinking: How many runs may be spent on cutting the plan down.
        known: What has killed it before; if it still does, no seeds are played.
    """
    player, kind = Player(name), MUTANTS[name].kind
    with quiet():
        if known is not None and known.kind == kind and (outcome := player.killing(known.plan)) is not None:
            return name, replace(known, violation=kind_of(outcome.why)), player.bites
        for seed, plan in player.seeds():
            if (outcome := player.killing(plan)) is None:
                continue
            if shrinking and isinstance(outcome, Outcome):
                outcome = shrink(outcome, lambda plan: cast(Outcome, player.play(plan)), max_runs=shrinking)
                plan = outcome.plan
            return name, Kill(seed, kind, kind_of(outcome.why), plan), player.bites
    return name, None, player.bites


def find_all(
    names: Sequence[str] = SEARCHED, shrinking: int = 0, known: Mapping[str, Kill] = MappingProxyType({})
) -> Iterator[tuple[str, Kill | None, int]]:
    """Search for mutants on all cores; yields what `find` returns for each, in their order."""
    with ProcessPoolExecutor(min(cores(), len(names)), multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(find, names, repeat(shrinking), [known.get(name) for name in names])


def recorded() -> dict[str, Kill]:
    """Return the committed records."""
    made = {"Plan": Plan, "Setup": Setup, "Action": Action, "Dispatch": Dispatch, "Seed": Seed}
    return {
        name: Kill(kill["seed"], kill["kind"], kill["violation"], eval(kill["plan"], made))
        for name, kill in json.loads(RECORDS.read_text()).items()
    }


def record(kills: dict[str, Kill]) -> None:
    """Write the records: of the mutants that exist, in their order, a line for each."""
    lines = [
        f"{json.dumps(name)}: {json.dumps({**vars(kills[name]), 'plan': repr(kills[name].plan)})}"
        for name in SEARCHED
        if name in kills
    ]
    RECORDS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
