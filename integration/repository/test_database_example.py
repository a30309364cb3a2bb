"""`examples/database`: rows and offsets in one transaction, each record one row, under any kills."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from integration.harness import Scene, Scenes
from tests.waiting import until

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "database" / "payments.py"
KILLS = 5

pytestmark = pytest.mark.thorough("five kills under load; the fast tests of the examples decide where a claim begins")


@pytest.fixture
def scene(scenes: Scenes) -> Scene:
    """The example's processor, beside the configuration as a user has it."""
    one = scenes(session=6.0)
    shutil.copy(EXAMPLE, one.folder)
    before = one.config.read_text().split("    processor:")[0]
    options = f"{{database: {one.folder / 'payments.db'}}}"
    one.config.write_text(f'{before}    processor: {{type: "payments:Payments", options: {options}}}\n')
    return one


def stored(scene: Scene) -> Counter[tuple[int, int]]:
    """Return how many rows each (partition, offset) has."""
    with closing(sqlite3.connect(scene.folder / "payments.db", timeout=30)) as database:
        tables = database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'payments'").fetchone()
        rows = database.execute('SELECT partition, "offset" FROM payments').fetchall() if tables[0] else []
    return Counter((int(partition), int(offset)) for partition, offset in rows)


def published(scene: Scene) -> Counter[tuple[int, int]]:
    """Return one row for each published record."""
    return Counter({(p, offset): 1 for p, count in scene.published.items() for offset in range(count)})


def test_every_record_is_one_row_although_consumers_are_killed_and_the_commit_falls_behind(scene: Scene) -> None:
    """SIGKILL under load, again and again; then the group's offsets are set back to 0 while nobody runs."""
    running = [scene.start(), scene.start()]
    until(lambda: scene.owned_by(running), 60, "both own partitions")
    scene.start_load(per_second=100)
    for _ in range(KILLS):
        before = stored(scene).total()
        until(lambda before=before: stored(scene).total() > before + 50, 60, "rows are written")  # type: ignore[misc]
        victim = running.pop(0)
        victim.kill()
        victim.wait()
        running.append(scene.start())
        until(lambda: scene.owned_by(running), 60, "both own partitions again, and the victim none")
    scene.settle()
    assert stored(scene) == published(scene)
    assert [scene.stop(process) for process in running] == [0, 0]

    for partition in range(scene.partitions):
        scene.zk.set(f"/consumers/{scene.group}/offsets/{scene.topic}/{partition}", b"0")
    scene.publish(5)
    last = scene.start()
    until(lambda: scene.log(last).count("on_claim begins at offset") >= scene.partitions, 60, "the database was asked")
    until(scene.everything_committed, 60, "everything is committed")
    assert stored(scene) == published(scene)
    assert scene.stop(last) == 0
