"""The demo and `publish`, as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import kafka
import pytest

from inbound.embedded import EmbeddedCluster
from tests.waiting import until


def inbound(*arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a command of inbound."""
    command = [sys.executable, "-m", "inbound", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)


def read(bootstrap: str, topic: str, count: int) -> list[tuple[bytes | None, bytes | None, dict[str, bytes]]]:
    """Return key, value and headers of `count` records of a topic, in offset order of one partition after the other."""
    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    found: list[kafka.consumer.fetcher.ConsumerRecord] = []
    for _ in range(300):
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


def test_lines_of_a_pipe_are_published_as_they_come(embedded_cluster: EmbeddedCluster) -> None:
    """Before the pipe ends; the count comes at the end, and nothing of progress where there is no terminal."""
    topic = f"piped-{uuid.uuid4().hex[:8]}"
    where = ("--bootstrap-servers", embedded_cluster.bootstrap_servers)
    command = [sys.executable, "-m", "inbound", "publish", topic, *where, "--create", "--plain", "--key", "app"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1) as process:
        assert process.stdin is not None
        process.stdin.write("first\n\nthird\n")
        process.stdin.flush()
        until(lambda: _exists(embedded_cluster, topic), 60, "the topic is made")
        records = read(embedded_cluster.bootstrap_servers, topic, 3)
        out, err = process.communicate("last", timeout=60)
    everything = read(embedded_cluster.bootstrap_servers, topic, 4)
    assert [(key, value) for key, value, _ in records] == [(b"app", v) for v in (b"first", b"", b"third")]
    assert [value for _, value, _ in everything] == [b"first", b"", b"third", b"last"]
    assert (process.returncode, out.startswith(f"published 4 records to {topic} in "), err) == (0, True, "")


def test_a_bad_line_of_a_pipe_is_named_and_those_before_it_have_arrived(embedded_cluster: EmbeddedCluster) -> None:
    """Exit code 2, the number of the line, and how many are in the topic."""
    topic = f"broken-{uuid.uuid4().hex[:8]}"
    good = [
        json.dumps({"specversion": "1.0", "id": str(n), "source": "/s", "type": "t", "data": n}) for n in range(500)
    ]
    text = "\n".join([*good, "{not JSON", good[0]])
    command = [sys.executable, "-m", "inbound", "publish", topic, "-", "--create", "--partitions", "1"]
    where = ("--bootstrap-servers", embedded_cluster.bootstrap_servers)
    done = subprocess.run([*command, *where], input=text, capture_output=True, text=True, check=False, timeout=120)
    records = read(embedded_cluster.bootstrap_servers, topic, 500)
    assert [headers["ce_id"] for _, _, headers in records] == [str(n).encode() for n in range(500)]
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert f"published 500 events to {topic}, then stopped" in done.stderr
    assert "error: standard input:501: bad JSON" in done.stderr
    assert "publish from line 501 on" in done.stderr


def test_an_empty_pipe_is_refused(embedded_cluster: EmbeddedCluster) -> None:
    """It is more likely that what should have filled it failed."""
    command = [sys.executable, "-m", "inbound", "publish", f"empty-{uuid.uuid4().hex[:8]}", "--create"]
    where = ("--bootstrap-servers", embedded_cluster.bootstrap_servers)
    done = subprocess.run([*command, *where], input="", capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, "standard input: held no events, so nothing was published" in done.stderr) == (2, True)


def test_a_new_processor_runs_against_real_servers(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """What `new processor` writes needs nothing but the addresses: it counts what `publish` publishes."""
    name = f"made_{uuid.uuid4().hex[:8]}"
    folder = tmp_path / name
    assert inbound("new", "processor", name, "--folder", str(folder)).returncode == 0
    where = ("--bootstrap-servers", embedded_cluster.bootstrap_servers)
    assert inbound("publish", name, *where, "--create", "--generate", "7").returncode == 0
    servers = {
        "INBOUND__KAFKA__BOOTSTRAP_SERVERS": embedded_cluster.bootstrap_servers,
        "INBOUND__ZOOKEEPER__HOSTS": embedded_cluster.zookeeper_hosts,
        "INBOUND__LEDGER__PATH": str(tmp_path / "ledger"),
        "INBOUND__ADMIN__LISTEN": "127.0.0.1:0",
    }
    command = [sys.executable, "-m", "inbound", "run", "-c", str(folder / "inbound.yaml")]
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(command, stderr=out, env={**os.environ, **servers})
        try:
            until(lambda: "counted so far: {'inbound.numbered': 7}" in log.read_text(), 60, "7 events are counted")
        finally:
            process.terminate()
            code = process.wait(timeout=40)
    assert code == 0, log.read_text()


def _exists(cluster: EmbeddedCluster, topic: str) -> bool:
    client = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        return topic in client.list_topics()
    finally:
        client.close()


@pytest.mark.timeout(1000)
def test_the_demo_loses_nothing_and_repeats_no_more_than_it_may() -> None:
    """A shorter one than `make demo`; it judges itself and says so by its exit code and its last line."""
    done = inbound("demo", "--seconds", "20", timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["published"], result["delivered"], result["lost"]) == (336_776, 336_776, 0)
    assert result["in_flight_at_kill"] > 0
    assert result["duplicated"] <= result["duplicates_allowed"]
    assert (result["verdict"], result["archived"]) == ("proven", 336_776)
