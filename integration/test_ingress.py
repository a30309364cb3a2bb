"""The ingress on real Kafka: what is answered with 202 is in the topic, whatever happens to either of them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from inbound.embedded import EmbeddedCluster
from inbound.embedded.pytest_plugin import ClusterFactory
from integration.harness import both_clients
from integration.heartbeat import Heartbeat
from integration.ingress_scene import IngressScene, Load, event, id_of, records
from tests.waiting import until

MakeScene = Callable[..., IngressScene]


@pytest.fixture
def scene(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[MakeScene]:
    """Make scenes on the shared cluster; end what they started."""
    scenes: list[IngressScene] = []

    def make(bootstrap: str = embedded_cluster.bootstrap_servers, **settings: object) -> IngressScene:
        scenes.append(IngressScene(bootstrap, tmp_path, **settings))  # type: ignore[arg-type]
        return scenes[-1]

    yield make
    for one in scenes:
        one.close()


@both_clients
def test_every_mode_is_in_the_topic_when_it_is_answered(scene: MakeScene, client: str) -> None:
    """Binary, structured, batched: the bytes as they were sent, and the partition key as the record's key."""
    s = scene(client=client, partitions=1)
    s.start()
    path = f"/topics/{s.topic}"
    structured = (
        b'{"specversion": "1.0", "id": "2", "source": "/s", "type": "t",  "data": {"price": 1.10}, "partitionkey": "k"}'
    )
    both = [{"specversion": "1.0", "id": n, "source": "/s", "type": "t", "data": n} for n in "34"]

    answers = [
        s.ask(path, b"\x00\xff", {**event("1"), "content-type": "application/octet-stream", "ce-partitionkey": "anna"}),
        s.ask(path, structured, {"content-type": "application/cloudevents+json"}),
        s.ask(path, json.dumps(both).encode(), {"content-type": "application/cloudevents-batch+json"}),
        s.ask(path, b"", {name: value for name, value in event("5").items() if name != "content-type"}),
    ]

    found = records(s.bootstrap, s.topic)
    assert [status for status, _, _ in answers] == [202, 202, 202, 202], answers
    assert [id_of(record) for record in found] == ["1", "2", "3", "4", "5"]
    assert [(record.key, record.value) for record in found[:2]] == [(b"anna", b"\x00\xff"), (b"k", structured)]
    assert found[-1].value is None
    assert found[0].headers["content-type"] == b"application/octet-stream"
    assert s.stop() == 0


def test_the_curl_of_eventing_kafkas_readme_prints_202(scene: MakeScene) -> None:
    """As it stands there; only the port is another one."""
    curl = shutil.which("curl")
    assert curl is not None, "curl is needed for this test: install it"
    host = "my-kafkachannel-service.mynamespace.svc.cluster.local"
    s = scene()
    s.make_topic("mynamespace.my-kafkachannel-service", 4)
    s.start()
    before = len(records(s.bootstrap, "mynamespace.my-kafkachannel-service"))
    body = (
        '{\n  "id": "12345",\n  "originationTime": "2026-01-01T00:00:00.000000000Z",\n  "content": "Test Message"\n}\n'
    )
    headers = [
        "Content-Type: application/json", "cache-control: no-cache", "ce-id: 123", "ce-source: /testsource",
        "ce-specversion: 1.0", "ce-type: test.type.v1",
    ]  # fmt: skip

    done = subprocess.run(
        [curl, "-X", "POST", *(part for line in headers for part in ("-H", line)), "--data", "@-", "-v", f"http://{host}/",
         "--connect-to", f"{host}:80:127.0.0.1:{s.port}"],
        input=body, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert "< HTTP/1.1 202 Accepted" in done.stderr, done.stderr
    assert len(records(s.bootstrap, "mynamespace.my-kafkachannel-service")) == before + 1


def test_large_slow_and_endless_requests_are_bounded(scene: MakeScene) -> None:
    """An event as large as a record may be is taken, a larger one is not; who sends slowly gets 408."""
    s = scene(extra=", request_timeout: 2s")
    s.start()

    largest = s.post(1, b"x" * 999_000)
    larger = s.post(2, b"x" * 1_000_001)
    endless = s.ask(f"/topics/{s.topic}", b"x" * (9 * 2**20), event("3"))
    began = time.monotonic()
    with Heartbeat() as heart, s.connect() as slow:
        slow.sendall(b"POST / HTTP/1.1\r\nhost: x\r\n")
        said = slow.recv(1000)
        took, nobody_ran = time.monotonic() - began, heart.lost(began)

    assert [largest[0], larger[0], endless[0]] == [202, 413, 413], (largest, larger, endless)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert 2.0 <= took < 5.0 + nobody_ran
    assert s.ids() == {"1": 1}


@both_clients
def test_kafka_down_is_503_and_nothing_is_lost_when_it_is_back(
    scene: MakeScene, cluster_factory: ClusterFactory, client: str
) -> None:
    """No 202 for what is not in the log: not while the broker is frozen, nor when it is dead, nor when it comes back."""
    with closing(cluster_factory()) as cluster:
        broker = next(server for server in cluster.servers if server.name.startswith("kafka"))
        s = scene(cluster.bootstrap_servers, client=client, extra=", delivery_timeout: 2s")
        s.start()
        until(lambda: s.post(1)[0] == 202, 60, "events are taken")  # a broker that has just started may need longer
        broker.kill()
        down = s.post(2)
        told = s.post(3)
        ready = s.ask("/readyz", method="GET")
        broker.start()
        until(lambda: s.post(4)[0] == 202, 60, "events are taken again")
        found = s.ids()

    assert (down[0], told[0], ready[0]) == (503, 503, 503), (down, told, s.log())
    assert down[2]["retry-after"] == told[2]["retry-after"] == "2"
    assert set(found) >= {"1", "4"}
    assert s.stop() == 0


@both_clients
@pytest.mark.parametrize("batch", [1, 20])
def test_after_a_kill_under_load_every_202_is_in_the_log(scene: MakeScene, client: str, batch: int) -> None:
    """What was not answered may be there or not."""
    s = scene(client=client)
    s.start()
    load = Load(s, batch=batch)
    until(lambda: len(load.accepted) > 500, 60, "events are accepted")

    s.stop(signal.SIGKILL)
    load.end()

    found = s.ids()
    assert load.accepted - set(found) == set()
    assert len(load.accepted) > 500
    assert set(found) <= load.accepted | load.unanswered


@both_clients
def test_a_graceful_stop_under_load_answers_everybody(scene: MakeScene, client: str) -> None:
    """No request is left without an answer, none is lost, and none is there twice."""
    s = scene(client=client)
    s.start()
    load = Load(s)
    until(lambda: load.under_way, 60, "events are accepted")  # a connection that was not served yet is not kept

    code = s.stop()
    load.end()

    assert (code, load.unanswered, set(load.answers)) == (0, set(), {202}), s.log()
    assert s.ids() == dict.fromkeys(load.accepted, 1)


def test_a_second_signal_ends_it_at_once(scene: MakeScene) -> None:
    """Somebody who sends slowly cannot hold it."""
    s = scene()
    s.start()
    with s.connect() as slow:
        head = f"POST /topics/{s.topic} HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n"
        slow.sendall(head.encode())
        # Who has not been heard yet holds nobody: the first signal would end it in good order.
        assert slow.recv(1000).startswith(b"HTTP/1.1 100 ")
        assert s.process is not None
        s.process.send_signal(signal.SIGTERM)
        # Two signals of a kind that come before the first one is handled are one.
        until(lambda: "stopping" in s.log(), 60, "it is stopping")
        s.process.send_signal(signal.SIGTERM)
        with Heartbeat() as heart:
            began = time.monotonic()
            code = s.process.wait(timeout=60)
            took, nobody_ran = time.monotonic() - began, heart.lost(began)

    assert (code, took < 10 + nobody_ran) == (1, True), s.log()


def test_run_serves_the_ingress_beside_its_channels(scene: MakeScene, embedded_cluster: EmbeddedCluster) -> None:
    """With the same guarantees, and in the process's status."""
    s = scene()
    with s.config.open("a") as config:
        config.write(
            f'zookeeper: {{hosts: "{embedded_cluster.zookeeper_hosts}"}}\nledger: {{path: {s.folder / "ledger"}}}\n'
        )
    s.start("run")

    answer = s.post(1)

    assert (answer[0], s.stop(), s.ids()) == (202, 0, {"1": 1}), s.log()


def test_publish_posts_to_an_ingress(scene: MakeScene) -> None:
    """Numbered events and a pipe; the ingress says when Kafka has them."""
    s = scene()
    s.start()
    publish = [sys.executable, "-m", "inbound", "publish", s.topic, "--to", s.url]
    lines = "".join(
        json.dumps({"specversion": "1.0", "id": f"p{n}", "source": "/s", "type": "t"}) + "\n" for n in range(300)
    )

    numbered = subprocess.run([*publish, "--generate", "1000"], capture_output=True, text=True, check=False, timeout=60)
    piped = subprocess.run(
        [*publish, "--key", "k"], input=lines, capture_output=True, text=True, check=False, timeout=60
    )

    assert (numbered.returncode, piped.returncode) == (0, 0), numbered.stderr + piped.stderr
    assert s.ids() == dict.fromkeys([*map(str, range(1, 1001)), *(f"p{n}" for n in range(300))], 1)
