"""What `benchmarks.dispatch` makes of its runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.dispatch_runs import SUBSCRIPTIONS, Found, Run
from benchmarks.report import finish, spread
from inbound.cli.shared.output import count, table

#: What the runs of one round measured, by name.
Round = Mapping[str, Found]
#: What the dispatcher of eventing-kafka itself gave on such a machine at least: events/s, at most so many CPU seconds
#: per 1,000; and events/s with a sink of 5 ms, less a tenth for noise.
REAL_RATE, REAL_CPU, REAL_SLOW_RATE = 9_000, 0.110, 1_280 * 0.9


def rate(found: Found) -> float:
    """Return events per second."""
    return found["events"] / found["seconds"]


def cpu(found: Found) -> float:
    """Return CPU seconds per 1,000 events."""
    return found["cpu"] / found["events"] * 1000


def _rates(over: Found, under: Found) -> float:
    return rate(over) / rate(under)


def _cpus(over: Found, under: Found) -> float:
    return cpu(over) / cpu(under)


def _slowdown(over: Found, under: Found) -> float:
    return 1 - rate(over) / rate(under)


def _memory(over: Found, under: Found) -> float:
    return (over["rss_mib"] - under["rss_mib"]) / (SUBSCRIPTIONS - 1)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure of two runs of the same round; `only` is what the command line calls it."""

    only: str
    figure: str
    over: str
    under: str
    value: Callable[[Found, Found], float] = _rates


COMPARISONS = (
    Comparison("binary", "cpu_per_event_kafka_python_ratio", "binary_kafka_python", "peer", _cpus),
    Comparison("binary", "cpu_per_event_confluent_ratio", "binary_confluent", "peer", _cpus),
    Comparison("binary", "binary_kafka_python_ratio", "binary_kafka_python", "peer"),
    Comparison("binary", "binary_confluent_ratio", "binary_confluent", "peer"),
    Comparison("batched", "batched_kafka_python_ratio", "batched_kafka_python", "peer"),
    Comparison("batched", "batched_confluent_ratio", "batched_confluent", "peer"),
    Comparison("slow-sink", "slow_sink_key_ratio", "slow_sink_key", "slow_sink_peer"),
    Comparison("slow-sink", "slow_sink_partition_ratio", "slow_sink_partition", "slow_sink_peer"),
    Comparison("slow-partition", "slow_partition_slowdown_ratio", "seven_beside_slow", "seven_partitions", _slowdown),
    Comparison("subscriptions", "rss_per_subscription_mib", "subscriptions", "one_subscription", _memory),
)


def report(
    rounds: Sequence[Round], present: Sequence[Run], missing: Mapping[str, str], comparisons: Sequence[Comparison]
) -> None:
    """Print table, ratios and the closing JSON line. `missing` has those that could not run, by label, and why."""
    figures: dict[str, float | int | None] = {}
    said = []
    for one in comparisons:
        figures[one.figure] = None
        if {one.over, one.under} <= set(rounds[0]):
            values = [one.value(found[one.over], found[one.under]) for found in rounds]
            figures[one.figure] = statistics.median(values)
            said.append(f"{one.figure}: {spread(values)}")
    rows = []
    for run in present:
        runs = [found[run.name] for found in rounds]
        rates, cpus = [rate(found) for found in runs], [cpu(found) for found in runs]
        peak = statistics.median(found["rss_mib"] for found in runs)
        rows.append([run.label, f"{statistics.median(rates):,.0f}", spread(cpus), f"{peak:,.0f}"])
        figures |= {
            f"{run.name}_events_per_s": statistics.median(rates),
            f"{run.name}_cpu_s_per_1000": statistics.median(cpus),
            f"{run.name}_rss_mib": peak,
        }
        if run.subscriptions > 1:
            figures["cpu_per_subscription"] = statistics.median(cpus)
            figures["starved_subscriptions"] = int(max(found["starved"] for found in runs))
            said.append(f"starved_subscriptions: {figures['starved_subscriptions']} of {run.subscriptions}")
    rows += [[label, reason, "", ""] for label, reason in missing.items()]
    figures["peer_valid"] = peer_valid(figures)
    print(table(["", "events/s", "CPU s per 1,000 events", "peak MiB"], rows))
    print(f"\nmedian (range) of {count(len(rounds), 'round')}:", *said, sep="\n")
    if figures["peer_valid"] == 0:
        print("THE COMPARISON IS VOID: the peer did not reach what the dispatcher of eventing-kafka gave")
    finish("dispatch", figures)


def peer_valid(figures: Mapping[str, float | int | None]) -> int | None:
    """Return 1 where the peer's runs reached what the real dispatcher gave, 0 where one did not, None without any."""
    reached = []
    if (fast := figures.get("peer_events_per_s")) is not None:
        reached += [fast >= REAL_RATE, (figures["peer_cpu_s_per_1000"] or 0.0) <= REAL_CPU]
    if (slow := figures.get("slow_sink_peer_events_per_s")) is not None:
        reached.append(slow >= REAL_SLOW_RATE)
    return int(all(reached)) if reached else None


def line(found: Found) -> str:
    """Return one run, to be read."""
    return f"{rate(found):,.0f}/s ({cpu(found):.4f} CPU s per 1,000, {found['rss_mib']:,.0f} MiB)"
