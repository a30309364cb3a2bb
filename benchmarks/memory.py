"""What a process needs: memory with a stalled processor before a large backlog, and CPU with nothing to read.

    make bench-memory

- `rss_over_prefetch_mib`: a gigabyte of 1 KiB records waits in 8 partitions, or in 1,000, in record batches of 16 KiB or
  of up to 1 MB, and the processor is never through with its first batches. The resident set of the whole process
  (interpreter, libraries, batches delivered, all) once it does not change any more, less `prefetch_bytes`; of all cases
  the largest. What has not settled after 25 s is counted as it is then, and marked. `peak_*`: the largest it ever was,
  likewise. `imports_mib` is a process that only loaded the code, `idle_mib` the idle channel below.
- `idle_cpu_percent`: a channel with 1,000 empty partitions, seconds of CPU per second over 30 s, of the clients the
  higher one; beside it, at the same time, a plain consumer of the same library with the same partitions and settings.

Takes about 120 s for each client, and a minute to fill the topics.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.configuration import SERVERS
from benchmarks.fill import fill
from benchmarks.plain_reader import CLIENTS
from benchmarks.processes import MIB, Measured
from benchmarks.records import create_topic
from benchmarks.report import finish
from inbound.cli.shared.files import jar_cache
from inbound.cli.shared.output import table
from inbound.embedded import EmbeddedCluster

BACKLOG = 2**30
RECORD = 1024
#: Partitions, and the largest record batch in bytes.
BACKLOGS = {"8": (8, 1_000_000), "1000": (1000, 2**14), "1000_large_batches": (1000, 1_000_000)}
IDLE_PARTITIONS = 1000
#: The default of `reader.prefetch_bytes`.
PREFETCH = 64 * MIB
#: What the channel's reader asks for with 1,000 partitions and everything at its default.
FETCH_WAIT_MS, FETCH_BYTES = 100, PREFETCH // 2 // IDLE_PARTITIONS
#: The resident set is settled when it has stayed within so many MiB for so many seconds.
STEADY_MIB, STEADY = 2.0, 6.0
SETTLE_LIMIT = 25.0
#: After all partitions are claimed, until the idle channel is looked at; and for how long it is. Seconds.
IDLE_SETTLE, IDLE_WINDOW = 8.0, 30.0
IMPORTS = (
    "import confluent_kafka, kafka, inbound.process.application, inbound.cli.main, inbound.cli.run.run, benchmarks.stamps\n"
    "print(next(line for line in open('/proc/self/status') if line.startswith('VmRSS')).split()[1])"
)
CONFIG = (
    SERVERS
    + """\
channels:
  memory:
    topics: [{topic}]
    group: {group}
    reader: {{client: {client}}}
    processor: {{type: "benchmarks.stamps:Stalled"}}
"""
)


class Stalled(NamedTuple):
    """A channel that cannot go on; MiB."""

    rss: float
    peak: float
    buffered: float
    settled: bool


class Idle(NamedTuple):
    """A channel with nothing to read: its CPU share and that of a plain consumer, in percent; and its size in MiB."""

    share: float
    plain_share: float
    rss: float


class Bench:
    """Servers, and where files go."""

    def __init__(self, cluster: EmbeddedCluster, work: Path) -> None:
        self._cluster = cluster
        self._work = work

    def make_topics(self, backlogs: list[str]) -> None:
        """Make the empty topic and those with a backlog."""
        bootstrap = self._cluster.bootstrap_servers
        create_topic(bootstrap, "idle", IDLE_PARTITIONS)
        for name in backlogs:
            partitions, batch = BACKLOGS[name]
            create_topic(bootstrap, f"backlog_{name}", partitions)
            seconds = fill(bootstrap, f"backlog_{name}", partitions, BACKLOG // RECORD, RECORD, batch)
            _say(f"published {BACKLOG // MIB} MiB to {partitions} partitions in {seconds:.0f} s")

    def stalled(self, client: str, name: str) -> Stalled:
        """Let a channel read until its buffers are full."""
        partitions, _ = BACKLOGS[name]
        with self._channel(client, f"backlog_{name}") as process:
            process.wait_for("a batch was delivered", lambda: process.channel().get("batches_total", 0) > 0, 60.0)
            rss, settled = _settled(process)
            peak = process.peak_mib()
            channel = process.channel()
            held = len(channel["partitions"])
            if held != partitions:
                raise SystemExit(f"the channel has {held} partitions, not {partitions}:\n{process.said()}")
            buffered = sum(partition["buffered_bytes"] for partition in channel["partitions"]) / MIB
        word = "" if settled else ", and still growing"
        _say(f"{client}, backlog {name}: {rss:.0f} MiB (peak {peak:.0f}), {buffered:.1f} MiB buffered{word}")
        return Stalled(rss, peak, buffered, settled)

    def idle(self, client: str) -> Idle:
        """Let a channel, and a plain consumer, wait for records."""
        folder = self._work / f"plain-{client}"
        folder.mkdir()
        plain_command = [client, self._cluster.bootstrap_servers, "idle", str(IDLE_PARTITIONS), str(folder)]
        settings = ["--fetch-wait-ms", str(FETCH_WAIT_MS), "--fetch-bytes", str(FETCH_BYTES)]
        with (
            self._channel(client, "idle") as process,
            Measured(folder / "log", "benchmarks.plain_reader", *plain_command, *settings) as plain,
        ):

            def settled() -> bool:
                partitions = process.channel().get("partitions", [])
                return len(partitions) == IDLE_PARTITIONS and all(p["committed"] is not None for p in partitions)

            process.wait_for("all partitions were claimed", settled, 60.0)
            time.sleep(IDLE_SETTLE)
            began, used, plain_used = time.monotonic(), process.cpu_seconds(), plain.cpu_seconds()
            time.sleep(IDLE_WINDOW)
            seconds = time.monotonic() - began
            share = (process.cpu_seconds() - used) / seconds * 100
            plain_share = (plain.cpu_seconds() - plain_used) / seconds * 100
            rss = process.rss_mib()
        _say(f"{client}, idle: {share:.1f} % of a core, plain consumer {plain_share:.1f} %, {rss:.0f} MiB")
        return Idle(share, plain_share, rss)

    def _channel(self, client: str, topic: str) -> Measured:
        name = f"{topic}-{client}"
        config = self._work / f"{name}.yaml"
        config.write_text(
            CONFIG.format(
                zookeeper=self._cluster.zookeeper_hosts,
                bootstrap=self._cluster.bootstrap_servers,
                ledger=self._work / "ledger",
                topic=topic,
                group=name,
                client=client,
            )
        )
        return Measured(self._work / f"{name}.log", "inbound", "run", "-c", str(config))


def _settled(process: Measured) -> tuple[float, bool]:
    """Wait until the resident set stays the same, or the time is up. Returns it in MiB, and whether it did settle."""
    deadline = time.monotonic() + SETTLE_LIMIT
    seen: list[float] = []
    wanted = round(STEADY / 0.5)
    while len(seen) < wanted or max(seen[-wanted:]) - min(seen[-wanted:]) > STEADY_MIB:
        if time.monotonic() > deadline:
            return seen[-1], False
        time.sleep(0.5)
        seen.append(process.rss_mib())
    return seen[-1], True


def main() -> None:
    """Run every case once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=[*CLIENTS, "both"], default="both")
    parser.add_argument("--part", choices=["stalled", "idle", "both"], default="both")
    options = parser.parse_args()
    clients = CLIENTS if options.client == "both" else (options.client,)
    stalled: dict[tuple[str, str], Stalled] = {}
    idle: dict[str, Idle] = {}
    backlogs = list(BACKLOGS) if options.part != "idle" else []
    with (
        tempfile.TemporaryDirectory(prefix="inbound-bench-") as folder,
        EmbeddedCluster(jars=jar_cache(), progress=_say) as cluster,
    ):
        bench = Bench(cluster, Path(folder))
        bench.make_topics(backlogs)
        for client in clients:
            for name in backlogs:
                stalled[client, name] = bench.stalled(client, name)
            if options.part != "stalled":
                idle[client] = bench.idle(client)
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    _report(stalled, idle, int(done.stdout) / 1024)


def _report(stalled: dict[tuple[str, str], Stalled], idle: dict[str, Idle], imports: float) -> None:
    figures: dict[str, float] = {}
    prefetch = PREFETCH / MIB
    if stalled:
        figures["rss_over_prefetch_mib"] = max(one.rss for one in stalled.values()) - prefetch
        figures["peak_over_prefetch_mib"] = max(one.peak for one in stalled.values()) - prefetch
        figures["not_settled"] = sum(not one.settled for one in stalled.values())
    if idle:
        figures["idle_cpu_percent"] = max(one.share for one in idle.values())
    rows = []
    for (client, name), one in stalled.items():
        over, peak_over = one.rss - prefetch, one.peak - prefetch
        sizes = [f"{size:.0f}" for size in (one.rss, one.peak, one.buffered, over, peak_over)]
        rows.append([client, name.replace("_", ", ", 1).replace("_", " "), *sizes, "" if one.settled else "growing"])
        figures[f"rss_over_prefetch_mib_{_name(client)}_{name}"] = over
        figures[f"peak_over_prefetch_mib_{_name(client)}_{name}"] = peak_over
    if rows:
        print(
            table(["stalled", "partitions", "settled MiB", "peak", "buffered", "over prefetch", "peak over", ""], rows)
        )
    rows = [[client, f"{one.share:.1f}", f"{one.plain_share:.1f}", f"{one.rss:.0f}"] for client, one in idle.items()]
    if rows:
        print(table([f"idle, {IDLE_PARTITIONS} partitions", "channel CPU %", "plain CPU %", "channel MiB"], rows))
    for client, waiting in idle.items():
        figures[f"idle_cpu_percent_{_name(client)}"] = waiting.share
        figures[f"plain_idle_cpu_percent_{_name(client)}"] = waiting.plain_share
        figures[f"idle_mib_{_name(client)}"] = waiting.rss
    print(f"a process that only loaded the code: {imports:.0f} MiB")
    finish("memory", {**figures, "imports_mib": imports})


def _name(client: str) -> str:
    return client.replace("-", "_")


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
