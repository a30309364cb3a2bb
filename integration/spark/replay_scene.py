"""A topic, a configuration, and `spark replay` over them: in this process on a session that tests share, or in its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from inbound.cli.main import main
from inbound.embedded import EmbeddedCluster
from integration.harness import PLUGINS
from integration.spark.spark_log import Log

BATCH = 50
#: Small: the machine runs the servers too.
CONF = ("--conf", "spark.driver.memory=1g")


class ReplayScene:
    """A topic of its own, and what the processor of its channel has seen."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path, partitions: int = 2) -> None:
        self.cluster = cluster
        self.folder = folder
        self.topic = f"replayed-{folder.name}"
        self.group = f"group-{folder.name}"
        self.seen = folder / "seen"
        self.seen.mkdir()
        self.config = folder / "inbound.yaml"
        (folder / "replayed.py").write_text((PLUGINS / "replayed.py").read_text())
        self.log = Log(cluster, partitions, self.topic)

    def configure(
        self, kind: str = "replayed:Replayed", processor: dict[str, Any] | None = None, **channel: Any
    ) -> None:
        """Write the configuration; `processor` are its options."""
        options = {"folder": str(self.seen), **(processor or {})} if kind.startswith("replayed:") else processor
        config = {
            "zookeeper": {"hosts": self.cluster.zookeeper_hosts},
            "kafka": {"bootstrap.servers": self.cluster.bootstrap_servers},
            "ledger": {"path": str(self.folder / "ledger")},
            "channels": {
                "orders": {
                    "topics": [self.topic],
                    "group": self.group,
                    "reader": {"max_batch_records": BATCH},
                    "processor": {"type": kind, "options": options},
                    **channel,
                }
            },
        }
        self.config.write_text(json.dumps(config))

    def arguments(self, *flags: str) -> list[str]:
        """Return the command line."""
        return ["spark", "replay", "-c", str(self.config), "--channel", "orders", *CONF, *flags]

    def replay(self, *flags: str) -> int:
        """Replay in this process, on the session that runs in it; returns the exit code."""
        return main(self.arguments("--json", str(self.folder / "summary.json"), *flags))

    def process(self, *flags: str) -> subprocess.Popen[bytes]:
        """Replay in a process of its own, which writes to `replay.log`."""
        with open(self.folder / "replay.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "inbound", *self.arguments(*flags)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return found

    def handed(self) -> dict[int, list[int]]:
        """Return the offsets that processors wrote down, by partition, with repeats, attempt by attempt.

        A line that is just being written does not count yet.
        """
        found: dict[int, list[tuple[int, int, int]]] = {}
        for path in self.seen.glob("*.seen"):
            for at, line in enumerate(path.read_text().split("\n")[:-1]):
                _, partition, offset, epoch = line.split()
                found.setdefault(int(partition), []).append((int(epoch), at, int(offset)))
        return {partition: [offset for _, _, offset in sorted(seen)] for partition, seen in found.items()}

    def repeated(self) -> dict[int, list[int]]:
        """Return the offsets that were delivered more than once: by what the processors wrote, not by the marks."""
        counts = {partition: Counter(offsets) for partition, offsets in self.handed().items()}
        return {
            p: sorted(o for o, n in found.items() if n > 1) for p, found in counts.items() if max(found.values()) > 1
        }

    def listed(self) -> dict[int, list[int]]:
        """Return the offsets that the summary lists as repeated."""
        found: dict[int, set[int]] = {}
        for unit in self.summary["units"]:
            for each in unit["repeated"]:
                found.setdefault(unit["partition"], set()).update(range(each["first"], each["next"]))
        return {partition: sorted(offsets) for partition, offsets in found.items()}
