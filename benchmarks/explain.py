"""Does `inbound explain` name what is wrong, and nothing that is not? On real servers.

Plants twenty causes that stall a partition, and measures how long each takes to be named: within twice
`explain.interval`. Then runs load of many kinds with nothing wrong (`--minutes`) and watches all explanations.
Prints one JSON line; exit code 1 if a cause was missed, was named too late, or a partition was accused wrongly.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from pathlib import Path

from inbound.cli.shared.files import jar_cache
from inbound.embedded import EmbeddedCluster
from integration.group.mixed_load import Account, run_mixed_load
from integration.observe.explain.explaining import Named, Stage
from integration.observe.explain.plants import ALONE, IN_ONE_PROCESS, plant_in_one_process

INTERVAL = 2.0


def main() -> int:
    """Plant, then wait. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of mixed load with nothing wrong")
    options = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    with (
        tempfile.TemporaryDirectory(prefix="inbound-explain-") as folder,
        EmbeddedCluster(jars=jar_cache(), progress=lambda line: print(line, file=sys.stderr)) as cluster,
    ):
        named = _plant(cluster, Path(folder))
        account = _mixed(cluster, Path(folder), options.minutes * 60)
    good = [one for one in named if one.within(2 * INTERVAL)]
    result = {
        "causes_planted": len(named),
        "causes_named": len(good),
        "slowest_s": round(max((one.seconds or 0.0) for one in named), 2),
        "interval_s": INTERVAL,
        "missed": [f"{one.plant}: {one.cause}, said {one.said}, {one.seconds}" for one in named if one not in good],
        "mixed_load_s": account.seconds,
        "records": account.records,
        "looks": account.looks,
        "rebalances": account.rebalances,
        "false_causes": len(account.false),
        "disturbed": len(account.disturbed),
    }
    print(json.dumps(result))
    return int(len(good) < len(named) or bool(account.false))


def _plant(cluster: EmbeddedCluster, folder: Path) -> list[Named]:
    stage = Stage(cluster, folder, INTERVAL)
    try:
        named = plant_in_one_process(stage, list(IN_ONE_PROCESS))
        for plant in ALONE.values():
            named += plant(stage)
    finally:
        stage.close()
    for one in named:
        seconds = "never" if one.seconds is None else f"{one.seconds:.1f} s"
        print(f"{one.plant:<14} {one.cause:<18} named after {seconds}", file=sys.stderr)
    return named


def _mixed(cluster: EmbeddedCluster, folder: Path, seconds: float) -> Account:
    stage = Stage(cluster, folder, INTERVAL, name="mixed")
    try:
        account = run_mixed_load(stage, seconds)
    finally:
        stage.close()
    for line in [*account.false, *account.disturbed]:
        print(line, file=sys.stderr)
    print(f"said: {dict(account.said)}", file=sys.stderr)
    return account


if __name__ == "__main__":
    sys.exit(main())
