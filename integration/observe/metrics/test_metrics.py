"""What Prometheus and `inbound status` get of a real consumer on real servers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any
from urllib.request import Request, urlopen

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from inbound.observe.metrics import SECTIONS
from integration.harness import Scene, Scenes
from tests.waiting import until

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
#: The gauge of the ancestor.
CONSUMED = "eventing_kafka_consumed_msg_count"


@pytest.fixture
def scene(scenes: Scenes) -> Scene:
    """One scene on the shared cluster."""
    return scenes()


def scraper(scene: Scene, process: subprocess.Popen[bytes]) -> Callable[..., dict[str, Any]]:
    """Return what scrapes a process, in either format: our families by name."""
    url = f"{scene.admin_url(process)}/metrics"

    def scrape(accept: str = "text/plain") -> dict[str, Any]:
        with urlopen(Request(url, headers={"Accept": accept}), timeout=30) as answer:
            body, kind = answer.read().decode(), answer.headers["Content-Type"]
        assert kind.startswith(accept.partition(";")[0])
        parse: Callable[[str], Iterable[Any]] = openmetrics if accept == OPENMETRICS else prometheus
        return {f.name: f for f in parse(body) if f.name.startswith(("inbound_", "eventing_kafka_"))}

    return scrape


def totals(families: dict[str, Any]) -> dict[str, float]:
    """Return the sum of each sample over all labels."""
    sums: dict[str, float] = defaultdict(float)
    for family in families.values():
        for sample in family.samples:
            sums[sample.name] += sample.value
    return sums


def consumed(families: dict[str, Any]) -> list[float]:
    """Return what the ancestor's gauge says of each partition."""
    return [sample.value for sample in families[CONSUMED].samples] if CONSUMED in families else []


def status(url: str, *arguments: str) -> str:
    """Return what `inbound status` prints."""
    command = [sys.executable, "-m", "inbound", "status", *arguments, "--url", url]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_a_consumers_metrics_and_status_tell_of_what_it_did(scene: Scene) -> None:
    """Every batch, commit and fsync is in its histogram, and nothing is exposed that the table does not list."""
    process = scene.start("--set", "controller.rebalance_interval=600s")  # on a slow machine there would be others, too
    url = scene.admin_url(process)
    scrape = scraper(scene, process)
    until(lambda: scene.all_owned(1), 120, "it owns all")
    until(lambda: consumed(scrape()) == [0.0] * 6, 60, "one series per owned partition, from 0 on")
    scene.publish(5)

    def settled() -> bool:
        """The ledger has the end of each batch, and the process knows of its commits, which ZooKeeper has first."""
        seen = totals(scrape())
        written = seen["inbound_ledger_entries_total"] >= 3 * seen["inbound_batches_total"] > 0
        read = (seen["inbound_partition_records_total"], seen["inbound_partition_lag"]) == (30, 0)
        return written and read and seen["inbound_rebalance_duration_seconds_count"] >= 1

    until(settled, 120, "all are delivered and committed, and it has settled")
    for accept in ("text/plain", OPENMETRICS):
        found = scrape(accept)
        known = {metric.family: metric for section in SECTIONS for metric in section.metrics}
        assert set(found) <= set(known)
        assert {name: family.type for name, family in found.items()} == {name: known[name].kind for name in found}
        seen = totals(found)
        assert seen["inbound_batch_duration_seconds_count"] == seen["inbound_batches_total"] > 0
        assert seen["inbound_record_age_seconds_count"] == seen["inbound_batches_total"]
        assert seen["inbound_commit_duration_seconds_count"] == seen["inbound_commits_total"] > 0
        assert seen["inbound_ledger_sync_duration_seconds_count"] > 0
        assert 0 < seen["inbound_record_age_seconds_sum"] < 30 * 120
        assert seen["inbound_rebalances_total"] >= 1
        assert seen["inbound_ownership_changes_total"] >= 6
        assert seen["inbound_partition_state"] == 6
        assert seen["inbound_kafka_requests_per_second"] > 0
        assert seen["inbound_kafka_received_bytes_per_second"] > 0
        assert {s.labels["statistic"] for s in found["inbound_kafka_request_duration_seconds"].samples} == {
            "mean",
            "max",
        }
        assert (seen["inbound_ready"], seen["inbound_stuck_threads"], seen["inbound_config_in_force"]) == (1, 0, 1)
        assert consumed(found) == [5.0] * 6
        (trigger,) = {
            s.labels["trigger"] for s in found["inbound_rebalances"].samples if s.value and s.name.endswith("_total")
        }
        assert trigger == "start"
    for page in ("healthz", "readyz"):
        with urlopen(f"{url}/{page}", timeout=30) as answer:
            assert answer.status == 200
    assert scene.topic in status(url)
    partitions = json.loads(status(url, "--json"))["channels"][0]["partitions"]
    assert [(p["position"], p["committed"], p["lag"]) for p in partitions] == [(5, 5, 0)] * 6
    assert scene.stop(process) == 0
