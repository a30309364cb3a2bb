"""What Prometheus gets of real consumers on real servers, of one process and of several behind one port."""

from __future__ import annotations

import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from inbound.embedded import EmbeddedCluster
from inbound.metrics import SECTIONS
from integration.harness import Scene
from tests.waiting import until

OPENMETRICS = "application/openmetrics-text;version=1.0.0"


@pytest.fixture
def scene(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[Scene]:
    """One scene on the shared cluster."""
    folder = tmp_path / f"scene-{os.urandom(4).hex()}"
    folder.mkdir()
    one = Scene(embedded_cluster, folder, session=15.0)  # a machine that is busy for seconds is not what is looked at
    yield one
    one.close()


def scraper(scene: Scene, process: subprocess.Popen[bytes]) -> Callable[..., dict[str, Any]]:
    """Return what scrapes a process, in either format: our families by name."""
    until(lambda: "admin: http" in scene.log(process), 60, "it says where its admin listener is")
    found = re.search(r"admin: (http[^\s/]+//[^\s/]+)/status", scene.log(process))
    assert found is not None
    url = f"{found.group(1)}/metrics"

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


def test_a_consumers_metrics_tell_of_what_it_did(scene: Scene) -> None:
    """Every batch, commit and fsync is in its histogram, and nothing is exposed that the table does not list."""
    process = scene.start()
    scrape = scraper(scene, process)
    until(lambda: scene.all_owned(1), 120, "it owns all")
    scene.publish(5)
    until(lambda: totals(scrape())["inbound_partition_records_total"] == 30, 60, "all are handed over")
    until(lambda: totals(scrape())["inbound_partition_lag"] == 0, 60, "all are committed")
    until(lambda: totals(scrape())["inbound_rebalance_duration_seconds_count"] >= 1, 90, "it has settled")

    def written() -> bool:
        seen = totals(scrape())
        return seen["inbound_ledger_entries_total"] >= 3 * seen["inbound_batches_total"]

    until(written, 60, "the ledger has the end of each batch")

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
        assert seen["inbound_ledger_entries_total"] >= 3 * seen["inbound_batches_total"]
        assert 0 < seen["inbound_record_age_seconds_sum"] < 30 * 120
        assert seen["inbound_rebalances_total"] >= 1
        assert seen["inbound_ownership_changes_total"] >= 6
        assert seen["inbound_partition_state"] == 6
        assert (seen["inbound_ready"], seen["inbound_stuck_threads"], seen["inbound_config_in_force"]) == (1, 0, 1)
        (trigger,) = {
            s.labels["trigger"] for s in found["inbound_rebalances"].samples if s.value and s.name.endswith("_total")
        }
        assert trigger == "start"
    assert scene.stop(process) == 0


def test_several_processes_behind_one_port_keep_their_types_and_histograms(scene: Scene) -> None:
    """Each series says whose it is; sums over them are those of the group."""
    parent = scene.start("--processes", "2")
    scrape = scraper(scene, parent)
    until(lambda: scene.all_owned(2), 120, "both own partitions")
    scene.publish(5)
    until(lambda: totals(scrape())["inbound_partition_records_total"] == 30, 60, "all are handed over")

    found: dict[str, Any] = {}

    def settled() -> bool:
        """A child that takes more than 2 s to answer is left out of that scrape."""
        found.clear()
        found.update(scrape(OPENMETRICS))
        seen = totals(found)
        # A scrape is no moment: while the last commit lands, it may be in one figure and not in the other yet.
        counted = seen["inbound_commit_duration_seconds_count"] == seen["inbound_commits_total"] > 0
        return seen["inbound_partition_state"] == 6 and seen["inbound_partition_lag"] == 0 and counted

    until(settled, 60, "both answer, and all is committed and counted")
    ours = {metric.family: metric for section in SECTIONS for metric in section.metrics}
    for name, family in found.items():
        assert (family.type, family.documentation) == (ours[name].kind, ours[name].help)
        if name != "eventing_kafka_consumed_msg_count":
            assert all("pid" in sample.labels for sample in family.samples), name
    buckets = found["inbound_batch_duration_seconds"].samples
    pids = {s.labels["pid"] for s in buckets}
    assert len(pids) == 2
    for pid in pids:
        counts = [s.value for s in buckets if s.labels["pid"] == pid and s.name.endswith("_bucket")]
        (count,) = [s.value for s in buckets if s.labels["pid"] == pid and s.name.endswith("_count")]
        assert counts == sorted(counts)
        assert counts[-1] == count
    seen = totals(found)
    assert seen["inbound_commit_duration_seconds_count"] == seen["inbound_commits_total"] > 0
    assert scene.stop(parent) == 0
