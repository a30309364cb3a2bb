"""`spark validate` again: it goes on where the last proof ended, and forgets nothing on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inbound.embedded import EmbeddedCluster
from integration.spark_stage import Player, Stage, spark

__all__ = ["spark"]

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def stage(embedded_cluster: EmbeddedCluster, tmp_path: Path, spark: Any) -> Iterator[Stage]:
    """A group on a topic with one partition and 100 records."""
    one = Stage(embedded_cluster, tmp_path)
    one.publish(100)
    yield one
    one.close()


@pytest.fixture
def player(stage: Stage) -> Player:
    """A consumer that has done 60 records and goes on."""
    return stage.consumer("a").claim().batch(0, 60)


def state_of(stage: Stage) -> Path:
    return stage.ledger / "proofs" / f"{stage.group}.json"


def test_the_next_proof_goes_on_from_the_last(stage: Stage, player: Player, capsys: Capture) -> None:
    """The second proof says that it goes on, begins where the first ended, and has all the rest."""
    first = stage.validate(capsys)
    player.batch(60, 100)

    second = stage.validate(capsys)

    assert (first.code, first.proof["continued"], first.proof["partitions"][0]["proven"]) == (0, False, 60)
    assert (second.code, second.proof["continued"]) == (0, True)
    assert (second.proof["partitions"][0]["start"], second.proof["partitions"][0]["proven"]) == (60, 100)
    assert "going on from what was proven on" in second.said


def test_what_is_left_out_inside_a_batch_after_the_last_proof_is_found(
    stage: Stage, player: Player, capsys: Capture
) -> None:
    """The claim is one long stretch by now, but only its new part is held against the newly read log."""
    assert stage.validate(capsys).code == 0
    player.batch(60, 80).batch(80, 100, records=18)

    judged = stage.validate(capsys)

    assert judged.code == 1
    assert [(f["kind"], f["offsets"]) for f in judged.proof["partitions"][0]["findings"]] == [("lost", 2)]


def test_an_anomaly_is_found_again_until_it_is_mended(stage: Stage, player: Player, capsys: Capture) -> None:
    """What was not proven does not move on: a loss is told with each proof."""
    assert stage.validate(capsys).code == 0
    player.batch(70, 100)

    judged = [stage.validate(capsys) for _ in range(2)]

    assert [(one.code, one.findings) for one in judged] == [(1, {("lost", 60, 70)})] * 2


def test_a_repeat_of_what_was_proven_long_ago_is_still_a_duplicate(
    stage: Stage, player: Player, capsys: Capture
) -> None:
    """Somebody sets the offset back below what was proven: found, although that part of the log is not read again."""
    player.leave()
    assert stage.validate(capsys).code == 0
    stage.set_offset(40)
    stage.consumer("b").claim().batch(40, 100).leave()

    judged = stage.validate(capsys)

    assert (judged.code, judged.findings) == (1, {("duplicate", 40, 60)})


def test_from_start_judges_all_again(stage: Stage, player: Player, capsys: Capture) -> None:
    """--from-start leaves the last proof aside."""
    assert stage.validate(capsys).code == 0

    judged = stage.validate(capsys, "--from-start")

    assert (judged.code, judged.proof["continued"], judged.proof["partitions"][0]["proven"]) == (0, False, 60)


@pytest.mark.parametrize(
    "content",
    ["not JSON", "{}", '{"format": "inbound-proven", "v": 99}', '{"format": "inbound-proven", "v": 1, "group": "x"}'],
)
def test_a_state_that_cannot_be_used_is_said_and_left_as_it_is(
    stage: Stage, player: Player, capsys: Capture, content: str
) -> None:
    """Corrupt, foreign, of a newer version, of another group: all is judged from the start."""
    state_of(stage).parent.mkdir()
    state_of(stage).write_text(content)

    judged = stage.validate(capsys)

    assert (judged.code, judged.proof["continued"]) == (0, False)
    assert f"{state_of(stage)}: " in judged.said
    assert "it is left as it is, and all is judged from the start" in judged.said
    assert state_of(stage).read_text() == content


def test_quick_mode_moves_nothing_on(stage: Stage, player: Player, capsys: Capture) -> None:
    """It has not read the log, so an exact proof must not begin behind it."""
    assert stage.validate(capsys, "--quick").code == 0

    assert not state_of(stage).exists()
