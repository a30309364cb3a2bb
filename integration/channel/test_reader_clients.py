"""The Kafka client of a group that has committed is changed, and members read with different ones, on real servers."""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from uuid import UUID

from integration.harness import Scene, Scenes
from tests.waiting import until

#: How long a partition may be without an owner while members come and go. Seconds; it was 60 where ids were not compared well.
UNOWNED = 20


def start_with(scene: Scene, client: str) -> subprocess.Popen[bytes]:
    """Start a consumer that reads with this client."""
    return scene.start("--set", f"channels.orders.reader.client={client}")


def write_ids_as_librdkafka(scene: Scene) -> None:
    """Write the topic's id into the group's nodes as earlier releases with confluent-kafka did: as base64."""
    for partition in range(scene.partitions):
        path = f"/consumers/{scene.group}/epochs/{scene.topic}/{partition}"
        body = json.loads(scene.zk.get(path)[0])
        body["topic_id"] = b64encode(UUID(body["topic_id"]).bytes).decode().rstrip("=")
        scene.zk.set(path, json.dumps(body).encode())


def test_another_client_goes_on_where_the_last_one_committed_and_both_may_be_in_one_group(scenes: Scenes) -> None:
    """Nothing is read again, every partition soon has an owner, nobody takes the topic for another one; nor does the proof."""
    s = scenes()
    first = start_with(s, "kafka-python")
    until(lambda: s.owned_by([first]), 60, "the first owns all")
    s.publish(20)
    s.settle()
    assert s.stop(first) == 0
    second = start_with(s, "confluent-kafka")
    until(lambda: s.owned_by([second]), UNOWNED, lambda: f"the other client owns all: {s.owners()}")
    s.publish(20)
    s.settle()
    assert s.stop(second) == 0

    write_ids_as_librdkafka(s)
    running = [start_with(s, "kafka-python")]
    until(lambda: s.owned_by(running), UNOWNED, lambda: f"the first client owns all: {s.owners()}")
    s.start_load()
    for client in ("confluent-kafka", "kafka-python", "confluent-kafka"):
        running.append(start_with(s, client))
        until(lambda: s.owned_by(running), 60, lambda: f"both have their share: {s.owners()}")
        s.wait_more()
        assert s.stop(running.pop(0)) == 0
        until(lambda: s.owned_by(running), UNOWNED, lambda: f"the other one owns all: {s.owners()}")
        s.wait_more()
    s.settle()
    assert s.stop_all() == [0]
    logs = "".join(s.log(process) for process in s.processes)
    assert (s.account().clean, "recreated" in logs, "Traceback" in logs) == (True, False, False), s.account()
    proof = s.prove()
    assert [(one.findings, one.former) for one in proof.partitions] == [((), ())] * s.partitions
