"""`make mutants`: look for every mutant on all cores, and record the plan that kills each.

First the plan is played that is recorded; if it does not kill its mutant any more, seeds are, from 0 on.

make mutants                      all; writes tests/simulation/kills.json, which the tests replay
make mutants MUTANT=no-deadline   one of them, with seeds; the other records stay
"""

from __future__ import annotations

import argparse
import sys
from difflib import get_close_matches

from tests.simulation.mutants import MUTANTS
from tests.simulation.search import SEARCHED, SEEDS, find_all, record, recorded


def main() -> int:
    parser = argparse.ArgumentParser(description="Look for the simulator's mutants, and record what kills them.")
    parser.add_argument("--mutant", metavar="NAME", help="only this one")
    parser.add_argument("--shrinking", type=int, default=0, help="runs to cut a plan down; default 0")
    args = parser.parse_args()
    if args.mutant and args.mutant not in SEARCHED:
        near = get_close_matches(args.mutant, SEARCHED)
        hint = f"did you mean {' or '.join(near)}?" if near else f"they are: {', '.join(sorted(SEARCHED))}"
        print(f"make mutants: MUTANT={args.mutant}: there is no such mutant; {hint}", file=sys.stderr)
        return 2
    names = [args.mutant] if args.mutant else SEARCHED
    missed = 0
    for name, kill, bites in find_all(names, args.shrinking, {} if args.mutant else recorded()):
        if kill is None:
            missed += 1
            print(f"NOT FOUND by {SEEDS} seeds: {name} ({MUTANTS[name].rule}); it made a difference {bites} times")
            continue
        record({**recorded(), name: kill})
        print(f"{kill.origin:10}  {name} ({MUTANTS[name].rule}): {kill.violation}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
