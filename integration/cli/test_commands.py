"""The demo and `publish`, as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from inbound.embedded import EmbeddedCluster
from integration.whole_topic import read_topic
from tests.waiting import until


def inbound(*arguments: str, timeout: float = 120, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of inbound, with this on its standard input."""
    command = [sys.executable, "-m", "inbound", *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=timeout)


def read(bootstrap: str, topic: str, count: int) -> list[tuple[bytes | None, bytes | None, dict[str, bytes]]]:
    """Return key, value and headers of `count` records of a topic, in offset order of one partition after the other."""
    found = read_topic(bootstrap, topic, count)
    return [(record.key, record.value, dict(record.headers)) for record in found]


def test_a_file_and_the_lines_of_a_pipe_are_published(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """A file's events with their partition keys as keys; lines before the pipe ends, the count at its end."""
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
    command = [sys.executable, "-m", "inbound", "publish", topic, *where, "--plain", "--key", "app"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1) as process:
        assert process.stdin is not None
        process.stdin.write("first\n\nthird\n")
        process.stdin.flush()
        before = read(embedded_cluster.bootstrap_servers, topic, 5)
        out, err = process.communicate("last", timeout=60)
    everything = read(embedded_cluster.bootstrap_servers, topic, 6)
    assert [(key, headers["ce_id"]) for key, _, headers in before[:2]] == [(b"k", b"a"), (None, b"b")]
    assert [(key, value) for key, value, _ in before[2:]] == [(b"app", v) for v in (b"first", b"", b"third")]
    assert [value for _, value, _ in everything[2:]] == [b"first", b"", b"third", b"last"]
    assert (process.returncode, out.startswith(f"published 4 records to {topic} in "), err) == (0, True, "")


def test_a_bad_line_of_a_pipe_is_named_and_those_before_it_have_arrived(embedded_cluster: EmbeddedCluster) -> None:
    """Exit code 2, the number of the line, and how many are in the topic; of an empty pipe, that it was empty."""
    topic = f"broken-{uuid.uuid4().hex[:8]}"
    good = [
        json.dumps({"specversion": "1.0", "id": str(n), "source": "/s", "type": "t", "data": n}) for n in range(500)
    ]
    text = "\n".join([*good, "{not JSON", good[0]])
    where = ("--bootstrap-servers", embedded_cluster.bootstrap_servers, "--create", "--partitions", "1")
    done = inbound("publish", topic, "-", *where, given=text)
    empty = inbound("publish", topic, *where, given="")
    records = read(embedded_cluster.bootstrap_servers, topic, 500)
    assert [headers["ce_id"] for _, _, headers in records] == [str(n).encode() for n in range(500)]
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert f"published 500 events to {topic}, then stopped" in done.stderr
    assert "error: standard input:501: bad JSON" in done.stderr
    assert "publish from line 501 on" in done.stderr
    assert (empty.returncode, "standard input: held no events, so nothing was published" in empty.stderr) == (2, True)


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


@pytest.mark.timeout(1000)
def test_the_demo_loses_nothing_and_repeats_no_more_than_it_may() -> None:
    """A smaller one than `make demo`; it judges itself and says so by its exit code and its last line."""
    done = inbound("demo", "--seconds", "20", "--flights", "60,000", timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["published"], result["delivered"], result["lost"]) == (60_000, 60_000, 0)
    assert result["in_flight_at_kill"] > 0
    assert result["duplicated"] <= result["duplicates_allowed"]
    assert (result["verdict"], result["archived"]) == ("proven", 60_000)
