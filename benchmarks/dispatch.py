"""How fast events go from a topic to HTTP subscribers, beside what eventing-kafka's dispatcher does, in one interleaved run.

    make bench-dispatch

Events of 1 KiB in binary mode, 6 attributes each, in 8 partitions that were filled once. Each run is a fresh process that
begins at the first event; in every round all run once, and who begins takes turns. Measured is from when 2,000 events have
come to the sink (nginx, which answers 202) until 100,000 more have, or 8 s have passed; CPU is that of the dispatcher's
processes alone. A ratio is the median, over the rounds, of the channel's figure over the peer's (benchmarks/peers/
eventing-kafka):

- `cpu_per_event_..._ratio`, `binary_..._ratio`: CPU per event, and events per second, with either Kafka client
- `batched_..._ratio`: up to 100 events in a request, over the peer's events per second (it knows no batches)
- `slow_sink_key_ratio`, `slow_sink_partition_ratio`: a sink that takes 5 ms (benchmarks/peers/sink, here and below)
- `slow_partition_slowdown_ratio`: by what part seven partitions get slower when the eighth's events take 1 s each
- `cpu_per_subscription` (CPU seconds per 1,000 deliveries), `rss_per_subscription_mib`, `starved_subscriptions` (those
  that got less than a tenth of an even share in 15 s): 50 subscriptions of one topic in one process

`peer_valid` is 1 when the peer gave at least what the real dispatcher did on such a machine; else the comparison is void.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.dispatch_report import COMPARISONS, Comparison, Round, line, report
from benchmarks.dispatch_runs import HEADERS, MARKED, PARTITIONS, RUNS, SLOW, Place, Run
from benchmarks.fill import fill
from benchmarks.peers.environments import NotInstalledError, go_program
from benchmarks.records import create_topic
from benchmarks.sinks import Nginx, Sink, Slow
from inbound.cli.shared.files import jar_cache
from inbound.embedded import EmbeddedCluster


def main() -> None:
    """Run the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3, metavar="N", help="rounds")
    parser.add_argument("--records", type=int, default=400_000, metavar="N", help="events in a topic")
    parser.add_argument("--only", type=_comparisons, default=COMPARISONS, metavar="NAME,...", help=_names())
    options = parser.parse_args()
    wanted = {name for comparison in options.only for name in (comparison.over, comparison.under)}
    cache = jar_cache().parent / "benchmarks"
    peer, missing = _program(cache, "eventing-kafka")
    slow, missing_slow = _program(cache, "sink")
    runs, without = [], {}
    for run in RUNS:
        if run.name in wanted:
            reason = (missing if run.client is None else None) or (missing_slow if run.query is not None else None)
            if reason:
                without[run.label] = reason
            else:
                runs.append(run)
    if not runs:
        raise SystemExit(f"nothing can run: {missing or missing_slow}")
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="inbound-bench-")))
        sinks: dict[bool, Sink] = {False: stack.enter_context(Nginx(work))}
        if slow:
            sinks[True] = stack.enter_context(Slow(slow))
        cluster = stack.enter_context(EmbeddedCluster(jars=jar_cache(), progress=_say))
        place = Place(cluster.bootstrap_servers, cluster.zookeeper_hosts, work, peer, options.records)
        for topic in sorted({run.topic for run in runs}):
            _fill(place, topic)
        # Not counted: the broker's code is cold for the first who reads.
        runs[0].measure(place, sinks[runs[0].query is not None], -1)
        rounds = [_round(number, runs, place, sinks) for number in range(options.pairs)]
    report(rounds, runs, without, options.only)


def _comparisons(text: str) -> tuple[Comparison, ...]:
    names = text.split(",")
    if unknown := set(names) - {comparison.only for comparison in COMPARISONS}:
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: no such comparison; there are {_names()}")
    return tuple(comparison for comparison in COMPARISONS if comparison.only in names)


def _names() -> str:
    return ", ".join(dict.fromkeys(comparison.only for comparison in COMPARISONS))


def _program(cache: Path, peer: str) -> tuple[Path | None, str]:
    """Return the program, or why it cannot be had."""
    try:
        return go_program(cache, peer), ""
    except NotInstalledError as error:
        _say(f"{peer}: not installed: {error}")
        return None, f"not installed: {error}"


def _fill(place: Place, topic: str) -> None:
    create_topic(place.bootstrap, topic, PARTITIONS)
    slow = place.events // PARTITIONS if topic == MARKED else 0
    seconds = fill(
        place.bootstrap, topic, range(1 if slow else 0, PARTITIONS), place.events - slow, 1024, headers=HEADERS
    )
    if slow:
        seconds += fill(place.bootstrap, topic, [0], slow, 1024, headers=SLOW)
    _say(f"{topic}: published {place.events:,} events of 1 KiB in {seconds:.0f} s")


def _round(number: int, runs: list[Run], place: Place, sinks: dict[bool, Sink]) -> Round:
    """Run everybody once."""
    shift = number % len(runs)
    order = runs[shift:] + runs[:shift]
    if number % 2:
        order.reverse()
    found = {}
    for run in order:
        found[run.name] = run.measure(place, sinks[run.query is not None], number)
        _say(f"round {number}: {run.label} {line(found[run.name])}")
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
