"""`make simulate`: play many seeds on all cores, and replay what kills each mutant; the last line is JSON.

make simulate SEEDS=20000             seeds from 0 on
make simulate SEEDS=5000 FROM=100000  others
make simulate SEED=4711               one seed, cut down to a short story if it fails
make simulate KIND=reset SEEDS=10000  seeds of one kind: faults, reset, reload, dispatch, owned, mirror, ingress
"""

from __future__ import annotations

import argparse
import json
import logging
import sys

from inbound.testing.simulation import PLANS, Report, campaign, plan_of, shrink, story
from inbound.testing.simulation.reset_faults import EVERY_KIND
from inbound.testing.simulation.stage import STATES
from tests.simulation import ingress
from tests.simulation.mutants import MUTANTS
from tests.simulation.proved import play
from tests.simulation.search import SEARCHED, SEEDS, SHOWN_BY_TRACES, Player, cores, recorded

#: Of mixed seeds each one of so many is played as one of the ingress, too.
INGRESS_EACH = 20


def main() -> int:
    parser = argparse.ArgumentParser(description="Play seeds of the simulator, and replay what kills its mutants.")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many; default {SEEDS}")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first one; default 0")
    parser.add_argument("--seed", type=int, help="only this one, told as a story")
    parser.add_argument(
        "--kind", choices=["mixed", *PLANS, "ingress"], default="mixed",
        help=f"seeds of one kind only; default: of all, most of them faults, and each {INGRESS_EACH}th as one of the ingress, too",
    )  # fmt: skip
    parser.add_argument("--no-mutants", action="store_true", help="do not replay what kills the mutants")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if args.seed is not None:
        return tell(args.seed, args.kind)
    seeds = range(args.first, args.first + args.seeds)
    figures = {
        **({} if args.kind == "ingress" else play_all(seeds, args.kind)),
        **(play_ingress(seeds, args.kind) if args.kind in ("ingress", "mixed") else {}),
        **({} if args.no_mutants else replay_mutants()),
    }
    print(json.dumps({"benchmark": "simulate", "figures": figures}))
    violations = figures.get("violations", 0) + figures.get("ingress_violations", 0)
    return int(bool(violations or figures.get("mutants", 0) != figures.get("mutants_found", 0)))


def tell(seed: int, kind: str) -> int:
    """Play one seed; if it fails, print the shortest story found."""
    if kind == "ingress":
        return int(bool(play_ingress(range(seed, seed + 1), kind)["ingress_violations"]))
    outcome = play(plan_of(seed, kind))
    if not outcome.failed:
        print(f"seed {seed}: {outcome.steps} steps, {outcome.handed_out} batches delivered, nothing violated")
        return 0
    print(f"seed {seed} fails: {outcome.why}\ncutting it down ...", file=sys.stderr)
    print(story(shrink(outcome, play)))
    return 1


def play_all(seeds: range, kind: str) -> dict[str, float]:
    """Play all seeds, with progress; tell the first that fails."""
    report = None
    for report in campaign(seeds, processes=cores(), kind=kind, play=play):
        progress(f"{report.seeds} of {len(seeds)} seeds, {len(report.failures)} failed")
    progress("", end=True)
    if report is None:
        return {"seeds": 0, "violations": 0, "witness_disagreements": 0, "seeds_per_second": 0.0}
    for seed, violation in sorted(report.failures.items()):
        print(f"seed {seed}: {violation}")
    if report.failures:
        tell(min(report.failures), kind)
    print(
        f"{report.seeds} seeds in {report.seconds:.1f} s: {report.steps} steps, {report.handed_out} batches delivered, "
        f"{report.repeated} records repeated, each for a reason, {len(report.failures)} seeds with violations"
    )
    return {
        "seeds": report.seeds,
        "violations": len(report.failures),
        "witness_disagreements": report.disagreements,
        "seeds_per_second": round(report.seeds / report.seconds, 1),
        "pairs_never_met": never_met(report, kind),
    }


def play_ingress(seeds: range, kind: str) -> dict[str, float]:
    """Play seeds of the ingress, of mixed ones only some; print what each of them breaks."""
    played, broken = seeds if kind == "ingress" else seeds[::INGRESS_EACH], 0
    for seed in played:
        if (outcome := ingress.play(seed)).failed:
            broken += 1
            print(f"ingress seed {seed}: {outcome.why}")
    print(f"{len(played)} seeds of the ingress, {broken} with violations")
    return {"ingress_seeds": len(played), "ingress_violations": broken}


def never_met(report: Report, kind: str) -> int:
    """Print how often each kind of action met each state of a partition, the pairs that never met first; return their number."""
    kinds = [name for name in EVERY_KIND if kind == "mixed" or name in PLANS[kind][1]]
    missing = [f"{name} x {state}" for name in kinds for state in STATES if not report.met[name, state]]
    print(f"actions that never met a partition in a state: {', '.join(missing) or 'none'}")
    width = max(map(len, kinds))
    print(f"{'':{width}}  " + "  ".join(STATES))
    for name in kinds:
        print(f"{name:{width}}  " + "  ".join(f"{report.met[name, state]:{len(state)}}" for state in STATES))
    return len(missing)


def replay_mutants() -> dict[str, float]:
    """Replay the recorded plan of each mutant; prints a line for each. `make mutants` searches for them."""
    found, kills = 0, recorded()
    for name in SEARCHED:
        outcome = Player(name).killing(kills[name].plan) if name in kills else None
        if outcome is None:
            print(f"NOT FOUND  {name} ({MUTANTS[name].rule}): `make mutants MUTANT={name}` searches for it")
            continue
        found += 1
        print(f"{kills[name].origin:10}  {name} ({MUTANTS[name].rule}): {outcome.why[:110]}")
    return {"mutants": len(SEARCHED), "mutants_found": found, "mutants_shown_by_traces": len(SHOWN_BY_TRACES)}


def progress(text: str, *, end: bool = False) -> None:
    """Show how far it is, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="" if not end else "\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
