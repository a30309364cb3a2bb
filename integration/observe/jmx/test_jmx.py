"""Clients of Jolokia that others wrote, against running consumers: they read, search, call and write."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from jolokia import JolokiaClient

from inbound.admin.client import fetch_status
from inbound.embedded.jars import Bundle, fetch
from integration.harness import Scene, Scenes
from tests.waiting import until

TALK = Path(__file__).parents[2] / "java" / "JolokiaTalk.java"
CHANNEL = "inbound:type=Channel,name=orders"
#: The newest version of which every part is published together.
JOLOKIA_CLIENT = Bundle(
    "jolokia-client-java-2.2.9", (("org.jolokia", "jolokia-client-java", "2.2.9"),), transitive=True
)


@pytest.fixture
def scene(scenes: Scenes) -> Scene:
    """Four partitions, read by a processor that paces itself."""
    one = scenes(partitions=4)
    paced(one)
    return one


def paced(scene: Scene, admin: str = "") -> None:
    """Have the scene's consumers write lines, and their admin port say who may."""
    scene.write_config()
    text, _, _ = scene.config.read_text().partition("    processor:")
    sink = f"{{type: jsonl, path: {scene.folder / 'events.jsonl'}}}"
    text = text.replace('listen: "127.0.0.1:0"', f'listen: "127.0.0.1:0"{admin}')
    scene.config.write_text(f"{text}    processor: {{type: simple, options: {{undecodable: skip, sinks: [{sink}]}}}}\n")


def value(answer: Any) -> Any:
    """Return the value of an answer that is no error."""
    assert answer["status"] == 200, answer
    return answer["value"]


def test_a_python_client_reads_searches_calls_and_writes(scene: Scene) -> None:
    """jolokia, from PyPI; its changes are seen in ZooKeeper, and in its reads."""
    process = scene.start()
    url = scene.admin_url(process)
    client = JolokiaClient(f"{url}/jolokia")
    until(lambda: scene.all_owned(1), 120, "it owns all")
    scene.publish(5)
    until(scene.everything_committed, 60, "it consumes")

    # reading
    assert value(client.version())["protocol"] == "8.2"
    assert set(value(client.search(mbean="inbound:type=Partition,*"))) == {
        f"inbound:type=Partition,channel=orders,topic={scene.topic},partition={p}" for p in range(4)
    }
    listed = value(client.list(path="inbound/type=Channel,name=orders"))
    assert listed["attr"]["MaxReadRate"]["rw"] is True
    assert [len(one["args"]) for one in listed["op"]["release"]] == [2, 3]
    assert value(client.get_attribute(mbean=CHANNEL, attribute="Group")) == scene.group
    answers = client.get_attribute(mbean=CHANNEL, attribute=["RecordsTotal", "OwnedPartitions"])
    assert list(map(value, answers)) == [20, 4]

    def lags() -> list[int]:
        found = value(client.get_attribute(mbean="inbound:type=Partition,*", attribute="Lag"))
        return [one["Lag"] for one in found.values()]

    until(lambda: lags() == [0] * 4, 60, lambda: f"it knows of its commits, too: {lags()}")
    assert value(client.get_attribute(mbean=CHANNEL, attribute="Topics", path=scene.topic)) == 4
    missing = client.get_attribute(mbean=CHANNEL, attribute="Nope")
    assert (missing["status"], missing["error_type"]) == (404, "javax.management.AttributeNotFoundException")

    # writing
    rate = ("MaxReadRate", 50)
    assert value(client.set_attribute(mbean=CHANNEL, attr_value_pairs=rate)) is None
    assert value(client.get_attribute(mbean=CHANNEL, attribute="MaxReadRate")) == 50.0

    # calling
    told = value(client.execute(mbean=CHANNEL, operation="pause(java.lang.String)", arguments=["a new disk"]))
    assert told.startswith("orders: paused; each member ends the batch in hand")
    until(lambda: value(client.get_attribute(mbean=CHANNEL, attribute="Paused")), 60, "it is paused")
    assert "a new disk" in value(client.get_attribute(mbean=CHANNEL, attribute="Pauses"))[0]
    value(client.execute(mbean=CHANNEL, operation="resume", arguments=[]))
    until(lambda: not value(client.get_attribute(mbean=CHANNEL, attribute="Paused")), 60, "it reads again")
    value(client.execute(mbean=CHANNEL, operation="release", arguments=[scene.topic, 2, 3600]))
    until(lambda: set(scene.owners()) == {0, 1, 3}, 60, "it has given the partition up")
    assert value(client.get_attribute(mbean=CHANNEL, attribute="LeftToOthers")) == [f"{scene.topic}/2"]
    value(client.execute(mbean=CHANNEL, operation="rebalance", arguments=[]))
    until(lambda: scene.all_owned(1), 120, "it has taken the partition again")
    assert value(client.set_attribute(mbean=CHANNEL, attr_value_pairs=("MaxReadRate", None))) == 50.0
    value(client.execute(mbean=CHANNEL, operation="resetCounters", arguments=[]))
    assert value(client.get_attribute(mbean=CHANNEL, attribute="RecordsTotal")) == 0
    scene.publish(5)
    until(scene.everything_committed, 60, "it goes on")
    assert value(client.get_attribute(mbean=CHANNEL, attribute="RecordsTotal")) == 20
    assert scene.stop(process) == 0


@pytest.mark.thorough("starts a JVM; another client of Jolokia does the same in `make test`")
def test_jolokias_own_client_for_java_does_all_that(scene: Scene, inbound_jars: Path) -> None:
    """By GET and POST; it gives its password only when it is asked for it, and knows errors by their Java classes."""
    token, policy = scene.folder / "token", scene.folder / "policy.yaml"
    token.write_text("secret\n")
    policy.write_text("deny:\n- {bean: 'inbound:type=Channel,*', exec: [pauseMember]}\n")
    paced(scene, f", token_file: {token}, policy: {policy}")
    process = scene.start()
    url = scene.admin_url(process)
    until(lambda: scene.all_owned(1), 120, "it owns all")
    until(lambda: len(fetch_status(url, 30)["channels"][0]["partitions"]) == 4, 60, "it knows that it does")
    jars = fetch(inbound_jars, JOLOKIA_CLIENT)
    talk = subprocess.run(
        ["java", "-cp", f"{jars}/*", str(TALK), f"{url}/jolokia", scene.topic,
         "secret"],
        capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert talk.stdout.splitlines() == [
        "protocol=8.2",
        "partitions=4",
        "listed=true",
        "owned by GET=4",
        "owned by POST=4",
        "several=[OwnedPartitions, Share] 4",
        "whole=true",
        "lags=4",
        "inside=4",
        "bulk=4 4",
        "rate before=null",
        "rate after=25.5",
        "resumed by GET=true",
        "resumed by POST=true",
        "released=true",
        "missing bean=404 javax.management.InstanceNotFoundException",
        "missing attribute=404 javax.management.AttributeNotFoundException",
        "bad argument=400 java.lang.IllegalArgumentException",
        "denied=403 java.lang.SecurityException",
        "without a password=401 java.lang.SecurityException",
    ], talk.stderr
    until(lambda: set(scene.owners()) == {0, 2, 3}, 60, "it has given the partition up")
