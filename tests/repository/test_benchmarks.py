"""What the benchmarks make of their runs: ratios, rows of peers that are missing, a peer that is no measure, the chart."""

from __future__ import annotations

import json
import re
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from benchmarks import channel_loop, dispatch_report, drain_report
from benchmarks import participants as drain_participants
from benchmarks.chart import Panel, bars
from benchmarks.commit_loop import Transactions
from benchmarks.dispatch_runs import RUNS, SUBSCRIPTIONS, Place, Run, starved
from benchmarks.meter import Meter
from benchmarks.overhead import COMPARED, KINDS, MANY, _all_read
from benchmarks.overhead_loop import TAKEN_OUT
from benchmarks.participants import COMPARISONS, PARTICIPANTS, Channel, Processes, PythonPeer
from benchmarks.peers.environments import PEERS
from benchmarks.processes_loop import Reading
from benchmarks.report import quartiles
from benchmarks.sinks import Sink
from benchmarks.slow_zookeeper import SlowZooKeeper
from inbound import BatchEventProcessor
from inbound.config import load, read_text
from inbound.coordinators.zookeeper import MAX_TRANSACTION_OPS, Check, Create, Op, SetData
from inbound.observe.metrics import Exposition
from inbound.plan.plan import plan_channels
from inbound.process.application import Application
from tests.observe.status.made_status import channel, partition, process

SVG = "{http://www.w3.org/2000/svg}"
DISPATCHING = [run for run in RUNS if run.name in {"binary_confluent", "peer"}]
BINARY = [one for one in dispatch_report.COMPARISONS if one.only == "binary"]
DRAINING = tuple(one for one in PARTICIPANTS if one.name in {"channel_confluent", "quixstreams"})


@pytest.mark.parametrize(
    ("comparisons", "runs"),
    [(dispatch_report.COMPARISONS, RUNS), (COMPARISONS, PARTICIPANTS)],
    ids=["dispatch", "drain"],
)
def test_every_comparison_is_of_two_runs(comparisons: Iterable[Any], runs: Iterable[Any]) -> None:
    """The names in the comparisons are names of runs, and each run is compared."""
    assert {name for one in comparisons for name in (one.over, one.under)} == {run.name for run in runs}


# -- dispatch --------------------------------------------------------------------------------------------------------


class Nowhere(Sink):
    """A sink that is never posted to."""

    def __init__(self) -> None:
        self._port = 1

    def counts(self) -> Mapping[str, int]:
        return {}


def round_of(seconds: float, cpu: float, peer_seconds: float, peer_cpu: float) -> dispatch_report.Round:
    """Return a round in which 10,000 events took confluent-kafka and the peer so long."""
    return {
        "binary_confluent": {"events": 10_000, "seconds": seconds, "cpu": cpu, "rss_mib": 90, "starved": 0},
        "peer": {"events": 10_000, "seconds": peer_seconds, "cpu": peer_cpu, "rss_mib": 60, "starved": 0},
    }


def test_ratios_are_medians_of_the_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    """Events per second and CPU per event are compared within each round, and the medians stand in the last line."""
    rounds = [round_of(0.5, 0.3, 1, 0.6), round_of(0.4, 0.3, 1, 0.5), round_of(1, 0.3, 1, 0.3)]

    dispatch_report.report(rounds, DISPATCHING, {}, BINARY)

    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    names = ("binary_confluent_ratio", "cpu_per_event_confluent_ratio", "peer_cpu_s_per_1000", "peer_valid")
    assert [figures[name] for name in names] == [2.0, 0.6, 0.05, 1]


def test_a_peer_slower_than_the_real_dispatcher_is_no_measure(capsys: pytest.CaptureFixture[str]) -> None:
    """What eventing-kafka's own dispatcher gave at least, its stand-in has to give; else the table says so."""
    dispatch_report.report([round_of(0.5, 0.3, 1.2, 0.6)], DISPATCHING, {}, BINARY)

    printed = capsys.readouterr().out
    assert "THE COMPARISON IS VOID" in printed
    assert json.loads(printed.splitlines()[-1])["figures"]["peer_valid"] == 0


def test_without_go_there_are_rates_and_no_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    """The peer has a row that says why it is missing; nothing is compared, and nothing called valid."""
    alone = {"binary_confluent": round_of(0.5, 0.3, 1, 1)["binary_confluent"]}

    dispatch_report.report([alone], DISPATCHING[:1], {"eventing-kafka (Go)": "not installed: Go was not found"}, BINARY)

    printed = capsys.readouterr().out
    figures = json.loads(printed.splitlines()[-1])["figures"]
    assert re.search(r"eventing-kafka \(Go\) +not installed: Go was not found", printed)
    assert [figures[name] for name in ("binary_confluent_ratio", "binary_confluent_events_per_s", "peer_valid")] == [
        None,
        20_000.0,
        None,
    ]


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


# -- drain -----------------------------------------------------------------------------------------------------------


def rounds(*ours_and_theirs: tuple[float, float]) -> list[drain_report.Round]:
    """Return rounds in which 1,000 records took the channel and its peer so many seconds."""
    return [
        {
            "channel_confluent": {"records": 1000, "seconds": ours, "cpu": 0.01, "rss_mib": 90},
            "quixstreams": {"records": 1000, "seconds": theirs, "cpu": 0.02, "rss_mib": 200},
        }
        for ours, theirs in ours_and_theirs
    ]


def test_a_meter_counts_all_records_that_are_touched() -> None:
    """It is done when it has its number; what else is touched before the end counts, too."""
    meter = Meter(10)
    meter.begin()

    done = [meter.add(records) for records in (6, 6, 6)]

    assert (done, json.loads(meter.line())["records"]) == ([False, True, True], 18)


def test_a_meter_of_two_topics_begins_when_both_have_records() -> None:
    """Records of the first topic do not count before the second one has some."""
    meter = Meter(10, topics=2)

    done = []
    for topic in ("a", "a", "b", "a"):
        meter.begin(topic)
        done.append(meter.add(6))

    assert (done, json.loads(meter.line())["records"]) == ([False, False, False, True], 12)


@pytest.mark.parametrize(
    "one", [one for one in PARTICIPANTS if isinstance(one, Channel | Processes)], ids=lambda one: one.name
)
def test_a_channel_gets_its_commits_in_one_run_alone(one: Channel | Processes, tmp_path: Path) -> None:
    """Each topic has a channel; a processor with on_batch_processed costs memory, and stands in a row of its own."""
    place = drain_participants.Place("127.0.0.1:9092", "127.0.0.1:2181", tmp_path, tmp_path, tmp_path)

    path = one.command(place, "group", 1000)[3]

    planned = plan_channels(load(read_text(Path(path)), filename=path)).values()
    told = {type(plan.processor()).on_batch_processed is not BatchEventProcessor.on_batch_processed for plan in planned}
    assert ([plan.config.topics for plan in planned], told) == (
        [(topic,) for topic in one.topics],
        {one.name == "channel_told"},
    )


def test_a_run_ends_when_all_that_was_delivered_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition counts, also one that is in another channel."""
    monkeypatch.setattr(channel_loop.Touching, "delivered", {("a", 0): 10, ("a", 1): 20, ("b", 0): 30})

    def committed(*offsets: int) -> bool:
        first = channel(
            partitions=[partition(0, topic="a", committed=offsets[0]), partition(1, topic="a", committed=20)]
        )
        second = channel(partitions=[partition(0, topic="b", committed=offsets[1])])
        channels = [SimpleNamespace(status=lambda status=status: status) for status in (first, second)]
        return channel_loop._committed(cast(Application, SimpleNamespace(channels=channels)))

    assert [committed(10, 30), committed(9, 30), committed(10, 29)] == [True, False, False]


def test_a_reading_knows_what_was_delivered_by_any_process() -> None:
    """A partition that has moved to another process was delivered up to where the later one is."""
    reading = Reading(0.0, ((300, 100, 200, 0), (400, 150, 0, 250)))

    assert (reading.records, reading.delivered) == (700, {0: 150, 1: 200, 2: 250})


def test_a_ratio_is_the_median_of_the_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each round's two runs are compared with each other, and the median of that stands in the last line."""
    quix = [one for one in COMPARISONS if one.only == "quix"]

    drain_report.report(rounds((1, 3), (2, 4), (1, 10)), DRAINING, {}, quix, tmp_path / "chart.svg")

    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    assert (figures["quix_ratio"], figures["quixstreams_cpu_s_per_100k"]) == (3.0, 2.0)
    assert "quixstreams" in (tmp_path / "chart.svg").read_text()


def test_the_chart_has_those_alone_who_read_the_same_topic(tmp_path: Path) -> None:
    """A channel with one partition is measured against another loop."""
    one = [participant for participant in PARTICIPANTS if participant.name == "one_partition_channel"]
    found = [{**found, one[0].name: found["quixstreams"]} for found in rounds((1, 3))]

    drain_report.report(found, [*DRAINING, *one], {}, [], tmp_path / "chart.svg")

    assert ("one partition" in (tmp_path / "chart.svg").read_text()) is False


def test_who_is_not_installed_has_a_row_and_no_figure(capsys: pytest.CaptureFixture[str]) -> None:
    """A peer that cannot be had is named with the reason, and its ratio is null instead of absent."""
    both = [one for one in COMPARISONS if one.only in {"quix", "franz-go"}]

    drain_report.report(rounds((1, 3)), DRAINING, {"franz-go (Go)": "not installed: Go was not found"}, both, None)

    printed = capsys.readouterr().out
    assert re.search(r"franz-go \(Go\) +not installed: Go was not found", printed)
    assert json.loads(printed.splitlines()[-1])["figures"]["franz_go_ratio"] is None


@pytest.mark.parametrize("peer", [one.folder for one in PARTICIPANTS if isinstance(one, PythonPeer)])
def test_every_requirement_of_a_peer_is_pinned(peer: str) -> None:
    """Each requirement has its exact version, and what is asked for is what is installed."""
    wanted = (PEERS / peer / "requirements.in").read_text().split()
    pinned = re.findall(r"^([a-z0-9-]+==\S+)", (PEERS / peer / "requirements.txt").read_text(), re.MULTILINE)

    assert {re.sub(r"\[.*]", "", one) for one in wanted} <= set(pinned)


def test_bars_are_as_long_as_their_values() -> None:
    """The longest bar fills its panel, the others are in proportion; names and values are written beside them."""
    svg = bars("A <title>", ["a", "b & c"], [Panel("records/s", [4000, 1000])], ours={"a"}, note="of one run")

    drawn = ElementTree.fromstring(svg)
    widths = [float(bar.attrib["width"]) for bar in drawn.iter(f"{SVG}rect")]
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    assert widths[0] == 4 * widths[1]
    assert texts == ["A <title>", "a", "b & c", "records/s", "4,000", "1,000", "of one run"]


def test_a_panel_has_a_value_for_each_row() -> None:
    """A missing value is refused instead of drawn as another row's."""
    with pytest.raises(ValueError, match="shorter"):
        bars("title", ["a", "b"], [Panel("records/s", [1.0])])


# -- commits ---------------------------------------------------------------------------------------------------------


def commits(*partitions: int) -> list[Op]:
    """Return the transaction that commits these partitions."""
    return [op for n in partitions for op in (Check(f"/epochs/{n}", 0), SetData(f"/offsets/{n}", b"1"))]


def test_a_round_goes_on_behind_a_full_transaction_only() -> None:
    """And it writes no partition twice. What commits nothing is not counted."""
    counted = Transactions("/offsets")
    full = range(MAX_TRANSACTION_OPS // 2)

    rounds = []
    for transaction in (commits(1), commits(2), commits(*full), commits(500), [Create("/owners/1", b"")], commits(3)):
        counted.note(transaction)
        rounds.append(counted.rounds)
    counted.note(commits(*full))
    counted.note(commits(0))

    assert (rounds, counted.rounds, counted.largest) == ([1, 2, 3, 3, 3, 4], 6, MAX_TRANSACTION_OPS)


def test_a_slowed_zookeeper_answers_writes_late_and_in_order() -> None:
    """A read is answered at once, a transaction late, and what was asked behind it after it."""

    def frame(*numbers: int) -> bytes:
        body = struct.pack(f">{len(numbers)}i", *numbers)
        return struct.pack(">i", len(body)) + body

    get, multi = 4, 14
    opened, requests = frame(0, 0), [frame(1, get), frame(2, multi), frame(3, get)]
    answers: list[tuple[int, float]] = []
    with socket.create_server(("127.0.0.1", 0)) as server, SlowZooKeeper(server.getsockname()[1]) as proxy:
        proxy.delay = 0.05
        host, port = proxy.address.split(":")
        with socket.create_connection((host, int(port)), 5) as client, server.accept()[0] as accepted:
            client.sendall(opened + b"".join(requests))
            accepted.sendall(_exactly(accepted, 4 * 12))
            sent = time.monotonic()
            for _ in range(4):
                (number,) = struct.unpack_from(">i", _exactly(client, 12), 4)
                answers.append((number, time.monotonic() - sent))

    assert [number for number, _ in answers] == [0, 1, 2, 3]
    assert [seconds >= 0.05 for _, seconds in answers] == [False, False, True, True]


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += source.recv(size - len(data))
    return data


# -- overhead --------------------------------------------------------------------------------------------------------


def test_what_is_taken_out_is_there() -> None:
    """A method that was renamed would else go on costing what it costs in both runs of a pair."""
    assert [f"{cls.__name__}.{method}" for cls, method in TAKEN_OUT if method not in vars(cls)] == []


def test_the_runs_of_a_pair_are_neighbours() -> None:
    """A machine's speed changes within minutes: what is compared runs one right after the other."""
    distances = [abs(KINDS.index(run) - KINDS.index(without)) for run, without in COMPARED.values()]

    assert distances == [1] * len(COMPARED)


def test_the_middle_half_of_the_pairs_is_between_the_quartiles() -> None:
    """Of one pair both are that one."""
    assert (quartiles([1.0, 2.0, 3.0, 4.0, 9.0]), quartiles([0.5])) == ((2.0, 4.0), (0.5, 0.5))


def test_partitions_are_read_when_none_has_a_lag() -> None:
    """All of them must be owned, and everything committed."""

    def read(partitions: int, lag: int) -> bool:
        held = [partition(n, lag=lag if n == 7 else 0) for n in range(partitions)]
        return _all_read(Exposition(lambda: process(channels=[channel(partitions=held)])).render()[0])

    assert (read(MANY, 0), read(MANY, 1), read(MANY - 1, 0)) == (True, False, False)
