"""What the dispatch benchmark makes of its runs: ratios, rows of those who are missing, a peer that is no measure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.dispatch_report import COMPARISONS, Round, report
from benchmarks.dispatch_runs import RUNS, SUBSCRIPTIONS, Place, Run, starved
from benchmarks.sinks import Sink
from inbound.config import load, read_text

PAIR = [run for run in RUNS if run.name in {"binary_confluent", "peer"}]
BINARY = [one for one in COMPARISONS if one.only == "binary"]


class Nowhere(Sink):
    """A sink that is never posted to."""

    def __init__(self) -> None:
        self._port = 1

    def counts(self) -> Mapping[str, int]:
        return {}


def round_of(seconds: float, cpu: float, peer_seconds: float, peer_cpu: float) -> Round:
    """Return a round in which 10,000 events took confluent-kafka and the peer so long."""
    return {
        "binary_confluent": {"events": 10_000, "seconds": seconds, "cpu": cpu, "rss_mib": 90, "starved": 0},
        "peer": {"events": 10_000, "seconds": peer_seconds, "cpu": peer_cpu, "rss_mib": 60, "starved": 0},
    }


def test_ratios_are_medians_of_the_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    """Events per second and CPU per event are compared within each round, and the medians stand in the last line."""
    rounds = [round_of(0.5, 0.3, 1, 0.6), round_of(0.4, 0.3, 1, 0.5), round_of(1, 0.3, 1, 0.3)]

    report(rounds, PAIR, {}, BINARY)

    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    names = ("binary_confluent_ratio", "cpu_per_event_confluent_ratio", "peer_cpu_s_per_1000", "peer_valid")
    assert [figures[name] for name in names] == [2.0, 0.6, 0.05, 1]


def test_a_peer_slower_than_the_real_dispatcher_is_no_measure(capsys: pytest.CaptureFixture[str]) -> None:
    """What eventing-kafka's own dispatcher gave at least, its stand-in has to give; else that is said."""
    report([round_of(0.5, 0.3, 1.2, 0.6)], PAIR, {}, BINARY)

    printed = capsys.readouterr().out
    assert "THE COMPARISON IS VOID" in printed
    assert json.loads(printed.splitlines()[-1])["figures"]["peer_valid"] == 0


def test_without_go_there_are_rates_and_no_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    """The peer has a row that says why it is missing; nothing is compared, and nothing called valid."""
    alone = {"binary_confluent": round_of(0.5, 0.3, 1, 1)["binary_confluent"]}

    report([alone], PAIR[:1], {"eventing-kafka (Go)": "not installed: Go was not found"}, BINARY)

    printed = capsys.readouterr().out
    figures = json.loads(printed.splitlines()[-1])["figures"]
    assert re.search(r"eventing-kafka \(Go\) +not installed: Go was not found", printed)
    assert [figures[name] for name in ("binary_confluent_ratio", "binary_confluent_events_per_s", "peer_valid")] == [
        None,
        20_000.0,
        None,
    ]


def test_every_comparison_is_of_two_runs() -> None:
    """The names in the comparisons are names of runs, and none of these is there for nothing."""
    compared = {name for comparison in COMPARISONS for name in (comparison.over, comparison.under)}

    assert compared == {run.name for run in RUNS}


def test_who_gets_a_tenth_of_an_even_share_does_not_starve() -> None:
    """Of 100 events for four subscriptions each should get 25: two are too few, three are enough."""
    assert [starved(each) for each in ([25, 25, 25, 25], [31, 33, 33, 3], [48, 48, 2, 2], [5])] == [0, 0, 2, 0]


@pytest.mark.parametrize("run", [run for run in RUNS if run.client], ids=lambda run: run.name)
def test_the_configuration_of_every_run_is_valid(run: Run, tmp_path: Path) -> None:
    """What `inbound run` is given has a channel and a group for each subscription, and no problem."""
    place = Place("127.0.0.1:9092", "127.0.0.1:2181", tmp_path, None, 1000)

    *_, path = run.command(place, Nowhere(), "group")

    channels = load(read_text(Path(path)), filename=path).config.channels
    assert len({channel.group for channel in channels.values()}) == run.subscriptions in {1, SUBSCRIPTIONS}
