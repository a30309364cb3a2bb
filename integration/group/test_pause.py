"""Pause, resume and rebalance as an operator has them: by command and by POST, on a running group under load."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from inbound.admin.client import fetch_status, post
from integration.harness import Scene, Scenes
from tests.waiting import until


def evaluations(url: str) -> int:
    """Return how often a process has looked at its shares."""
    return int(fetch_status(url, 30)["session"]["evaluations_total"])


def at_rest(url: str) -> bool:
    """Whether every process behind an admin port knows of the pause, and has ended the batches that it had in hand."""
    status = fetch_status(url, 30)
    held = [
        [
            p["paused"] and p["place"] == "scheduled"
            for channel in one.get("channels", [])
            for p in channel["partitions"]
        ]
        for one in status.get("processes", [status])
    ]
    return all(each and all(each) for each in held)


def start_as(scene: Scene, consumer_id: str) -> subprocess.Popen[bytes]:
    """Start a consumer with an id of its own; the file is everybody's, and running processes follow it."""
    return scene.start("--set", f"channels.orders.consumer_id={consumer_id}")


def test_a_group_is_paused_by_command_and_resumed_by_post_under_load(scenes: Scenes) -> None:
    """Nothing is read in between, also by one that joins; nothing is lost, and nothing is repeated."""
    scene = scenes()
    urls = [scene.admin_url(start_as(scene, name)) for name in ("a", "b")]
    until(lambda: scene.all_owned(2), 120, "both own partitions")
    scene.start_load(200)
    until(lambda: scene.seen().total() > 500, 60, "the load is read")
    assert "2 members alive" in scene.inbound("pause", "orders", "--reason", "a new disk").stdout
    # Twice: a status says of a partition where it is before it says that the group is paused, and is no moment.
    until(lambda: all(at_rest(url) for url in [*urls, *urls]), 60, "both have ended their batches")
    before, owners = scene.seen(), scene.owners()
    start_as(scene, "c")
    until(lambda: scene.all_owned(3), 120, "the joiner has its share")
    time.sleep(1.0)
    assert scene.seen() == before, "something was read while the group was paused"
    assert [scene.offset(p) for p in range(6)] == [sum(1 for q, _ in before if q == p) for p in range(6)], owners
    assert json.loads((post(urls[0], "/channels/orders/rebalance", None, 60))[2])["members"] == ["a", "b", "c"]
    assert "a new disk" in json.dumps(fetch_status(urls[1], 30)["channels"][0]["paused"])
    code, _, body = post(urls[1], "/channels/orders/resume", None, 60)
    assert (code, json.loads(body)["changed"]) == (200, True)
    until(lambda: scene.seen() != before, 60, "reading goes on")
    scene.settle()
    assert scene.account().clean, scene.account()
    looks = [evaluations(url) for url in urls]
    assert "every member looks at its share now" in scene.inbound("rebalance").stdout
    until(lambda: all(evaluations(url) > n for url, n in zip(urls, looks, strict=True)), 20, "each has looked")


@pytest.mark.thorough("`make test` pauses and resumes by command and by POST; test_processes.py runs several processes")
def test_the_admin_port_of_several_processes_passes_operations_on(scenes: Scenes) -> None:
    """The token is read from its file, by the parent and by its children."""
    scene = scenes()
    (scene.folder / "token").write_text("s3cret\n")
    scene.config.write_text(
        scene.config.read_text().replace(
            'admin: {listen: "127.0.0.1:0"}', f'admin: {{listen: "127.0.0.1:0", token_file: {scene.folder / "token"}}}'
        )
    )
    url = scene.admin_url(scene.start("--processes", "2"))
    until(lambda: scene.all_owned(2), 120, "both own partitions")
    assert post(url, "/channels/orders/pause", None, 60)[0] == 401
    code, _, body = post(url, "/channels/orders/pause?reason=a%20test", "s3cret", 60)
    assert (code, json.loads(body)["changed"], len(json.loads(body)["members"])) == (200, True, 2)
    assert post(url, "/channels/ordres/pause", "s3cret", 60)[0] == 404
    until(lambda: at_rest(url) and len(fetch_status(url, 30)["processes"]) == 2, 60, "both know of it")
    scene.publish(20)
    time.sleep(1.0)
    assert scene.seen().total() == 0, "something was read while the group was paused"
    assert scene.inbound("resume").stdout.startswith("orders: resumed")
    scene.settle()
    assert scene.account().clean
