"""A node that ZooKeeper refuses, and releases that race with refused commits: on real servers, with real processes."""

from __future__ import annotations

import time

from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from inbound.admin.client import post
from integration.harness import Scene, Scenes
from tests.waiting import until

#: Everybody may read the node and give it other rights; nobody may write it.
READ_ONLY = [make_acl("world", "anyone", read=True, admin=True)]


def node(scene: Scene, kind: str, partition: int) -> str:
    """Return the path of one of a partition's nodes."""
    return f"/consumers/{scene.group}/{kind}/{scene.topic}/{partition}"


def test_an_offset_node_that_may_not_be_written_stops_the_commits_of_its_partition_alone(scenes: Scenes) -> None:
    """`explain` names the node; with the right back, the partition commits, and nothing is repeated."""
    scene = scenes()
    scene.run_group(1, records=20)
    scene.zk.set_acls(node(scene, "offsets", 3), READ_ONLY)
    scene.publish(20)
    others = set(range(scene.partitions)) - {3}
    until(lambda: {scene.offset(p) for p in others} == {40}, 60, lambda: f"{[scene.offset(p) for p in others]}")
    assert scene.offset(3) == 20
    told = scene.inbound("explain", scene.topic, "3", code=None).stdout
    assert "ZooKeeper refuses its commit" in told, told
    assert node(scene, "offsets", 3) in told
    scene.publish(5)
    until(lambda: {scene.offset(p) for p in others} == {45}, 60, lambda: f"{[scene.offset(p) for p in others]}")
    scene.zk.set_acls(node(scene, "offsets", 3), OPEN_ACL_UNSAFE)
    scene.settle()
    assert scene.account().clean, scene.account()


def test_releases_that_race_with_refused_commits_end_and_their_partitions_are_read_on(scenes: Scenes) -> None:
    """An operator moves an epoch, so a commit is refused, while an operator releases the partition; both stop gracefully."""
    scene = scenes()
    processes = scene.run_group(2)
    urls = {process.pid: scene.admin_url(process) for process in processes}
    scene.start_load(200)
    until(lambda: scene.seen().total() > 200, 60, "the load is read")
    for round_ in range(24):
        partition = round_ % scene.partitions
        owner = scene.owners().get(partition)
        if owner is not None:
            scene.zk.set(node(scene, "epochs", partition), b"")
            path = f"/channels/orders/release?topic={scene.topic}&partition={partition}&seconds=1"
            post(urls[int(owner.split("-")[-2])], path, None, 60)
        time.sleep(0.1)  # the next one, not the same one again
    until(lambda: scene.all_owned(2), 120, lambda: f"all are owned: {scene.owners()}")
    scene.settle()
    assert scene.stop_all() == [0, 0]
    waited = [line for process in processes for line in scene.log(process).splitlines() if "abandoned" in line]
    assert (waited, scene.owners(), scene.account().lost) == ([], {}, {})
