"""Make random edits of a consumer under load, and print what came of them as one line of JSON."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from inbound.cli.shared.files import jar_cache
from inbound.embedded import EmbeddedCluster
from integration.reloading.campaign import play


def main() -> int:
    """Run it. Returns 1 if a figure is not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m integration.reloading", description=__doc__)
    parser.add_argument("--edits", type=int, default=500, help="how many; default: 500")
    parser.add_argument("--seed", type=int, default=1, help="which; default: 1")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="inbound-reload-") as name:
        folder = Path(name)
        (folder / "scene").mkdir()
        with EmbeddedCluster(folder / "cluster", jars=jar_cache()) as cluster:
            figures = play(cluster, folder / "scene", args.edits, args.seed)
    print(json.dumps(figures.as_dict()))
    return int(bool(figures.missed))


if __name__ == "__main__":
    sys.exit(main())
