"""How fast a channel drains a topic: against plain loops, other frameworks, and more processes, in one interleaved run.

    make bench-drain

Each run is a fresh process that touches key, value and headers of every record. In every round all participants run
once; who begins takes turns. A ratio is the median, over the rounds, of one's records per second over the other's:

- `kafka_python_ratio`, `confluent_ratio`: a channel with all defaults on (ledger, metrics, a commit per batch) over
  the plain loop of the same client with its best settings and an asynchronous commit per poll
- `told_ratio`: a channel whose processor has `on_batch_processed` over the plain confluent-kafka loop: such a channel
  keeps each batch until its commit has landed
- `one_partition_ratio`: the channel over the plain loop, with confluent-kafka, on a topic with one partition
- `two_channels_ratio`: two channels in one process over two plain loops in two threads of one process, with
  confluent-kafka; each channel and each loop has its own topic, group and client. Records of both count, from when
  both have begun until the sum is reached: so this is the sum of the two rates, measured while both run
- `quix_ratio`, `faust_ratio`, `bytewax_ratio`, `aiokafka_ratio`, `java_ratio`, `franz_go_ratio`: the channel with
  confluent-kafka over that peer, each with its best settings (benchmarks/peers says which, and why)
- `two_process_scaling`: `inbound run --processes 2` over one process

A channel and a plain loop are measured from the first record until their last commit has landed: after the last record
the channel's process looks for its commits, and the plain loop commits synchronously. Peers that commit by themselves
every few seconds are measured until the last record.

Beside it writes docs/benchmarks-drain.svg, unless --only leaves a participant out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.drain_report import CHART, Round, line, report
from benchmarks.fill import fill
from benchmarks.participants import COMPARISONS, PARTICIPANTS, TOPICS, Comparison, Participant, Place
from benchmarks.peers.environments import NotInstalledError
from benchmarks.records import create_topic
from inbound.cli.shared.files import jar_cache
from inbound.embedded import EmbeddedCluster

ROOT = Path(__file__).resolve().parent.parent
#: The longest time that one run may take, in seconds.
LIMIT = 150.0


def main() -> None:
    """Run the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9, metavar="N", help="rounds")
    parser.add_argument("--records", type=int, default=2_000_000, metavar="N", help="in each topic")
    parser.add_argument("--only", type=_comparisons, default=COMPARISONS, metavar="NAME,...", help=_names())
    parser.add_argument("--chart", type=Path, help=f"where to draw; by default {CHART}, if all take part")
    options = parser.parse_args()
    chart = options.chart or (ROOT / CHART if options.only == COMPARISONS else None)
    wanted = {name for comparison in options.only for name in (comparison.over, comparison.under)}
    with tempfile.TemporaryDirectory(prefix="inbound-bench-") as folder:
        work, jars = Path(folder), jar_cache()
        with EmbeddedCluster(jars=jars, progress=_say) as cluster:
            place = Place(cluster.bootstrap_servers, cluster.zookeeper_hosts, work, jars, jars.parent / "benchmarks")
            present, missing = _prepare([one for one in PARTICIPANTS if one.name in wanted], place)
            for topic in {topic: None for one in present for topic in one.topics}:
                create_topic(place.bootstrap, topic, TOPICS[topic])
                seconds = fill(place.bootstrap, topic, TOPICS[topic], options.records, 1024)
                _say(f"{topic}: published {options.records:,} records of 1 KiB in {seconds:.0f} s")
            # Nobody reads all: a process that joins later than another still finds enough.
            most = options.records * 2 // 3
            # Not counted: the broker's code is cold for the first who reads.
            _run(present[0], place, "warm-up", most)
            rounds = [_round(number, present, place, most) for number in range(options.pairs)]
    report(rounds, present, missing, options.only, chart)


def _comparisons(text: str) -> tuple[Comparison, ...]:
    names = text.split(",")
    if unknown := set(names) - {comparison.only for comparison in COMPARISONS}:
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: no such comparison; there are {_names()}")
    return tuple(comparison for comparison in COMPARISONS if comparison.only in names)


def _names() -> str:
    return ", ".join(comparison.only for comparison in COMPARISONS)


def _prepare(participants: list[Participant], place: Place) -> tuple[list[Participant], dict[str, str]]:
    """Return who can take part, and why the others cannot."""
    present, missing = [], {}
    for one in participants:
        try:
            one.prepare(place)
            present.append(one)
        except NotInstalledError as error:
            missing[one.label] = f"not installed: {error}"
            _say(f"{one.label}: {missing[one.label]}")
    return present, missing


def _round(number: int, participants: list[Participant], place: Place, most: int) -> Round:
    """Run everybody once."""
    shift = number % len(participants)
    order = participants[shift:] + participants[:shift]
    if number % 2:
        order.reverse()
    found = {}
    for one in order:
        found[one.name] = _run(one, place, f"{one.name}-{number}", most)
        _say(f"round {number}: {one.label} {line(found[one.name])}")
    return found


def _run(one: Participant, place: Place, group: str, most: int) -> dict[str, float]:
    command = one.command(place, group, min(one.records, most))
    # Some peers leave files behind: in `work` they are removed at the end.
    surroundings = {**os.environ, "TMPDIR": str(place.work)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, check=False, cwd=ROOT, env=surroundings
    )
    if done.returncode:
        raise SystemExit(f"{one.label}: {' '.join(command)} failed:\n{done.stderr[-3000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
