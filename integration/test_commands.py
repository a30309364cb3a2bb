"""The demo and `publish`, as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path

import kafka
import pytest

from inbound.embedded import EmbeddedCluster


def inbound(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a command of inbound."""
    command = [sys.executable, "-m", "inbound", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)


def read(bootstrap: str, topic: str, count: int) -> list[tuple[bytes | None, bytes | None, dict[str, bytes]]]:
    """Return key, value and headers of `count` records of a topic, in offset order of one partition after the other."""
    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    found: list[kafka.consumer.fetcher.ConsumerRecord] = []
    for _ in range(50):
        for records in consumer.poll(timeout_ms=200).values():
            found += records
        if len(found) >= count:
            break
    consumer.close()
    found.sort(key=lambda record: (record.partition, record.offset))
    return [(record.key, record.value, dict(record.headers)) for record in found]


def test_a_file_of_events_is_published_with_its_keys(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """Each line a CloudEvent; the partition key becomes the record's key."""
    topic = f"published-{uuid.uuid4().hex[:8]}"
    lines = [
        {"specversion": "1.0", "id": "a", "source": "/s", "type": "t", "partitionkey": "k", "data": {"n": 1}},
        {"specversion": "1.0", "id": "b", "source": "/s", "type": "t", "data": "text"},
    ]
    file = tmp_path / "events.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    where = ("--bootstrap-servers", embedded_cluster.bootstrap_servers)
    done = inbound("publish", topic, *where, "--file", str(file), "--create", "--partitions", "1")
    assert done.returncode == 0, done.stderr
    records = read(embedded_cluster.bootstrap_servers, topic, 2)
    assert [(key, headers["ce_id"]) for key, _, headers in records] == [(b"k", b"a"), (None, b"b")]


def test_a_bad_line_publishes_nothing(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """Exit code 2, the file and the line; no topic is made either."""
    topic = f"refused-{uuid.uuid4().hex[:8]}"
    file = tmp_path / "events.jsonl"
    file.write_text('{"specversion": "1.0", "id": "a", "source": "/s", "type": "t"}\n{"specversion": "1.0"}\n')
    where = ("--bootstrap-servers", embedded_cluster.bootstrap_servers)
    done = inbound("publish", topic, *where, "--file", str(file), "--create")
    assert (done.returncode, f"{file}:2" in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr


@pytest.mark.timeout(240)
def test_the_demo_loses_nothing_and_repeats_no_more_than_it_may() -> None:
    """A shorter one than `make demo`; it judges itself and says so by its exit code and its last line."""
    done = inbound("demo", "--seconds", "20", timeout=200)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["published"], result["delivered"], result["lost"]) == (336_776, 336_776, 0)
    assert result["in_flight_at_kill"] > 0
    assert result["duplicated"] <= result["duplicates_allowed"]
