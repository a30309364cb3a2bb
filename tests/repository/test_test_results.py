"""What is read from pytest's reports: the counts that decide, the times, how far a stage is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import run_tests, test_results
from scripts.run_tests import Stage
from scripts.test_results import Count

REPORT = """\
<testsuites><testsuite tests="5" failures="1" errors="1" skipped="1">
<testcase classname="tests.test_a" name="test_x[1]" time="0.5"/>
<testcase classname="tests.test_a.TestA" name="test_y" time="1.2"/>
<testcase classname="tests.simulation.test_b" name="test_z" time="7"/>
</testsuite></testsuites>
"""


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "stage.xml"
    path.write_text(REPORT)
    return path


def test_errors_count_as_failures_and_a_report_that_was_not_written_as_nothing(report: Path, tmp_path: Path) -> None:
    counts = [test_results.count(path) for path in (report, tmp_path / "none.xml")]
    assert counts == [Count(passed=2, failed=2, skipped=1), Count()]


def test_the_slowest_come_first_with_their_files(report: Path) -> None:
    assert test_results.slowest([report]).splitlines()[1:] == [
        "    7.0 s  tests/simulation/test_b.py::test_z",
        "    1.2 s  tests/test_a.py::test_y",
        "    0.5 s  tests/test_a.py::test_x[1]",
    ]


def test_times_are_recorded_by_file_and_others_kept(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that did not run keeps its time; one that is gone loses it."""
    kept = tmp_path / "durations.json"
    kept.write_text(json.dumps({"tests/conftest.py": 5, "tests/gone.py": 9, "tests/test_a.py": 40}))
    monkeypatch.setattr(test_results, "DURATIONS", kept)

    test_results.record([report])

    assert test_results.recorded() == {
        "tests/conftest.py": 5, "tests/simulation/test_b.py": 7, "tests/test_a.py": 2,
    }  # fmt: skip


@pytest.mark.parametrize("content", ["{", "[1]", '{"tests/test_a.py": null}'])
def test_damaged_times_are_none_and_named(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files start in any order then; `make durations` can write new ones."""
    damaged = tmp_path / "durations.json"
    damaged.write_text(content)
    monkeypatch.setattr(test_results, "DURATIONS", damaged)
    assert (test_results.recorded(), f"{damaged} cannot be read" in capsys.readouterr().err) == ({}, True)


def test_progress_is_read_from_the_dots() -> None:
    output = "bringing up nodes...\n....F...s  [ 50%]\n....E"
    assert test_results.progress_of(output) == (14, 50, 2)


def test_dots_are_not_shown() -> None:
    output = "bringing up nodes...\n....F...s  [ 50%]\n....  [100%]\n\nFAILED tests/test_a.py::test_x\n1 failed"
    assert test_results.without_dots(output) == "bringing up nodes...\nFAILED tests/test_a.py::test_x\n1 failed"


@pytest.mark.slow
def test_a_stage_that_runs_nothing_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pytest ends with 5 and counts no failure then."""
    monkeypatch.setattr("scripts.run_tests.OUTPUT", tmp_path)
    monkeypatch.setattr("scripts.run_tests.TWO_PROCESSES", ())
    monkeypatch.setitem(run_tests.TESTS, "unit", ("tests/waiting.py",))

    stage = Stage("unit")
    stage.run()

    assert stage.count == Count(failed=1)


def test_a_stage_that_was_stopped_starts_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ctrl-C during one stage ends the run, and not only that stage."""
    monkeypatch.setattr("scripts.run_tests.OUTPUT", tmp_path)
    stages = [Stage("check"), Stage("unit")]
    for stage in stages:
        stage.stop()

    run_tests.run(stages)

    assert ([stage.count for stage in stages], list(tmp_path.iterdir())) == ([Count(), Count()], [])
