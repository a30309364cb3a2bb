"""The pair of curl calls in the README of eventing-kafka's dispatcher: an event is posted, and the metrics have counted it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from inbound.embedded import EmbeddedCluster
from integration.ingress.ingress_scene import IngressScene
from integration.processors.sink import Sink
from tests.waiting import until

HOST = "my-kafkachannel-service.mynamespace.svc.cluster.local"
TOPIC = "mynamespace.my-kafkachannel-service"
GAUGE = "eventing_kafka_consumed_msg_count"
MANIFEST = """\
apiVersion: messaging.knative.dev/v1beta1
kind: KafkaChannel
metadata: {{name: my-kafkachannel-service, namespace: mynamespace}}
spec:
  numPartitions: 4
  subscribers:
    - {{uid: subscriber-1, generation: 1, subscriberUri: "{url}"}}
    - {{uid: subscriber-2, generation: 1, subscriberUri: "{url}"}}
"""


@pytest.fixture
def scene(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[tuple[IngressScene, Sink]]:
    """One process with an ingress, and a KafkaChannel of two subscribers."""
    sink = Sink()
    scene = IngressScene(embedded_cluster.bootstrap_servers, tmp_path)
    scene.make_topic(TOPIC, 4)
    (tmp_path / "channels").mkdir()
    (tmp_path / "channels" / "channel.yaml").write_text(MANIFEST.format(url=sink.url))
    scene.config.write_text(
        f"zookeeper: {{hosts: {embedded_cluster.zookeeper_hosts}}}\n"
        f"{scene.config.read_text()}"
        f"ledger: {{path: {tmp_path / 'ledger'}}}\n"
        "controller: {join_delay: 200ms}\n"
        "manifests: {paths: [channels]}\n"
    )
    yield scene, sink
    scene.close()
    sink.close()


def curl(*arguments: str, data: str = "") -> subprocess.CompletedProcess[str]:
    found = shutil.which("curl")
    assert found is not None, "curl is needed for this test: install it"
    return subprocess.run([found, *arguments], input=data, capture_output=True, text=True, check=True, timeout=30)


def test_the_event_is_accepted_and_counted_once_for_each_subscriber(scene: tuple[IngressScene, Sink]) -> None:
    """202; then HELP and TYPE lines, a series for each subscriber and partition, and one partition of each is one more."""
    s, _ = scene
    s.start("run")
    admin = re.search(r"admin: (http://[0-9.:]+)/status", s.log())
    assert admin is not None

    def counted() -> dict[str, float]:
        lines = curl("-s", f"{admin[1]}/metrics").stdout.splitlines()
        return {
            labels: float(value)
            for line in lines
            if line.startswith(f"{GAUGE}{{")
            for labels, _, value in [line.removeprefix(GAUGE).rpartition(" ")]
        }

    until(lambda: len(counted()) == 8, 60, "both subscribers own all partitions")
    before = counted()
    posted = curl(
        "-X", "POST", "-H", "Content-Type: application/json", "-H", "cache-control: no-cache", "-H", "ce-id: 123",
        "-H", "ce-source: /testsource", "-H", "ce-specversion: 1.0", "-H", "ce-type: test.type.v1", "--data", "@-", "-v",
        f"http://{HOST}/", "--connect-to", f"{HOST}:80:127.0.0.1:{s.port}", data='{"id": "12345", "content": "Test Message"}',
    )  # fmt: skip
    until(lambda: sum(counted().values()) == sum(before.values()) + 2, 60, "both have consumed it")
    after = counted()
    page = curl("-s", f"{admin[1]}/metrics").stdout
    more = [labels for labels in after if after[labels] == before[labels] + 1]
    assert "< HTTP/1.1 202 Accepted" in posted.stderr
    assert f"# HELP {GAUGE} Consumed Message Count\n# TYPE {GAUGE} gauge\n" in page
    assert (len(more), len({re.sub(r'partition="\d"', "", labels) for labels in more})) == (2, 2)
    assert all(f'topic="{TOPIC}"' in labels for labels in after)
