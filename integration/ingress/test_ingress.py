"""The ingress on real Kafka: events answered with 202 are in the topic, through failures of either."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from inbound.embedded import EmbeddedCluster
from inbound.embedded.pytest_plugin import ClusterFactory
from integration.harness import both_clients
from integration.ingress.ingress_scene import IngressScene, Load, event, id_of, records
from tests.waiting import Deadline, until

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
    """Binary, structured, batched, `inbound publish --to`: the bytes as they were sent, the partition key as the key.

    A graceful stop under load leaves no request without an answer, loses none, and writes none twice.
    """
    s = scene(client=client, partitions=1)
    s.start()
    path = f"/topics/{s.topic}"
    structured = (
        b'{"specversion": "1.0", "id": "b", "source": "/s", "type": "t",  "data": {"price": 1.10}, "partitionkey": "k"}'
    )
    both = [{"specversion": "1.0", "id": n, "source": "/s", "type": "t", "data": n} for n in "cd"]

    answers = [
        s.ask(path, b"\x00\xff", {**event("a"), "content-type": "application/octet-stream", "ce-partitionkey": "anna"}),
        s.ask(path, structured, {"content-type": "application/cloudevents+json"}),
        s.ask(path, json.dumps(both).encode(), {"content-type": "application/cloudevents-batch+json"}),
        s.ask(path, b"", {name: value for name, value in event("e").items() if name != "content-type"}),
    ]

    found = records(s.bootstrap, s.topic)
    assert [status for status, _, _ in answers] == [202, 202, 202, 202], answers
    assert [id_of(record) for record in found] == list("abcde")
    assert [(record.key, record.value) for record in found[:2]] == [(b"anna", b"\x00\xff"), (b"k", structured)]
    assert found[-1].value is None
    assert found[0].headers["content-type"] == b"application/octet-stream"

    lines = "".join(json.dumps({**both[0], "id": f"p{n}"}) + "\n" for n in range(300))
    command = [sys.executable, "-m", "inbound", "publish", s.topic, "--to", s.url, "--key", "k"]
    piped = subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=120)
    load = Load(s)
    until(lambda: load.under_way, 60, "events are accepted")  # a connection that was not served yet is not kept
    code = s.stop()
    load.end()

    assert (piped.returncode, code, load.unanswered, set(load.answers)) == (0, 0, set(), {202}), s.log() + piped.stderr
    assert s.ids() == dict.fromkeys([*"abcde", *(f"p{n}" for n in range(300)), *load.accepted], 1)


@both_clients
def test_headers_that_name_a_request_are_in_its_records(scene: MakeScene, client: str) -> None:
    """Of a single event and of each in a batch; the key is the subject where that is configured, and a sender may ask first."""
    s = scene(client=client, partitions=1, extra=", key: [partitionkey, subject]")
    s.start()
    path = f"/topics/{s.topic}"
    trace = {
        "Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "X-B3-Sampled": "1",
        "Authorization": "x",
    }
    both = [{"specversion": "1.0", "id": n, "source": "/s", "type": "t", "subject": n} for n in "bc"]

    asked = s.ask(path, headers={"WebHook-Request-Origin": "events.example.com"}, method="OPTIONS")
    answers = [
        s.ask(path, b"x", {**event("a"), **trace, "ce-subject": "a"}),
        s.ask(path, json.dumps(both).encode(), {"content-type": "application/cloudevents-batch+json", **trace}),
    ]

    found = records(s.bootstrap, s.topic)
    assert (asked[0], asked[2]["webhook-allowed-origin"], [status for status, _, _ in answers]) == (
        200,
        "*",
        [202, 202],
    )
    assert [record.key for record in found] == [b"a", b"b", b"c"], s.log()
    passed = {"traceparent": trace["Traceparent"].encode(), "x-b3-sampled": b"1"}
    own = [{k: v for k, v in r.headers.items() if k[:3] != "ce_" and k != "content-type"} for r in found]
    assert own == [passed] * 3


@both_clients
def test_an_event_that_its_topic_refuses_costs_no_other_one(scene: MakeScene, client: str) -> None:
    """Too large for its topic, or without a key where it is compacted: refused, while all others are written once."""
    s = scene(client=client)
    small, compacted = f"{s.topic}-small", f"{s.topic}-compacted"
    s.make_topic(small, configs={"max.message.bytes": "2000"})
    s.make_topic(compacted, configs={"cleanup.policy": "compact"})
    s.start()
    load = Load(s)
    until(lambda: load.under_way, 60, "events are accepted")

    large = [s.ask(f"/topics/{small}", b"x" * 5000, event("large"))[0] for _ in range(5)]
    keyless = [s.ask(f"/topics/{compacted}", b"x", event("keyless"))[0] for _ in range(5)]
    good = [
        s.ask(f"/topics/{topic}", b"x", {**event("good"), "ce-partitionkey": "k"})[0] for topic in (small, compacted)
    ]
    ready = s.ask("/readyz", method="GET")[0]
    code = s.stop()
    load.end()

    assert (large, keyless, good, ready, code) == ([413] * 5, [422] * 5, [202, 202], 200, 0), s.log()
    assert (set(load.answers), load.unanswered) == ({202}, set())
    assert s.ids() == dict.fromkeys(load.accepted, 1)
    assert [id_of(record) for topic in (small, compacted) for record in records(s.bootstrap, topic)] == ["good", "good"]


def test_large_slow_and_endless_requests_are_bounded(scene: MakeScene) -> None:
    """An event as large as a record may be is taken, a larger one is not; who sends slowly gets 408."""
    s = scene(extra=", request_timeout: 2s")
    s.start()

    largest = s.post(1, b"x" * 999_000)
    larger = s.post(2, b"x" * 1_000_001)
    endless = s.ask(f"/topics/{s.topic}", b"x" * (9 * 2**20), event("3"))
    with s.connect() as slow:
        slow.sendall(b"POST / HTTP/1.1\r\nhost: x\r\n")
        said = slow.recv(1000)

    assert [largest[0], larger[0], endless[0]] == [202, 413, 413], (largest, larger, endless)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert s.ids() == {"1": 1}


@pytest.mark.thorough("a second signal is in `make test` for `run`, which ends as `ingress` does")
def test_a_second_signal_ends_it_at_once(scene: MakeScene) -> None:
    """A client that sends slowly cannot hold it."""
    s = scene()
    s.start()
    with s.connect() as slow:
        head = f"POST /topics/{s.topic} HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n"
        slow.sendall(head.encode())
        # A client that has not been heard yet holds nothing: the first signal would be a graceful shutdown.
        assert slow.recv(1000).startswith(b"HTTP/1.1 100 ")
        assert s.process is not None
        s.process.send_signal(signal.SIGTERM)
        # Two signals of a kind that come before the first one is handled are one.
        until(lambda: "stopping" in s.log(), 60, "it is stopping")
        s.process.send_signal(signal.SIGTERM)
        time = Deadline(10)
        code = s.process.wait(timeout=120)

    assert (code, time.passed()) == (1, False), s.log()


@pytest.mark.thorough("the receiver's fast tests decide what is answered while Kafka is unavailable")
def test_kafka_down_is_503_and_nothing_is_lost_when_it_is_back(
    scene: MakeScene, cluster_factory: ClusterFactory
) -> None:
    """No 202 for what is not in the log: not while the broker is dead, nor when it comes back."""
    with closing(cluster_factory()) as cluster:
        broker = next(server for server in cluster.servers if server.name.startswith("kafka"))
        s = scene(cluster.bootstrap_servers, extra=", delivery_timeout: 2s")
        s.start()
        until(lambda: s.post(1)[0] == 202, 60, "events are taken")  # a broker that has just started may need longer
        broker.kill()
        down = s.post(2)
        told = s.post(3)
        until(lambda: s.ask("/readyz", method="GET")[0] == 503, 10, "the ingress knows that Kafka does not answer")
        broker.start()
        until(lambda: s.post(4)[0] == 202, 60, "events are taken again")
        found = s.ids()

    assert (down[0], told[0]) == (503, 503), (down, told, s.log())
    assert down[2]["retry-after"] == told[2]["retry-after"] == "2"
    assert set(found) >= {"1", "4"}
    assert s.stop() == 0


@pytest.mark.parametrize(
    ("client", "batch"),
    [
        ("kafka-python", 20),
        pytest.param(
            "confluent-kafka", 1, marks=pytest.mark.thorough("the other client and batches are in `make test`")
        ),
    ],
)
def test_after_a_kill_under_load_every_202_is_in_the_log(scene: MakeScene, client: str, batch: int) -> None:
    """What was not answered may be there or not; what clients send again after a restart is there, too."""
    s = scene(client=client)
    s.start()
    load = Load(s, batch=batch)
    until(lambda: len(load.accepted) > 500, 60, "events are accepted")

    s.stop(signal.SIGKILL)
    load.end()
    s.start()
    again = {id for id in load.unanswered if s.post(int(id))[0] == 202}

    found = s.ids()
    assert (load.accepted - set(found), again) == (set(), load.unanswered)
    assert len(load.accepted) > 500
    assert set(found) == load.accepted | load.unanswered
