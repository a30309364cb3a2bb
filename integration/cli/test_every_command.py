"""A processor that raises and answers nonsense: what the commands say of it to an operator, and what they do to the group."""

from __future__ import annotations

from integration.harness import Scenes
from tests.waiting import until


def test_a_record_that_a_processor_fails_on_is_held_shown_and_holds_nothing_else(scenes: Scenes) -> None:
    """Every record but it and those behind it is committed once; status, explain and offsets name it; the group goes on."""
    scene = scenes(partitions=2)
    scene.write_config(on_error="{max_attempts: 2, then: hold}")
    scene.config.write_text(scene.config.read_text().replace("recorder:Recorder", "raising:Raising"))
    process = scene.run_group(1)[0]
    url = scene.admin_url(process)

    scene.publish(10)
    until(lambda: [scene.offset(p) for p in (0, 1)] == [5, 10], 60, lambda: f"all but one: {scene.log(process)}")
    until(lambda: "held" in scene.inbound("status", "--url", url).stdout, 60, "status says that a record is held")
    explained = scene.inbound("explain", scene.topic, "0", "--url", url, code=3).stdout
    lags = scene.inbound("offsets", "show").stdout

    assert scene.inbound("pause", "orders").stdout.startswith("orders: paused")
    assert scene.inbound("resume", "orders").stdout.startswith("orders: resumed")
    assert "nothing has changed" in scene.inbound("reload", "--url", url).stdout
    assert "offset 5" in explained
    assert "on_next_batch returned None" in explained
    assert "no such order" in scene.log(process)
    assert [line.split()[5] for line in lags.splitlines() if scene.topic in line] == ["5", "0"], lags
    assert sorted(scene.seen().items()) == [((p, n), 1) for p, count in ((0, 5), (1, 10)) for n in range(count)]
    assert scene.stop(process) == 0
