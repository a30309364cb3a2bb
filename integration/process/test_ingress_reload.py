"""A process that is an ingress alone takes in its configuration as it changes, while clients post."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inbound.embedded import EmbeddedCluster
from inbound.embedded.cluster import free_ports
from integration.ingress.ingress_scene import IngressScene, Load, event
from integration.kubernetes.mounted import mount
from integration.observe.tracing.test_tracing import spans_at
from integration.processors.dispatch.dispatching import reloads
from integration.processors.sink import Sink
from tests.waiting import until


@pytest.fixture
def started() -> Iterator[list[Load]]:
    """Clients that have been started; they end with the test."""
    some: list[Load] = []
    yield some
    for one in some:
        one.end()


@pytest.fixture
def scene(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[IngressScene]:
    """One scene on the shared cluster, whose ingress has a port that stays."""
    one = IngressScene(embedded_cluster.bootstrap_servers, tmp_path)
    yield one
    one.close()


def write(s: IngressScene, **ingress: object) -> None:
    """Write the configuration with these keys of the ingress; it is JSON, which is YAML."""
    sections = {
        "kafka": {"bootstrap.servers": s.bootstrap},
        "admin": {"listen": "127.0.0.1:0"},
        "tracing": {"folder": str(s.folder / "config-tracing")},
        "ingress": {"listen": f"127.0.0.1:{s.port}", **ingress},
    }
    s.config.write_text(json.dumps(sections, indent=1))


def applied(url: str, count: int, step: str) -> None:
    """Wait until the change with that number is applied, which is this one step."""
    until(lambda: reloads(url)["applied_total"] >= count, 60, lambda: f"{step} is applied: {reloads(url)}")
    assert reloads(url)["last_steps"] == [step]


def test_everything_that_is_answered_with_202_is_in_kafka_under_any_edit(
    scene: IngressScene, started: list[Load], sink: Sink
) -> None:
    """Limits, the client's options, a bad edit, a mounted folder, without a command, by the command and by SIGHUP."""
    s = scene
    (s.port,) = free_ports(1)
    mount(s.folder / "config-tracing", {"backend": "none"})
    write(s)
    s.start()
    assert s.process is not None
    found = re.search(r"admin: (http://\S+)/status", s.log())
    assert found is not None
    url = found[1]
    load = Load(s, clients=4, returning=True)
    started.append(load)
    until(lambda: load.under_way, 60, "events are accepted")

    write(s, max_request_bytes="100kB")
    applied(url, 1, "ingress: max_request_bytes")
    large = s.ask(f"/topics/{s.topic}", b"x" * 200_000, event("large"))[0]
    s.config.write_text(s.config.read_text().replace('"max_request_bytes"', '"max_requests"'))
    until(lambda: reloads(url)["refused_total"] >= 1, 60, lambda: f"it is refused: {reloads(url)}")
    refused = reloads(url)["problem"]
    write(s, max_request_bytes="100kB", linger="3ms")
    command = subprocess.run(
        [sys.executable, "-m", "inbound", "reload", "--url", url, "-c", str(s.config)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    applied(url, 2, "ingress: linger")
    os.replace(_without_linger(s), s.config)
    s.process.send_signal(signal.SIGHUP)
    applied(url, 3, "ingress: linger")
    zipkin = {"backend": "zipkin", "zipkin-endpoint": sink.url, "sample-rate": "1"}
    mount(s.folder / "config-tracing", zipkin)
    applied(url, 4, "tracing: files")
    until(lambda: spans_at(sink) >= {"POST", f"send {s.topic}"}, 60, "spans come")
    count = len(load.accepted)
    until(lambda: len(load.accepted) > count + 200, 60, "events are accepted")
    code = s.stop()
    load.end()

    assert (large, set(load.answers), code) == (413, {202}, 0), s.log()
    assert "inbound.yaml:13: ingress.max_requests: unknown key" in refused
    assert (command.returncode, command.stderr) == (0, "")
    assert load.accepted - set(s.ids()) == set()


def _without_linger(s: IngressScene) -> Path:
    """Return a file beside the configuration, as an editor writes it that renames."""
    body = json.loads(s.config.read_text())
    del body["ingress"]["linger"]
    path = s.folder / "inbound.yaml.new"
    path.write_text(json.dumps(body))
    return path
