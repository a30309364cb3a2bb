"""Adds up the journals of `delays.py`: `python totals.py JOURNAL_FOLDER`."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path


def totals(folder: Path) -> tuple[dict[str, list[int]], int]:
    """Return flights, departures and minutes of delay per carrier, and how many flights were counted twice."""
    seen: set[tuple[str, int, int]] = set()
    carriers: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    repeated = 0
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                continue  # the process was killed while it wrote this: it does not count
            entry = json.loads(line)
            for offset, carrier, delay in entry.get("flights", ()):
                place = (entry["topic"], entry["partition"], offset)
                if place in seen:
                    repeated += 1
                    continue
                seen.add(place)
                sums = carriers[carrier]
                sums[0] += 1
                if delay is not None:  # None: it never left
                    sums[1] += 1
                    sums[2] += delay
    return dict(carriers), repeated


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("usage: python totals.py JOURNAL_FOLDER")
    carriers, repeated = totals(Path(sys.argv[1]))
    print("carrier  flights  departed  minutes late, on average")
    for carrier, (flights, departed, minutes) in sorted(carriers.items()):
        print(f"{carrier:7}  {flights:7}  {departed:8}  {minutes / departed if departed else 0:24.1f}")
    print(f"{repeated} flights were delivered again, and dropped")
