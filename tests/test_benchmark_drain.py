"""What the drain benchmark makes of its runs: the meter's line, ratios, rows of those who are missing, the chart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.chart import Panel, bars
from benchmarks.drain_report import Round, report
from benchmarks.meter import Meter
from benchmarks.participants import COMPARISONS, PARTICIPANTS, PythonPeer
from benchmarks.peers.environments import PEERS

SVG = "{http://www.w3.org/2000/svg}"
PAIR = tuple(one for one in PARTICIPANTS if one.name in {"channel_confluent", "quixstreams"})


def rounds(*ours_and_theirs: tuple[float, float]) -> list[Round]:
    """Return rounds in which 1,000 records took the channel and its peer so many seconds."""
    return [
        {
            "channel_confluent": {"records": 1000, "seconds": ours, "cpu": 0.01, "rss_mib": 90},
            "quixstreams": {"records": 1000, "seconds": theirs, "cpu": 0.02, "rss_mib": 200},
        }
        for ours, theirs in ours_and_theirs
    ]


def test_a_meter_counts_until_the_batch_with_the_last_record() -> None:
    """The batch that reaches the number counts as a whole; what comes after it does not."""
    meter = Meter(10)
    meter.begin()

    done = [meter.add(records) for records in (6, 6, 6)]

    assert (done, json.loads(meter.line())["records"]) == ([False, True, True], 12)


def test_a_ratio_is_the_median_of_the_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each round's two runs are compared with each other, and the median of that stands in the last line."""
    quix = [one for one in COMPARISONS if one.only == "quix"]

    report(rounds((1, 3), (2, 4), (1, 10)), PAIR, {}, quix, tmp_path / "chart.svg")

    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    assert (figures["quix_ratio"], figures["quixstreams_cpu_s_per_100k"]) == (3.0, 2.0)
    assert "quixstreams" in (tmp_path / "chart.svg").read_text()


def test_who_is_not_installed_has_a_row_and_no_figure(capsys: pytest.CaptureFixture[str]) -> None:
    """A peer that cannot be had is named with the reason, and its ratio is null instead of absent."""
    both = [one for one in COMPARISONS if one.only in {"quix", "franz-go"}]

    report(rounds((1, 3)), PAIR, {"franz-go (Go)": "not installed: Go was not found"}, both, None)

    printed = capsys.readouterr().out
    assert re.search(r"franz-go \(Go\) +not installed: Go was not found", printed)
    assert json.loads(printed.splitlines()[-1])["figures"]["franz_go_ratio"] is None


def test_every_comparison_is_of_two_participants() -> None:
    """The names in the comparisons are names of participants, and none of these is there for nothing."""
    compared = {name for comparison in COMPARISONS for name in (comparison.over, comparison.under)}

    assert compared == {one.name for one in PARTICIPANTS}


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
